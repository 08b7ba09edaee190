"""Checkpoints made to hurt their reader: the log stays readable, and what cannot be read is named."""

import tracemalloc
from pathlib import Path

import pytest

import memory_engine
from memory_engine import Engine, Thread, UserMessage
from memory_engine.administration.proof import find_texts
from memory_engine.core.bounded import UNPACKED_MAX
from memory_engine.engine import kernel_of
from memory_engine.errors import UnreadableContent
from memory_engine.replay.export.redaction import Redaction
from memory_engine.thread import handle_of
from memory_engine.views.checkpoints.events import ChannelValue, CheckpointName, CheckpointSaved, ItemSpan
from memory_engine.views.checkpoints.pieces import Packed, PiecePlace, to_bytes, to_text
from memory_engine.views.checkpoints.view import Checkpoints
from tests.trust.hostile_files import packed_bomb

BOMB = packed_bomb(70)
DAMAGED = "~" + to_text(b"ab" * 400)[9:]
PICKLE = b"cbuiltins\nexec\n(Vraise SystemExit\ntR."
SAID = "Please water the ferns in the hall on Tuesday and on Friday."


async def holding(engine: Engine, piece: str, form: str = "msgpack") -> Thread:
    """A thread with a message, and a checkpoint whose one value is a piece."""
    thread = await engine.create_thread("t")
    await thread.dispatch(UserMessage(content=SAID))
    value = Packed(form, (PiecePlace(0, 0),))
    await thread.dispatch(
        CheckpointSaved(
            id="1", state=Packed("json", ("{}",)), values=(ChannelValue(channel="x", value=value),), pieces=(piece,)
        )
    )
    return thread


@pytest.mark.parametrize("piece", [BOMB, DAMAGED, "~AAAA", "abcde"], ids=["bomb", "damaged", "cut off", "base64"])
async def test_what_cannot_be_unpacked_is_named_and_the_log_stays_whole(tmp_path: Path, piece: str) -> None:
    """Import, verify, context, search and export never unpack it; a proof is not ok, and says where it is."""
    path, place = tmp_path / "log.jsonl.gz", " of thread t, event 2, piece 0"
    async with memory_engine.open(str(tmp_path / "m.db")) as engine:
        await (await holding(engine, piece)).replay.export(path)
    async with memory_engine.open(str(tmp_path / "n.db")) as engine:
        await engine.transfer.import_log(path)
        thread = engine.thread("t")
        assert (await thread.replay.verify()).ok
        assert SAID in str((await thread.context()).messages)
        assert (await thread.search("ferns")).hits
        with pytest.raises(UnreadableContent, match="event 2 of thread 't'"):
            await Checkpoints(handle_of(thread)).read(CheckpointName("", "1"))
        report = await thread.admin.erase(seqs=[1])
        for proof in (report.proof, await find_texts(kernel_of(engine), ["never said"])):
            assert proof is not None
            assert (False, ()) == (proof.ok, proof.left)
            assert [True] == [place in one for one in proof.unread]
        assert (await thread.replay.verify()).ok
        await thread.admin.erase(seqs=[2])
        assert (await find_texts(kernel_of(engine), ["never said"])).ok


async def test_a_redacted_export_leaves_out_what_it_cannot_read(engine: Engine, tmp_path: Path) -> None:
    """It may hold what is to go; an export that hides nothing keeps it."""
    thread = await holding(engine, BOMB)
    kinds = ((Redaction(), True), (Redaction(patterns=("ferns",)), False), (Redaction(seqs=(1,)), False))
    for n, (rules, is_kept) in enumerate(kinds):
        path = tmp_path / f"{n}.jsonl"
        await thread.replay.export(path, redaction=rules)
        assert is_kept == (BOMB in path.read_text(encoding="utf-8"))


