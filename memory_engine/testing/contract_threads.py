"""The storage contract, about threads: made once, found by exact values, deleted for good."""

import msgspec
import pytest

from memory_engine.errors import ThreadExists, ThreadNotFound
from memory_engine.persistence import (
    ARCHIVED,
    CommitUnit,
    CompactionPolicy,
    Head,
    LiveChunk,
    ProjectionChange,
    Store,
    ThreadFilter,
    ThreadRecord,
)
from memory_engine.testing.contract_rows import HOSTILE, IDS, event, filled, head_at, ids_of, unit

SCOPES = ("kind", "user_id", "tenant_id", "agent_id", "parent_id")


class ThreadContract:
    """What every store does with threads."""

    async def test_a_new_thread_is_loaded_as_it_was_made(self, store: Store) -> None:
        """Record, head and live rows come back as they were given."""
        record = ThreadRecord(
            id="t",
            kind="user",
            user_id="u",
            tenant_id="n",
            agent_id="a",
            parent_id="p",
            metadata={"": "", "ключ": "值"},
            policy=CompactionPolicy(threshold=7, ratio=0.5),
            created_at_us=-1,
        )
        await store.create(record, Head(), ())
        loaded = await store.load("t")
        assert (record, Head(), [], {}) == (
            loaded.record,
            loaded.head,
            list(loaded.live),
            dict(loaded.sources),
        )

    async def test_an_id_is_taken_once(self, store: Store) -> None:
        """A second thread of the same id is refused, and the first stays as it is."""
        await store.create(ThreadRecord(id="t", user_id="first"), Head(), ())
        with pytest.raises(ThreadExists):
            await store.create(ThreadRecord(id="t", user_id="second"), Head(), ())
        assert "first" == (await store.load("t")).record.user_id

    async def test_any_text_is_an_id(self, store: Store) -> None:
        """UUIDs in any spelling, hostile texts and 4 KB are ids, each of its own thread."""
        for number, thread_id in enumerate(IDS):
            await store.create(ThreadRecord(id=thread_id, metadata={"n": str(number)}), Head(), ())
        loaded = [(await store.load(thread_id)).record for thread_id in IDS]
        assert [(i, str(n)) for n, i in enumerate(IDS)] == [(r.id, r.metadata["n"]) for r in loaded]

    async def test_an_unknown_thread_is_an_error(self, store: Store) -> None:
        """Every call on a thread that is not there raises `ThreadNotFound`; none answers with nothing."""
        change = ProjectionChange("p", 1, {}, 1)
        calls = (
            lambda: store.load("?"),
            lambda: store.head("?"),
            lambda: store.commit(unit("?", event(1))),
            lambda: store.find("?", ["e1"]),
            lambda: store.read("?", after=0, upto=1, limit=1),
            lambda: store.forks("?"),
            lambda: store.delete("?"),
            lambda: store.rows("p", 1, "?"),
            lambda: store.write_projection("?", change),
        )
        for call in calls:
            with pytest.raises(ThreadNotFound):
                await call()

    @pytest.mark.parametrize("scope", SCOPES)
    async def test_a_filter_matches_one_value_exactly(self, store: Store, scope: str) -> None:
        """No value acts as a pattern, as SQL or as a path, and none matches another."""
        for number, value in enumerate(HOSTILE):
            record = msgspec.structs.replace(ThreadRecord(id=str(number)), **{scope: value})
            await store.create(record, Head(), ())
        asked = [msgspec.structs.replace(ThreadFilter(), **{scope: value}) for value in HOSTILE]
        found = [await store.threads(where) for where in asked]
        assert [[str(n)] for n in range(len(HOSTILE))] == [[record.id for record, _ in rows] for rows in found]

    async def test_filters_hold_together(self, store: Store) -> None:
        """A thread must match every value that is given, and `""` is a value."""
        for user, tenant in (("u", "a"), ("u", "b"), ("v", "a"), ("u", "")):
            await store.create(ThreadRecord(id=f"{user}/{tenant}", user_id=user, tenant_id=tenant), Head(), ())
        asked = (
            ThreadFilter(user_id="u", tenant_id="a"),
            ThreadFilter(user_id="u", tenant_id=""),
            ThreadFilter(tenant_id="a"),
            ThreadFilter(user_id="w"),
        )
        found = [[record.id for record, _ in await store.threads(where)] for where in asked]
        assert [["u/a"], ["u/"], ["u/a", "v/a"], []] == found

    async def test_a_limit_keeps_the_latest_in_order(self, store: Store) -> None:
        """`limit=N` gives the latest N threads, oldest first; times of creation do not matter."""
        for number in range(5):
            await store.create(ThreadRecord(id=str(number), created_at_us=-number), Head(), ())
        limits = (None, 0, 2, 5, 99)
        found = [[record.id for record, _ in await store.threads(ThreadFilter(limit=n))] for n in limits]
        assert [list("01234"), [], list("34"), list("01234"), list("01234")] == found

    async def test_threads_are_found_by_status(self, store: Store) -> None:
        """The status is the head's, and a listing shows the head as it is."""
        await filled(store, "open", 1)
        head = await filled(store, "shut", 2)
        shut = msgspec.structs.replace(head, status=ARCHIVED, epoch=1)
        await store.commit(CommitUnit(thread_id="shut", expected=head, head=shut))
        found = await store.threads(ThreadFilter(status=ARCHIVED))
        assert [("shut", shut)] == [(record.id, head) for record, head in found]

    async def test_what_is_loaded_is_a_copy(self, store: Store) -> None:
        """Changing what was given or what came back changes nothing that is stored."""
        metadata = {"k": "stored"}
        await store.create(ThreadRecord(id="t", metadata=metadata), Head(), ())
        metadata["k"] = "changed by the giver"
        for record in ((await store.load("t")).record, (await store.threads(ThreadFilter()))[0][0]):
            assert isinstance(record.metadata, dict)
            record.metadata["k"] = "changed by the reader"
        assert {"k": "stored"} == (await store.load("t")).record.metadata

    async def test_a_deleted_thread_is_gone(self, store: Store) -> None:
        """Its log, state and projections are there no more, and no listing shows it."""
        live = {"1.0": LiveChunk("1.0", b"\x80")}
        await store.create(ThreadRecord(id="t", user_id="u"), Head(), ())
        changes = [ProjectionChange("p", 1, {"k": b"v"}, 1)]
        await store.commit(unit("t", event(1), live=live, projections=changes))
        await store.delete("t")
        with pytest.raises(ThreadNotFound):
            await store.load("t")
        with pytest.raises(ThreadNotFound):
            await store.rows("p", 1, "t")
        listed = [*await store.threads(ThreadFilter()), *await store.behind("p", 1)]
        stats = await store.stats()
        assert ([], 0, 0) == (listed, stats.events, stats.threads)

    async def test_a_deleted_threads_id_stays_taken(self, store: Store) -> None:
        """Nobody can make another thread of that id and pass for the first."""
        await filled(store, "t", 1)
        await store.delete("t")
        with pytest.raises(ThreadExists):
            await store.create(ThreadRecord(id="t"), Head(), ())

    async def test_deleting_leaves_other_threads_whole(self, store: Store) -> None:
        """A thread that holds the same ids and the same large payload keeps them."""
        payload = b"x" * 260_000
        for thread_id in ("t", "other"):
            await store.create(ThreadRecord(id=thread_id), Head(), ())
            await store.commit(unit(thread_id, event(1, payload)))
        await store.delete("t")
        kept = await store.read("other", after=0, upto=1, limit=1)
        assert (["e1"], payload) == (await ids_of(store, "other"), kept[0].payload)

    async def test_a_commit_to_a_deleted_thread_is_refused(self, store: Store) -> None:
        """Who still holds the old head cannot write."""
        head = await filled(store, "t", 1)
        await store.delete("t")
        with pytest.raises(ThreadNotFound):
            await store.commit(unit("t", event(2), after=head))
        with pytest.raises(ThreadNotFound):
            await store.commit(CommitUnit(thread_id="t", expected=head, head=head_at(1)))
