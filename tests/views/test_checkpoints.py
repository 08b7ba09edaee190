"""Checkpoints of graphs' runs: whatever is saved is read back byte for byte, and what is said twice is kept once."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import memory_engine
from memory_engine import Engine, UserMessage
from memory_engine.core.excerpts import of_event
from memory_engine.core.records import NewEvent
from memory_engine.replay.export.redaction import Redaction
from memory_engine.thread import handle_of
from memory_engine.views.checkpoints.events import CheckpointName
from memory_engine.views.checkpoints.packing import Form, Sheet, array_form, quoted, split
from memory_engine.views.checkpoints.pieces import Quote, to_bytes, to_text, unquoted
from memory_engine.views.checkpoints.view import CheckpointCache, Checkpoints, Given, Write

texts = st.text(max_size=200)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False)
    | texts
    | st.binary(max_size=200),
    lambda inner: st.lists(inner, max_size=20) | st.dictionaries(texts, inner, max_size=5),
    max_leaves=30,
)


def packed(value: object) -> Form:
    """A value as a serializer gives it."""
    return "msgpack", msgspec.msgpack.encode(value)


@given(st.lists(values, min_size=1, max_size=4))
def test_values_come_out_as_they_went_in(several: list[object]) -> None:
    """Cut into pieces that a sheet shares, and put together again."""
    sheet = Sheet({})
    forms = [sheet.packed(packed(value)) for value in several]
    stored = [to_text(piece) for piece in sheet.pieces]
    for value, form in zip(several, forms, strict=True):
        parts = [to_bytes(part if isinstance(part, str) else stored[part.index]) for part in form.parts]
        assert packed(value) == (form.form, b"".join(parts))
        whole = split(packed(value))
        assert whole is None or packed(value) == array_form(len(whole.items), b"".join(whole.items))


@given(st.lists(texts, max_size=12), st.lists(st.booleans(), max_size=12), st.binary(max_size=90))
def test_pieces_quote_the_texts_beside_them(said: list[str], taken: list[bool], rest: bytes) -> None:
    """Whichever of them they hold; a text that is another one by now is seen."""
    pieces = [rest + text.encode() + rest for text, take in zip(said, taken, strict=False) if take]
    for piece, one in zip(pieces, quoted(pieces, said), strict=True):
        if isinstance(one, Quote):
            assert piece == unquoted(one, said[one.back + len(said)])
            assert None is unquoted(one, "[erased]")
        else:
            assert piece == to_bytes(one)


async def saved(
    checkpoints: Checkpoints, number: int, values: Mapping[str, object], *, changed: bool = True, branch: int = -1
) -> CheckpointName:
    """Save a checkpoint after the one before it, or after `branch`."""
    name = CheckpointName("", f"{number:04}")
    parent = f"{branch if branch >= 0 else number - 1:04}" if number else ""
    given = {channel: Given(str(number), changed, partial(packed, value)) for channel, value in values.items()}
    draft = await checkpoints.draft(name, parent, given)
    await checkpoints.save(draft, parent, packed({"n": number}), "{}")
    return name


lists = st.lists(st.text(min_size=70, max_size=90), max_size=6)


@given(st.lists(st.tuples(lists, values, st.integers(0, 20), st.booleans()), min_size=1, max_size=6))
async def test_a_run_is_read_back_with_and_without_what_is_remembered(
    steps: list[tuple[list[str], object, int, bool]],
) -> None:
    """Lists that grow, shrink and turn round, on branches, by one process or a new one for each step."""
    async with memory_engine.open(":memory:") as engine:
        thread = await engine.create_thread("t")
        cache, expected = CheckpointCache(), {}
        for number, (items, value, branch, fresh) in enumerate(steps):
            cache = CheckpointCache() if fresh else cache
            given = {"list": items, "value": value}
            at = branch % number if number else -1
            expected[await saved(Checkpoints(handle_of(thread), cache), number, given, branch=at)] = given
        for checkpoints in (Checkpoints(handle_of(thread), cache), Checkpoints(handle_of(thread))):
            assert set(expected) == set(await checkpoints.names())
            for name, given in expected.items():
                found = await checkpoints.read(name)
                assert found is not None
                assert {channel: packed(value) for channel, value in given.items()} == found.values
        assert (await thread.replay.verify()).ok


async def test_what_has_not_changed_is_not_asked_for(engine: Engine) -> None:
    """Nor written again: it is read from the checkpoint that brought it."""
    checkpoints = Checkpoints(handle_of(await engine.create_thread()))
    long = {"plan": "walk " * 200}
    await saved(checkpoints, 0, long)
    size = (await engine.stats()).payload_bytes

    def never() -> Form:
        raise AssertionError("it was serialized again")

    name = CheckpointName("", "0001")
    draft = await checkpoints.draft(name, "0000", {"plan": Given("0", False, never)})
    await checkpoints.save(draft, "0000", packed({}), "{}")
    assert (await engine.stats()).payload_bytes < size + 300
    await checkpoints.drop([CheckpointName("", "0000")])
    assert [name] == await checkpoints.names()
    found = await checkpoints.read(name)
    assert found is not None
    assert packed(long["plan"]) == found.values["plan"]


async def test_a_message_is_kept_once_where_its_event_stands_beside_it(engine: Engine) -> None:
    """The event of a message holds its text; erasing it takes it out of the list too."""
    thread = await engine.create_thread()
    checkpoints, text = (
        Checkpoints(handle_of(thread)),
        "I would like to sit by the window, please, on the left side of the train.",
    )
    name = CheckpointName("", "1")
    given = {"messages": Given("1", True, lambda: packed([{"text": text}, {"text": text[::-1]}]))}
    draft = await checkpoints.draft(name, "", given)
    await checkpoints.save(draft, "", packed({}), "{}", beside=[NewEvent(UserMessage(content=text))])
    for seen in (checkpoints, Checkpoints(handle_of(thread))):
        found = await seen.read(name)
        assert found is not None
        assert packed([{"text": text}, {"text": text[::-1]}]) == found.values["messages"]
    await thread.admin.erase(seqs=[1])
    found = await Checkpoints(handle_of(thread)).read(name)
    assert found is not None
    assert packed([{"text": text[::-1]}]) == found.values["messages"]


async def test_erasing_a_message_takes_it_out_of_every_checkpoint(tmp_path: Path) -> None:
    """Of this thread and its forks; the rest of each stays, and so does a text that only holds it."""
    texts = ["my number is 4711-0815.", "They said: my number is 4711-0815. Is it?", "4711"]
    messages: list[object] = [*({"content": text} for text in texts), ["type", "4711"]]
    async with memory_engine.open(str(tmp_path / "t.db")) as engine, memory_engine.open(":memory:") as other:
        thread = await engine.create_thread("t")
        warm = Checkpoints(handle_of(thread))
        name = await saved(warm, 0, {"list": [text * 4 for text in texts], "first": messages[0], "other": messages[1]})
        await warm.write(name, "task", "", [Write("x", n, packed([one])) for n, one in enumerate(messages)])
        said, pin = await thread.dispatch_all([UserMessage(content=texts[0]), UserMessage(content=texts[2])])
        fork = await thread.fork(thread_id="fork")
        await Checkpoints(handle_of(fork)).write(name, "later", "", [Write("x", 9, packed(["", messages[0]]))])
        await thread.replay.export(tmp_path / "less.jsonl", redaction=Redaction(seqs=(said.seq,)))
        await other.transfer.import_log(tmp_path / "less.jsonl", scopes="as exported")
        seen = [Checkpoints(handle_of(other.thread("t")))]
        for erased, left in ((None, [1, 2, 3]), (said, [1, 2, 3]), (pin, [1, 3])):
            if erased is not None:
                report = await thread.admin.erase([erased.event_id])
                assert report.proof is not None
                assert report.proof.ok
                seen = [warm, Checkpoints(handle_of(thread)), Checkpoints(handle_of(fork))]
            for one in seen:
                found = await one.read(name)
                assert found is not None
                assert [packed([messages[n]]) for n in left] == [write.value for write in found.writes]
                assert {"list": packed([text * 4 for text in texts]), "other": packed(messages[1])} == found.values
        for handle in (thread, fork, other.thread("t")):
            assert (await handle.replay.verify()).ok


async def test_lists_of_events_say_what_a_checkpoint_is_of(engine: Engine) -> None:
    """Not the bytes that it holds."""
    thread = await engine.create_thread()
    checkpoints = Checkpoints(handle_of(thread))
    name = await saved(checkpoints, 0, {"list": ["a" * 80, "b" * 80], "plan": "walk"})
    await checkpoints.write(name, "t1", "~pull, node", [Write("list", 0, packed(["c"]))])
    lines = [of_event(recorded.event) async for recorded in thread.events()]
    assert ["list, plan, 2 new in lists {}", "~pull, node wrote list"] == lines


async def test_a_forgotten_checkpoint_is_shown_no_more(engine: Engine) -> None:
    """Nor what was written after it, nor its items in later ones; numbers go on."""
    thread = await engine.create_thread()
    checkpoints = Checkpoints(handle_of(thread))
    items = [letter * 80 for letter in "abcd"]
    first = await saved(checkpoints, 0, {"list": items[:1]})
    await checkpoints.write(first, "task", "", [Write("list", 0, packed(items[1]))])
    second = await saved(checkpoints, 1, {"list": items[:3]})
    await thread.forget(seqs=[1, 2])
    await saved(checkpoints, 2, {"list": items[2:]})
    assert [second, CheckpointName("", "0002")] == sorted(await checkpoints.names(), key=lambda name: name.id)
    for seen in (checkpoints, Checkpoints(handle_of(thread))):
        found = [await seen.read(CheckpointName("", f"000{n}")) for n in range(3)]
        assert found[0] is None
        lists = [msgspec.msgpack.decode(one.values["list"][1]) for one in found[1:] if one is not None]
        assert [items[2:3], items[2:]] == lists
    await thread.forget(seqs=[3])
    assert [CheckpointName("", "0002")] == await checkpoints.names()
    assert (await thread.replay.verify()).ok


async def test_a_thread_that_is_not_there_has_no_checkpoints(engine: Engine) -> None:
    """It is read as empty; nothing is made by reading."""
    checkpoints = Checkpoints(handle_of(engine.thread("nobody")))
    assert ([], "", {}) == (await checkpoints.names(), await checkpoints.latest(), await checkpoints.events())
    assert None is await checkpoints.read(CheckpointName("", "1"))
    with pytest.raises(memory_engine.errors.ThreadNotFound):
        await checkpoints.drop([CheckpointName("", "1")])
