"""Extractive compaction: a summary made of the input's own words, without a model."""

from memory_engine.compactors.extractive.entries import Entry, EntryKind, Line, Section
from memory_engine.compactors.extractive.extractor import HEADING_TOKENS, extract, render

__all__ = ["HEADING_TOKENS", "Entry", "EntryKind", "Line", "Section", "extract", "render"]
