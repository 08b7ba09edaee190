"""Extractive compaction: a summary made of the input's own words, without a model."""

from typing import TYPE_CHECKING

from memory_engine.core.lazy import imported_when_asked

if TYPE_CHECKING:
    from memory_engine.compactors.extractive.entries import Entry as Entry
    from memory_engine.compactors.extractive.entries import EntryKind as EntryKind
    from memory_engine.compactors.extractive.entries import Line as Line
    from memory_engine.compactors.extractive.entries import Section as Section
    from memory_engine.compactors.extractive.extractor import HEADING_TOKENS as HEADING_TOKENS
    from memory_engine.compactors.extractive.extractor import extract as extract
    from memory_engine.compactors.extractive.extractor import render as render

__getattr__, __dir__ = imported_when_asked(
    __name__,
    {"entries": "Entry EntryKind Line Section", "extractor": "HEADING_TOKENS extract render"},
)
