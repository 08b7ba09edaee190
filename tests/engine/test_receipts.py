"""Receipts as values: sent to another process, and copied."""

import copy
import pickle
from pathlib import Path

import pytest

import memory_engine
from memory_engine import UserMessage
from memory_engine.errors import StateNotSent


@pytest.mark.parametrize("is_file", [False, True])
async def test_a_receipt_can_be_sent_and_copied(tmp_path: Path, *, is_file: bool) -> None:
    """A fresh one and that of a retry, with the same fields; a copy in this process has the state too."""
    async with memory_engine.open(str(tmp_path / "m.db") if is_file else ":memory:") as engine:
        thread = await engine.create_thread("t")
        fresh = await thread.dispatch(UserMessage(content="Two lamps"), event_id="e")
        await thread.dispatch(UserMessage(content="and a chair"))
        again = await thread.dispatch(UserMessage(content="Two lamps"), event_id="e")
        for receipt in (fresh, again):
            sent = pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(receipt))))
            here = copy.deepcopy(receipt)
            for same in (sent, here, copy.copy(receipt)):
                assert (receipt, repr(receipt), receipt.chunks) == (same, repr(same), same.chunks)
                assert (receipt.operations, receipt.state.seq) == (same.operations, same.state.seq)
            assert list((await receipt.state.load()).chunks()) == list((await here.state.load()).chunks())
            with pytest.raises(StateNotSent, match=r"\.at\(1\)"):
                await sent.state.load()
            assert 1 == len(await (await engine.thread(sent.thread_id).at(sent.seq)).state())
