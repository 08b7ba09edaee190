"""Projections: pure folds of one thread's events into keyed rows."""

from bisect import bisect_left
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from functools import lru_cache
from inspect import iscoroutinefunction
from typing import Generic, Literal, Protocol, TypeVar, get_args

import msgspec
import msgspec.inspect

from memory_engine.core.codec import encode_json
from memory_engine.core.events.base import Event
from memory_engine.core.events.memory import ThreadCleared
from memory_engine.core.records import RecordedEvent
from memory_engine.errors import InvalidArgument, ReducerError, RowsNotLoaded, UnreadableRow, UntrackedEvents

ProjectionMode = Literal["inline", "async"]

V = TypeVar("V")
K = TypeVar("K")

_PARTS = ("name", "version", "mode", "row", "apply")
"""The parts that every projection has."""
ROW_TYPES_KEPT = 256
"""Types to remember as safe or unsafe for readers to share: finding out takes as long as reading a row."""


class RowOrigin(msgspec.Struct, frozen=True, kw_only=True):
    """Where a row, or a part of one, comes from: the events (`sources`) of `source_thread` that it was drawn from.

    A class that is based on it has these fields last.
    """

    source_thread: str = ""
    sources: tuple[str, ...] = ()


class Projection(Protocol[V]):
    """A read model of each thread. It may declare itself by plain class attributes: `mode = "inline"`.

    When a thread is cleared all rows are removed without the projection's help. One that declares `survives_clear =
    True` keeps them, and decides for itself what `ThreadCleared` does.
    """

    @property
    def name(self) -> str:
        """The name under which its rows are kept."""
        ...

    @property
    def version(self) -> int:
        """Increase it when the meaning of the rows changes: rows of another version are ignored and rebuilt."""
        ...

    @property
    def mode(self) -> str:
        """When it runs (a `ProjectionMode`): `"inline"`, in the event's commit, or `"async"`, soon after it."""
        ...

    @property
    def row(self) -> type[V]:
        """The type of a row's value: anything msgspec can encode as JSON."""
        ...

    def apply(self, rows: "Rows[V]", event: RecordedEvent) -> None:
        """Change `rows` by one event. Pure: the same events in the same order give the same rows."""
        ...


class View(Projection[V], Protocol[V]):
    """An inline projection of few event types, all declared `tracked`: it costs nothing until it is used.

    A thread opens without its rows: they are read on first use, or when an event of `events` comes. With `lazy` the
    second case reads nothing either: `apply` may then put and drop rows, but not read them.
    """

    @property
    def events(self) -> Collection[type[Event]]:
        """The event types that it reads."""
        ...

    @property
    def lazy(self) -> bool:
        """Whether `apply` reads no rows."""
        ...


def seq_key(seq: int) -> str:
    """A seq as a row's key. Keys sort as text, so it has leading zeros: `0000000012`."""
    return f"{seq:010d}"


def event_types(projection: Projection[V]) -> frozenset[str] | None:
    """The event types that a projection reads, if it is a view; else `None`: it reads all.

    `open` has refused one that lists both tracked events and untracked ones (`check_events`). A built-in view may say
    them by name (`event_type_names`), since its classes are loaded with their first use.
    """
    named: frozenset[str] | None = getattr(projection, "event_type_names", None)
    if named is not None:
        return named
    classes: Collection[type[Event]] | None = getattr(projection, "events", None)
    if classes is None or projection.mode != "inline" or not all(cls.event_tracked for cls in classes):
        return None
    own = frozenset(cls.event_type for cls in classes)
    return own if survives_clear(projection) else own | {ThreadCleared.event_type}


def origin_of(projection: Projection[V]) -> Callable[[V], int] | None:
    """Returns the seq that a row came from, so readers skip what was forgotten. `None`: the fold drops such rows."""
    found: Callable[[V], int] | None = getattr(projection, "origin", None)
    return found


def survives_clear(projection: Projection[V]) -> bool:
    """Whether a projection keeps its rows when the thread is cleared."""
    return bool(getattr(projection, "survives_clear", False))


def check_events(projection: Projection[V]) -> None:
    """Raise `UntrackedEvents` for an inline projection that lists both tracked and untracked events.

    One untracked class would make the view a projection of every event, and its `apply` would get events that it does
    not list. Raises `InvalidArgument` for a class in place of an instance, for one that lacks a part, for an `apply`
    that is `async` (it would never run), and for an unknown mode: a class may declare any text.
    """
    if isinstance(projection, type):
        raise InvalidArgument("a projection", projection, "it is a class; give an instance of it")
    lacking = [part for part in _PARTS if not hasattr(projection, part)]
    if lacking or not callable(projection.apply):
        what = " and no ".join(lacking) or "method `apply`"
        raise InvalidArgument("a projection", projection, f"it has no {what} (see docs/how-to/write-a-view.md)")
    if iscoroutinefunction(projection.apply):
        raise InvalidArgument(f"apply of projection {projection.name!r}", projection.apply, "write it without async")
    if projection.mode not in get_args(ProjectionMode):
        raise InvalidArgument(
            f"the mode of projection {projection.name!r}", projection.mode, 'give "inline" or "async"'
        )
    classes: Collection[type[Event]] | None = getattr(projection, "events", None)
    if classes is None or projection.mode != "inline":
        return
    untracked = tuple(cls.__name__ for cls in classes if not cls.event_tracked)
    if 0 < len(untracked) < len(classes):
        raise UntrackedEvents(projection.name, untracked)


