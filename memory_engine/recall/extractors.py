"""Extractors: how an event's texts become passages, also for events without an extractor of their own."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

from memory_engine.core.chunks import content_text
from memory_engine.core.events.base import Event
from memory_engine.store.passages import NOTHING, PASSAGES_MAX, Extracted, Extractor, Extractors, Text

WHOLE_MAX = 4_000
"""Characters up to which a text is one passage."""
PIECE_MAX = 1_500
"""A longer text is cut into pieces of at most this number of characters, at paragraphs, lines, sentences or blanks."""
MEMORY = "memory"
"""The kind of entries of the layers."""
SUMMARY = "summary"
"""The kind of summaries. A search leaves them out unless you ask for them, since it finds their originals."""
AT_US_MIN, AT_US_MAX = -62_135_596_800_000_000, 253_402_300_799_999_999
"""The years 1 to 9999, in microseconds since 1970: other numbers are in no calendar."""
_BREAKS = ("\n\n", "\n", ". ", " ")


def pieces(text: str, *, whole_max: int = WHOLE_MAX, piece_max: int = PIECE_MAX) -> Iterator[str]:
    """The text, in pieces if it is long; nothing for a blank one."""
    text = text.strip()
    if len(text) <= whole_max:
        if text:
            yield text
        return
    start = 0
    while start < len(text):
        end = min(len(text), start + piece_max)
        if end < len(text):
            end = next((at + len(mark) for mark in _BREAKS if (at := text.rfind(mark, start + 1, end)) > start), end)
        piece = text[start:end].strip()
        if piece:
            yield piece
        start = end


def found(text: str, kind: str, *, role: str = "", speaker: str = "", key: str = "") -> Extracted:
    """One text, in pieces if it is long."""
    return Extracted(tuple(Text(piece, kind, role, speaker, key) for piece in islice(pieces(text), PASSAGES_MAX)))


def noted(event: Event, _seq: int) -> Extracted:
    """The passages of events without an extractor of their own: the texts of their bodies."""
    said = ((content_text(body.content), body.label) for body in event.bodies())
    texts = tuple(Text(piece, "note", speaker=label) for text, label in said for piece in pieces(text))
    return Extracted(texts) if texts else NOTHING


def silent(_event: Event, _seq: int) -> Extracted:
    """The extractor of events that hold text and are not found."""
    return NOTHING


def extractors_of(extractors: Mapping[str, Extractor]) -> Extractors:
    """These extractors, by event type, with checks of their results; other events bring the texts of their bodies."""
    return Extractors({event_type: _checked_extractor(extract) for event_type, extract in extractors.items()}, noted)


def _checked_extractor(extract: Extractor) -> Extractor:
    """An extractor with checks: it raises `TypeError` or `ValueError` for passages that cannot be stored."""

    def extract_checked(event: Event, seq: int) -> Extracted:
        found = extract(event, seq)
        if not isinstance(found, Extracted):
            raise TypeError(f"it gave {type(found).__name__}, not Extracted")
        for text in found.texts[:PASSAGES_MAX]:
            _check_texts(text.text, text.about, surrogates=True)
            _check_texts(text.kind, text.role, text.speaker, text.key)
            _check_numbers(text.origins)
            if text.at_us is not None:
                _check_numbers((text.at_us,))
                if not AT_US_MIN <= text.at_us <= AT_US_MAX:
                    raise ValueError(f"at_us is {text.at_us}: no date has so many microseconds")
        _check_texts(*found.keys, *found.prefixes, *found.drop_keys)
        _check_numbers((*found.seqs, *found.twins, *found.drops, *found.origins))
        return found

    return extract_checked


def _check_texts(*values: object, surrogates: bool = False) -> None:
    for value in values:
        if not isinstance(value, str):
            raise TypeError(f"{value!r} is not a text")
        if not surrogates and not value.isascii():
            value.encode()  # raises a `ValueError`


def _check_numbers(values: Iterable[object]) -> None:
    for value in values:
        if not isinstance(value, int):
            raise TypeError(f"{value!r} is not a whole number")
