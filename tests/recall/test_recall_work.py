"""What a look-up reads does not grow with the thread, counted in steps of the database."""

import sqlite3
from pathlib import Path

import memory_engine
from memory_engine.events import UserMessage
from memory_engine.storage.passage_search import look_up
from memory_engine.store.passages import PLACES_BITS, LookUp

EVERY = 50
"""Steps of the database between two counts."""


async def steps_to_look_at(path: Path, messages: int, wanted: LookUp) -> int:
    """Steps that a look-up takes in a thread of so many messages."""
    async with memory_engine.open(str(path)) as engine:
        thread = await engine.create_thread("t")
        await thread.dispatch_all([UserMessage(content=f"note {n} of the day") for n in range(messages)])
        await thread.search("day")
        await thread.prepare_search()
        await engine.settle()
    raw = sqlite3.connect(path)
    counted = 0

    def count() -> int:
        nonlocal counted
        counted += EVERY
        return 0

    raw.set_progress_handler(count, EVERY)
    looked = look_up(raw, 1, messages, wanted)
    raw.close()
    assert looked.near == wanted.near_max
    return counted


async def test_the_nearest_by_meaning_are_looked_at_by_their_places_however_long_the_thread_is(tmp_path: Path) -> None:
    """A list of places is not a reason to walk an index of the whole thread."""
    near = tuple(seq << PLACES_BITS for seq in range(1, 121))
    wanted = LookUp(near=near, near_max=60, unwanted=("summary",))
    few = await steps_to_look_at(tmp_path / "few.db", 300, wanted)
    many = await steps_to_look_at(tmp_path / "many.db", 3_000, wanted)
    assert many < 2 * few  # it was 4 times as many