def is_lazy(projection: Projection[V]) -> bool:
    """Whether a projection's rows stay unread while events are applied."""
    return bool(getattr(projection, "lazy", False)) and event_types(projection) is not None


V_co = TypeVar("V_co", covariant=True)

_LAST_KEY = "\U0010ffff"
"""Sorts after every key."""


class ReadableRows(Protocol[V_co]):
    """Rows as their readers see them, in key order (by code points)."""

    def get(self, key: str) -> V_co | None:
        """The value under a key."""
        ...

    def keys(self) -> Iterator[str]:
        """The keys."""
        ...

    def items(self) -> Iterator[tuple[str, V_co]]:
        """Keys and values."""
        ...

    def between(self, first: str, last: str) -> list[str]:
        """The keys with `first` <= key < `last`, found without visiting the others."""
        ...

    @property
    def revision(self) -> int:
        """A number that changes whenever a row changes."""
        ...

    def encoded(self) -> dict[str, bytes]:
        """All rows as stored, in key order: a copy, which does not follow the thread."""
        ...

    def __len__(self) -> int: ...


class Rows(Generic[V]):
    """The rows of one projection for one thread, while events are applied to them.

    Without `stored` they are blind: they can be put and dropped, not read.
    """

    def __init__(self, row: type[V], stored: Mapping[str, bytes] | None) -> None:
        self._decoder = msgspec.json.Decoder(row)
        self._shares = _is_frozen(row)  # type: ignore[arg-type]  # mypy does not know that a type can be hashed
        self._kept: dict[str, bytes] | None = dict(stored) if stored is not None else None
        self._changed: dict[str, bytes | None] = {}
        self._ranges: list[tuple[str, str]] = []
        self._values: dict[str, V] = {}
        self._sorted: list[str] | None = None
        self.revision = 0

    @property
    def is_blind(self) -> bool:
        """Whether the rows cannot be read."""
        return self._kept is None

    @property
    def is_changed(self) -> bool:
        """Whether there are unwritten changes."""
        return bool(self._changed or self._ranges)

    def get(self, key: str) -> V | None:
        """The value under a key. Frozen values are shared. Changing a mutable one does not change the row: put it back.

        Raises `RowsNotLoaded` for blind rows, `UnreadableRow` if the stored bytes cannot be read.
        """
        try:
            value = self._values.get(key)
        except TypeError:  # a list, say
            raise InvalidArgument("key", key, "give a text") from None
        if value is not None:
            return value
        encoded = self._changed[key] if key in self._changed else self._loaded().get(key)
        if encoded is None:
            return None
        value = decoded_row(self._decoder, key, encoded)
        if self._shares:
            self._values[key] = value
        return value

    def put(self, key: str, value: V) -> None:
        """Set a row."""
        self._set(key, encode_json(value))

    def drop(self, key: str) -> None:
        """Remove a row if it is there."""
        self._set(key, None)

    def drop_range(self, first: str, last: str) -> None:
        """Remove the rows with `first` <= key < `last`."""
        if self._kept is None:
            self._ranges.append((first, last))
            for key in [key for key in self._changed if first <= key < last]:
                del self._changed[key]
            return
        gone = self.between(first, last)
        self.revision += 1
        for key in gone:
            self._changed[key] = None
            self._values.pop(key, None)
        if gone and self._sorted is not None:
            at = bisect_left(self._sorted, gone[0])
            del self._sorted[at : at + len(gone)]

    def clear(self) -> None:
        """Remove every row."""
        self.revision += 1
        # also those that an unwritten change dropped before: without it they would come back
        self._changed = dict.fromkeys(self._kept or ())
        self._ranges = [*self._ranges, ("", _LAST_KEY)] if self._kept is None else self._ranges
        self._values.clear()
        self._sorted = None

    def _set(self, key: str, encoded: bytes | None) -> None:
        self.revision += 1
        self._changed[key] = encoded
        self._values.pop(key, None)
        if self._sorted is not None:
            at = bisect_left(self._sorted, key)
            is_there = at < len(self._sorted) and self._sorted[at] == key
            if encoded is None and is_there:
                del self._sorted[at]
            elif encoded is not None and not is_there:
                self._sorted.insert(at, key)

    def keys(self) -> Iterator[str]:
        """The keys in order, by code points."""
        if self._sorted is None:
            kept = self._loaded()
            alive = kept.keys() | self._changed.keys()
            self._sorted = sorted(key for key in alive if self._changed.get(key, kept.get(key)) is not None)
        return iter(self._sorted)

    def items(self) -> Iterator[tuple[str, V]]:
        """Keys and values in key order."""
        for key in list(self.keys()):
            value = self.get(key)
            if value is not None:
                yield key, value

    def between(self, first: str, last: str) -> list[str]:
        """The keys with `first` <= key < `last`, in order: found without visiting the others."""
        self.keys()
        keys = self._sorted or []
        return keys[bisect_left(keys, first) : bisect_left(keys, last)]

    def __len__(self) -> int:
        self.keys()
        return len(self._sorted or ())

    def __iter__(self) -> Iterator[str]:
        return self.keys()

    def _loaded(self) -> dict[str, bytes]:
        if self._kept is None:
            raise RowsNotLoaded
        return self._kept

    # for the engine

    def changes(self) -> "RowChanges":
        """The changes since the last `keep`."""
        return RowChanges(dict(self._changed), tuple(self._ranges))

    def keep(self) -> None:
        """Mark the changes as written."""
        if self._kept is not None:
            for key, encoded in self._changed.items():
                if encoded is None:
                    self._kept.pop(key, None)
                else:
                    self._kept[key] = encoded
        self._changed.clear()
        self._ranges.clear()

    def restore(self, changes: "RowChanges") -> None:
        """Restore what `changes` returned."""
        self.revision += 1
        self._changed = dict(changes.rows)
        self._ranges = list(changes.ranges)
        self._values.clear()
        self._sorted = None

    def discard(self) -> None:
        """Mark the changes as not written."""
        if self.is_changed:
            self.restore(RowChanges({}, ()))

    def encoded(self) -> dict[str, bytes]:
        """All rows as stored, in key order."""
        kept = self._loaded()
        if not self._changed:
            return {key: kept[key] for key in self.keys()}
        return {key: self._changed.get(key) or kept[key] for key in self.keys()}


