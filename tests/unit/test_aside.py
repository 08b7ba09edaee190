"""Work beside the event loop: others go on, and the interpreter's interval is given back."""

import asyncio
import gc
import sys
import threading
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from memory_engine.core.aside import AT_ONCE_MAX, aside, modules_spared
from memory_engine.core.codec import LARGE_CHARS, commitment
from memory_engine.storage.sqlite.connection import Connection


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


async def test_a_connection_gives_way(tmp_path: Path) -> None:
    """Reading the rows of a large state takes long, and a commit on the loop wants the interpreter a dozen times."""
    usual = sys.getswitchinterval()
    connection = await Connection.writer(str(tmp_path / "any.db"), 1.0)
    try:
        assert usual > await connection.run(lambda _: sys.getswitchinterval())
    finally:
        await connection.close()
    assert usual == sys.getswitchinterval()


@given(st.integers(0, 10_000))
@example(LARGE_CHARS)
@example(LARGE_CHARS + 1)
def test_a_payload_hashed_in_pieces_has_the_same_hash(size: int) -> None:
    """A thread that lets go of the interpreter for each payload would starve the loop, so most are hashed in pieces."""
    payload = bytes(n % 251 for n in range(size))
    assert sha256(b"salt" + payload).digest() == commitment(b"salt", payload)


@pytest.fixture
def unfrozen() -> Iterator[None]:
    """Nothing is spared before; afterwards again what the runner of the tests has."""
    was_frozen = gc.get_freeze_count() > 0
    gc.unfreeze()
    yield
    if was_frozen:
        gc.freeze()


@pytest.mark.usefixtures("unfrozen")
def test_a_program_of_ours_spares_its_modules() -> None:
    """Full garbage collections do not look at what was loaded before, until the outermost block ends."""
    with modules_spared():
        spared = gc.get_freeze_count()
        assert spared > 0
        with modules_spared():
            assert gc.get_freeze_count() >= spared
        assert gc.get_freeze_count() >= spared
    assert 0 == gc.get_freeze_count()
