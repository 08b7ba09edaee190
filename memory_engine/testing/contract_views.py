"""The storage contract, about projections, totals, and the data that outlives the store object."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import msgspec
import pytest

from memory_engine.core.threads import Head, LiveChunk, ThreadRecord
from memory_engine.errors import EngineClosed, HeadMoved, ThreadNotFound
from memory_engine.store.protocol import ProjectionChange, RowSpan, Store, ThreadFilter
from memory_engine.testing.contract_rows import HOSTILE, IDS, event, filled, forked, head_at, ids_of, unit

StoreFactory = Callable[[], Awaitable[Store]]


@asynccontextmanager
async def opened(factory: StoreFactory) -> AsyncIterator[Store]:
    """A store that is closed in the end, also after an error: one left open would keep its process alive."""
    store = await factory()
    try:
        yield store
    finally:
        await store.close()


class ViewContract:
    """Every store's promises about the rows of projections, and about its totals."""

    async def test_a_projection_begins_with_nothing(self, store: Store) -> None:
        """Before its first write, a projection has no rows and is at 0."""
        await filled(store, "t", 1)
        assert (0, {}) == await store.rows("p", 1, "t")

    async def test_a_commit_writes_inline_rows(self, store: Store) -> None:
        """Rows and checkpoint of a unit are written with its events: put, replaced, dropped."""
        await store.create(ThreadRecord(id="t"), Head(), ())
        first = ProjectionChange("p", 1, {"a": b"1", "b": b"\x00\xff", "c": b""}, 1)
        await store.commit(unit("t", event(1), projections=[first]))
        second = ProjectionChange("p", 1, {"a": b"2", "b": None, "never there": None}, 2)
        await store.commit(unit("t", event(2), after=head_at(1), projections=[second]))
        assert (2, {"a": b"2", "c": b""}) == await store.rows("p", 1, "t")

    async def test_an_asynchronous_projection_writes_alone(self, store: Store) -> None:
        """Rows are added to those there, or with `replace` take their place."""
        await filled(store, "t", 2)
        await store.write_projection("t", ProjectionChange("p", 1, {"a": b"1", "b": b"1"}, 1))
        await store.write_projection("t", ProjectionChange("p", 1, {"b": b"2"}, 2))
        added = await store.rows("p", 1, "t")
        await store.write_projection("t", ProjectionChange("p", 1, {"c": b"3"}, 2), replace=True)
        assert ((2, {"a": b"1", "b": b"2"}), (2, {"c": b"3"})) == (added, await store.rows("p", 1, "t"))

    async def test_rows_belong_to_one_thread_projection_and_version(self, store: Store) -> None:
        """Rows of another thread, projection or version are neither read, written nor replaced."""
        places = [(name, version, thread) for name in ("p", "P") for version in (1, 2) for thread in ("t", "u")]
        for thread_id in ("t", "u"):
            await filled(store, thread_id, 1)
        for name, version, thread in places:
            change = ProjectionChange(name, version, {"k": f"{name}{version}{thread}".encode()}, 1)
            await store.write_projection(thread, change, replace=True)
        found = [await store.rows(*place) for place in places]
        assert [(1, {"k": f"{n}{v}{t}".encode()}) for n, v, t in places] == found

    async def test_row_keys_are_any_text(self, store: Store) -> None:
        """Keys are compared exactly, also when they are dropped."""
        await filled(store, "t", 1)
        rows = {key: key.encode() for key in HOSTILE}
        await store.write_projection("t", ProjectionChange("p", 1, rows, 1))
        await store.write_projection("t", ProjectionChange("p", 1, {"%": None}, 1))
        assert (1, {key: value for key, value in rows.items() if key != "%"}) == await store.rows("p", 1, "t")

    async def test_a_range_of_rows_is_dropped_before_any_is_put(self, store: Store) -> None:
        """Ranges hold their first key and not their last; rows that the same change puts stay."""
        await filled(store, "t", 3)
        await filled(store, "u", 1)
        rows = {key: key.encode() for key in ("a", "b", "ba", "c", "ü", "👩")}
        for thread_id in ("t", "u"):
            await store.write_projection(thread_id, ProjectionChange("p", 1, rows, 1))
        await store.write_projection("t", ProjectionChange("p", 1, {"ba": b"new"}, 2, [("b", "c"), ("ü", "ü\0")]))
        assert (2, {"a": b"a", "ba": b"new", "c": b"c", "👩": "👩".encode()}) == await store.rows("p", 1, "t")
        assert (1, rows) == await store.rows("p", 1, "u")

    async def test_rows_are_looked_at_without_reading_them_all(self, store: Store) -> None:
        """Those of a span, their number and bytes, the checkpoint, and which threads have any."""
        for thread_id in ("t", "u", "gone"):
            await filled(store, thread_id, 1)
        rows = {f"{n:03}": b"x" * n for n in range(5)}
        for thread_id in ("t", "gone"):
            await store.write_projection(thread_id, ProjectionChange("p", 1, rows, 1))
        await store.delete("gone")
        spans = {
            RowSpan(): "01234",
            RowSpan(limit=2): "01",
            RowSpan(limit=2, latest=True): "34",
            RowSpan(first="001", last="003"): "12",
            RowSpan(first="0011", last="004", limit=1): "2",
            RowSpan(first="001", last="004", limit=2, latest=True): "23",
            RowSpan(first="003", last="002"): "",
            RowSpan(limit=0, latest=True): "",
        }
        for span, last in spans.items():
            found = [tuple(row) for row in await store.rows_between("p", 1, "t", span)]
            assert [(f"00{n}", b"x" * int(n)) for n in last] == found
        assert [] == list(await store.rows_between("p", 2, "t", RowSpan()))
        assert ((5, 10), (0, 0)) == (await store.measure_rows("p", 1, "t"), await store.measure_rows("p", 1, "u"))
        assert (1, 0) == (await store.checkpoint("p", 1, "t"), await store.checkpoint("p", 1, "u"))
        assert (["t"], []) == (list(await store.holders("p", 1)), list(await store.holders("q", 1)))

    async def test_a_head_keeps_its_marks(self, store: Store) -> None:
        """The latest seq of each tracked type is read back with the head, also where the thread is loaded."""
        await store.create(ThreadRecord(id="t"), Head(), ())
        marked = msgspec.structs.replace(head_at(1), marks={"a": 1, "naïve": 1})
        await store.commit(msgspec.structs.replace(unit("t", event(1)), head=marked))
        listed = (await store.threads(ThreadFilter(id="t")))[0][1]
        assert [marked] * 3 == [await store.head("t"), (await store.load("t")).head, listed]

    async def test_threads_that_a_projection_has_not_read_are_behind(self, store: Store) -> None:
        """Behind are the threads whose head is past the checkpoint of this version; empty ones are not."""
        await store.create(ThreadRecord(id="empty"), Head(), ())
        for name, checkpoint in (("new", 0), ("old", 1), ("done", 2), ("gone", 0)):
            await filled(store, name, 2)
            if checkpoint:
                await store.write_projection(name, ProjectionChange("p", 1, {}, checkpoint))
        await store.delete("gone")
        assert ["new", "old"] == sorted(await store.behind("p", 1))
        assert ["done", "new", "old"] == sorted(await store.behind("p", 2))

    async def test_totals_are_of_what_is_there(self, store: Store) -> None:
        """Threads, events, chunks, tokens and payload bytes of all threads but deleted ones."""
        for name in ("a", "b", "gone"):
            await store.create(ThreadRecord(id=name), Head(), ())
            counted = msgspec.structs.replace(head_at(2), chunks=3, tokens=5)
            work = unit(name, event(1, b"x" * 10), event(2, b"y" * 100_000))
            await store.commit(msgspec.structs.replace(work, head=counted))
        await store.delete("gone")
        stats = await store.stats()
        assert (2, 4, 6, 10) == (stats.threads, stats.events, stats.chunks, stats.tokens)
        assert (200_020, True) == (stats.payload_bytes, stats.bytes > 0)

    async def test_an_empty_store_has_totals_of_nothing(self, store: Store) -> None:
        """No threads and no events are an answer, not an error."""
        stats = await store.stats()
        assert (0, 0, []) == (stats.threads, stats.events, list(await store.threads(ThreadFilter())))

    async def test_closing_finishes_what_was_taken(self, store_factory: StoreFactory) -> None:
        """A commit that was handed over before `close` is answered, and so is `flush`."""
        store = await store_factory()
        await store.create(ThreadRecord(id="t"), Head(), ())
        taken = [store.commit(unit("t", event(1)))]
        await store.flush()
        await store.close()
        assert [None] == await asyncio.gather(*taken)

    async def test_a_closed_store_says_so(self, store_factory: StoreFactory) -> None:
        """Every call afterwards raises `EngineClosed`; closing it once more is harmless."""
        store = await store_factory()
        await store.create(ThreadRecord(id="t"), Head(), ())
        await store.close()
        await store.close()
        calls: list[Callable[[], Awaitable[object]]] = [
            lambda: store.create(ThreadRecord(id="u"), Head(), ()),
            lambda: store.load("t"),
            lambda: store.threads(ThreadFilter()),
            lambda: store.commit(unit("t", event(1))),
        ]
        for call in calls:
            with pytest.raises(EngineClosed):
                await call()