def row_of(rows: ReadableRows[object], kind: type[K], key: str) -> K | None:
    """The row under a key, if it is of this kind."""
    found = rows.get(key)
    return found if isinstance(found, kind) else None


def rows_under(rows: ReadableRows[object], kind: type[K], prefix: str) -> list[tuple[str, K]]:
    """The rows of a kind whose keys begin with a prefix, in order, each with the rest of its key."""
    found = ((key.removeprefix(prefix), rows.get(key)) for key in rows.between(prefix, behind(prefix)))
    return [(key, row) for key, row in found if isinstance(row, kind)]


def behind(prefix: str) -> str:
    """The first key that is behind all those that begin with a prefix."""
    return prefix[:-1] + chr(ord(prefix[-1]) + 1)


def decoded_row(decoder: msgspec.json.Decoder[V], key: str, encoded: bytes) -> V:
    """A row's value. Raises `UnreadableRow`."""
    try:
        return decoder.decode(encoded)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        row = getattr(decoder.type, "__name__", str(decoder.type))
        raise UnreadableRow(row, key, str(error)) from error


class RowChanges(msgspec.Struct, frozen=True):
    """Changes to rows: ranges of keys that go first, then values (`None` for dropped rows)."""

    rows: Mapping[str, bytes | None]
    ranges: tuple[tuple[str, str], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.rows or self.ranges)


@lru_cache(maxsize=ROW_TYPES_KEPT)
def _is_frozen(row: Hashable) -> bool:
    """Whether values of this type are immutable throughout, so that all readers may share one value."""
    return _holds_no_mutable(msgspec.inspect.type_info(row), set())


def _holds_no_mutable(info: msgspec.inspect.Type, seen: set[type]) -> bool:
    match info:
        case msgspec.inspect.StructType(cls=cls, fields=fields):
            if cls in seen:
                return True
            seen.add(cls)
            return cls.__struct_config__.frozen and all(_holds_no_mutable(field.type, seen) for field in fields)
        case msgspec.inspect.UnionType(types=types):
            return all(_holds_no_mutable(one, seen) for one in types)
        case msgspec.inspect.VarTupleType(item_type=item):
            return _holds_no_mutable(item, seen)
        case msgspec.inspect.TupleType(item_types=items):
            return all(_holds_no_mutable(item, seen) for item in items)
    mutable = (
        msgspec.inspect.AnyType, msgspec.inspect.DictType, msgspec.inspect.ListType, msgspec.inspect.SetType,
        msgspec.inspect.CustomType, msgspec.inspect.ByteArrayType, msgspec.inspect.DataclassType,
    )  # fmt: skip
    return not isinstance(info, mutable)


def apply_one(projection: Projection[V], rows: Rows[V], event: RecordedEvent) -> None:
    """Apply one event; every error of the projection becomes a `ReducerError` that names it."""
    if event.type == ThreadCleared.event_type and not survives_clear(projection):
        rows.clear()
        if event_types(projection) is not None:
            return  # a view is given only what it lists
    try:
        projection.apply(rows, event)
    except Exception as error:  # the boundary to user code
        why = f"{type(error).__name__}: {error}"
        raise ReducerError(event.thread_id, event.type, f"projection {projection.name}", "", why) from error
