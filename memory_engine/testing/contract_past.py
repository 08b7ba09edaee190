"""The storage contract, about reading parts of the past: some types, a time, the row before a key."""

import msgspec
import pytest

from memory_engine.errors import ThreadNotFound
from memory_engine.persistence import Head, ProjectionChange, Store, ThreadRecord
from memory_engine.testing.contract_rows import HOSTILE, event, filled, forked, unit


class PastContract:
    """What every store finds of a thread's past."""

    async def test_events_of_some_types_come_in_order(self, store: Store) -> None:
        """Only those, through shared pasts, within the bounds and the limit; a type is compared exactly."""
        types = ["a", "b", "A", "a", "%", "c", "a"]
        await store.create(ThreadRecord(id="t"), Head(), ())
        rows = [msgspec.structs.replace(event(n), type=name) for n, name in enumerate(types, 1)]
        await store.commit(unit("t", *rows))
        await forked(store, "f", "t", 5, own=2)

        async def seqs(thread_id: str, *wanted: str, after: int = 0, upto: int = 99, limit: int = 99) -> list[int]:
            found = await store.read(thread_id, after=after, upto=upto, limit=limit, types=frozenset(wanted))
            return [stored.seq for stored in found]

        assert [1, 4, 7] == await seqs("t", "a")
        assert [[], [5], []] == [await seqs("t", *names) for names in ((), ("%",), ("_",))]
        assert [[2, 6], [4, 7]] == [await seqs("t", "b", "c"), await seqs("t", "a", after=1)]
        assert [[4], [1]] == [await seqs("t", "a", after=1, upto=6), await seqs("t", "a", limit=1)]
        assert [1, 4] == await seqs("f", "a")
        assert [5] == await seqs("t", *HOSTILE)
        with pytest.raises(ThreadNotFound):
            await seqs("nobody", "a")

    async def test_a_time_finds_the_last_event_up_to_it(self, store: Store) -> None:
        """By place, also where a clock went back, and through shared pasts; 0 before all."""
        times = [10, 20, 5, 20, 40]
        await store.create(ThreadRecord(id="t"), Head(), ())
        rows = [msgspec.structs.replace(event(n), recorded_at_us=us) for n, us in enumerate(times, 1)]
        await store.commit(unit("t", *rows))
        await forked(store, "f", "t", 3)
        assert [0, 3, 3, 4, 4, 5] == [await store.seq_at("t", us) for us in (4, 5, 10, 20, 39, 10**15)]
        assert [0, 3, 3] == [await store.seq_at("f", us) for us in (-(10**15), 5, 10**15)]
        with pytest.raises(ThreadNotFound):
            await store.seq_at("nobody", 5)

    async def test_the_row_before_a_key_is_found(self, store: Store) -> None:
        """The greatest key between two, both included, of one projection, version and thread."""
        await filled(store, "t", 1)
        await filled(store, "other", 1)
        rows: dict[str, bytes | None] = {key: key.encode() for key in ("a:1", "a:5", "b:3", *HOSTILE)}
        await store.write_projection("t", ProjectionChange("p", 1, rows, 0))
        await store.write_projection("t", ProjectionChange("p", 2, {"a:4": b"version 2"}, 0))
        await store.write_projection("other", ProjectionChange("p", 1, {"a:4": b"other"}, 0))
        found = [await store.row_upto("p", 1, "t", between) for between in (("a:", "a:4"), ("a:", "a:5"), ("a:", "a:"))]
        assert [("a:1", b"a:1"), ("a:5", b"a:5"), None] == found
        for key in HOSTILE:
            assert (key, key.encode()) == await store.row_upto("p", 1, "t", (key, key))
        with pytest.raises(ThreadNotFound):
            await store.row_upto("p", 1, "nobody", ("a", "b"))
