"""The storage contract, about passages: which ones search finds, as of which seq, and of which threads."""

from collections.abc import Iterable, Sequence

import msgspec
import pytest

from memory_engine.core.rewinding import Hiding
from memory_engine.core.threads import Head, ThreadRecord
from memory_engine.errors import HeadMoved, ThreadNotFound
from memory_engine.store.passages import (
    PLACES_BITS,
    THREAD_BITS,
    LookedUp,
    LookUp,
    PassageChange,
    PassageRow,
    PassageStep,
    Threads,
    VectorRows,
)
from memory_engine.store.protocol import CommitUnit, Store
from memory_engine.testing.contract_rows import event, filled, head_at, unit

MANY = 200
"""More passages than a store may leave aside before it indexes them for good."""
VECTOR = b"\xff\x7f\x00\x00"


def place(seq: int) -> int:
    """The place of an event's first passage."""
    return seq << PLACES_BITS


def row(seq: int, terms: str, *, key: str = "", kind: str = "note", origins: Sequence[int] = ()) -> PassageRow:
    """A passage said at its own seq, in microseconds."""
    return PassageRow(place(seq), kind, "user", "Ana", seq, key, terms, tuple(origins))


def step(seq: int, *rows: PassageRow) -> PassageStep:
    """An event that only brings passages."""
    return PassageStep(seq, rows)


def by_place(found: Iterable[VectorRows]) -> dict[int, bytes]:
    """Each vector by its place, in order."""
    vectors: dict[int, bytes] = {}
    for rows in found:
        size = len(rows.numbers) // len(rows.places)
        vectors.update((place, bytes(rows.numbers[n * size : (n + 1) * size])) for n, place in enumerate(rows.places))
    return vectors


async def indexed(store: Store, thread_id: str, steps: Iterable[PassageStep]) -> None:
    """Make a thread with an index that holds these steps, written one by one, up to the last of them."""
    steps = list(steps)
    upto = max((one.seq for one in steps), default=0)
    await filled(store, thread_id, upto)
    await store.passages.begin(thread_id)
    after = 0
    for one in steps:
        assert await store.passages.write(thread_id, PassageChange(after, one.seq, [one]))
        after = one.seq


async def seqs(store: Store, thread_id: str, wanted: LookUp) -> list[int]:
    """The seqs of the passages that hold one of the terms looked for, in order."""
    looked = await store.passages.look_up(thread_id, wanted)
    held = [one for one in looked.chosen if not set(wanted.terms).isdisjoint(looked.rows[one].terms.split())]
    return sorted({one >> PLACES_BITS for one in held})


A = LookUp(terms=("a",))
_Parts = tuple[set[int], dict[int, PassageRow], dict[int, int], dict[int, dict[int, int]], set[int]]


def _parts_of(looked: LookedUp, number: int = 0) -> _Parts:
    """The result of a lookup, with the number of its thread in each place."""
    base = number << THREAD_BITS
    return (
        {base + one for one in looked.chosen},
        {base + one: found for one, found in looked.rows.items() if one in {*looked.chosen, *looked.before.values()}},
        {base + one: base + before for one, before in looked.before.items()},
        {base + one: {base + other: far for other, far in found.items()} for one, found in looked.around.items()},
        {base + one for one in looked.listed},
    )


def _of_all(looked: Sequence[LookedUp]) -> _Parts:
    """The results of lookups, numbered one after the other."""
    chosen, rows, before, around, listed = _parts_of(LookedUp())
    for number, one in enumerate(looked):
        own = _parts_of(one, number)
        chosen |= own[0]
        rows |= own[1]
        before |= own[2]
        around |= own[3]
        listed |= own[4]
    return chosen, rows, before, around, listed


