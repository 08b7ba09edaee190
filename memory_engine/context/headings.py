"""The headings of a progress summary in the language of its lines, as far as `headings.toml` has it."""

from collections.abc import Mapping
from functools import cache, lru_cache

from memory_engine.core.events.base import SummaryLine
from memory_engine.core.sections import PEOPLE, TOLD_BY_TOOLS
from memory_engine.language.identification import language_of
from memory_engine.language.lists import content_of

DEFAULT_LANGUAGE = "en"
HEADINGS_CHARS_MAX = 320
"""The most characters that title and headings take in any language, with the signs and line breaks around them."""


@lru_cache(maxsize=256)
def headings_of(lines: tuple[SummaryLine, ...]) -> Mapping[str, str]:
    """The heading of each known section, and under `title` that of the whole, in the language of these lines."""
    said = "\n".join(line.text for line in lines if line.section not in TOLD_BY_TOOLS)
    return _table().get(language_of(said)) or _table()[DEFAULT_LANGUAGE]


@cache
def sections_by_heading() -> Mapping[str, str]:
    """The section that a heading names, folded, in every language.

    The sections of people's words are not among them: a model that writes such a heading does not speak for a person.
    """
    return {
        heading.casefold(): section
        for headings in _table().values()
        for section, heading in headings.items()
        if section != "title" and section not in PEOPLE
    }


@cache
def _table() -> Mapping[str, Mapping[str, str]]:
    return content_of("memory_engine.context", "headings.toml", dict[str, dict[str, str]])
