"""The judgement of a person's next message on the flow before it: it was right, it was wrong, or on to something else.

The embedded judge goes by wording, in several languages, and gives its reason. Your own judge may take its place.
"""

from functools import cache
from typing import Literal, Protocol

import msgspec

from memory_engine.core.lazy import regex
from memory_engine.core.text import COMPOUND_WORD, data_file, is_unspaced
from memory_engine.views.promotion.wording import Phrases, evidence, normalized, same_text, says_the_same

ReactionKind = Literal["correction", "satisfaction", "request", "unclear"]

CORRECTION_MIN = 0.5
"""From this strength on the signs of a correction decide, against all other signs."""
REQUEST_WORDS_MIN = 2
OPENERS = " ,.!-–—\"'«“¡¿"
REQUEST_SIGNS_MIN = 4
"""In scripts without spaces."""


class Reaction(msgspec.Struct, frozen=True):
    """The judgement of a message on the flow before it, and its reason.

    It is a `correction` (or a complaint), it shows `satisfaction`, it goes on to another `request`, or it is
    `unclear`.
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
    satisfaction: Phrases


@cache
def _signs() -> _Signs:
    return msgspec.toml.decode(data_file("memory_engine.views.playbooks", "reactions.toml"), type=_Signs)


RELATIVE = regex(
    r"(?<!\w)(?:an?|any|anything|the|one|some|something) (?:[\w-]+ ){0,3}?"
    r"that (?:isn't|is not)(?! (?:right|correct|what))"
)
"""Names a thing by what it is not ("a format that isn't a table") and denies nothing."""
CONCESSION = regex(
    r"(?<!\w)(?:i (?:\w+ )?(?:understand|appreciate|see|get)|verstehe|je comprends|entiendo|entendo|capisco|begrijp"
    r"|понимаю)(?!\w)[^.!?]{0,200}?(?<!\w)(?:but|aber|mais|pero|mas|ma|però|maar|но)(?!\w)"
)
"""Grants the answer and asks for another all the same ("I understand, but …")."""


class WordingJudge:
    """Judges by signs. A correction outweighs thanks ("thanks, but that's wrong"); else it is unclear."""

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
        concession = CONCESSION.search(plain)
        if concession:
            return Reaction("correction", f"it grants the answer and asks for another: '{concession.group()[:40]}'")
        if same_text(message) and says_the_same(message, user_query):
            return Reaction("correction", "it asks the same again")
        content = _signs().satisfaction.found_in(text)
        if content:
            return Reaction("satisfaction", f"it says '{content[0]}'")
        if _says_enough(text):
            return Reaction("request", "it goes on to another request, without a correction")
        return Reaction("unclear", "it says too little")


def _opening_no(text: str) -> str:
    """The denial that a text begins with, if it denies the answer before it."""
    opening = _signs().opening_no.pattern.match(text)
    if opening is None:
        return ""
    rest = text[opening.end() :]
    if rest.startswith("-"):  # "non-paying" denies nothing
        return ""
    return "" if _signs().nothing_more.pattern.match(rest.lstrip(OPENERS)) else opening.group()


def _says_enough(text: str) -> bool:
    words = COMPOUND_WORD.findall(text)
    return len(words) >= REQUEST_WORDS_MIN or any(
        is_unspaced(word) and len(word) >= REQUEST_SIGNS_MIN for word in words
    )
