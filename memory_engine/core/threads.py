"""The record of a thread, its head, and its rows."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import lru_cache
from typing import Annotated, Literal, TypeVar

import msgspec
from msgspec import Meta

from memory_engine.core.clock import to_datetime
from memory_engine.core.ids import check_identifier
from memory_engine.core.json_form import JsonForm
from memory_engine.core.records import StoredEvent
from memory_engine.errors import InvalidArgument, InvalidPolicy

ACTIVE, PAUSED, ARCHIVED, DELETED = "active", "paused", "archived", "deleted"
SCOPE_KINDS = frozenset({"user", "tenant", "agent", "industry"})
SCOPE_EPOCHS = 1 << 20
"""The first epoch of each scope's thread, and of one that reuses an id. Epochs of one id are so far apart that those
who knew a deleted thread see it gone."""


WHAT_IF = "what_if"
"""The metadata key of a thread whose memory is hypothetical: a what-if's fork, where it says what was changed."""


def is_scope_id(thread_id: str) -> bool:
    """Whether an id has the form used for users, tenants, agents and industries, such as `user:acme/u1`."""
    kind, colon, _ = thread_id.partition(":")
    return bool(colon) and kind in SCOPE_KINDS


class ForkPoint(msgspec.Struct, frozen=True):
    """The thread and the seq up to which a fork shares its past."""

    thread_id: str
    seq: int


DEFAULT_WINDOW = 128_000
"""The window in tokens of a model about which neither a policy nor a budget says anything."""
WINDOW_MIN = 4_000
"""The least window that the budgets of contexts stand for: who asks for less has no model that takes so little."""
FILL_SHARE, SOFT_SHARE, HARD_SHARE = 0.7, 0.8, 2.0
"""The shares of the window that stand for `tokens_min`, `soft_tokens` and `hard_tokens` where a policy gives none."""
_Tokens = Annotated[int, Meta(gt=0)]


