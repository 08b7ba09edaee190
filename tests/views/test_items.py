"""Items: put, read, listed, found, forgotten, erased, kept for a time."""

import json
import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import memory_engine
from memory_engine import Engine, UserMessage
from memory_engine.engine import kernel_of
from memory_engine.errors import InvalidEvent
from memory_engine.runtime.scoped import ScopeHandle
from memory_engine.testing import HashEmbedder, ManualClock
from memory_engine.thread import handle_of
from memory_engine.views.items import view
from memory_engine.views.items.events import ItemName, ItemPut, texts_at_paths
from memory_engine.views.items.fold import item_key, item_name, namespace_key
from memory_engine.views.items.view import Item, Items

MINUTE_US = 60_000_000


def items_of(engine: Engine) -> Items:
    """Items of a thread that the first of them makes."""
    return Items(ScopeHandle(kernel_of(engine), "store", "s"))


def keys(found: Sequence[Item]) -> list[str]:
    """Their keys, in order."""
    return [item.key for item in found]


def held(folder: Path) -> list[bytes]:
    """What the files of a folder hold."""
    return [one.read_bytes() for one in folder.iterdir()]


def green_tea(n: int) -> ItemPut:
    """One of many items."""
    return ItemPut(namespace=("a",), key=f"{n:03}", value={"text": f"green tea number {n}", "n": n})


async def test_an_item_is_put_read_and_deleted(engine: Engine) -> None:
    """The value comes back as it was; what is put anew keeps the time of its making."""
    items, value = items_of(engine), {"text": "tea", "n": [1, 2.5, None, True], "deep": {"é": 10**30}}
    assert None is await items.get(("users", "ann"), "k")
    assert [] == await items.list() == await items.search("tea") == await items.history((), "k")
    assert [] == await items.namespaces()
    await items.delete(("users", "ann"), "k")
    assert not await engine.threads(kind="store")
    await items.put(("users", "ann"), "k", value)
    first = await items.get(("users", "ann"), "k")
    assert first is not None
    assert (value, first.changed, None) == (first.value, first.created, first.expires)
    await items.put(("users", "ann"), "k", {"text": "coffee"})
    second = await items.get(("users", "ann"), "k")
    assert second is not None
    assert ({"text": "coffee"}, first.created) == (second.value, second.created)
    assert second.changed > first.changed
    await items.delete(("users", "ann"), "k")
    assert None is await items.get(("users", "ann"), "k")
    assert [value, {"text": "coffee"}] == [one.value for one in await items.history(("users", "ann"), "k")]
    thread = engine.thread("store:s")
    assert value == (await Items(handle_of(await thread.at(first.seq))).list())[0].value
    assert (await thread.replay.verify()).ok


@given(st.recursive(st.integers(), lambda inner: st.lists(inner) | st.dictionaries(st.text("ab%é\U0001f600"), inner)))
async def test_fields_come_back_in_the_order_in_which_they_stood(value: object) -> None:
    """In objects of objects and lists; history tells it too."""
    async with memory_engine.open(":memory:") as engine:
        items, whole = items_of(engine), {"z": value, "a": {"y": 1, "x": [{"c": 1, "b": value}]}}
        await items.put((), "k", whole)
        found = [await items.get((), "k"), *await items.history((), "k")]
        assert [json.dumps(whole)] * 2 == [json.dumps(one.value) for one in found if one]


async def test_changes_of_a_batch_are_one_commit_and_the_last_of_a_name_counts(engine: Engine) -> None:
    """One that cannot be written leaves all unwritten."""
    items = items_of(engine)
    changes = [ItemPut(namespace=("a",), key="k", value={"n": n}) for n in range(3)]
    receipts = await items.change([*changes, ItemName(("a",), "gone")])
    assert [1] == [receipt.seq for receipt in receipts]
    with pytest.raises(InvalidEvent, match="nan"):
        await items.change(
            [ItemPut(namespace=("a",), key=key, value={"n": n}) for key, n in (("x", 1), ("y", float("nan")))]
        )
    assert [("k", {"n": 2})] == [(item.key, item.value) for item in await items.list()]