def test_unpacking_holds_no_more_than_its_limit() -> None:
    """However much would come."""
    tracemalloc.start()
    try:
        with pytest.raises(UnreadableContent, match="more than"):
            to_bytes(BOMB)
        assert tracemalloc.get_traced_memory()[1] < 2.5 * UNPACKED_MAX
    finally:
        tracemalloc.stop()


def test_what_is_written_can_be_read() -> None:
    """A value beyond the limit is packed only where it does not shrink as no text does."""
    zeros, text = bytes(UNPACKED_MAX + 1), b"".join(b"line %d of a log\n" % n for n in range(3_600_000))
    assert len(text) > UNPACKED_MAX
    for data, is_packed in ((zeros, False), (text, True)):
        assert (data, is_packed) == (to_bytes(to_text(data)), to_text(data).startswith("~"))


@pytest.mark.parametrize(
    ("values", "items"),
    [
        ([ChannelValue(channel="x", value=Packed("msgpack", (PiecePlace(0, 0),) * 40))], ()),
        ([ChannelValue(channel=f"x{n}", value=Packed("msgpack", (PiecePlace(0, 0),))) for n in range(40)], ()),
        ([ChannelValue(channel="x", spans=(ItemSpan(0, 1), *(ItemSpan(1, 1),) * 40))], (PiecePlace(0, 0),)),
        ([ChannelValue(channel="x", spans=(ItemSpan(1, 10**12),))], (PiecePlace(0, 0),)),
        ([ChannelValue(channel="x", value=Packed("msgpack", tuple(PiecePlace(0, n) for n in range(40))))], ()),
    ],
    ids=["one piece many times", "in many values", "one item many times", "items without an end", "many pieces"],
)
async def test_a_checkpoint_is_put_together_within_a_limit(
    engine: Engine, values: list[ChannelValue], items: tuple[PiecePlace, ...]
) -> None:
    """However often it names the same bytes."""
    thread = await engine.create_thread("t")
    piece = packed_bomb(16)
    await thread.dispatch(
        CheckpointSaved(id="1", state=Packed("json", ("{}",)), values=tuple(values), items=items, pieces=(piece,) * 40)
    )
    with pytest.raises(UnreadableContent, match="more than"):
        await Checkpoints(handle_of(thread)).read(CheckpointName("", "1"))
    assert (await thread.replay.verify()).ok


async def test_many_values_are_unpacked_within_a_limit(engine: Engine) -> None:
    """Of one event, by an erase and by its proof."""
    thread = await engine.create_thread("t")
    await thread.dispatch(UserMessage(content=SAID))
    pieces = (packed_bomb(60),) * 6
    await thread.dispatch(CheckpointSaved(id="1", state=Packed("json", ("{}",)), pieces=pieces))
    tracemalloc.start()
    try:
        report = await thread.admin.erase(seqs=[1])
        assert tracemalloc.get_traced_memory()[1] < 4 * UNPACKED_MAX
    finally:
        tracemalloc.stop()
    assert report.proof is not None
    assert ["events.payload of thread t, event 2"] == [one.partition(":")[0] for one in report.proof.unread]


async def test_nothing_is_unpickled(engine: Engine) -> None:
    """Its bytes are searched and given back as they are; a form that nobody knows is named as unread."""
    thread = await holding(engine, to_text(PICKLE), "pickle")
    saved = await Checkpoints(handle_of(thread)).read(CheckpointName("", "1"))
    assert saved is not None
    assert ("pickle", PICKLE) == saved.values["x"]
    proof = await find_texts(kernel_of(engine), ["raise SystemExit"])
    assert (["events.payload of thread t, event 2, piece 0: text 1"], ()) == ([*proof.left], proof.unread)
    await thread.admin.erase(seqs=[1])


async def test_an_encrypted_value_is_named(engine: Engine) -> None:
    """Who has the key sees what a proof cannot."""
    await holding(engine, to_text(b"\x01" * 90), "msgpack+aes")
    proof = await find_texts(kernel_of(engine), ["anything at all"])
    assert not proof.ok
    assert "'msgpack+aes'" in proof.unread[0]
