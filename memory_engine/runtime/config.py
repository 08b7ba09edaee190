"""What an engine is told when it is opened."""

from attrs import Attribute, field, frozen

from memory_engine.store.protocol import CompactionPolicy
from memory_engine.views.conversation.exchanges import ConversationLimits
from memory_engine.views.layers.events import WORKING_MAX
from memory_engine.views.scratchpad.events import SNIPPETS_MAX


def _positive(_config: object, attribute: "Attribute[int] | Attribute[float]", value: float) -> None:
    if value <= 0:
        raise ValueError(f"{attribute.name} must be above 0, got {value}")


@frozen(kw_only=True)
class EngineConfig:
    """Limits and defaults. Bytes are of the encoded payload; times are in seconds.

    A dispatch that finds the queue full waits up to `queue_timeout_s` for room. At most
    `open_threads_max` threads are held in memory while nobody uses them. A write waits up to
    `busy_timeout_s` for other processes that write to the same file; what they have committed is
    seen by reads at the latest `follow_s` later. With `read_only` nothing is dispatched, delivered, compacted or
    mended: for those who only look; read threads as they were (`thread.at`), since other views are caches to write.
    """

    compaction: CompactionPolicy = CompactionPolicy()
    queue_capacity: int = field(default=1024, validator=_positive)
    queue_timeout_s: float = field(default=30.0, validator=_positive)
    event_bytes_max: int = field(default=16 * 1024 * 1024, validator=_positive)
    commit_tries_max: int = field(default=50, validator=_positive)
    batch_events_max: int = field(default=256, validator=_positive)
    open_threads_max: int = field(default=4096, validator=_positive)
    conversation: ConversationLimits = ConversationLimits()
    scratchpad_snippets_max: int = field(default=SNIPPETS_MAX, validator=_positive)
    working_entries_max: int = field(default=WORKING_MAX, validator=_positive)
    follow_s: float = field(default=0.25, validator=_positive)
    busy_timeout_s: float = field(default=5.0, validator=_positive)
    read_only: bool = False