class _PolicyFields(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    enabled: bool = True
    threshold: Annotated[int, Meta(gt=0)] = 20
    soft_tokens: _Tokens | None = None
    hard_tokens: _Tokens | None = None
    keep_recent: Annotated[int, Meta(ge=0)] = 6
    ratio: Annotated[float, Meta(gt=0, lt=1)] = 0.2
    summary_tokens_max: Annotated[int, Meta(gt=0)] = 4_000
    deadline_s: Annotated[float, Meta(gt=0)] = 120.0
    tokens_min: Annotated[int, Meta(ge=0)] | None = None
    window: _Tokens | None = None
    blocking: Literal["auto", "whole", "commit"] = "auto"
    instructions: str = ""


class _StoredPolicy(_PolicyFields, frozen=True, kw_only=True, omit_defaults=True):
    """A policy as a thread's record holds it. What an older record leaves out has the default of its time."""

    tokens_min: Annotated[int, Meta(ge=0)] | None = 0
    soft_tokens: _Tokens | None = 24_000
    hard_tokens: _Tokens | None = 96_000
    blocking: Literal["auto", "whole", "commit"] = "whole"


_STORED_POLICY = msgspec.json.Decoder(_StoredPolicy)


class CompactionPolicy(_PolicyFields, frozen=True, kw_only=True, omit_defaults=True):
    """When and how a thread is compacted.

    A compaction starts when at least `threshold` compactable working-flow chunks together take `tokens_min` tokens, or
    when they take more than `soft_tokens`; over `hard_tokens` it is done before the next context. Only chunks that a
    compaction may take count. By default these are 70 %, 80 % and 200 % of the `window`: the tokens that your model
    takes, else the largest budget that the thread's contexts were asked for, else 128,000. `tokens_min=0` compacts
    by the count of chunks alone. The newest `keep_recent` chunks stay as they are. A summary takes `ratio` of the
    tokens that it replaces; when the summaries together exceed `summary_tokens_max` they are merged into one. A
    compactor's deadline is `deadline_s` seconds.

    `blocking` says how long events wait: with `whole`, from the compaction's start to its end; with `commit`, only
    while its result is checked against them and written, not while the compactor works, unless they go over
    `hard_tokens`. If they have changed what it read, its result is discarded. `auto` is `commit` where a compactor asks
    a model, which is given up over `hard_tokens`, and else `whole`.

    `instructions` say what summaries should keep, beside those of `EngineConfig.compaction_instructions`.

    Raises `InvalidPolicy` for a value that could not be read back from a thread's record.
    """

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            try:
                read = _STORED_POLICY.decode(msgspec.json.encode({name: value}))
            except (TypeError, ValueError, OverflowError) as error:
                why = str(error).partition(" - at ")[0]
                raise InvalidPolicy(name, ascii(value), why) from None
            msgspec.structs.force_setattr(self, name, getattr(read, name))

    @classmethod
    def for_window(cls, tokens: int) -> "CompactionPolicy":
        """The default policy for a model that takes so many tokens. Raises `InvalidPolicy`."""
        return cls(window=tokens)

    def applied(self, window: int | None = None) -> "CompactionPolicy":
        """The policy with a number for each limit: shares of its own window, else of the given one."""
        known = self.window, self.soft_tokens, self.hard_tokens, self.tokens_min
        return self if None not in known else _applied(self, max(window, WINDOW_MIN) if window else DEFAULT_WINDOW)


@lru_cache(maxsize=256)
def _applied(policy: CompactionPolicy, window: int) -> CompactionPolicy:
    window = policy.window or window
    given = policy.tokens_min, policy.soft_tokens, policy.hard_tokens
    shares = FILL_SHARE, SOFT_SHARE, HARD_SHARE
    limits = [max(1, int(window * share)) if own is None else own for own, share in zip(given, shares, strict=True)]
    tokens_min, soft, hard = limits
    return msgspec.structs.replace(policy, window=window, tokens_min=tokens_min, soft_tokens=soft, hard_tokens=hard)


_METADATA = msgspec.json.Decoder(dict[str, str])
_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_TEXT = msgspec.json.Decoder(str)
V = TypeVar("V", bound=str | None)
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""The errors that decoders raise for stored bytes they cannot read."""


def encode_policy(policy: CompactionPolicy) -> str:
    """A policy as a thread's record holds it."""
    return msgspec.json.encode(_StoredPolicy(**msgspec.structs.asdict(policy))).decode()


def decode_policy(stored: bytes | str) -> CompactionPolicy:
    """The policy of a thread's record. Raises one of `UNREADABLE`."""
    return CompactionPolicy(**msgspec.structs.asdict(_STORED_POLICY.decode(stored)))


def readable_policy(stored: bytes | str) -> tuple[CompactionPolicy | None, str]:
    """The policy of a thread's record, and why it cannot be read (empty if it can).

    If it cannot be read, the readable fields are kept, with defaults for the others; `None` if none are readable.
    """
    try:
        return decode_policy(stored), ""
    except UNREADABLE as error:
        why = str(error)
    try:
        given = _FIELDS.decode(stored)
    except UNREADABLE:
        return None, why
    kept: dict[str, msgspec.Raw] = {}
    for name, value in given.items():
        with suppress(*UNREADABLE):
            decode_policy(msgspec.json.encode({name: value}))
            kept[name] = value
    return (decode_policy(msgspec.json.encode(kept)) if kept else None), why


def encode_metadata(metadata: Mapping[str, str]) -> str:
    """Metadata as a thread's record holds it."""
    return msgspec.json.encode(metadata).decode()


def encoded_pairs(metadata: Mapping[str, str]) -> list[str]:
    """Pairs as `encode_metadata` writes each behind a comma. No other text of it looks like that, but for odd keys."""
    return [f",{msgspec.json.encode({key: value}).decode()[1:-1]}" for key, value in metadata.items()]


def encoded_key(key: str) -> str:
    """A key as `encode_metadata` writes it behind a comma. A value never looks like that: its quotes are escaped."""
    return f",{msgspec.json.encode(key).decode()}:"


def readable_metadata(stored: bytes | str) -> tuple[dict[str, str], str]:
    """The metadata of a thread's record, and why it cannot be read (empty if it can).

    If it cannot be read, nothing is dropped: a value that is not text comes as its JSON, and what is not JSON is kept
    whole under `unreadable`.
    """
    try:
        return _METADATA.decode(stored), ""
    except UNREADABLE as error:
        why = str(error)
    try:
        return {key: _text_of(value) for key, value in _FIELDS.decode(stored).items()}, why
    except UNREADABLE:
        return {"unreadable": stored if isinstance(stored, str) else stored.decode("utf-8", "replace")}, why


def _text_of(value: msgspec.Raw) -> str:
    try:
        return _TEXT.decode(value)
    except msgspec.ValidationError:
        return bytes(value).decode()


class ThreadRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The facts of a thread that are fixed at its creation."""

    id: str
    kind: str = "conversation"
    user_id: str = ""
    tenant_id: str = ""
    agent_id: str = ""
    parent_id: str = ""
    metadata: Mapping[str, str] = msgspec.field(default_factory=dict)
    policy: CompactionPolicy | None = None
    created_at_us: int = 0
    forked_from: ForkPoint | None = None


class DamagedRecord(ThreadRecord, frozen=True, kw_only=True):
    """A record as far as it could be read. `unreadable` names each unreadable fact, with the reason."""

    unreadable: tuple[str, ...]

    def mended(self) -> ThreadRecord:
        """The record with what could be read, to be written in its place (see `Store.put_record`)."""
        return ThreadRecord(**{name: getattr(self, name) for name in ThreadRecord.__struct_fields__})


class Head(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The current position of a thread. Every commit compares (seq, epoch) and sets the next.

    `marks` holds the seq of the latest event of each tracked type: it tells whether a view is up to date without
    reading the log. A mark may be too high (in a fork), never too low. `unreadable` says why the stored marks cannot be
    read, if so: then there are none, and the thread must be rebuilt. `damaged` says that the row is not what was
    written: its numbers are never shown.
    """

    seq: int = 0
    hash: bytes = b""
    epoch: int = 0
    status: str = ACTIVE
    open_compaction: int = 0
    chunks: int = 0
    tokens: int = 0
    marks: Mapping[str, int] = msgspec.field(default_factory=dict)
    unreadable: str = ""
    damaged: str = ""


class LiveChunk(msgspec.Struct, frozen=True, gc=False):
    """A row of the state: the chunk's id, its order key and the id of its container (`""`: the top)."""

    chunk_id: str
    key: bytes
    container: str = ""


def as_metadata(given: Mapping[str, V] | None) -> dict[str, V]:
    """Metadata as a caller passes it; `None` means empty. Raises `InvalidArgument`."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise InvalidArgument("metadata", given, "give a mapping of texts to texts")
    return dict(given)


def check_metadata(metadata: Mapping[str, str]) -> Mapping[str, str]:
    """The metadata; raises `InvalidIdentifier` if it could not be stored, read back or compared exactly."""
    for key, value in metadata.items():
        check_identifier("metadata key", key)
        if value != "":
            check_identifier(f"the metadata value of {key!r}", value)
    return metadata


def check_record(record: ThreadRecord) -> None:
    """Raise for facts that could not be stored, read back or compared exactly.

    `InvalidIdentifier` for an id, a scope, or a metadata key or value; `InvalidPolicy` for what is not a policy.
    """
    check_identifier("thread id", record.id)
    check_identifier("kind", record.kind)
    for what in ("user_id", "tenant_id", "agent_id", "parent_id"):
        value = getattr(record, what)
        if value != "":
            check_identifier(what, value)
    check_metadata(record.metadata)
    if not isinstance(record.policy, CompactionPolicy | None):
        raise InvalidPolicy("policy", ascii(record.policy), "give a CompactionPolicy")


class LoadedThread(msgspec.Struct, frozen=True):
    """A thread as stored: record, head, live rows, and the events that their chunks come from, by seq.

    `indexed`: it has an index of passages, which commits keep up to date. `broken`: what is noted about a log found
    broken (see `store.broken`).
    """

    record: ThreadRecord
    head: Head
    live: Sequence[LiveChunk]
    sources: Mapping[int, StoredEvent]
    indexed: bool = False
    broken: bytes | None = None

    def let_go(self) -> None:
        """Drop the rows one by one: freed by one call, many keep other threads from the interpreter."""
        while isinstance(self.sources, dict) and self.sources:
            self.sources.popitem()
        while isinstance(self.live, list) and self.live:
            self.live.pop()


def generation_of(head: Head) -> int:
    """The number of the thread among those that had its id. Writing to the thread does not change it."""
    return head.epoch // SCOPE_EPOCHS


class ThreadInfo(JsonForm, msgspec.Struct, frozen=True, kw_only=True):
    """The record and the head of a thread. `events` includes a fork's shared past.

    `damaged` names what differs from what was written, with the reason; it is empty for an intact thread. If it names
    the head, `chunks` and `tokens` are 0, and status, events and hash are what its row says, right or wrong.

    `updated_at` is when its last event was recorded, or when it was created. `generation` tells apart threads that had
    the same id one after another, each deleted before the next: a later one has a greater number. A copy of the store
    has different ones, so it is not in the JSON form.
    """

    json_names = (
        "id kind status events chunks tokens user_id tenant_id agent_id parent_id metadata created_at updated_at "
        "forked_from head_hash damaged"
    )

    id: str
    kind: str
    user_id: str
    tenant_id: str
    agent_id: str
    parent_id: str
    metadata: Mapping[str, str]
    policy: CompactionPolicy | None
    created_at: datetime
    forked_from: ForkPoint | None
    status: str
    events: int
    head_hash: str
    chunks: int
    tokens: int
    updated_at: datetime
    generation: int = 0
    damaged: tuple[str, ...] = ()

    @property
    def is_what_if(self) -> bool:
        """Whether its memory is hypothetical: it is the fork of a what-if, or its metadata says so (`what_if`)."""
        return WHAT_IF in self.metadata

    @classmethod
    def of(cls, record: ThreadRecord, head: Head, updated_us: int) -> "ThreadInfo":
        """Build it from the stored record and head, and the time of its last event."""
        damaged = record.unreadable if isinstance(record, DamagedRecord) else ()
        why = head.damaged or (f"its marks cannot be read: {head.unreadable}" if head.unreadable else "")
        return cls(
            id=record.id,
            kind=record.kind,
            user_id=record.user_id,
            tenant_id=record.tenant_id,
            agent_id=record.agent_id,
            parent_id=record.parent_id,
            metadata=record.metadata,
            policy=record.policy,
            created_at=to_datetime(record.created_at_us),
            forked_from=record.forked_from,
            status=head.status,
            events=head.seq,
            head_hash=head.hash.hex(),
            chunks=0 if head.damaged else head.chunks,
            tokens=0 if head.damaged else head.tokens,
            updated_at=to_datetime(updated_us),
            generation=generation_of(head),
            damaged=(*damaged, f"head: {why}") if why else damaged,
        )
