"""The headings of a progress summary in the language of its lines, as far as `headings.toml` has it."""

from collections.abc import Mapping
from functools import cache, lru_cache

from memory_engine.core.events.base import SummaryLine
from memory_engine.core.language import language_of
from memory_engine.core.text import data_file

DEFAULT_LANGUAGE = "en"
TOLD_BY_TOOLS = ("completed_actions", "attempted_approaches")
"""Sections of calls and results: names and values, whatever language people speak."""


HEADINGS_CHARS_MAX = 140
"""The most characters that title and headings take in any language, with the signs and line breaks around them."""


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
def _table() -> Mapping[str, Mapping[str, str]]:
    import tomllib

    table: dict[str, dict[str, str]] = tomllib.loads(data_file("memory_engine.context", "headings.toml"))
    return table
