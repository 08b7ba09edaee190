"""The configuration of an engine."""

from attrs import Attribute, field, frozen

from memory_engine.core.threads import CompactionPolicy

SNIPPETS_MAX = 64
"""Snippets a scratchpad holds by default."""
WORKING_MAX = 50
"""Entries that working memory holds by default."""

POLL_S = (0.01, 1.0)
"""Seconds between two looks at a store for what other processes have committed: at first, and at most."""


def _positive(_config: object, attribute: "Attribute[int] | Attribute[float]", value: float) -> None:
    if value <= 0:
        raise ValueError(f"{attribute.name} must be above 0, got {value}")


BYTES_MIN = 64
"""Below this a text would not even have room to say that something was left out."""


def _bytes(_limits: object, attribute: "Attribute[int]", value: int) -> None:
    if value < BYTES_MIN:
        raise ValueError(f"{attribute.name} must be at least {BYTES_MIN} bytes, got {value}")


@frozen(kw_only=True)
class ConversationLimits:
    """Sizes are bytes of UTF-8.

    Above `exchanges` the oldest exchange folds into the summary. An answer over `answer_bytes_max`
    gets a short form of at most `answer_bytes_target`; a summary that would pass
    `summary_bytes_max` is compressed to at most `summary_bytes_target`. Once the scratchpad holds
    `scratchpad_snippets_max` snippets that no summary has used yet, the summary takes them up, and all
    exchanges but the newest `exchanges_kept` with them. A model has `model_timeout_s` for each text; it
    gets the head and the tail of a text that is longer than `model_input_bytes_max`.
    """

    exchanges: int = field(default=10, validator=_positive)
    exchanges_kept: int = field(default=5, validator=_positive)
    answer_bytes_max: int = field(default=750, validator=_bytes)
    answer_bytes_target: int = field(default=500, validator=_bytes)
    summary_bytes_max: int = field(default=4000, validator=_bytes)
    summary_bytes_target: int = field(default=3000, validator=_bytes)
    scratchpad_snippets_max: int = field(default=48, validator=_positive)
    model_timeout_s: float = field(default=30.0, validator=_positive)
    model_input_bytes_max: int = field(default=48_000, validator=_bytes)

    def __attrs_post_init__(self) -> None:
        for target, most in (
            ("answer_bytes_target", "answer_bytes_max"),
            ("summary_bytes_target", "summary_bytes_max"),
            ("exchanges_kept", "exchanges"),
        ):
            if getattr(self, target) > getattr(self, most):
                raise ValueError(f"{target} is {getattr(self, target)}, above {most}, {getattr(self, most)}")


@frozen(kw_only=True)
class EngineConfig:
    """Limits and defaults. Bytes are of the encoded payload; times are in seconds.

    A dispatch that finds the queue full waits up to `queue_timeout_s` for room. At most
    `open_threads_max` threads are held in memory while nobody uses them. A write waits up to
    `busy_timeout_s` for other processes that write to the same file; what they have committed is
    seen by reads at the latest `follow_s` later. An embedder and a re-ranker have `search_model_timeout_s` each to
    answer a search, which goes on without them then. With `read_only` the engine dispatches, delivers, compacts and
    mends nothing; read threads as they were (`thread.at`), since other views are caches that it would have to write.
    With `check_hashes` every event is checked against its hash when it is read: bytes that were changed raise
    `IntegrityError` and are never shown.
    """

    compaction: CompactionPolicy = CompactionPolicy()
    queue_capacity: int = field(default=1024, validator=_positive)
    queue_timeout_s: float = field(default=30.0, validator=_positive)
    event_bytes_max: int = field(default=16 * 1024 * 1024, validator=_positive)
    commit_tries_max: int = field(default=50, validator=_positive)
    batch_events_max: int = field(default=256, validator=_positive)
    open_threads_max: int = field(default=16_384, validator=_positive)
    conversation: ConversationLimits = ConversationLimits()
    scratchpad_snippets_max: int = field(default=SNIPPETS_MAX, validator=_positive)
    working_entries_max: int = field(default=WORKING_MAX, validator=_positive)
    follow_s: float = field(default=0.25, validator=_positive)
    busy_timeout_s: float = field(default=5.0, validator=_positive)
    search_model_timeout_s: float = field(default=30.0, validator=_positive)
    read_only: bool = False
    check_hashes: bool = True
