"""What search finds of an industry's patterns."""

from collections.abc import Mapping
from typing import cast

from memory_engine.events import Event, PatternPublished, PatternWithdrawn
from memory_engine.recall.passages import Extracted, Extractor, Text

PATTERN = "pattern"
"""The kind of these passages."""


def _published(event: Event, _seq: int) -> Extracted:
    """The text, under the name of its share."""
    published = cast("PatternPublished", event)
    return Extracted(texts=(Text(published.text, PATTERN, key=published.share),), keys=(published.share,))


def _withdrawn(event: Event, _seq: int) -> Extracted:
    """It is destroyed: no search finds it, as of whatever seq."""
    return Extracted(drop_keys=(cast("PatternWithdrawn", event).share,))


EXTRACTORS: Mapping[str, Extractor] = {
    PatternPublished.event_type: _published,
    PatternWithdrawn.event_type: _withdrawn,
}
