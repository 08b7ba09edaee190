"""Work beside the event loop: others go on, and the interpreter's interval is given back."""

import asyncio
import sys
import threading

from memory_engine.core.aside import AT_ONCE_MAX, aside


async def test_little_work_is_done_at_once() -> None:
    """It needs no other thread."""
    here = threading.get_ident()
    assert here == await aside(threading.get_ident, items=AT_ONCE_MAX)
    assert here != await aside(threading.get_ident, items=AT_ONCE_MAX + 1)


async def test_the_interval_is_as_before_when_the_last_has_ended() -> None:
    """However many work at once, and also where one fails."""
    usual = sys.getswitchinterval()
    gate, begun = threading.Event(), threading.Semaphore(0)

    def work() -> float:
        begun.release()
        gate.wait(10)
        return sys.getswitchinterval()

    tasks = [asyncio.create_task(aside(work, items=AT_ONCE_MAX + 1)) for _ in range(2)]
    failing = asyncio.create_task(aside(lambda: 1 / 0, items=AT_ONCE_MAX + 1))
    for _ in tasks:
        await asyncio.to_thread(begun.acquire)
    gate.set()
    assert all(found < usual for found in await asyncio.gather(*tasks))
    assert isinstance((await asyncio.gather(failing, return_exceptions=True))[0], ZeroDivisionError)
    assert usual == sys.getswitchinterval()