async def test_a_namespace_holds_itself_and_what_is_below_it(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever its labels are made of; read in pages."""
    monkeypatch.setattr(view, "PAGE", 2)
    items = items_of(engine)
    names = [("a",), ("a", "b"), ("a", "b/c"), ("a%2Fb",), ("ab",), ("A",), ("a", "*"), ("", "x"), (), ("a\0",)]
    await items.change(
        ItemPut(namespace=name, key=key, value={}) for name in names for key in ("k", "k/1", "/", "", "é")
    )
    assert sorted(names) == await items.namespaces()
    assert [("a",), ("a", "*"), ("a", "b"), ("a", "b/c")] == await items.namespaces(("a",))
    assert 50 == len(await items.list())
    below = await items.list(("a",))
    assert {("a",), ("a", "*"), ("a", "b"), ("a", "b/c")} == {item.namespace for item in below}
    assert 20 == len(below)
    assert keys(below)[3:10] == keys(await items.list(("a",), limit=7, offset=3))


@given(namespace=st.lists(st.text(st.characters(exclude_categories=["Cs"]))), key=st.text())
def test_a_name_is_read_back_from_its_key(namespace: list[str], key: str) -> None:
    """And no key stands outside of the keys of its namespace."""
    own = item_key(namespace, key)
    assert (tuple(namespace), key) == item_name(own)
    assert own.startswith(namespace_key(namespace))


VALUE: Mapping[str, object] = {
    "title": "Tea",
    "author": {"name": "Ann", "age": 40},
    "tags": ["hot", "green"],
    "parts": [{"id": 1, "text": "one"}, {"id": 2, "text": "two"}],
    "empty": None,
}


@pytest.mark.parametrize(
    ("path", "texts"),
    [
        ("title", ["Tea"]),
        ("author.name", ["Ann"]),
        ("author.*", ["40", "Ann"]),
        ("author", ["age: 40\nname: Ann"]),
        ("tags", ["hot, green"]),
        ("tags[*]", ["hot", "green"]),
        ("tags[-1]", ["green"]),
        ("tags[7]", []),
        ("tags[x]", []),
        ("parts[*].text", ["one", "two"]),
        ("parts[0].{id,text}", ["1", "one"]),
        ("{title,author.name}", ["Tea", "Ann"]),
        ("nothing.there", []),
        ("empty", []),
    ],
)
def test_texts_are_those_at_the_paths(path: str, texts: list[str]) -> None:
    """Fields, places of lists, all of them, and some."""
    assert texts == list(texts_at_paths(VALUE, [path]))


def test_all_of_a_value_is_read_as_a_person_reads_it() -> None:
    """Names and values, without quotes and brackets."""
    said = "author: age: 40\nname: Ann\nparts: id: 1\ntext: one, id: 2\ntext: two\ntags: hot, green\ntitle: Tea"
    assert [said] == list(texts_at_paths(VALUE, ["$"]))


async def test_a_search_finds_the_texts_of_its_index_in_its_namespace(engine: Engine) -> None:
    """As they are now, through any filter; the same words in two items are two items."""
    items = items_of(engine)
    await items.put(
        ("ann",), "cat", {"text": "The cat is called Tom and sleeps on the sofa.", "year": 2024}, index=["text"]
    )
    await items.put(
        ("ben",), "cat", {"text": "The cat is called Tom and sleeps on the sofa.", "year": 2025}, index=["text"]
    )
    await items.put(("ann",), "dog", {"text": "The dog is called Rex.", "secret": "xylophone"}, index=["text"])
    await items.put(("ann",), "note", {"text": "Tom wrote this."}, index=[])
    found = await items.search("what is the cat called")
    assert {("ann", "cat"), ("ben", "cat"), ("ann", "dog")} == {(*item.namespace, item.key) for item in found}
    assert found[0].score == found[1].score is not None
    assert ["cat"] == keys(await items.search("cat", ("ann",)))
    assert [2025] == [
        item.value["year"] for item in await items.search("cat", where=lambda value: value.get("year") == 2025)
    ]
    assert [] == await items.search("xylophone")
    assert keys(found)[1:2] == keys(await items.search("what is the cat called", limit=1, offset=1))
    await items.put(("ann",), "cat", {"text": "The parrot is called Kiki."})
    assert [("ben",)] == [item.namespace for item in await items.search("cat")]
    await items.delete(("ben",), "cat")
    assert [] == await items.search("cat")


async def test_a_filter_does_not_hide_what_is_near_in_meaning(tmp_path: Path) -> None:
    """Of the few that it lets through, the nearest are looked for, however many others are nearer."""
    async with memory_engine.open(str(tmp_path / "m.db"), embedder=HashEmbedder()) as engine:
        items = items_of(engine)
        await items.change(map(green_tea, range(130)))
        await items.put(("a",), "far", {"text": "a bicycle", "n": -1})
        await items.search("tea")
        await engine.settle()
        assert ["far"] == keys(await items.search("green tea", where=lambda value: value["n"] == -1))


async def test_a_forgotten_version_is_not_shown(engine: Engine) -> None:
    """Nowhere: not by name, in lists, searches, histories, nor as of an earlier moment. Its name can be put anew."""
    items = items_of(engine)
    receipt = await items.put(("a",), "secret", {"text": "Her number is 555."})
    await items.put(("a",), "tea", {"text": "Ann likes tea."})
    thread = engine.thread("store:s")
    await thread.forget(event_ids=[receipt.event_id], reason="asked to")
    assert None is await items.get(("a",), "secret")
    assert ["tea"] == keys(await items.list()) == keys(await Items(handle_of(await thread.at(2))).list())
    assert ["item:a//tea"] == list(await thread.views.read("items")) == list(await thread.view("items", at=2))
    assert [] == await items.search("number") == await items.history(("a",), "secret")
    await items.put(("a",), "secret", {"text": "none"})
    assert ["secret", "tea"] == keys(await items.list())
    assert [{"text": "none"}] == [one.value for one in await items.history(("a",), "secret")]


async def test_an_erased_version_is_gone(tmp_path: Path) -> None:
    """Its bytes too."""
    path = tmp_path / "m.db"
    async with memory_engine.open(str(path)) as engine:
        items = items_of(engine)
        receipt = await items.put(("a",), "xylokey", {"text": "xylophone"})
        await items.put(("a",), "tea", {"text": "Ann likes tea."})
        await engine.thread("store:s").admin.erase(event_ids=[receipt.event_id], by="dpo", reason="asked to")
        assert ["tea"] == keys(await items.list())
        assert [] == await items.search("xylophone")
        assert None is await items.get(("a",), "xylokey")
    assert not any(re.search(b"xylophone|xylokey", data) for data in held(tmp_path))


async def test_a_cleared_thread_has_no_items(engine: Engine) -> None:
    """Like every other view."""
    items = items_of(engine)
    await items.put(("a",), "k", {"text": "tea"})
    await engine.thread("store:s").admin.clear()
    assert [] == await items.list() == await items.search("tea")


async def test_an_item_goes_when_its_time_is_over(tmp_path: Path) -> None:
    """Counted from its last use; deleted when somebody sweeps. A new version's time begins anew."""
    clock = ManualClock()
    async with memory_engine.open(str(tmp_path / "m.db"), clock=clock) as engine:
        items = items_of(engine)
        await items.put(("a",), "tea", {"text": "green tea"}, ttl_us=10 * MINUTE_US)
        await items.put(("a",), "cat", {"text": "a cat"})
        clock.advance(9 * 60)
        tea = await items.get(("a",), "tea")
        assert tea is not None
        assert timedelta(minutes=10) == (tea.expires or tea.changed) - tea.changed
        await items.use([tea])
        await items.use(await items.list())
        assert 3 == await handle_of(engine.thread("store:s")).last_seq()
        clock.advance(9 * 60)
        assert ["cat", "tea"] == keys(await items.list())
        assert ["tea"] == keys(await items.search("tea"))
        assert 0 == await items.sweep()
        clock.advance(60)
        assert ["cat"] == keys(await items.list())
        assert [] == await items.search("tea")
        assert None is await items.get(("a",), "tea")
        await items.put(("b",), "tea", {"text": "tea"}, ttl_us=MINUTE_US)
        await items.put(("a",), "tea", {"text": "tea"}, ttl_us=MINUTE_US)
        again = await items.get(("a",), "tea")
        assert again is not None
        assert again.created == again.changed
        clock.advance(60)
        assert [("a",)] == await items.namespaces()
        assert (2, 0) == (await items.sweep(), await items.sweep())
        assert ["green tea", "tea"] == [one.value["text"] for one in await items.history(("a",), "tea")]


async def test_what_is_read_does_not_grow_with_what_is_there(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of many items is read alone; a page is read for a page; a namespace costs a page, not its items."""
    monkeypatch.setattr(view, "PAGE", 50)
    items, read = items_of(engine), 0
    await items.change(ItemPut(namespace=("a",), key=f"{n:04}", value={"n": n}) for n in range(1_000))
    await items.put(("b",), "k", {})
    rows_between = type(kernel_of(engine).store).rows_between

    async def counted(*given: object) -> object:
        nonlocal read
        rows = await rows_between(*given)  # type: ignore[arg-type]  # as they came
        read += len(rows)
        return rows

    monkeypatch.setattr(type(kernel_of(engine).store), "rows_between", counted)
    for wanted, most in (
        (items.get(("a",), "0500"), 1),
        (items.put(("a",), "0500", {}), 1),
        (items.list(limit=10), 10),
        (items.namespaces(), 51),
    ):
        read = 0
        await wanted
        assert read <= most


async def test_items_may_stand_in_any_thread(engine: Engine) -> None:
    """A conversation's, beside its messages: they are no chunks, and a search of the thread finds them."""
    thread = await engine.create_thread()
    await thread.dispatch(UserMessage(content="Hello"))
    await Items(handle_of(thread)).put(("a",), "k", {"text": "My cat is called Tom."})
    assert 1 == len(await thread.state())
    assert ["text: My cat is called Tom."] == [hit.text for hit in await thread.search("cat")]
