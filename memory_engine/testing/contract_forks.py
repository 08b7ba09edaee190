"""The storage contract, about forks: a shared past is read through, and nothing else of its thread is."""

import pytest

from memory_engine.errors import ThreadNotFound
from memory_engine.persistence import ForkPoint, Head, LiveChunk, Store, ThreadRecord
from memory_engine.testing.contract_rows import event, filled, forked, head_at, ids_of, unit


class ForkContract:
    """What every store does with forks."""

    async def test_a_fork_reads_its_past_and_its_own(self, store: Store) -> None:
        """Forks of forks, cut before, at and after an older cut, each read one whole log."""
        await filled(store, "a", 5)
        await forked(store, "b", "a", 3, own=2)
        await forked(store, "c", "b", 4, own=1)
        await forked(store, "d", "c", 2, own=2)
        await forked(store, "e", "d", 2)
        await forked(store, "f", "a", 0, own=1)
        logs = {thread_id: await ids_of(store, thread_id) for thread_id in "bcdef"}
        assert {
            "b": ["e1", "e2", "e3", "b-4", "b-5"],
            "c": ["e1", "e2", "e3", "b-4", "c-5"],
            "d": ["e1", "e2", "d-3", "d-4"],
            "e": ["e1", "e2"],
            "f": ["f-1"],
        } == logs

    async def test_pages_run_across_the_cut(self, store: Store) -> None:
        """A page may begin in the shared past and end in the fork's own events."""
        await filled(store, "a", 3)
        await forked(store, "b", "a", 3, own=3)
        pages = [await store.read("b", after=after, upto=6, limit=2) for after in (0, 2, 4)]
        assert [["e1", "e2"], ["e3", "b-4"], ["b-5", "b-6"]] == [[row.id for row in page] for page in pages]

    async def test_what_the_parent_does_later_is_its_own(self, store: Store) -> None:
        """Events that follow the cut in the parent are neither read nor found in the fork."""
        head = await filled(store, "a", 2)
        await forked(store, "b", "a", 2)
        await store.commit(unit("a", event(3), after=head))
        assert (["e1", "e2"], []) == (await ids_of(store, "b"), list(await store.find("b", ["e3"])))

    async def test_events_are_found_through_shared_pasts(self, store: Store) -> None:
        """An id of the shared past is found in a fork of a fork, one after the cut is not."""
        await filled(store, "a", 4)
        await forked(store, "b", "a", 3, own=1)
        await forked(store, "c", "b", 4, own=1)
        found = await store.find("c", ["e1", "e3", "e4", "b-4", "c-5"])
        assert [1, 3, 4, 5] == sorted(stored.seq for stored in found)

    async def test_a_fork_is_loaded_with_the_sources_of_its_past(self, store: Store) -> None:
        """The events behind live rows come from wherever in the lineage they are."""
        await filled(store, "a", 3)
        live = [LiveChunk(f"{seq}.0", bytes([0x80 + seq])) for seq in (1, 3)]
        await store.create(ThreadRecord(id="b", forked_from=ForkPoint("a", 3)), head_at(3), live)
        own = {"4.0": LiveChunk("4.0", b"\x90")}
        await store.commit(unit("b", event(4, id="own"), after=head_at(3), live=own))
        loaded = await store.load("b")
        assert {1: "e1", 3: "e3", 4: "own"} == {seq: stored.id for seq, stored in loaded.sources.items()}
        assert ForkPoint("a", 3) == loaded.record.forked_from

    async def test_forks_are_listed_until_they_are_deleted(self, store: Store) -> None:
        """A thread's forks are those made from it directly and still there."""
        await filled(store, "a", 2)
        for name in ("b", "c"):
            await forked(store, name, "a", 1)
        await forked(store, "d", "b", 1)
        await store.delete("c")
        assert [["b"], ["d"], []] == [list(await store.forks(name)) for name in ("a", "b", "d")]

    async def test_a_fork_of_nothing_is_refused(self, store: Store) -> None:
        """A past that is not there cannot be shared, and the fork's id stays free."""
        with pytest.raises(ThreadNotFound):
            await store.create(ThreadRecord(id="b", forked_from=ForkPoint("nobody", 1)), head_at(1), ())
        await store.create(ThreadRecord(id="b"), Head(), ())
        assert "b" == (await store.load("b")).record.id

    async def test_totals_count_a_shared_past_once(self, store: Store) -> None:
        """A fork adds only what is its own."""
        await filled(store, "a", 3)
        await forked(store, "b", "a", 3, own=1)
        stats = await store.stats()
        assert (2, 4) == (stats.threads, stats.events)