class PassageContract:
    """Every store's promises about the passages of its threads."""

    async def test_a_thread_has_no_index_until_one_is_begun(self, store: Store) -> None:
        """Before, it is at -1 and takes no passages; then at 0, and at the seq of its input."""
        await filled(store, "t", 2)
        assert (-1, 2) == ((looked := await store.passages.look_up("t", A)).seq, looked.head)
        assert not await store.passages.write("t", PassageChange(0, 1, [step(1, row(1, "a"))]))
        await store.passages.begin("t")
        assert 0 == (await store.passages.look_up("t", A)).seq
        assert await store.passages.write("t", PassageChange(0, 2, [step(1, row(1, "a b"))]))
        looked = await store.passages.look_up("t", A)
        assert (2, 2, 1, 2, {"a": 1}) == (looked.seq, looked.head, looked.passages, looked.terms, dict(looked.holding))
        assert ([place(1)], {place(1): row(1, "a b")}) == (list(looked.chosen), dict(looked.rows))
        assert ["t"] == list(await store.passages.threads())

    async def test_a_change_holds_only_where_the_index_stands(self, store: Store) -> None:
        """One that begins elsewhere is refused whole; beginning again changes nothing unless it is `afresh`."""
        await indexed(store, "t", [step(1, row(1, "a")), step(2, row(2, "a"))])
        for after in (0, 1, 3):
            assert not await store.passages.write("t", PassageChange(after, 4, [step(4, row(4, "a"))]))
        await store.passages.begin("t")
        assert [1, 2] == await seqs(store, "t", A)
        await store.passages.begin("t", afresh=True)
        assert (0, 0) == ((looked := await store.passages.look_up("t", A)).seq, looked.passages)
        assert [] == await seqs(store, "t", A)

    async def test_an_index_is_put_in_the_place_of_another_by_one_commit(self, store: Store) -> None:
        """Made afresh it holds wherever the old one stood, whose vectors go; a refused commit changes nothing."""
        await indexed(store, "t", [step(1, row(1, "a")), step(2, row(2, "a"))])
        await store.passages.put_vectors("t", "m", {place(1): b"\0" * 4}, place(1))
        head = await store.head("t")
        afresh = PassageChange(0, head.seq, [step(2, row(2, "a b"))], afresh=True)
        whole = CommitUnit(thread_id="t", expected=head, head=head, passages=afresh)
        with pytest.raises(HeadMoved):
            await store.commit(msgspec.structs.replace(whole, expected=head_at(head.seq + 1)))
        assert ([1, 2], {"m": place(1)}) == (await seqs(store, "t", A), dict(await store.passages.models("t")))
        await store.commit(whole)
        looked = await store.passages.look_up("t", A)
        assert (head.seq, 1, [place(2)]) == (looked.seq, looked.passages, list(looked.chosen))
        assert {} == dict(await store.passages.models("t"))

    async def test_a_commit_brings_its_passages(self, store: Store) -> None:
        """They are there with its events; a commit whose change does not fit writes its events alone."""
        await store.create(ThreadRecord(id="t"), Head(), ())
        await store.passages.begin("t")
        for seq, after in ((1, 0), (2, 1), (3, 1)):
            change = PassageChange(after, seq, [step(seq, row(seq, "a"))])
            before = head_at(seq - 1) if seq > 1 else Head()
            await store.commit(msgspec.structs.replace(unit("t", event(seq), after=before), passages=change))
        assert ([1, 2], 3) == (await seqs(store, "t", A), (await store.passages.look_up("t", A)).head)
        assert (await store.load("t")).indexed

    async def test_few_and_many_passages_are_found_alike(self, store: Store) -> None:
        """Whether they were indexed for good or not: by any of their terms, counted exactly."""
        await indexed(store, "t", [step(n, row(n, f"a n{n} {'odd' if n % 2 else 'even'}")) for n in range(1, MANY + 1)])
        for n in (1, 63, 64, 65, MANY):
            assert [n] == await seqs(store, "t", LookUp(terms=(f"n{n}",)))
        looked = await store.passages.look_up("t", LookUp(terms=("a", "odd", "n7"), limit=5))
        assert ({"a": MANY, "odd": MANY // 2, "n7": 1}, place(7)) == (dict(looked.holding), looked.chosen[0])
        assert (MANY, 3 * MANY) == (looked.passages, looked.terms)

    async def test_what_precedes_and_follows_is_given(self, store: Store) -> None:
        """The three before and after a find are in the choice, and for each its predecessor is named."""
        await indexed(store, "t", [step(n, row(n, f"n{n}")) for n in (1, 2, 5, 9, 10, 11, 12, 13)])
        looked = await store.passages.look_up("t", LookUp(terms=("n9",)))
        assert [*map(place, (1, 2, 5, 9, 10, 11, 12))] == sorted(looked.chosen)
        around = {1: -3, 2: -2, 5: -1, 10: 1, 11: 2, 12: 3}
        assert {place(9): {place(n): far for n, far in around.items()}} == {
            n: dict(a) for n, a in looked.around.items()
        }
        assert {2: 1, 5: 2, 9: 5, 10: 9, 11: 10, 12: 11} == {
            one >> PLACES_BITS: other >> PLACES_BITS for one, other in looked.before.items()
        }
        assert set(looked.chosen) == set(looked.rows)

    async def test_all_of_a_time_can_be_asked_for(self, store: Store) -> None:
        """Passages said in one of the times listed are in the choice, as many as may be, whatever their words."""
        await indexed(store, "t", [step(n, row(n, f"n{n}")) for n in range(1, 9)])
        wanted = LookUp(listed=((2, 3), (6, 6), (50, 60)))
        assert set(map(place, (2, 3, 6))) == set((looked := await store.passages.look_up("t", wanted)).chosen)
        assert set(looked.chosen) == looked.listed
        few = msgspec.structs.replace(wanted, listed_max=1)
        assert {place(2)} == set((await store.passages.look_up("t", few)).chosen)

    async def test_passages_end(self, store: Store) -> None:
        """By key, by what a key begins with, by event, by what they were drawn from, and with their twins."""
        rows = [
            row(1, "a", key="one"), row(2, "a", key="many:1"), row(3, "a", key="many:2"), row(4, "a"),
            row(5, "a", key="twin"), row(6, "a", key="twin"), row(7, "a", key="manyother"), row(8, "a", origins=(4,)),
        ]  # fmt: skip
        for ends, left in (
            (PassageStep(9, keys=("one", "")), [2, 3, 4, 5, 6, 7, 8]),
            (PassageStep(9, prefixes=("many:",)), [1, 4, 5, 6, 7, 8]),
            (PassageStep(9, seqs=(4, 7)), [1, 2, 3, 5, 6, 8]),
            (PassageStep(9, twins=(5,)), [1, 2, 3, 4, 7, 8]),
            (PassageStep(9, origins=(4,)), [1, 2, 3, 4, 5, 6, 7]),
        ):
            thread_id = f"t{left}"
            await indexed(store, thread_id, [*(step(one.seq, one) for one in rows), ends])
            assert left == await seqs(store, thread_id, A)
            assert list(range(1, 9)) == await seqs(store, thread_id, LookUp(terms=("a",), upto=8))

    async def test_what_an_event_adds_is_not_ended_by_it(self, store: Store) -> None:
        """Ending comes first: a new value takes the place of the old one under the same key."""
        await indexed(store, "t", [step(1, row(1, "a", key="k")), PassageStep(2, (row(2, "a", key="k"),), keys=("k",))])
        assert [2] == await seqs(store, "t", A)
        assert [1] == await seqs(store, "t", LookUp(terms=("a",), upto=1))

    async def test_what_a_rewind_hides_ends_and_comes_back(self, store: Store) -> None:
        """With it goes what hidden events have ended; an ending that is repeated reaches no later passage."""
        first, second = row(1, "a", key="k"), row(3, "a", key="k")
        steps = [step(1, first), step(2, row(2, "a")), PassageStep(3, (second,), keys=("k",))]
        await indexed(store, "t", steps)
        assert [2, 3] == await seqs(store, "t", A)
        back, again = Hiding(gaps=((2, 3),)), Hiding(gaps=((4, 4),), returned=((2, 3),))
        assert await store.passages.write("t", PassageChange(3, 4, hiding=back))
        assert [1] == await seqs(store, "t", A)
        assert not await store.passages.write("t", PassageChange(3, 4, hiding=again))
        assert await store.passages.write("t", PassageChange(4, 5, [PassageStep(3, keys=("k",))], hiding=again))
        assert [2, 3] == await seqs(store, "t", A)
        facts = Hiding(gaps=((2, 2), (4, 4))), Hiding(gaps=((4, 4),), returned=((2, 2),), acts=(6,))
        assert await store.passages.write("t", PassageChange(5, 6, hiding=facts[0]))
        assert [3] == await seqs(store, "t", A)
        assert await store.passages.write("t", PassageChange(6, 7, hiding=facts[1]))
        assert [2, 3] == await seqs(store, "t", A)

    async def test_what_is_dropped_is_destroyed(self, store: Store) -> None:
        """It takes along passages drawn from it and those of a dropped key, indexed or not yet, and their vectors."""
        kept = [step(n, row(n, "a b")) for n in range(10, 10 + MANY)]
        doomed = [step(1, row(1, "a b c")), step(2, row(2, "a", origins=(1, 7))), step(3, row(3, "a", key="call:1"))]
        await indexed(store, "t", [*doomed, *kept])
        late = 10 + MANY
        await store.passages.put_vectors("t", "m", {place(n): VECTOR for n in (1, 2, 3, 10)}, place(10))
        drops = PassageStep(late + 1, drops=(1, late), drop_keys=("call:1",))
        change = PassageChange(late - 1, late + 1, [step(late, row(late, "a c")), drops])
        assert await store.passages.write("t", change)
        looked = await store.passages.look_up("t", LookUp(terms=("a", "c")))
        assert {"a": MANY, "c": 0} == dict(looked.holding)
        assert (MANY, 2 * MANY) == (looked.passages, looked.terms)
        assert [] == await seqs(store, "t", LookUp(terms=("c",), upto=late))
        assert [place(10)] == list(by_place(await store.passages.vectors("t", "m", 0)))

    async def test_kinds_families_and_times_narrow_a_search(self, store: Store) -> None:
        """Only what fits is chosen, however many others hold the terms, indexed for good or not."""
        crowd = [step(n, row(n, "a a", kind="crowd", key=f"crowd:x:{n}")) for n in range(10, 10 + MANY)]
        few = [step(1, row(1, "a", kind="rare", key="rare:one:1")), step(2, row(2, "a", kind="rare", key="rare:two:2"))]
        last = row(10 + MANY, "a", kind="rare", key="rare:one:3")
        await indexed(store, "t", [*few, *crowd, step(last.seq, last)])
        narrow = {
            (1, 2, last.seq): LookUp(terms=("a",), kinds=("rare",), limit=3),
            (1, last.seq): LookUp(terms=("a",), within=(("rare:one:", 0),), limit=3),
            (last.seq,): LookUp(terms=("a",), within=(("rare:one:", 2),), limit=3),
            (2, last.seq): LookUp(terms=("a",), within=(("rare:one:", 2), ("rare:two:", 0)), limit=3),
            (1,): LookUp(terms=("a",), within=(("rare:one:1", 0),), limit=3),
            (2, 10, 11): LookUp(terms=("a",), since_us=2, until_us=11, limit=MANY + 3),
        }
        assert list(narrow) == [tuple(await seqs(store, "t", wanted)) for wanted in narrow.values()]
        for expected, wanted in narrow.items():
            assert list(map(place, expected)) == list(await store.passages.fitting("t", wanted))
        unwanted = LookUp(terms=("a",), unwanted=("crowd",), limit=MANY + 3)
        assert [1, 2, last.seq] == await seqs(store, "t", unwanted)

    async def test_what_does_not_fit_takes_no_place(self, store: Store) -> None:
        """Ended, later and unwanted passages hold the same terms, and are more than the choice holds."""
        crowd = [row(n, "a", key="many", kind="crowd") for n in range(10, 10 + MANY)]
        ending = [PassageStep(one.seq, (one,), keys=("many",)) for one in crowd]
        await indexed(store, "t", [step(1, row(1, "a")), step(2, row(2, "a", kind="rare")), *ending])
        last = crowd[-1].seq
        for expected, wanted in (
            ([1, 2, last], LookUp(terms=("a",), limit=3)),
            ([1, 2, 20], LookUp(terms=("a",), limit=3, upto=20)),
            ([1, 2], LookUp(terms=("a",), limit=2, unwanted=("crowd",))),
            ([1, 2], LookUp(terms=("a",), limit=2, until_us=9)),
            ([2], LookUp(terms=("a",), limit=1, since_us=2, until_us=last - 1)),
        ):
            assert expected == await seqs(store, "t", wanted)
            assert list(map(place, expected)) == list(await store.passages.fitting("t", wanted))
        near = tuple(map(place, (15, last, 16, 2, 1)))
        looked = await store.passages.look_up("t", LookUp(near=near, near_max=2))
        assert (2, {place(last), place(2)}) == (looked.near, set(looked.chosen) & set(near))

    async def test_places_asked_for_are_chosen(self, store: Store) -> None:
        """Passages of `near` are found if they exist, are live and fit."""
        await indexed(store, "t", [step(n, row(n, f"n{n}", key=f"k{n}")) for n in (1, 2, 3)])
        assert await store.passages.write("t", PassageChange(3, 4, [PassageStep(4, keys=("k2",))]))
        near = tuple(map(place, (2, 3, 99)))
        assert [place(3)] == list((await store.passages.look_up("t", LookUp(near=near))).chosen)
        before = LookUp(near=near, upto=2)
        assert [place(2)] == list((await store.passages.look_up("t", before)).chosen)

    async def test_as_of_an_earlier_seq_the_later_is_not_there(self, store: Store) -> None:
        """Passages of a dropped key are neither found nor counted."""
        await indexed(store, "t", [step(n, row(n, "a")) for n in range(1, MANY + 1)])
        for upto in (1, 70, MANY):
            looked = await store.passages.look_up("t", LookUp(terms=("a",), upto=upto, limit=MANY))
            assert (upto, upto, upto) == (looked.passages, looked.holding["a"], len(looked.chosen))

    async def test_threads_never_see_each_other(self, store: Store) -> None:
        """Neither what is found, counted, before or after, ended, dropped or embedded, nor what deletion takes."""
        for thread_id in ("t", "u", "v"):
            await indexed(store, thread_id, [step(n, row(n, f"a {thread_id}", key="k")) for n in range(1, MANY + 1)])
        everything = PassageStep(MANY + 1, keys=("k",), prefixes=("k",), drops=tuple(range(1, MANY)))
        assert await store.passages.write("u", PassageChange(MANY, MANY + 1, [everything]))
        await store.passages.put_vectors("u", "m", {place(MANY): VECTOR}, place(MANY))
        await store.delete("v")
        looked = await store.passages.look_up("t", LookUp(terms=("a", "u", "v"), limit=2 * MANY))
        assert {"a": MANY, "u": 0, "v": 0} == dict(looked.holding)
        assert (MANY, {"t"}) == (len(looked.chosen), {one.terms.split()[1] for one in looked.rows.values()})
        assert place(1) not in looked.before
        assert ([], {}) == (list(await store.passages.vectors("t", "m", 0)), dict(await store.passages.models("t")))
        assert ["t", "u"] == sorted(await store.passages.threads())

    async def test_several_threads_are_looked_up_as_one(self, store: Store) -> None:
        """Finds, counts, neighbours and exclusions are those of each thread; numbers give their order."""
        told = {
            "t": [step(n, row(n, f"a t{n}")) for n in range(1, 10)],
            "u": [
                step(1, row(1, "a b c")), step(2, row(2, "c")), step(3, row(3, "a", key="k")),
                step(4, row(4, "a", kind="crowd")), PassageStep(5, (row(5, "b"),), keys=("k",)),
            ],
            "v": [step(1, row(1, "b", kind="crowd")), step(70, row(70, "a"))],
            "empty": [],
        }  # fmt: skip
        for thread_id, steps in told.items():
            await indexed(store, thread_id, steps)
        named = ("v", "t", "empty", "u")
        for wanted in (
            *(LookUp(terms=terms, limit=MANY) for terms in (("a",), ("b", "c"), ("c", "t7", "nothing"), ())),
            LookUp(terms=("a", "b"), unwanted=("crowd",), limit=MANY),
            LookUp(terms=("a", "b"), kinds=("crowd",), limit=MANY),
            LookUp(terms=("a",), since_us=2, until_us=4, limit=MANY),
            LookUp(listed=((1, 2),)),
        ):
            alone = {thread_id: await store.passages.look_up(thread_id, wanted) for thread_id in named}
            for order, threads in ((named, Threads(thread_ids=named)), (tuple(told), Threads())):
                looked = await store.passages.look_up_among(threads, wanted)
                expected = [(one, alone[one]) for one in order if alone[one].chosen]
                assert [one for one, _ in expected] == list(looked.threads)
                assert _of_all([one for _, one in expected]) == _parts_of(looked), wanted
                counts = [
                    sum(getattr(one, name) for one in alone.values()) for name in ("passages", "terms", "unindexed")
                ]
                assert counts == [looked.passages, looked.terms, looked.unindexed]
                assert {
                    term: sum(one.holding[term] for one in alone.values()) for term in wanted.terms
                } == looked.holding
            await store.passages.index_words_of(Threads())
        assert 0 == (await store.passages.look_up_among(Threads(), A)).unindexed

    async def test_only_the_threads_that_match_are_looked_up(self, store: Store) -> None:
        """By tenant above all; those without an index, or behind their logs, are named, and a deleted one is gone."""
        records = [
            ThreadRecord(id="t", tenant_id="acme", user_id="u"), ThreadRecord(id="pool", tenant_id="acme", kind="pool"),
            ThreadRecord(id="u", tenant_id="acme", agent_id="bot"), ThreadRecord(id="x", tenant_id="else", user_id="u"),
            ThreadRecord(id="none", user_id="u"), ThreadRecord(id="gone", tenant_id="acme", user_id="u"),
            ThreadRecord(id="if", tenant_id="if", metadata={"a": "b", "key": "x"}),
            ThreadRecord(id="said", tenant_id="if", metadata={"a": ',"key":'}),
        ]  # fmt: skip
        for record in records:
            await store.create(record, Head(), ())
            await store.passages.begin(record.id)
            change = PassageChange(0, 1, [step(1, row(1, f"a {record.id}"))])
            await store.commit(msgspec.structs.replace(unit(record.id, event(1)), passages=change))
            await store.passages.index_words_of(Threads(thread_ids=(record.id,)))
        await store.delete("gone")
        for threads, found in (
            (Threads(tenant_id="acme"), ("t", "pool", "u")),
            (Threads(tenant_id="acme", without_kinds=("pool",), without=frozenset({"u"})), ("t",)),
            (Threads(tenant_id="acme", user_id="u"), ("t",)),
            (Threads(tenant_id="acme", agent_id="bot"), ("u",)),
            (Threads(tenant_id="acme", kind="pool"), ("pool",)),
            (Threads(), ("none",)),
            (Threads(tenant_id="if"), ("if", "said")),
            (Threads(tenant_id="if", without_key="key"), ("said",)),
            (Threads(tenant_id="if", without_key="a"), ()),
            (Threads(thread_ids=("if",), without_key="key"), ("if",)),
            (Threads(tenant_id="acm"), ()),
            (Threads(thread_ids=("x", "t")), ("x", "t")),
        ):
            looked = await store.passages.look_up_among(threads, LookUp(terms=("a", "gone", "x")))
            assert (found, ()) == (looked.threads, looked.behind)
            assert [f"a {one}" for one in found] == [looked.rows[place].terms for place in sorted(looked.chosen)]
            assert {"a": len(found), "gone": 0, "x": "x" in found} == looked.holding
            members = sorted(await store.passages.members(threads), key=lambda one: one.rank)
            assert [one.id for one in records if one.id in found] == [one.id for one in members]
            assert dict(zip(looked.threads, looked.numbers, strict=True)) == {one.id: one.number for one in members}
            assert {(one.id, one.tenant_id, 1) for one in records if one.id in found} == {
                (one.id, one.tenant_id, one.seq) for one in members
            }
        with pytest.raises(ThreadNotFound):
            await store.passages.look_up_among(Threads(thread_ids=("t", "gone")), A)
        await store.create(ThreadRecord(id="new", tenant_id="acme"), Head(), ())
        await store.commit(unit("t", event(2), after=head_at(1)))
        assert {"new", "t"} == set((await store.passages.look_up_among(Threads(tenant_id="acme"), A)).behind)

    async def test_vectors_follow_their_passages(self, store: Store) -> None:
        """The oldest unembedded come first; vectors are kept by model, read in order, and dropped by model."""
        passages = store.passages
        await indexed(store, "t", [step(n, row(n, "a")) for n in (1, 2, 3, 4)])
        assert ([place(1), place(2)], 4) == tuple(await passages.unembedded("t", "m", 2))
        await passages.put_vectors("t", "m", {place(2): VECTOR, place(1): VECTOR, place(99): VECTOR}, place(2))
        await passages.put_vectors("t", "other", {place(1): b"\0\0"}, place(4))
        assert ([place(3)], 2) == tuple(await passages.unembedded("t", "m", 1))
        assert {place(1): VECTOR, place(2): VECTOR} == by_place(await passages.vectors("t", "m", 0))
        assert {place(2): VECTOR} == by_place(await passages.vectors("t", "m", place(1)))
        assert {"m": place(2), "other": place(4)} == dict(await passages.models("t"))
        await passages.drop_vectors("t", ["m", "never there"])
        assert ({"other": place(4)}, []) == (
            dict(await passages.models("t")),
            list(await passages.vectors("t", "m", 0)),
        )
        assert 4 == (await passages.unembedded("t", "m", 0))[1]

    async def test_vectors_come_back_however_many_were_put_at_once(self, store: Store) -> None:
        """One by one or in batches, put again, and with some of them destroyed in between."""
        passages = store.passages
        await indexed(store, "t", [step(n, row(n, "a")) for n in range(1, MANY + 1)])
        kept: dict[int, bytes] = {}
        sizes = [1] * 70 + [63, 2, 1, 64]
        seq = 1
        for size in sizes:
            some = {place(n): n.to_bytes(2, "little") * 2 for n in range(seq, seq + size)}
            await passages.put_vectors("t", "m", some, place(seq + size - 1), first=place(seq))
            kept |= some
            seq += size
        assert MANY == len(kept)
        again = {place(n): VECTOR for n in range(60, 90)}
        await passages.put_vectors("t", "m", again, place(89), first=place(60))
        kept |= again
        gone = (1, 64, 65, *range(100, 130), MANY)
        assert await passages.write("t", PassageChange(MANY, MANY + 1, [PassageStep(MANY + 1, drops=gone)]))
        for seq in gone:
            del kept[place(seq)]
        for after in (0, place(1), place(69), place(115), place(MANY - 1), place(MANY)):
            later = {one: vector for one, vector in kept.items() if one > after}
            assert later == by_place(await passages.vectors("t", "m", after))
        assert [list(kept)] == [list(rows.places) for rows in await passages.vectors("t", "m", 0)]

    async def test_vectors_of_several_threads_come_at_once(self, store: Store) -> None:
        """Those that came since, with numbers by which passages near in meaning are named; who waits is counted."""
        for thread_id in ("t", "u", "v"):
            await indexed(store, thread_id, [step(n, row(n, f"{thread_id}{n}")) for n in (1, 2, 3)])
        passages, both = store.passages, Threads(thread_ids=("t", "u"))
        await passages.put_vectors("t", "m", {place(1): VECTOR, place(2): VECTOR}, place(2))
        for thread_id in ("u", "v"):
            await passages.put_vectors(thread_id, "m", dict.fromkeys(map(place, (1, 2, 3)), VECTOR), place(3))
        first = await passages.vectors_among(both, "m", {})
        near = [number << THREAD_BITS | one for number, rows in first.vectors for one in rows.places]
        assert (5, {"t": 1}) == (len(near), dict(first.waiting))
        assert [] == list((await passages.vectors_among(both, "m", first.upto)).vectors)
        await passages.put_vectors("t", "m", {place(3): VECTOR}, place(3), first=place(3))
        [(number, rows)] = (await passages.vectors_among(both, "m", first.upto)).vectors
        late = number << THREAD_BITS | rows.places[0]
        near = [late, *near]
        looked = await passages.look_up_among(both, LookUp(near=tuple(near), near_max=9))
        assert (6, ("t", "u"), 2) == (looked.near, looked.threads, len(looked.numbers))
        assert place(3) | looked.numbers[0] << THREAD_BITS == late
        only_v = await passages.look_up_among(Threads(thread_ids=("v",)), LookUp(near=tuple(near), near_max=9))
        assert (0, ()) == (only_v.near, only_v.threads)
        assert {"t": 3, "u": 3} == dict((await passages.vectors_among(both, "other", {})).waiting)

    async def test_vectors_come_in_the_order_of_places(self, store: Store) -> None:
        """Of an index that was made again, or has not come so far, none are kept out of turn: all wait as before."""
        await indexed(store, "t", [step(n, row(n, "a")) for n in range(1, 5)])
        passages = store.passages
        for first, upto in ((3, 4), (1, 5)):
            await passages.put_vectors("t", "m", {place(upto): VECTOR}, place(upto), first=place(first))
            assert [] == await passages.vectors("t", "m", 0)
            assert 4 == (await passages.unembedded("t", "m", 9))[1]
        await passages.put_vectors("t", "m", {place(1): VECTOR}, place(2), first=place(1))
        await passages.put_vectors("t", "m", {place(3): VECTOR}, place(3), first=place(3))
        assert ([place(4)], 1) == await passages.unembedded("t", "m", 9)

    async def test_an_unknown_thread_has_no_passages_and_no_vectors(self, store: Store) -> None:
        """Every call on an unknown thread raises `ThreadNotFound`; so does one on a deleted thread."""
        await indexed(store, "gone", [step(1, row(1, "a"))])
        await store.delete("gone")
        passages = store.passages
        for thread_id in ("gone", "never"):
            for call in (
                lambda t: passages.look_up(t, A),
                passages.begin,
                lambda t: passages.write(t, PassageChange(0, 1)),
                lambda t: passages.unembedded(t, "m", 1),
                lambda t: passages.put_vectors(t, "m", {}, 0),
                lambda t: passages.vectors(t, "m", 0),
                passages.models,
                lambda t: passages.drop_vectors(t, ["m"]),
            ):
                with pytest.raises(ThreadNotFound):
                    await call(thread_id)
