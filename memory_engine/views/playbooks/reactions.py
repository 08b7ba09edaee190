"""The judgement of a person's next message on the flow before it: it was right, it was wrong, or on to something else.

The embedded judge goes by wording, in several languages, and gives its reason. Your own judge may take its place.
"""

import re
from collections.abc import Iterator
from functools import cache
from typing import Literal, Protocol

import msgspec

from memory_engine.core.lazy import regex
from memory_engine.language.lists import content_of, entries
from memory_engine.language.rough import SENTENCE_MARKS, behind_conjunction, clause_spans, rough_sentences
from memory_engine.language.text import COMPOUND_WORD, is_unspaced
from memory_engine.views.promotion.wording import Phrases, evidence, normalized, same_text, says_the_same

ReactionKind = Literal["correction", "doubt", "satisfaction", "request", "unclear"]

CORRECTION_MIN = 0.5
"""From this strength on the signs of a correction decide, against all other signs."""
DOUBT_WORDS_MIN = 2
DOUBT_SIGNS_MIN = 4
"""In scripts without spaces."""
USE_WORDS_MAX = 4
"""To whom a result is passed on, at most: "I'll forward it to the board"."""
OPENERS = " ,.!-–—\"'«“¡¿"


class Reaction(msgspec.Struct, frozen=True):
    """The judgement of a message on the flow before it, and its reason.

    It is a `correction` (or a complaint), it shows `satisfaction`, or it goes on to another `request`. It leaves a
    `doubt` where it says anything else, and is `unclear` where it says too little.
    """

    kind: ReactionKind
    reason: str


class ReactionJudge(Protocol):
    """Judges a flow that just completed by the person's next message."""

    async def judge(self, message: str, user_query: str) -> Reaction:
        """The reaction of `message` to the flow that answered `user_query`."""
        ...


class _Signs(msgspec.Struct, frozen=True):
    """The content of `reactions.toml`."""

    corrections: tuple[Phrases, ...]
    opening_no: Phrases
    harmless_no: Phrases
    nothing_more: Phrases
    praise: Phrases
    thanks: Phrases
    small: Phrases
    filler: Phrases
    done: Phrases
    use: Phrases
    request: Phrases
    doubt: Phrases


@cache
def _signs() -> _Signs:
    return content_of("memory_engine.views.playbooks", "reactions.toml", _Signs)


RELATIVE = regex(
    r"(?<!\w)(?:an?|any|anything|the|one|some|something) (?:[\w-]+ ){0,3}?"
    r"that (?:isn't|is not)(?! (?:right|correct|what))"
)
"""Describes a thing by a negation ("a format that isn't a table") and denies nothing."""
CONCESSION = regex(
    r"(?<!\w)(?:i (?:\w+ )?(?:understand|appreciate|see|get)|verstehe|je comprends|entiendo|entendo|capisco|begrijp"
    r"|понимаю)(?!\w).{0,200}?(?<!\w)(?:but|aber|mais|pero|mas|ma|però|maar|но)(?!\w)"
)
"""Grants the answer and asks for another all the same ("I understand, but …")."""


class WordingJudge:
    """Judges by signs. A correction outweighs thanks ("thanks, but that's wrong").

    It takes a message for content only where all of it is: praise or thanks, courtesies, and another request. Anything
    else ("although", "now it's broken", a mark of irony, praise of the weather) leaves a doubt.
    """

    async def judge(self, message: str, user_query: str) -> Reaction:
        """The reaction of the message to the flow before it."""
        text = normalized(message)
        plain = RELATIVE.sub(" ", _signs().harmless_no.pattern.sub(" ", text))
        signs = evidence(plain, _signs().corrections)
        opening = _opening_no(plain.lstrip(OPENERS))
        if opening:
            return Reaction("correction", f"it opens with '{opening}'")
        if signs.strength >= CORRECTION_MIN:
            return Reaction("correction", str(signs))
        concession = next(filter(None, map(CONCESSION.search, rough_sentences(plain))), None)
        if concession is not None:
            return Reaction("correction", f"it grants the answer and asks for another: '{concession.group()[:40]}'")
        if same_text(message) and says_the_same(message, user_query):
            return Reaction("correction", "it asks the same again")
        return _folded_reaction(_without_no(text))


def _folded_reaction(text: str) -> Reaction:
    """The judgement of a folded text that corrects nothing."""
    parts = [part for said in rough_sentences(_CONTROL.sub(" ", _SKIN.sub("", text))) for part in _judged_clauses(said)]
    doubt = next((said for kind, said in parts if kind == "other"), None)
    if doubt is not None and _says_enough(text):
        return Reaction("doubt", f"it says more than praise: '{doubt[:40]}'")
    for kind in ("praise", "done"):
        said = next((said for found, said in parts if found == kind), "")
        if said and doubt is None:
            return Reaction("satisfaction", f"it says '{said[:40]}'")
    if doubt is None and any(kind == "request" for kind, _ in parts):
        return Reaction("request", "it goes on to another request, without a correction")
    return Reaction("unclear", "it says too little")


