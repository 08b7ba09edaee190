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
"""Unit of first epochs: a scope's thread, and a thread that reuses an id, starts at a multiple of it.

Epochs of one id are so far apart that clients of a deleted thread notice that it no longer exists.
"""


WHAT_IF = "what_if"
"""Metadata key of a thread with hypothetical memory, such as a what-if's fork; its value says what was changed."""
TIMEZONE = "timezone"
"""Metadata key of a thread whose days are those of a zone of its own; its value is an IANA name."""


def is_scope_id(thread_id: str) -> bool:
    """Return True if an id has the form of users, tenants, agents and industries, such as `user:acme/u1`."""
    kind, colon, _ = thread_id.partition(":")
    return bool(colon) and kind in SCOPE_KINDS


class ForkPoint(msgspec.Struct, frozen=True):
    """The thread, and the seq up to which a fork shares its history."""

    thread_id: str
    seq: int


DEFAULT_WINDOW = 128_000
"""Window (tokens) of a model for which neither a policy nor a budget specifies one."""
WINDOW_MIN = 4_000
"""Minimum window derived from context budgets: a smaller budget does not mean that the model takes so little."""
FILL_SHARE, SOFT_SHARE, HARD_SHARE = 0.7, 0.8, 2.0
"""Shares of the window that are used for `tokens_min`, `soft_tokens` and `hard_tokens` if a policy specifies none."""
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
    """A policy as stored in a thread's record. Fields missing in an older record have the defaults of its time."""

    tokens_min: Annotated[int, Meta(ge=0)] | None = 0
    soft_tokens: _Tokens | None = 24_000
    hard_tokens: _Tokens | None = 96_000
    blocking: Literal["auto", "whole", "commit"] = "whole"


_STORED_POLICY = msgspec.json.Decoder(_StoredPolicy)


class CompactionPolicy(_PolicyFields, frozen=True, kw_only=True, omit_defaults=True):
    """When and how a thread is compacted.

    A compaction starts when at least `threshold` compactable working-flow chunks take `tokens_min` tokens together, or
    when they take more than `soft_tokens`; over `hard_tokens` it runs before the next context. Only chunks that a
    compaction may take count. By default, these limits are 70 %, 80 % and 200 % of the `window`: the tokens that your
    model takes, else the largest budget that was requested for the thread's contexts, else 128,000. `tokens_min=0`
    compacts by the number of chunks alone. The newest `keep_recent` chunks are not compacted. A summary takes `ratio`
    of the tokens that it replaces; when the summaries together exceed `summary_tokens_max`, they are merged into one. A
    compactor's deadline is `deadline_s` seconds.

    `blocking` says how long events wait. With `whole`, they wait from the start of the compaction to its end. With
    `commit`, they wait only while the result is checked against them and written, not while the compactor works, unless
    the thread exceeds `hard_tokens`. If events have changed what the compactor read, its result is discarded. `auto` is
    `commit` if a compactor calls a model, which is given up over `hard_tokens`, and `whole` otherwise.

    `instructions` say what summaries should keep, in addition to `EngineConfig.compaction_instructions`.

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
        """Return the default policy for a model with a window of `tokens`. Raises `InvalidPolicy`."""
        return cls(window=tokens)

    def applied(self, window: int | None = None) -> "CompactionPolicy":
        """Return the policy with a number for each limit: shares of its own window, else of the given one."""
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
_MARKS = msgspec.json.Decoder(dict[str, int])
_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_TEXT = msgspec.json.Decoder(str)
V = TypeVar("V", bound=str | None)
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""Exceptions that decoders raise for stored bytes that they cannot read."""


def encode_policy(policy: CompactionPolicy) -> str:
    """Return a policy in its stored form."""
    return msgspec.json.encode(_StoredPolicy(**msgspec.structs.asdict(policy))).decode()


def decode_policy(stored: bytes | str) -> CompactionPolicy:
    """Return the policy from its stored form. Raises one of `UNREADABLE`."""
    return CompactionPolicy(**msgspec.structs.asdict(_STORED_POLICY.decode(stored)))


def readable_policy(stored: bytes | str) -> tuple[CompactionPolicy | None, str]:
    """Return the policy from its stored form, and why it cannot be read (`""` if it can).

    If it cannot be read, keep the readable fields and use defaults for the others; return `None` if no field is
    readable.
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
    """Return metadata in its stored form."""
    return msgspec.json.encode(metadata).decode()


def encoded_pairs(metadata: Mapping[str, str]) -> list[str]:
    """Return each pair as `encode_metadata` writes it after a comma.

    Apart from unusual keys, no other part of the stored form looks like this.
    """
    return [f",{msgspec.json.encode({key: value}).decode()[1:-1]}" for key, value in metadata.items()]


def encoded_key(key: str) -> str:
    """Return a key as `encode_metadata` writes it after a comma. No value looks like this: its quotes are escaped."""
    return f",{msgspec.json.encode(key).decode()}:"


def readable_marks(stored: bytes) -> tuple[dict[str, int], str]:
    """Return a head's marks from their stored form, and why they cannot be read (`""` if they can)."""
    try:
        return ({}, "") if stored == b"{}" else (_MARKS.decode(stored), "")
    except UNREADABLE as error:
        return {}, str(error)


def readable_metadata(stored: bytes | str) -> tuple[dict[str, str], str]:
    """Return metadata from its stored form, and why it cannot be read (`""` if it can).

    If it cannot be read, nothing is dropped: a value that is not text is returned as its JSON, and anything that is not
    JSON is returned whole under `unreadable`.
    """
    try:
        return _METADATA.decode(stored), ""
    except UNREADABLE as error:
        why = str(error)
    try:
        return {key: _raw_text(value) for key, value in _FIELDS.decode(stored).items()}, why
    except UNREADABLE:
        return {"unreadable": stored if isinstance(stored, str) else stored.decode("utf-8", "replace")}, why


