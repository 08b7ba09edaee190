"""The configuration of an engine."""

from math import inf

from attrs import Attribute, field, frozen

from memory_engine.core.arguments import checked_count, checked_flag, checked_number, checked_type
from memory_engine.core.clock import zone_of
from memory_engine.core.threads import CompactionPolicy
from memory_engine.errors import InvalidArgument

SNIPPETS_MAX = 64
"""Snippets a scratchpad holds by default."""
WORKING_MAX = 50
"""Entries that working memory holds by default."""

POLL_S = (0.01, 1.0)
"""Seconds between two polls of a store for commits of other processes: at first, and at most."""

BYTES_MIN = 64
"""A shorter text would have no room even to say that something was left out."""


def _count(_owner: object, attribute: "Attribute[int]", value: int) -> None:
    checked_count(attribute.name, value, least=1)


def _check_byte_limit(_limits: object, attribute: "Attribute[int]", value: int) -> None:
    checked_count(attribute.name, value, least=BYTES_MIN)


def _seconds(_owner: object, attribute: "Attribute[float]", value: float) -> None:
    if checked_number(attribute.name, value) <= 0:
        raise InvalidArgument(attribute.name, value, "give seconds above 0")


def _patience(owner: object, attribute: "Attribute[float]", value: float) -> None:
    """Seconds, or `inf`: for as long as it takes."""
    if value != inf:
        _seconds(owner, attribute, value)


def _flag(_config: object, attribute: "Attribute[bool]", value: bool) -> None:
    checked_flag(attribute.name, value)


def _policy(_config: object, attribute: "Attribute[CompactionPolicy]", value: CompactionPolicy) -> None:
    give = "a CompactionPolicy; CompactionPolicy(enabled=False) turns compaction off"
    checked_type(attribute.name, value, CompactionPolicy, give=give)


def _check_string(_config: object, attribute: "Attribute[str]", value: str) -> None:
    checked_type(attribute.name, value, str, give="a text")


def _zone(_config: object, attribute: "Attribute[str]", value: str) -> None:
    zone_of(checked_type(attribute.name, value, str, give="an IANA name, such as 'Europe/Berlin' or 'UTC'"))


def _limits(_config: object, attribute: "Attribute[ConversationLimits]", value: "ConversationLimits") -> None:
    checked_type(attribute.name, value, ConversationLimits, give="ConversationLimits")


@frozen(kw_only=True)
class ConversationLimits:
    """Limits of conversation memory. Sizes are bytes of UTF-8.

    Above `exchanges` the oldest exchange is folded into the summary. An answer over `answer_bytes_max` gets a short
    form of at most `answer_bytes_target`; a summary that would exceed `summary_bytes_max` is compressed to at most
    `summary_bytes_target`. Once the scratchpad holds `scratchpad_snippets_max` snippets that no summary has used yet,
    the summary absorbs them, and all exchanges but the newest `exchanges_kept`. A model has `model_timeout_s` for each
    text; of a text longer than `model_input_bytes_max` it gets the head and the tail.
    """

    exchanges: int = field(default=10, validator=_count)
    exchanges_kept: int = field(default=5, validator=_count)
    answer_bytes_max: int = field(default=750, validator=_check_byte_limit)
    answer_bytes_target: int = field(default=500, validator=_check_byte_limit)
    summary_bytes_max: int = field(default=4000, validator=_check_byte_limit)
    summary_bytes_target: int = field(default=3000, validator=_check_byte_limit)
    scratchpad_snippets_max: int = field(default=48, validator=_count)
    model_timeout_s: float = field(default=30.0, validator=_seconds)
    model_input_bytes_max: int = field(default=48_000, validator=_check_byte_limit)

    def __attrs_post_init__(self) -> None:
        for target, most in (
            ("answer_bytes_target", "answer_bytes_max"),
            ("summary_bytes_target", "summary_bytes_max"),
            ("exchanges_kept", "exchanges"),
        ):
            if getattr(self, target) > getattr(self, most):
                raise InvalidArgument(
                    target, getattr(self, target), f"{most} is {getattr(self, most)}: give that or less"
                )


@frozen(kw_only=True)
class EngineConfig:
    """Limits and defaults. Bytes are of the encoded payload; times are in seconds.

    A dispatch that finds the queue full waits up to `queue_timeout_s` for room. At most `open_threads_max` unused
    threads are held in memory, the last used ones, and only as many as take about `open_bytes_max` bytes of memory
    together. A write waits up to `busy_timeout_s` for other processes that write to the same file; reads see what they
    have committed at most `follow_s` later. An embedder and a re-ranker have `search_model_timeout_s` each to answer a
    search, which then continues without them; an embedder has it for each batch of texts too, and a model to close. A
    memory model has `memory_model_timeout_s` for a summary of memory layers, or for the facts of a run. Functions of
    yours that the engine awaits (the call of a tool for `cached_call`, a scorer, a predicate) have `call_timeout_s`,
    then `CallTimedOut` is raised. A search of a long log without an index waits up to
    `search_index_timeout_s`, then answers from what is indexed (`Found.unindexed` counts the rest). With `read_only`
    the engine dispatches, delivers, compacts and mends nothing, and indexes in memory what a search needs; read threads
    at a moment (`thread.at`), since other views are caches that it would have to write. With `check_hashes` every
    event is checked against its hash when read: changed bytes raise `IntegrityError` and are never shown.
    `compaction_instructions` say what the summaries of all threads should keep. The hooks before a compaction have
    `before_compaction_timeout_s` together. With `scopes_required`, `create_thread`, `open_thread` and adapters raise
    `ScopeRequired` unless they are given a user or a tenant.

    `timezone` is an IANA name ("Europe/Berlin"): in this zone a question's days and relative times ("yesterday", "on 5
    May") are resolved, and the days of hits and recalled passages shown, except of threads whose metadata names another
    `timezone`. Other names raise `InvalidArgument`; a machine without a time zone database `MissingTimeZones`.
    """

    compaction: CompactionPolicy = field(default=CompactionPolicy(), validator=_policy)
    compaction_instructions: str = field(default="", validator=_check_string)
    before_compaction_timeout_s: float = field(default=10.0, validator=_seconds)
    queue_capacity: int = field(default=1024, validator=_count)
    queue_timeout_s: float = field(default=30.0, validator=_seconds)
    event_bytes_max: int = field(default=16 * 1024 * 1024, validator=_count)
    commit_tries_max: int = field(default=50, validator=_count)
    batch_events_max: int = field(default=256, validator=_count)
    open_threads_max: int = field(default=16_384, validator=_count)
    open_bytes_max: int = field(default=1024 * 1024 * 1024, validator=_count)
    conversation: ConversationLimits = field(default=ConversationLimits(), validator=_limits)
    scratchpad_snippets_max: int = field(default=SNIPPETS_MAX, validator=_count)
    working_entries_max: int = field(default=WORKING_MAX, validator=_count)
    follow_s: float = field(default=0.25, validator=_seconds)
    busy_timeout_s: float = field(default=5.0, validator=_seconds)
    search_model_timeout_s: float = field(default=10.0, validator=_seconds)
    memory_model_timeout_s: float = field(default=60.0, validator=_seconds)
    call_timeout_s: float = field(default=600.0, validator=_patience)
    search_index_timeout_s: float = field(default=0.5, validator=_patience)
    read_only: bool = field(default=False, validator=_flag)
    check_hashes: bool = field(default=True, validator=_flag)
    scopes_required: bool = field(default=False, validator=_flag)
    timezone: str = field(default="UTC", validator=_zone)
