"""The storage contract, about threads: made once, found by exact values, deleted for good.

A fork reads through to its shared past, and to nothing else of that thread.
"""

import msgspec
import pytest

from memory_engine.core.records import StoredEvent
from memory_engine.core.threads import (
    ARCHIVED,
    CompactionPolicy,
    ForkPoint,
    Head,
    LiveChunk,
    ThreadRecord,
    generation_of,
)
from memory_engine.errors import HeadMoved, ThreadExists, ThreadHasForks, ThreadNotFound
from memory_engine.store.acts import ACT_TRIES_MAX, Act
from memory_engine.store.protocol import CommitUnit, ProjectionChange, Store, ThreadFilter
from memory_engine.testing.contract_rows import HOSTILE, IDS, event, filled, forked, head_at, ids_of, unit

SCOPES = ("kind", "user_id", "tenant_id", "agent_id", "parent_id")


class ThreadContract:
    """Every store's promises about threads."""

    async def test_a_new_thread_is_loaded_as_it_was_made(self, store: Store) -> None:
        """Record, head and live rows come back unchanged."""
        record = ThreadRecord(
            id="t",
            kind="user",
            user_id="u",
            tenant_id="n",
            agent_id="a",
            parent_id="p",
            metadata={"": "", "ключ": "值"},
            policy=CompactionPolicy(threshold=7, ratio=0.5, blocking="commit"),
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

    async def test_what_was_loaded_is_the_callers_own(self, store: Store) -> None:
        """Whoever has read it lets it go piece by piece: the next one is given all of it."""
        await store.create(ThreadRecord(id="t"), Head(), ())
        await store.commit(unit("t", event(1), live={"1.0": LiveChunk("1.0", b"\x80")}))
        first = await store.load("t")
        live, sources = list(first.live), dict(first.sources)
        first.let_go()
        again = await store.load("t")
        assert (live, sources) == (list(again.live), dict(again.sources))
        assert live
        assert sources

    async def test_an_id_is_taken_once(self, store: Store) -> None:
        """A second thread of the same id is refused, and the first does not change."""
        await store.create(ThreadRecord(id="t", user_id="first"), Head(), ())
        with pytest.raises(ThreadExists):
            await store.create(ThreadRecord(id="t", user_id="second"), Head(), ())
        assert "first" == (await store.load("t")).record.user_id

    async def test_a_fork_is_of_the_thread_that_was_read(self, store: Store) -> None:
        """One whose origin was deleted meanwhile is not made, also where another thread has the origin's id by now."""
        await store.create(ThreadRecord(id="t", created_at_us=1), Head(), ())
        await store.commit(unit("t", event(1)))
        origin, head = (await store.load("t")).record, await store.head("t")
        record = ThreadRecord(id="f", forked_from=ForkPoint("t", 1))
        await store.delete("t")
        for created_at_us in (0, 2):
            if created_at_us:
                await store.create(ThreadRecord(id="t", created_at_us=created_at_us), Head(), ())
            with pytest.raises(ThreadNotFound):
                await store.create(record, head, (), origin=origin)
            with pytest.raises(ThreadNotFound):
                await store.head("f")
        await store.commit(unit("t", event(1), after=await store.head("t")))
        now = (await store.load("t")).record
        await store.create(record, await store.head("t"), (), origin=now)
        assert ["f"] == list(await store.forks("t"))

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

    async def test_pages_of_threads_go_on_after_an_id(self, store: Store) -> None:
        """`after` gives the first N that were made after that thread, `""` the first of all; none comes twice."""
        for number in range(7):
            await store.create(
                ThreadRecord(id=str(number), user_id="uv"[number % 2], created_at_us=-number), Head(), ()
            )
        asked = [("", None), ("", 3), ("2", 3), ("5", 3), ("6", 3), ("2", 0), ("4", None)]
        found = [await store.threads(ThreadFilter(after=after, limit=limit)) for after, limit in asked]
        pages = ["".join(record.id for record, _ in rows) for rows in found]
        assert ["0123456", "012", "345", "6", "", "", "56"] == pages
        of_one = await store.threads(ThreadFilter(after="0", limit=2, user_id="u"))
        assert ["2", "4"] == [record.id for record, _ in of_one]

    async def test_a_page_begins_after_what_was_deleted(self, store: Store) -> None:
        """A deleted thread keeps its place; an id that never was is an error, and no end of the list."""
        for number in range(5):
            await store.create(ThreadRecord(id=str(number)), Head(), ())
        await store.delete("1")
        await store.delete("2")
        await store.create(ThreadRecord(id="new"), Head(), ())
        found = [await store.threads(ThreadFilter(after=after, limit=2)) for after in ("0", "1", "2", "4")]
        assert [["3", "4"], ["3", "4"], ["3", "4"], ["new"]] == [[record.id for record, _ in rows] for rows in found]
        with pytest.raises(ThreadNotFound):
            await store.threads(ThreadFilter(after="?"))

    async def test_a_scope_that_came_back_stands_where_it_was_made_again(self, store: Store) -> None:
        """Behind those that were made before."""
        for thread_id in ("user:u", "t"):
            await store.create(ThreadRecord(id=thread_id), Head(), ())
        await store.delete("user:u")
        await store.create(ThreadRecord(id="user:u"), Head(), ())
        await store.create(ThreadRecord(id="last"), Head(), ())
        found = [await store.threads(ThreadFilter(after=after)) for after in ("", "t", "user:u")]
        assert [["t", "user:u", "last"], ["user:u", "last"], ["last"]] == [[r.id for r, _ in rows] for rows in found]

    async def test_threads_are_found_by_status(self, store: Store) -> None:
        """The status is the head's, and a listing shows the present head."""
        await filled(store, "open", 1)
        head = await filled(store, "shut", 2)
        shut = msgspec.structs.replace(head, status=ARCHIVED, epoch=1)
        await store.commit(CommitUnit(thread_id="shut", expected=head, head=shut))
        found = await store.threads(ThreadFilter(status=ARCHIVED))
        assert [("shut", shut)] == [(record.id, head) for record, head in found]

    async def test_what_is_loaded_is_a_copy(self, store: Store) -> None:
        """Changing an argument or a result changes nothing that is stored."""
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

    async def test_the_ids_of_deleted_threads_are_told(self, store: Store) -> None:
        """Those that no live thread uses now, of threads of any kind but scopes."""
        for thread_id in ("a", "b", "again", "user:u", "user:v", "there"):
            await store.create(ThreadRecord(id=thread_id, kind="user"), Head(), ())
            if thread_id != "there":
                await store.delete(thread_id)
        for thread_id in ("user:v", "again"):
            await store.create(ThreadRecord(id=thread_id), Head(), ())
        assert {"a", "b"} == set(await store.taken())

    async def test_a_deleted_threads_id_is_free(self, store: Store) -> None:
        """It can be used again, by another thread that a writer who knew the first cannot take for it."""
        for thread_id in ("t", "user:u"):
            await store.create(ThreadRecord(id=thread_id), Head(), ())
            old = [await store.head(thread_id)]
            await store.commit(unit(thread_id, event(1, id="old"), after=old[0]))
            for _ in range(2):
                await store.delete(thread_id)
                await store.create(ThreadRecord(id=thread_id), Head(), ())
                old.append(await store.head(thread_id))
            generations = list(map(generation_of, old))
            assert sorted(set(generations)) == generations
            for known in old[:-1]:
                with pytest.raises(HeadMoved):
                    await store.commit(unit(thread_id, event(1, id="late"), after=known))
            await store.commit(unit(thread_id, event(1, id="e1"), after=old[-1]))
            with pytest.raises(ThreadExists):
                await store.create(ThreadRecord(id=thread_id), Head(), ())
            assert ["e1"] == await ids_of(store, thread_id)

    async def test_a_deleted_threads_id_is_made_again_with_its_first_events(self, store: Store) -> None:
        """In one commit, as a thread of a new id is; an event of the first may come again, its id is free too."""
        made = ThreadRecord(id="t", user_id="u")
        for _ in range(3):
            first = unit("t", event(1), live={"1.0": LiveChunk("1.0", b"\x80")})
            await store.commit(msgspec.structs.replace(first, makes=made))
            with pytest.raises(ThreadExists):
                await store.commit(msgspec.structs.replace(first, makes=made))
            loaded = await store.load("t")
            assert (1, "u", 1) == (loaded.head.seq, loaded.record.user_id, len(loaded.live))
            await store.commit(unit("t", event(2), after=loaded.head))
            await store.delete("t")
        assert [] == list(await store.threads(ThreadFilter()))

    async def test_a_commit_can_change_the_record(self, store: Store) -> None:
        """Its metadata and its policy, and nothing else; a commit that is refused changes neither."""
        given = ThreadRecord(id="t", user_id="u", metadata={"a": "1"}, created_at_us=5)
        await store.create(given, Head(), ())
        changed = msgspec.structs.replace(
            given, metadata={"b": "2"}, policy=CompactionPolicy(threshold=7), user_id="other", created_at_us=6
        )
        await store.commit(msgspec.structs.replace(unit("t", event(1)), record=changed))
        expected = msgspec.structs.replace(given, metadata=changed.metadata, policy=changed.policy)
        assert expected == (await store.load("t")).record
        with pytest.raises(HeadMoved):
            await store.commit(msgspec.structs.replace(unit("t", event(1, id="late")), record=given))
        assert expected == (await store.load("t")).record

    async def test_an_act_is_done_only_once_it_says_so(self, store: Store) -> None:
        """Until then it is pending, or has failed too often: with its own report of that, and in the same place."""
        asked = Act(id="a", kind="erase", plan="{}", by="ann", reason="why", asked_at_us=7)
        later = Act(id="b", kind="hold", plan="{}", asked_at_us=8, done_at_us=8)
        await store.put_act(later)
        told: list[tuple[str, int, str]] = []
        for failures in range(ACT_TRIES_MAX + 1):
            outcome = f'{{"failures":{failures},"error":"no disk"}}' if failures else ""
            await store.put_act(msgspec.structs.replace(asked, outcome=outcome))
            [act] = await store.acts(pending=True)
            assert [act, later] == list(await store.acts())
            told.append((act.state, act.failures, act.error))
        assert [("pending", 0, ""), *[("pending", n, "no disk") for n in (1, 2)], ("failed", 3, "no disk")] == told
        done = msgspec.structs.replace(asked, done_at_us=9, outcome='{"failures":3}')
        await store.put_act(done)
        assert ([], "done", 0) == (list(await store.acts(pending=True)), done.state, done.failures)

    async def test_threads_are_found_by_metadata(self, store: Store) -> None:
        """By every given pair, exactly: not by a part of one, nor by what another key or value looks like."""
        texts = {
            "a": {"k": "v", "x": "1"},
            "b": {"k": "v2"},
            "c": {"k": "", "v": "k"},
            "d": {'k":"v': "1", "q": '","k":"v"'},
            "e": {"K": "v", "kk": "v"},
            "f": {"x": "1", "k": "v"},
            "g": {"ü\n\\": 'é"\t'},
        }
        for thread_id, metadata in texts.items():
            await store.create(ThreadRecord(id=thread_id, metadata=metadata), Head(), ())
        asked = [{"k": "v"}, {"k": "v", "x": "1"}, {"x": "1"}, {"k": ""}, {"ü\n\\": 'é"\t'}, {}, {"none": "v"}]
        found = ["".join(r.id for r, _ in await store.threads(ThreadFilter(metadata=pairs))) for pairs in asked]
        assert ["af", "af", "af", "c", "g", "abcdefg", ""] == found
        first = await store.threads(ThreadFilter(metadata={"k": "v"}, after="", limit=1))
        assert ["a"] == [record.id for record, _ in first]
        later = await store.threads(ThreadFilter(metadata={"k": "v"}, after="a", limit=1))
        assert ["f"] == [record.id for record, _ in later]

    async def test_threads_come_by_their_last_events(self, store: Store) -> None:
        """Newest first, in pages too, wherever a thread was when the page before was read."""
        heads = {}
        for n, thread_id in enumerate("abcde"):
            await store.create(ThreadRecord(id=thread_id, created_at_us=n), Head(), ())
            heads[thread_id] = await store.head(thread_id)
        for thread_id, at_us in (("b", 300), ("d", 100), ("a", 100)):
            await store.commit(unit(thread_id, _recorded(1, at_us), after=heads[thread_id]))
        by_update = ThreadFilter(order="updated")
        whole = [(record.id, at_us) for record, _, at_us in await store.listed(by_update)]
        assert [("b", 300), ("d", 100), ("a", 100), ("e", 4), ("c", 2)] == sorted(whole, key=_by_time_and_age)
        pages: list[str] = []
        after, after_us = "", None
        while found := await store.listed(msgspec.structs.replace(by_update, limit=2, after=after, after_us=after_us)):
            pages += [record.id for record, _, _ in found]
            after, after_us = found[-1][0].id, found[-1][2]
            if len(pages) == 2:  # it goes on meanwhile: it has been shown, and is passed over
                head = await store.head(after)
                await store.commit(unit(after, _recorded(2, 500), after=head))
        assert [thread_id for thread_id, _ in whole] == pages
        assert whole[1][0] == (await store.threads(by_update))[0][0].id

    async def test_a_fork_without_events_is_as_new_as_its_making(self, store: Store) -> None:
        """Its past belongs to another thread."""
        await filled(store, "t", 2)
        fork = ThreadRecord(id="f", forked_from=ForkPoint("t", 2), created_at_us=77)
        await store.create(fork, head_at(2), ())
        assert 77 == {record.id: at_us for record, _, at_us in await store.listed(ThreadFilter())}["f"]

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
        """A writer that still holds the old head cannot write."""
        head = await filled(store, "t", 1)
        await store.delete("t")
        with pytest.raises(ThreadNotFound):
            await store.commit(unit("t", event(2), after=head))
        with pytest.raises(ThreadNotFound):
            await store.commit(CommitUnit(thread_id="t", expected=head, head=head_at(1)))


def _recorded(seq: int, at_us: int) -> StoredEvent:
    """An event that was recorded at a time."""
    return msgspec.structs.replace(event(seq), recorded_at_us=at_us)


def _by_time_and_age(row: tuple[str, int]) -> tuple[int, int]:
    """Newest first; threads of one moment come in any order that a store keeps to."""
    return -row[1], "bdaec".index(row[0])


class ForkContract:
    """Every store's promises about forks."""

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

    async def test_a_thread_that_others_share_is_not_deleted(self, store: Store) -> None:
        """Its forks would lose their past, also those that came after a first look."""
        await filled(store, "a", 2)
        await forked(store, "b", "a", 1)
        with pytest.raises(ThreadHasForks):
            await store.delete("a")
        assert 2 == (await store.load("a")).head.seq
        await store.delete("b")
        await store.delete("a")

    async def test_a_deleted_forks_id_is_free(self, store: Store) -> None:
        """For another fork, or a thread with a past of its own; nothing of the first is in it."""
        await filled(store, "a", 3)
        live = [LiveChunk("1.0", b"\x80")]
        for at in (2, 1):
            fork = ThreadRecord(id="b", forked_from=ForkPoint("a", at))
            await store.create(fork, head_at(at), live)
            head = await store.head("b")
            assert (at, head_at(at).hash) == (head.seq, head.hash)
            await store.commit(unit("b", event(at + 1, id="own"), after=head))
            assert [*(f"e{seq}" for seq in range(1, at + 1)), "own"] == await ids_of(store, "b")
            assert live == list((await store.load("b")).live)
            await store.delete("b")
        await store.create(ThreadRecord(id="b"), Head(), ())
        assert ([], None) == (await ids_of(store, "b"), (await store.load("b")).record.forked_from)
        assert [] == list(await store.forks("a"))

    async def test_a_fork_of_nothing_is_refused(self, store: Store) -> None:
        """A past that is not there cannot be shared, and the fork's id stays free."""
        with pytest.raises(ThreadNotFound):
            await store.create(ThreadRecord(id="b", forked_from=ForkPoint("nobody", 1)), head_at(1), ())
        await store.create(ThreadRecord(id="b"), Head(), ())
        assert "b" == (await store.load("b")).record.id

    async def test_totals_count_a_shared_past_once(self, store: Store) -> None:
        """A fork adds only its own events to the totals."""
        await filled(store, "a", 3)
        await forked(store, "b", "a", 3, own=1)
        stats = await store.stats()
        assert (2, 4) == (stats.threads, stats.events)
