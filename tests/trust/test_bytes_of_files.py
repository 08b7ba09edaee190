"""A proof of an erase looks for bytes in files that others go on writing, and shorten."""

import os
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_engine.storage.sqlite import pages
from memory_engine.storage.sqlite.erasing import find_bytes

_FEW = st.binary(max_size=60).map(lambda text: bytes(byte % 2 for byte in text))


@given(data=_FEW, needles=st.lists(_FEW.filter(bool).map(lambda text: text[:6]), max_size=3), block=st.integers(1, 9))
def test_a_piece_is_found_once_wherever_blocks_end(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, needles: list[bytes], block: int
) -> None:
    """At the borders of blocks too, which are a few bytes long here."""
    file = tmp_path_factory.getbasetemp() / "few.bin"
    file.write_bytes(data)
    expected = {(at, n) for n, needle in enumerate(needles) for at in range(len(data)) if data[at:].startswith(needle)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pages, "_BLOCK", block)
        hits = pages.found([str(file)], needles)
    assert sorted(expected) == sorted((at, n) for _, at, n in hits)


def test_a_file_that_gets_shorter_while_it_is_read_stops_no_proof(tmp_path: Path) -> None:
    """SQLite empties its write-ahead log whenever it likes; who has mapped it is killed for reading on."""
    path = tmp_path / "agent.db"
    path.write_bytes(b"here: a needle")
    log = Path(f"{path}-wal")
    stop = threading.Event()

    def shorten() -> None:
        while not stop.is_set():
            with log.open("wb") as file:
                os.truncate(file.fileno(), 1 << 26)
            stop.wait(0.003)

    writer = threading.Thread(target=shorten)
    writer.start()
    try:
        for _ in range(8):
            traces = find_bytes(str(path), [b"a needle", b"\1"])
            assert {b"a needle": ["agent.db at byte 6"]} == traces.places
    finally:
        stop.set()
        writer.join()
