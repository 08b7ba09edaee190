"""Texts into sentences of bounded length, and sentences into telegrams."""

from collections.abc import Iterator

import msgspec

from memory_engine.compactors.extractive.function_words import FunctionWords
from memory_engine.compactors.extractive.words import WORD, word_count
from memory_engine.regex import regex

SENTENCE_CHARS_MAX = 320
ENDS = ".!?…؟۔।"
# Possessive, and never begun inside a run of marks, so that no input takes more than linear time.
# One or two digits and a full stop are an ordinal or a list number in most languages, seldom an end.
TERMINATOR = regex(
    rf"(?<![{ENDS}])(?<!\b\d)(?<!\b\d\d)[{ENDS}]++[\"'”’)\]*_]*+(?=\s)"
    r"|(?<=\d)[!?؟]++(?=\s)|[。！？；｡]++[」』”’）]*+|[\r\n\u2028\u2029]++|\s(?=\[\w{1,20}: )"
)
CLAUSE_END = regex(r"[,;:](?=\s)|[，、；：،؛]|\s")
NUMBERING = regex(r"\(?\d{1,3}[.)]$")
BULLET = regex(r"^(?:[-*+•>#|]{1,6}\s+|\(?\d{1,3}[.)]\s+)+")
MARKUP = regex(r"\*\*|__|`+|[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")
QUESTION_MARKS = ("?", "？", "؟", "\u037e", "⁇")
CLOSERS = "\"'”’)]*_」』）» "
WORDS_KEPT_WHOLE = 3
"""A sentence of so few words loses its meaning with the first of them."""
PUNCTUATION_KEPT = ".!?;:。！？؟"


class Sentence(msgspec.Struct, frozen=True):
    """One sentence or a bounded part of one, as it was written but for markup and white space."""

    text: str
    words: float
    asks: bool
    exclaims: bool


def clean(text: str) -> str:
    """One line without markup, control characters or lone surrogates: what can always be written out."""
    return " ".join(MARKUP.sub("", text).split())


def split_sentences(text: str) -> Iterator[Sentence]:
    """Sentences in order; linear in the text, each at most SENTENCE_CHARS_MAX characters."""
    start = 0
    for match in TERMINATOR.finditer(text):
        yield from _bounded(text, start, match.end())
        start = match.end()
    yield from _bounded(text, start, len(text))


def _bounded(text: str, start: int, end: int) -> Iterator[Sentence]:
    """Cut what is too long at the last clause end or blank before the limit, or at the limit."""
    while start < end:
        stop = min(end, start + SENTENCE_CHARS_MAX)
        if stop < end:
            stop = _last_clause_end(text, start, stop)
        piece = clean(BULLET.sub("", text[start:stop].strip()))
        if piece and not NUMBERING.match(piece):
            closed = piece.rstrip(CLOSERS)
            yield Sentence(piece, word_count(piece), closed.endswith(QUESTION_MARKS), closed.endswith(("!", "！")))
        start = stop


def _last_clause_end(text: str, start: int, stop: int) -> int:
    ends = [match.end() for match in CLAUSE_END.finditer(text, start + SENTENCE_CHARS_MAX // 2, stop)]
    return ends[-1] if ends else stop


def telegram(sentence: Sentence, function_words: FunctionWords) -> str:
    """The sentence without its function words, in the writer's own order and spelling.

    Deleting keeps every word that carries something for half the tokens; that is
    worth more to a later reader than whole sentences at twice the price.
    """
    if sentence.words <= WORDS_KEPT_WHOLE:
        return sentence.text
    kept: list[str] = []
    for position, token in enumerate(sentence.text.split(" ")):
        found = [match.group() for match in WORD.finditer(token)]
        if not found or any(not function_words.drops(word, first=position == 0) for word in found):
            kept.append(token)
        elif kept and token[-1] in PUNCTUATION_KEPT and kept[-1][-1] not in PUNCTUATION_KEPT:
            kept[-1] = kept[-1].rstrip(",") + token[-1]
    return " ".join(kept).strip(" ,-–—")
