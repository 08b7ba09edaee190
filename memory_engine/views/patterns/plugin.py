"""The plug-in of patterns between tenants."""

from memory_engine.plugins import Plugin
from memory_engine.runtime.delivery import Relay
from memory_engine.runtime.handle import ThreadHandle
from memory_engine.runtime.kernel import Kernel
from memory_engine.runtime.threads import OpenThreads
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
from memory_engine.views.patterns.pool import INDUSTRIES, POOL, bereft, withdraw_all, withdraw_orphans

PLUGIN = Plugin("patterns", kinds=[INDUSTRIES])
PLUGIN.events += [PatternsJoined, PatternsLeft, PatternProposed, PatternApproved, PatternRejected, PatternRevoked]
PLUGIN.events += [PatternPublished, PatternWithdrawn]
PLUGIN.silent(PatternsJoined, PatternsLeft, PatternProposed, PatternApproved, PatternRejected, PatternRevoked)
PLUGIN.projection(PATTERNS)
PLUGIN.projection(POOL)


@PLUGIN.attached
def _attach(kernel: Kernel) -> None:
    """Orphans are withdrawn before facts are delivered, and all shares of a tenant before its thread goes."""

    async def withdrawn(thread_id: str) -> None:
        await withdraw_all(ThreadHandle(kernel, thread_id))

    kernel[OpenThreads].before_delete.append(withdrawn)
    kernel[Relay].before.append(withdraw_orphans)
    kernel[Relay].owing.append(bereft)


@PLUGIN.passages(PatternPublished)
def _published(event: PatternPublished, _seq: int) -> Extracted:
    """The text, under the name of its share."""
    return Extracted(texts=(Text(event.text, PATTERN, key=event.share),), keys=(event.share,))


@PLUGIN.passages(PatternWithdrawn)
def _withdrawn(event: PatternWithdrawn, _seq: int) -> Extracted:
    """The passage is destroyed: no search finds it, as of any seq."""
    return Extracted(drop_keys=(event.share,))
