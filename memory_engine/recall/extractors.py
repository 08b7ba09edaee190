"""Extractors: how an event's texts become passages, also for events without an extractor of their own."""

from collections.abc import Iterator, Mapping
from itertools import islice

from memory_engine.core.chunks import content_text
from memory_engine.core.events.base import Event
from memory_engine.store.passages import NOTHING, PASSAGES_MAX, Extracted, Extractor, Extractors, Text, checked

WHOLE_MAX = 4_000
"""Characters up to which a text is one passage."""
PIECE_MAX = 1_500
"""A longer text is cut into pieces of at most so many characters, at paragraphs, lines, sentences or blanks."""
MEMORY = "memory"
"""The kind of entries of the layers."""
SUMMARY = "summary"
"""The kind of summaries. A search leaves them out unless you ask for them, since it finds their originals."""
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


def _noted(event: Event, _seq: int) -> Extracted:
    """The passages of events without an extractor of their own: the texts of their bodies."""
    said = ((content_text(body.content), body.label) for body in event.bodies())
    texts = tuple(Text(piece, "note", speaker=label) for text, label in said for piece in pieces(text))
    return Extracted(texts) if texts else NOTHING


def silent(_event: Event, _seq: int) -> Extracted:
    """The extractor of events that hold text and are not found."""
    return NOTHING


def extractors_of(extractors: Mapping[str, Extractor]) -> Extractors:
    """These extractors, by event type, with checks of their results; other events bring the texts of their bodies."""
    return Extractors({event_type: checked(extract) for event_type, extract in extractors.items()}, _noted)
