"""Items of a session: read as they were given, at any seq, after a rebuild, in a fork, and from an export."""

from pathlib import Path

import memory_engine
from memory_engine import Engine
from memory_engine.thread import handle_of
from memory_engine.views.session_items.view import Item, SessionItems

ITEMS: list[Item] = [
    {"role": "user", "content": "My cat is called Tom."},
    {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c1", "output": "A cat."},
    {"type": "of no kind", "x": [1, 1.0, True]},
]


async def test_items_are_made_again_from_the_log(engine: Engine, tmp_path: Path) -> None:
    """And seen as of any seq, in a fork, and where an export of the log was read."""
    thread = await engine.create_thread("t")
    items = SessionItems(handle_of(thread))
    await items.add(ITEMS[:1])
    seq = await handle_of(thread).last_seq()
    await items.add(ITEMS[1:])
    assert ITEMS[-1] == await items.pop()
    assert ITEMS[-2] == await items.pop()
    await thread.replay.rebuild()
    assert ITEMS[:-2] == await items.get()
    assert ITEMS[1:2] == await items.get(1)
    assert (await thread.replay.verify()).ok
    assert ITEMS[:1] == await SessionItems(handle_of(await thread.at(seq))).get()
    assert ITEMS[:-2] == await SessionItems(handle_of(await thread.fork())).get()
    await thread.replay.export(tmp_path / "t.jsonl")
    async with memory_engine.open(":memory:") as other:
        await other.transfer.import_log(tmp_path / "t.jsonl", scopes="as exported")
        assert ITEMS[:-2] == await SessionItems(handle_of(other.thread("t"))).get()
        assert (await other.thread("t").replay.verify()).ok


async def test_an_item_holds_no_text_of_its_message(engine: Engine) -> None:
    """It stands once in the log, and an item of a cleared thread is shown no more."""
    thread = await engine.create_thread("t")
    await SessionItems(handle_of(thread)).add(ITEMS)
    assert [False, True] == ["Tom" in str(event.event) for event in (await thread.replay.latest(20))[1::-1]]
    await thread.admin.clear()
    assert [] == await SessionItems(handle_of(thread)).get()
