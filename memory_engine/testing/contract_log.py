"""The storage contract, about the log: whole commits or none, in order, byte for byte.

It also covers reading parts of a log: by correlation id over all threads, by type, up to a time, the row before a key.
"""

import asyncio

import msgspec
import pytest

from memory_engine.core.records import StoredEvent
from memory_engine.core.threads import ForkPoint, Head, LiveChunk, ThreadRecord
from memory_engine.errors import EventIdTaken, HeadMoved, IntegrityError, MemoryEngineError, ThreadNotFound
from memory_engine.store.protocol import CommitUnit, ProjectionChange, RowSpan, Store
from memory_engine.testing.contract_rows import HOSTILE, IDS, event, filled, forked, head_at, ids_of, unit


class LogContract:
    """Every store's promises about commits."""

    async def test_a_commit_is_read_back_whole(self, store: Store) -> None:
        """Every field of a row comes back unchanged."""
        stored = msgspec.structs.replace(
            event(1, b'{"content":"\xc3\xa9"}', record=b'{"operations":[]}'),
            recorded_at_us=-62_135_596_800_000_000,
            occurred_at_us=-1,
            causation_id="ca'use",
            correlation_id="корр",
        )
        await store.create(ThreadRecord(id="t"), Head(), ())
        await store.commit(unit("t", stored))
        assert [stored] == list(await store.read("t", after=0, upto=1, limit=1))
        assert head_at(1) == await store.head("t") == (await store.load("t")).head

    async def test_any_text_is_an_event_id(self, store: Store) -> None:
        """Event ids are compared exactly, however much they look alike."""
        await store.create(ThreadRecord(id="t"), Head(), ())
        await store.commit(unit("t", *(event(n, id=id_) for n, id_ in enumerate(IDS, 1))))
        found = [[stored.seq for stored in await store.find("t", [id_])] for id_ in IDS]
        assert [[n] for n in range(1, len(IDS) + 1)] == found

    @pytest.mark.parametrize(("seq", "epoch"), [(1, 0), (3, 0), (2, 1)])
    async def test_a_commit_on_another_head_is_refused(self, store: Store, seq: int, epoch: int) -> None:
        """A unit whose expected (seq, epoch) is not the head's writes nothing at all."""
        head = await filled(store, "t", 2)
        live = {"3.0": LiveChunk("3.0", b"\x80")}
        stale = unit("t", event(3), after=head_at(seq, epoch=epoch), live=live)
        changed = msgspec.structs.replace(stale, projections=[ProjectionChange("p", 1, {"k": b"v"}, 3)])
        with pytest.raises(HeadMoved):
            await store.commit(changed)
        loaded = await store.load("t")
        assert (head, [], ["e1", "e2"]) == (loaded.head, list(loaded.live), await ids_of(store, "t"))
        assert (0, {}) == await store.rows("p", 1, "t")

    async def test_an_event_id_is_taken_once(self, store: Store) -> None:
        """A unit with an id that the thread has writes nothing, its other events neither."""
        head = await filled(store, "t", 2)
        live = {"3.0": LiveChunk("3.0", b"\x80")}
        with pytest.raises(EventIdTaken):
            await store.commit(unit("t", event(3), event(4, id="e1"), after=head, live=live))
        loaded = await store.load("t")
        assert (head, [], ["e1", "e2"]) == (loaded.head, list(loaded.live), await ids_of(store, "t"))

    async def test_a_unit_may_not_repeat_an_id(self, store: Store) -> None:
        """Two events of one unit under one id are refused together."""
        await store.create(ThreadRecord(id="t"), Head(), ())
        with pytest.raises(EventIdTaken):
            await store.commit(unit("t", event(1, id="x"), event(2, id="x")))
        assert Head() == await store.head("t")

    async def test_threads_may_use_the_same_event_ids(self, store: Store) -> None:
        """An id is taken in its thread only."""
        for thread_id in ("a", "b"):
            await filled(store, thread_id, 2)
        assert [["e1", "e2"]] * 2 == [await ids_of(store, thread_id) for thread_id in ("a", "b")]

    async def test_live_rows_are_put_moved_and_dropped(self, store: Store) -> None:
        """A unit's rows take the place of older ones, `None` drops one, and the rest stays."""
        await store.create(ThreadRecord(id="t"), Head(), ())
        first = {f"1.{n}": LiveChunk(f"1.{n}", bytes([0x80 + n])) for n in range(3)}
        await store.commit(unit("t", event(1), live=first))
        second = {"1.0": LiveChunk("1.0", b"\x90"), "1.1": None, "2.0": LiveChunk("2.0", b"\x81\x00")}
        await store.commit(unit("t", event(2), after=head_at(1), live=second))
        loaded = await store.load("t")
        assert [second["2.0"], first["1.2"], second["1.0"]] == list(loaded.live)
        assert [1, 2] == sorted(loaded.sources)

    async def test_live_rows_are_ordered_by_bytes(self, store: Store) -> None:
        """Keys are compared as unsigned bytes within each container."""
        keys = [b"\x00", b"\x7f\xff", b"\x80", b"\x80\x00", b"\x80\x01", b"\x81", b"\xff"]
        rows = [LiveChunk(f"1.{n}", key, container) for n, key in enumerate(keys) for container in ("",)]
        rows += [LiveChunk("1.100", b"\x80", "1.0"), LiveChunk("1.101", b"\x7f", "1.0")]
        await store.create(ThreadRecord(id="t"), Head(), ())
        await store.commit(unit("t", event(1), live={row.chunk_id: row for row in reversed(rows)}))
        live = (await store.load("t")).live
        assert keys == [row.key for row in live if not row.container]
        assert [b"\x7f", b"\x80"] == [row.key for row in live if row.container == "1.0"]

    async def test_a_unit_without_events_moves_the_head(self, store: Store) -> None:
        """Status and epoch change by the same compare-and-set, and later commits must name them."""
        head = await filled(store, "t", 1)
        moved = msgspec.structs.replace(head, epoch=1, status="archived")
        await store.commit(CommitUnit(thread_id="t", expected=head, head=moved))
        with pytest.raises(HeadMoved):
            await store.commit(unit("t", event(2), after=head))
        assert moved == await store.head("t")

    async def test_many_units_at_once_are_taken_one_by_one(self, store: Store) -> None:
        """Of units that are handed over together, the bad ones fail alone."""
        for number in range(40):
            await store.create(ThreadRecord(id=str(number)), Head(), ())
        units = [unit(str(n), event(1), after=head_at(0, epoch=n % 2)) for n in range(40)]
        outcomes = await asyncio.gather(*map(store.commit, units), return_exceptions=True)
        assert [n % 2 == 1 for n in range(40)] == [isinstance(outcome, HeadMoved) for outcome in outcomes]
        assert [[], ["e1"]] == [await ids_of(store, "1"), await ids_of(store, "0")]

    async def test_units_of_one_thread_handed_over_together_do_not_mix(self, store: Store) -> None:
        """Of two units on one head, one wins whole and the other writes nothing."""
        await store.create(ThreadRecord(id="t"), Head(), ())
        rivals = [unit("t", event(1, id=name), event(2, id=name * 2)) for name in "ab"]
        outcomes = await asyncio.gather(*map(store.commit, rivals), return_exceptions=True)
        assert 1 == sum(isinstance(outcome, HeadMoved) for outcome in outcomes)
        assert await ids_of(store, "t") in (["a", "aa"], ["b", "bb"])

    async def test_a_commit_nobody_waits_for_is_whole(self, store: Store) -> None:
        """Cancelling the wait for a commit leaves it applied or not, never in part."""
        await store.create(ThreadRecord(id="t"), Head(), ())
        store.commit(unit("t", event(1), event(2))).cancel()
        await store.create(ThreadRecord(id="behind it"), Head(), ())
        ids = await ids_of(store, "t")
        assert (ids, len(ids)) in (([], 0), (["e1", "e2"], (await store.head("t")).seq))

    async def test_reading_pages_through_a_log(self, store: Store) -> None:
        """`after` is left out, `upto` is in, `limit` cuts, and nothing lies beyond the head."""
        await filled(store, "t", 10)
        spans = ((0, 99, 3), (3, 99, 3), (9, 99, 3), (10, 99, 3), (2, 5, 99), (5, 5, 9), (0, 10, 0))
        found = [await store.read("t", after=a, upto=u, limit=n) for a, u, n in spans]
        expected = [[1, 2, 3], [4, 5, 6], [10], [], [3, 4, 5], [], []]
        assert expected == [[stored.seq for stored in page] for page in found]

    async def test_events_are_read_by_their_seqs(self, store: Store) -> None:
        """In order, each once, through a shared past; seqs that no event has yet are passed over."""
        await filled(store, "t", 10)
        await store.create(ThreadRecord(id="f", forked_from=ForkPoint("t", 6)), head_at(6), ())
        assert [2, 9] == [stored.seq for stored in await store.read_at("t", [9, 2, 9, 0, 11, -1, 1 << 40])]
        assert [2, 6] == [stored.seq for stored in await store.read_at("f", [6, 9, 2])]
        assert list(await store.read("t", after=0, upto=99, limit=99)) == list(await store.read_at("t", range(1, 11)))

    @pytest.mark.parametrize(("seqs", "missing"), [((2, 3), 1), ((1, 3), 2), ((1, 2), 3)])
    async def test_a_gap_is_an_error(self, store: Store, seqs: tuple[int, ...], missing: int) -> None:
        """A log without one of its events is never read as a shorter one."""
        await store.create(ThreadRecord(id="t"), Head(), ())
        await store.commit(CommitUnit(thread_id="t", expected=Head(), head=head_at(3), events=[*map(event, seqs)]))
        with pytest.raises(IntegrityError) as caught:
            await store.read("t", after=0, upto=3, limit=9)
        assert ("t", missing) == (caught.value.thread_id, caught.value.seq)

    async def test_events_are_found_by_id(self, store: Store) -> None:
        """Existing ids are found, in any order of asking; others are left out."""
        await filled(store, "t", 1200)
        asked = ["e3", "nobody's", "e1200", "e1", *(f"e{n}" for n in range(100, 1100))]
        found = sorted(stored.seq for stored in await store.find("t", asked))
        assert ([1, 3, *range(100, 1100), 1200], []) == (found, list(await store.find("t", [])))

    @pytest.mark.parametrize("size", [0, 1, 65_536, 65_537, 260_000, 1_000_000])
    async def test_a_payload_of_any_size_comes_back(self, store: Store, size: int) -> None:
        """Payloads are bytes to a store: large ones, equal ones and those that are not text."""
        payload = (bytes(range(256)) * (size // 256 + 1))[:size]
        await store.create(ThreadRecord(id="t"), Head(), ())
        await store.commit(unit("t", event(1, payload), event(2, payload)))
        read = await store.read("t", after=0, upto=2, limit=2)
        found = await store.find("t", ["e2"])
        assert [payload] * 3 == [stored.payload for stored in (*read, *found)]

    async def test_a_commit_without_events_mends_live_rows(self, store: Store) -> None:
        """A rebuild's: rows go, come and change their place; the head gets the counters given with them."""
        await store.create(ThreadRecord(id="t"), Head(), ())
        live = {f"1.{n}": LiveChunk(f"1.{n}", bytes([0x80 + n])) for n in range(3)}
        await store.commit(unit("t", event(1), live=live))
        counted = msgspec.structs.replace(head_at(1), chunks=1, tokens=9)
        mended = {"1.0": None, "1.1": LiveChunk("1.1", b"\x01", "1.7"), "1.2": None}
        await store.commit(CommitUnit(thread_id="t", expected=head_at(1), head=counted, live=mended))
        loaded = await store.load("t")
        assert ([LiveChunk("1.1", b"\x01", "1.7")], counted) == (list(loaded.live), loaded.head)

    async def test_mending_on_another_head_is_refused(self, store: Store) -> None:
        """A rebuild from an older log does not overwrite newer rows."""
        await filled(store, "t", 2)
        live = {"1.0": LiveChunk("1.0", b"\x80")}
        with pytest.raises(HeadMoved):
            await store.commit(CommitUnit(thread_id="t", expected=head_at(1), head=head_at(1), live=live))
        assert [] == list((await store.load("t")).live)

    async def test_errors_of_a_store_are_the_packages_own(self, store: Store) -> None:
        """A refused commit raises a `MemoryEngineError`."""
        await store.create(ThreadRecord(id="t"), Head(), ())
        outcome = await asyncio.gather(store.commit(unit("t", event(1), after=head_at(5))), return_exceptions=True)
        assert isinstance(outcome[0], MemoryEngineError)


def bearing(seq: int, correlation_id: str, *, at_us: int = 0) -> StoredEvent:
    """An event that bears an id, recorded at a time of its own."""
    return msgspec.structs.replace(event(seq), correlation_id=correlation_id, recorded_at_us=at_us or seq)


async def found(store: Store, correlation_id: str, limit: int | None = None) -> list[tuple[str, int]]:
    """Threads and seqs of the events that bear an id."""
    rows = await store.correlated(correlation_id, limit=limit)
    return [(thread_id, stored.seq) for thread_id, stored in rows]


class CorrelationContract:
    """Every store's promises about correlation ids."""

    async def test_events_are_found_by_what_they_belong_to(self, store: Store) -> None:
        """Of all threads, in the order in which they were recorded, and whole; a limit keeps the latest."""
        rows = {
            "a": (bearing(1, "k", at_us=30), bearing(2, "other", at_us=31), bearing(3, "k", at_us=50)),
            "b": (bearing(1, "k", at_us=40), bearing(2, "", at_us=41), bearing(3, "k", at_us=60)),
        }
        for thread_id, events in rows.items():
            await store.create(ThreadRecord(id=thread_id), Head(), ())
            await store.commit(unit(thread_id, *events))
        assert [("a", 1), ("b", 1), ("a", 3), ("b", 3)] == await found(store, "k")
        assert [("a", rows["a"][0])] == [*await store.correlated("k")][:1]
        await store.create(ThreadRecord(id="c", tenant_id="acme"), Head(), ())
        await store.commit(unit("c", of_k := msgspec.structs.replace(event(1), correlation_id="k2")))
        assert [("c", of_k)] == [*await store.correlated("k2", tenant_id="acme")] == [*await store.correlated("k2")]
        assert [] == [*await store.correlated("k2", tenant_id="")]
        assert [[], [("b", 3)], 4, 4] == [
            await found(store, "k", 0),
            await found(store, "k", 1),
            len(await found(store, "k", 4)),
            len(await found(store, "k", 99)),
        ]

    async def test_equal_times_keep_the_order_of_a_log(self, store: Store) -> None:
        """Events of one commit were recorded at one moment; their order is that of their seqs."""
        await store.create(ThreadRecord(id="a"), Head(), ())
        await store.commit(unit("a", *(bearing(seq, "k", at_us=7) for seq in range(1, 6))))
        assert [("a", seq) for seq in range(1, 6)] == await found(store, "k")
        assert [("a", 4), ("a", 5)] == await found(store, "k", 2)

    async def test_no_correlation_id_acts_as_a_pattern(self, store: Store) -> None:
        """Each value finds itself; an id that no event bears finds nothing, and so does the empty id."""
        await store.create(ThreadRecord(id="a"), Head(), ())
        await store.commit(unit("a", *(bearing(seq, value) for seq, value in enumerate(HOSTILE, 1)), event(99)))
        assert [[("a", seq)] for seq in range(1, len(HOSTILE) + 1)] == [await found(store, value) for value in HOSTILE]
        assert [[], []] == [await found(store, "nothing"), await found(store, "")]

    async def test_what_forks_share_comes_once(self, store: Store) -> None:
        """From the thread that recorded it; a fork's own events from the fork."""
        await store.create(ThreadRecord(id="a"), Head(), ())
        await store.commit(unit("a", bearing(1, "k"), bearing(2, "k")))
        await store.create(ThreadRecord(id="b", forked_from=ForkPoint("a", 2)), head_at(2), ())
        await store.commit(unit("b", msgspec.structs.replace(bearing(3, "k"), id="own"), after=head_at(2)))
        assert [("a", 1), ("a", 2), ("b", 3)] == await found(store, "k")

    async def test_what_was_deleted_is_not_found(self, store: Store) -> None:
        """A deleted thread's events are gone; those of others stay."""
        for thread_id in "ab":
            await store.create(ThreadRecord(id=thread_id), Head(), ())
            await store.commit(unit(thread_id, bearing(1, "k")))
        await filled(store, "c", 1)
        await store.delete("a")
        assert [("b", 1)] == await found(store, "k")


class PastContract:
    """Every store's promises about reading a thread's past."""

    async def test_events_of_some_types_come_in_order(self, store: Store) -> None:
        """Only events of these very types, through shared pasts, within the bounds and the limit."""
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
        """The greatest key of a span, of one projection, version and thread."""
        await filled(store, "t", 1)
        await filled(store, "other", 1)
        rows: dict[str, bytes | None] = {key: key.encode() for key in ("a:1", "a:5", "b:3", *HOSTILE)}
        await store.write_projection("t", ProjectionChange("p", 1, rows, 0))
        await store.write_projection("t", ProjectionChange("p", 2, {"a:4": b"version 2"}, 0))
        await store.write_projection("other", ProjectionChange("p", 1, {"a:4": b"other"}, 0))
        spans = [RowSpan(first="a:", last=last, limit=1, latest=True) for last in ("a:5", "a:6", "a:")]
        found = [list(await store.rows_between("p", 1, "t", span)) for span in spans]
        assert [[("a:1", b"a:1")], [("a:5", b"a:5")], []] == found
        for key in HOSTILE:
            span = RowSpan(first=key, last=f"{key}\0")
            assert [(key, key.encode())] == list(await store.rows_between("p", 1, "t", span))
        with pytest.raises(ThreadNotFound):
            await store.rows_between("p", 1, "nobody", RowSpan())
