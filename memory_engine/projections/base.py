"""What a projection is: a pure fold of one thread's events into keyed rows."""

from collections.abc import Iterator, Mapping
from typing import Generic, Literal, Protocol, TypeVar

import msgspec

from memory_engine.codec import encode_json
from memory_engine.records import RecordedEvent

ProjectionMode = Literal["inline", "async"]

V = TypeVar("V")


class Projection(Protocol[V]):
    """A read model of each thread.

    `version` goes up when the meaning of the rows changes: the rows of another version
    are left alone and the new ones are made from the log. `row` is the type of a row's
    value: anything msgspec can encode as JSON. `mode` says when it runs: `"inline"`, in
    the commit of the event, or `"async"`, soon after it.
    """

    name: str
    version: int
    mode: ProjectionMode
    row: type[V]

    def apply(self, rows: "Rows[V]", event: RecordedEvent) -> None:
        """Change `rows` by one event. Pure: the same events in the same order give the same rows."""
        ...


class Rows(Generic[V]):
    """The rows of one projection for one thread, while events are applied to them."""

    def __init__(self, row: type[V], stored: Mapping[str, bytes]) -> None:
        self._decoder = msgspec.json.Decoder(row)
        self._kept: dict[str, bytes] = dict(stored)
        self._changed: dict[str, bytes | None] = {}

    def get(self, key: str) -> V | None:
        """The value under a key. Changing it changes no row: put it back."""
        encoded = self._changed[key] if key in self._changed else self._kept.get(key)
        return self._decoder.decode(encoded) if encoded is not None else None

    def put(self, key: str, value: V) -> None:
        """Set a row."""
        self._changed[key] = encode_json(value)

    def drop(self, key: str) -> None:
        """Remove a row if it is there."""
        self._changed[key] = None

    def keys(self) -> Iterator[str]:
        """The keys in their order."""
        alive = (self._kept.keys() | self._changed.keys()) - {k for k, v in self._changed.items() if v is None}
        return iter(sorted(alive))

    def changes(self) -> dict[str, bytes | None]:
        """What changed since the last `keep`: encoded values, `None` for dropped rows."""
        return dict(self._changed)

    def keep(self) -> None:
        """The changes were written."""
        for key, encoded in self._changed.items():
            if encoded is None:
                self._kept.pop(key, None)
            else:
                self._kept[key] = encoded
        self._changed.clear()

    def restore(self, changes: Mapping[str, bytes | None]) -> None:
        """Go back to what `changes` gave."""
        self._changed = dict(changes)

    def discard(self) -> None:
        """The changes were not written."""
        self._changed.clear()

    def encoded(self) -> dict[str, bytes]:
        """All rows as stored, in order of keys."""
        return {k: self._changed.get(k) or self._kept[k] for k in self.keys()}
