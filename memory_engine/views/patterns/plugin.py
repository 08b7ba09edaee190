"""The plug-in of patterns between tenants. `views.builtin` attaches it to an engine: that must not load it."""

from memory_engine.plugins import Plugin
from memory_engine.store.passages import Extracted, Text
from memory_engine.views.patterns.events import (
    PatternApproved,
    PatternProposed,
    PatternPublished,
    PatternRejected,
    PatternRevoked,
    PatternsJoined,
    PatternsLeft,
    PatternWithdrawn,
)
from memory_engine.views.patterns.fold import PATTERN, PATTERNS
from memory_engine.views.patterns.pool import INDUSTRIES, POOL

PLUGIN = Plugin("patterns", kinds=[INDUSTRIES])
PLUGIN.events += [PatternsJoined, PatternsLeft, PatternProposed, PatternApproved, PatternRejected, PatternRevoked]
PLUGIN.events += [PatternPublished, PatternWithdrawn]
PLUGIN.silent(PatternsJoined, PatternsLeft, PatternProposed, PatternApproved, PatternRejected, PatternRevoked)
PLUGIN.projection(PATTERNS)
PLUGIN.projection(POOL)


@PLUGIN.passages(PatternPublished)
def _published(event: PatternPublished, _seq: int) -> Extracted:
    """The text, under the name of its share."""
    return Extracted(texts=(Text(event.text, PATTERN, key=event.share),), keys=(event.share,))


@PLUGIN.passages(PatternWithdrawn)
def _withdrawn(event: PatternWithdrawn, _seq: int) -> Extracted:
    """The passage is destroyed: no search finds it, as of any seq."""
    return Extracted(drop_keys=(event.share,))
