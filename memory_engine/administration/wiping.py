"""Destroying the bytes that a store has left behind of what was deleted or erased."""

import asyncio
import time

from memory_engine.errors import ErasureUnfinished
from memory_engine.runtime.kernel import Kernel

WAIT_S = 30.0
"""Seconds that it waits for readers of old pages before it says that it is not finished."""
_POLL_S = 0.05


async def wipe(kernel: Kernel, act: str) -> None:
    """Zero what is left in the file. `act` names what needs it, in the error. Raises `ErasureUnfinished`."""
    until = time.monotonic() + WAIT_S
    try:
        while not await kernel.store.wipe():
            if kernel.tasks.closing:
                raise ErasureUnfinished(act, "the engine closes while some process reads an older moment of the store")
            if time.monotonic() > until:
                raise ErasureUnfinished(act, f"for {WAIT_S:.0f} s some process has read an older moment of the store")
            await asyncio.sleep(_POLL_S)
    except OSError as error:  # the program that does it cannot be started: no descriptor is free, or no memory
        raise ErasureUnfinished(act, error.strerror or str(error)) from error