def _says_enough(text: str) -> bool:
    """Whether a text says more than one word, or one that praises ("excellent?")."""
    words = COMPOUND_WORD.findall(text)
    return (
        len(words) >= DOUBT_WORDS_MIN
        or any(is_unspaced(word) and len(word) >= DOUBT_SIGNS_MIN for word in words)
        or _signs().praise.pattern.search(text) is not None
    )


_QUOTES = regex(r"[\"\u201c-\u201f\u00ab\u00bb]")
_CONTROL = regex(r"(?<!#)#{2,}+\w+#{2,}|<\|\w+\|>")
"""Marks by which programs that act for people end a conversation."""
_SKIN = regex("[\ufe0f\U0001f3fb-\U0001f3ff]")
_Part = tuple[Literal["praise", "done", "filler", "request", "other"], str]


def _judged_clauses(marked: str) -> Iterator[_Part]:
    """The meaning of a sentence's clauses. A request reaches to its end."""
    sentence = marked.rstrip(SENTENCE_MARKS)
    whole, ending = sentence.strip(OPENERS), marked[len(sentence) :]
    if not whole:
        return
    if _is_made_of(whole, _signs().done, _signs().filler):
        yield _clause_meaning(whole), whole
        return
    is_ironic = "?" in ending or ending.startswith("..") or _QUOTES.search(sentence) is not None
    begins, end = 0, len(sentence.rstrip(OPENERS))
    for start, stop in clause_spans(sentence, joined=True):
        said = sentence[behind_conjunction(sentence, start) : stop].strip(OPENERS)
        begins = max(begins, start)
        while begins < end and sentence[begins] in OPENERS:  # each once: a row of commas is a row of clauses
            begins += 1
        rest = sentence[begins:end]
        opened = _signs().request.pattern.match(rest)
        if opened is not None and not _is_praise(said):
            yield ("other" if _doubts(rest, opened.end()) else "request"), rest
            return
        if said:
            yield ("other" if is_ironic else _clause_meaning(said)), said


def _clause_meaning(clause: str) -> Literal["praise", "done", "filler", "other"]:
    if _is_praise(clause):
        return "praise"
    if _is_made_of(clause, _signs().filler):
        return "filler"
    used = _signs().use.pattern.match(clause)
    if used is not None and len(clause[used.end() :].split()) <= USE_WORDS_MAX and not _doubts(clause, used.end()):
        return "done"
    return "done" if _is_made_of(clause, _signs().done, _signs().filler, _signs().small) else "other"


def _doubts(text: str, start: int) -> bool:
    return _signs().doubt.pattern.search(text, start) is not None


def _is_praise(clause: str) -> bool:
    """Whether a clause praises or thanks, and says nothing else."""
    signs = _signs()
    return _is_made_of(clause, signs.praise, signs.thanks, signs.small, signs.filler) and bool(
        signs.praise.pattern.search(clause) or signs.thanks.pattern.search(clause)
    )


def _is_made_of(clause: str, *lists: Phrases) -> bool:
    """Whether a clause consists of the phrases of lists alone."""
    return _made_of(tuple(listed.phrases for listed in lists)).fullmatch(clause) is not None


@cache
def _made_of(lists: tuple[str, ...]) -> re.Pattern[str]:
    phrases = {phrase for listed in lists for phrase in entries(listed)}
    words = "|".join(sorted(map(_bounded, phrases), key=lambda phrase: (-len(phrase), phrase)))
    return re.compile(rf"(?>(?:{words})[\s'!]*)+")


def _bounded(phrase: str) -> str:
    """A phrase as a pattern: whole, where it is words apart by blanks."""
    is_whole = phrase[-1].isalnum() and not is_unspaced(phrase[-1])
    return re.escape(phrase) + (r"(?!\w)" if is_whole else "")


def _without_no(text: str) -> str:
    """A text without the no that answers "anything else?" at its beginning: "No, that's all"."""
    said = text.lstrip(OPENERS)
    opening = _signs().opening_no.pattern.match(said)
    if opening is None:
        return text
    rest = said[opening.end() :]
    return rest if _signs().nothing_more.pattern.match(rest.lstrip(OPENERS)) else text


def _opening_no(text: str) -> str:
    """The denial that a text begins with, if it denies the answer before it."""
    opening = _signs().opening_no.pattern.match(text)
    if opening is None:
        return ""
    rest = text[opening.end() :]
    if rest.startswith("-"):  # "non-paying" denies nothing
        return ""
    return "" if _signs().nothing_more.pattern.match(rest.lstrip(OPENERS)) else opening.group()
