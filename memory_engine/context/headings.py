"""The headings of a progress summary in the language of its lines, for the languages in `headings.toml`."""

from collections.abc import Mapping
from functools import cache, lru_cache

from memory_engine.core.events.base import SummaryLine
from memory_engine.core.sections import PEOPLE, TOLD_BY_TOOLS
from memory_engine.language.identification import language_of
from memory_engine.language.lists import content_of

DEFAULT_LANGUAGE = "en"
HEADINGS_CHARS_MAX = 320
"""Maximum number of characters of title and headings in any language, including the surrounding marks and line
breaks."""


@lru_cache(maxsize=256)
def headings_of(lines: tuple[SummaryLine, ...]) -> Mapping[str, str]:
    """Return the heading of each known section, and the title under `title`, in the language of these lines."""
    said = "\n".join(line.text for line in lines if line.section not in TOLD_BY_TOOLS)
    return _table().get(language_of(said)) or _table()[DEFAULT_LANGUAGE]


@cache
def sections_by_heading() -> Mapping[str, str]:
    """Return a mapping from each casefolded heading, in every language, to its section.

    The sections of people's words are excluded: a model that writes such a heading does not speak for a person.
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
