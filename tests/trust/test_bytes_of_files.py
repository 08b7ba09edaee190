"""A proof of an erase looks for bytes in files that others go on writing, and shorten."""

import os
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import memory_engine
from memory_engine import UserMessage
from memory_engine.administration.proof import find_texts
from memory_engine.engine import kernel_of
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


@pytest.mark.parametrize("python", ["", None, "/nowhere/python", "/bin/true", "/bin/false", "/bin/echo"])
async def test_where_no_program_can_be_started_a_proof_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, python: str | None
) -> None:
    """As in an application that is one file, or that may start none. What was erased is destroyed all the same."""
    place = tmp_path / "m.db"
    async with memory_engine.open(str(place)) as engine:
        thread = await engine.create_thread("t")
        await thread.dispatch(UserMessage(content="the word is quicksilver"), event_id="order")
        monkeypatch.setattr(sys, "executable", python)
        report = await thread.admin.erase(["order"])
        assert report.is_done
        assert report.proof is not None
        assert (False, ()) == (report.proof.ok, report.proof.files)
        assert "m.db: the program that reads it failed" in report.proof.unread[0]
        monkeypatch.undo()
        assert (await find_texts(kernel_of(engine), ["the word is quicksilver"])).ok
    assert b"quicksilver" not in place.read_bytes()