def _raw_text(value: msgspec.Raw) -> str:
    try:
        return _TEXT.decode(value)
    except msgspec.ValidationError:
        return bytes(value).decode()


class ThreadRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Facts of a thread that are fixed at its creation."""

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
        """Return a record of the readable facts, to replace this one (see `Store.put_record`)."""
        return ThreadRecord(**{name: getattr(self, name) for name in ThreadRecord.__struct_fields__})


def read_record(  # noqa: PLR0913 - the columns of a row
    names: Mapping[str, object],
    metadata: bytes,
    policy: bytes | None,
    created_at_us: object,
    forked_from: ForkPoint | None,
    *,
    has_first: bool,
) -> ThreadRecord:
    """Return the record that a row holds: a `DamagedRecord` where facts cannot be read, which lose no others.

    `has_first`: the thread has a first event of its own, so it is not a fork.
    """
    texts = {name: str(value) for name, value in names.items()}
    readable, why = readable_metadata(metadata)
    is_plain = policy is None and not (why or has_first) and {*map(type, names.values())} == {str}
    if is_plain and type(created_at_us) is int:  # nearly all: a page of threads is read as fast as its rows
        return ThreadRecord(
            **texts, metadata=readable, policy=None, created_at_us=created_at_us, forked_from=forked_from
        )
    facts = {name: "" if type(value) is str else "it is not a text of UTF-8" for name, value in names.items()}
    facts["metadata"] = why
    kept, facts["policy"] = readable_policy(policy) if policy is not None else (None, "")
    if has_first:  # a fork's log begins after the past that it shares
        forked_from, facts["forked_from"] = None, "the log has a first event of its own, so it is not a fork"
    if type(created_at_us) is not int:
        created_at_us, facts["created_at"] = 0, "it is not a number"
    record = ThreadRecord(
        **texts,
        metadata=readable,
        policy=kept,
        created_at_us=created_at_us,
        forked_from=forked_from,
    )
    unreadable = tuple(f"{name}: {why}" for name, why in facts.items() if why)
    return DamagedRecord(**msgspec.structs.asdict(record), unreadable=unreadable) if unreadable else record


class Head(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Current position of a thread. Every commit compares (seq, epoch) and sets the next.

    `marks` maps each tracked event type to the seq of its latest event, which tells whether a view is up to date
    without reading the log. A mark may be too high (in a fork), never too low. `unreadable` says why the stored marks
    cannot be read, if so: then they are empty, and the thread must be rebuilt. `damaged` says how the row differs from
    what was written: its numbers are never shown.
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
    """A row of the state: the chunk's id, its order key and the id of its container (`""`: top level)."""

    chunk_id: str
    key: bytes
    container: str = ""


def as_metadata(given: Mapping[str, V] | None) -> dict[str, V]:
    """Return metadata as passed by a caller; `None` means empty. Raises `InvalidArgument`."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise InvalidArgument("metadata", given, "give a mapping of texts to texts")
    return dict(given)


def check_metadata(metadata: Mapping[str, str]) -> Mapping[str, str]:
    """Return the metadata. Raises `InvalidIdentifier` if it cannot be stored, read back or compared exactly."""
    for key, value in metadata.items():
        check_identifier("metadata key", key)
        if value != "":
            check_identifier(f"the metadata value of {key!r}", value)
    return metadata


def check_record(record: ThreadRecord) -> None:
    """Raise if the record contains facts that cannot be stored, read back or compared exactly.

    Raises `InvalidIdentifier` for an id, a scope, or a metadata key or value, and `InvalidPolicy` for a value that is
    not a policy.
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

    `indexed` is True if the thread has an index of passages, which commits keep up to date. `broken` is the note about
    a log that was found broken (see `store.broken`).
    """

    record: ThreadRecord
    head: Head
    live: Sequence[LiveChunk]
    sources: Mapping[int, StoredEvent]
    indexed: bool = False
    broken: bytes | None = None

    def let_go(self) -> None:
        """Drop the rows one by one: freeing many in one call would hold the interpreter lock against other threads."""
        while isinstance(self.sources, dict) and self.sources:
            self.sources.popitem()
        while isinstance(self.live, list) and self.live:
            self.live.pop()


def generation_of(head: Head) -> int:
    """Return the number of the thread among all threads that had its id. Commits do not change it."""
    return head.epoch // SCOPE_EPOCHS


class ThreadInfo(JsonForm, msgspec.Struct, frozen=True, kw_only=True):
    """The record and the head of a thread. `events` includes a fork's shared history.

    `damaged` names what differs from what was written, with the reason; it is empty for an intact thread. If it names
    the head, `chunks` and `tokens` are 0, and status, events and hash are what its row says, right or wrong.

    `updated_at` is the time when its last event was recorded, or when it was created. `generation` distinguishes
    threads that had the same id one after another, each deleted before the next: a later one has a greater number. It
    differs in a copy of the store, so the JSON form does not include it.
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
        """Whether its memory is hypothetical: it is the fork of a what-if, or its metadata has the key `what_if`."""
        return WHAT_IF in self.metadata

    @classmethod
    def of(cls, record: ThreadRecord, head: Head, updated_us: int) -> "ThreadInfo":
        """Return the info for a stored record and head, and the time of the last event."""
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
