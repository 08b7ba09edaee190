"""A process that counts in a thread: `python -m tests.processes.counting_child PLACE SAVES`.

Each save reads the number that stands there, and writes the next where nobody else has written meanwhile.
"""

import asyncio
import sys

import memory_engine
from memory_engine import EnvironmentChange, State
from memory_engine.errors import Conflict, ContentionError, StorageBusy


def number(state: State) -> int:
    """The number that stands in a state."""
    return max((int(chunk.text) for chunk in state.chunks()), default=0)


async def count(place: str, saves: int) -> None:
    """Save so many times; print how often another was first."""
    conflicts = 0
    async with memory_engine.open(place) as engine:
        thread = engine.thread("count")
        for _ in range(saves):
            while True:
                try:
                    state = await thread.state()
                    change = EnvironmentChange(key="n", content=str(number(state) + 1))
                    await thread.dispatch(change, expected_seq=state.seq)
                    break
                except (Conflict, ContentionError, StorageBusy):
                    conflicts += 1
    sys.stdout.write(f"{conflicts}\n")


if __name__ == "__main__":
    asyncio.run(count(sys.argv[1], int(sys.argv[2])))
