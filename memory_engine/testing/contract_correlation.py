"""The storage contract, about what belongs together: events of all threads by their correlation id."""

import msgspec

from memory_engine.persistence import ForkPoint, Head, Store, ThreadRecord
from memory_engine.records import StoredEvent
from memory_engine.testing.contract_rows import HOSTILE, event, filled, head_at, unit


def bearing(seq: int, correlation_id: str, *, at_us: int = 0) -> StoredEvent:
    """An event that bears an id, recorded at a time of its own."""
    return msgspec.structs.replace(event(seq), correlation_id=correlation_id, recorded_at_us=at_us or seq)


async def found(store: Store, correlation_id: str, limit: int | None = None) -> list[tuple[str, int]]:
    """Threads and seqs of what bears an id."""
    rows = await store.correlated(correlation_id, limit=limit)
    return [(thread_id, stored.seq) for thread_id, stored in rows]


class CorrelationContract:
    """What every store does with correlation ids."""

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
        """Each value finds itself; what no event bears finds nothing, and so does the empty id."""
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