class ReopeningContract:
    """The promises of a store with `persistent = True`: it is opened again, and twice at once."""

    async def test_everything_is_there_after_reopening(self, store_factory: StoreFactory) -> None:
        """Records, logs, states, forks, projections and deletions outlive the store that wrote them."""
        live = {"1.0": LiveChunk("1.0", b"\x80")}
        changes = [ProjectionChange("p", 1, {"k": b"v"}, 1)]
        async with opened(store_factory) as store:
            for number, thread_id in enumerate(IDS):
                await store.create(ThreadRecord(id=thread_id, metadata={"n": str(number)}), Head(), ())
            await store.commit(unit(IDS[0], event(1, b"x" * 260_000), live=live, projections=changes))
            await forked(store, "fork", IDS[0], 1, own=1)
            await store.delete(IDS[1])
            before = [await store.load(IDS[0]), await store.load("fork"), await store.rows("p", 1, IDS[0])]
            listed = [record for record, _ in await store.threads(ThreadFilter())]
        async with opened(store_factory) as store:
            after = [await store.load(IDS[0]), await store.load("fork"), await store.rows("p", 1, IDS[0])]
            assert (before, listed) == (after, [record for record, _ in await store.threads(ThreadFilter())])

    async def test_a_commit_is_seen_by_the_other_store(self, store_factory: StoreFactory) -> None:
        """Two stores over the same data see each other's commits as soon as they are acknowledged."""
        async with opened(store_factory) as one, opened(store_factory) as other:
            head = await filled(one, "t", 1)
            await other.commit(unit("t", event(2), after=head))
            assert [["e1", "e2"]] * 2 == [await ids_of(one, "t"), await ids_of(other, "t")]

    async def test_of_two_stores_one_moves_the_head(self, store_factory: StoreFactory) -> None:
        """The slower of two writers is refused, and nothing of its unit is written."""
        async with opened(store_factory) as one, opened(store_factory) as other:
            head = await filled(one, "t", 1)
            rivals = [store.commit(unit("t", event(2, id=f"r{n}"), after=head)) for n, store in enumerate((one, other))]
            outcomes = await asyncio.gather(*rivals, return_exceptions=True)
            won = [f"r{n}" for n, outcome in enumerate(outcomes) if outcome is None]
            assert (1, ["e1", *won]) == (len(won), await ids_of(one, "t"))

    async def test_a_stale_store_cannot_write_to_a_deleted_thread(self, store_factory: StoreFactory) -> None:
        """A thread that another store deleted is refused here too, however long it was known."""
        async with opened(store_factory) as one, opened(store_factory) as other:
            head = await filled(one, "t", 1)
            await other.delete("t")
            with pytest.raises((HeadMoved, ThreadNotFound)):
                await one.commit(unit("t", event(2), after=head))
            assert 0 == (await other.stats()).events
