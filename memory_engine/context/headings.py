"""The headings of a progress summary in the language of its lines, as far as `headings.toml` has it."""

import tomllib
from collections.abc import Mapping
from functools import cache, lru_cache

from memory_engine.core.events.base import SummaryLine
from memory_engine.core.language import language_of
from memory_engine.core.text import data_file

DEFAULT_LANGUAGE = "en"
TOLD_BY_TOOLS = ("completed_actions", "attempted_approaches")
"""Sections of calls and results: names and values, whatever language people speak."""


@lru_cache(maxsize=256)
def headings_of(lines: tuple[SummaryLine, ...]) -> Mapping[str, str]:
    """The heading of each known section, and under `title` that of the whole, in the language of these lines."""
    said = "\n".join(line.text for line in lines if line.section not in TOLD_BY_TOOLS)
    return _table().get(language_of(said)) or _table()[DEFAULT_LANGUAGE]


@cache
def sections_by_heading() -> Mapping[str, str]:
    """The section that a heading names, folded, in every language."""
    return {
        heading.casefold(): section
        for headings in _table().values()
        for section, heading in headings.items()
        if section != "title"
    }


@cache
def heading_chars_max() -> int:
    """The most characters that all headings and the title take, the longest language counted."""
    return max(sum(map(len, headings.values())) for headings in _table().values())


@cache
def _table() -> Mapping[str, Mapping[str, str]]:
    table: dict[str, dict[str, str]] = tomllib.loads(data_file("memory_engine.context", "headings.toml"))
    return table
