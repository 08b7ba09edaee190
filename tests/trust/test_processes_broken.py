"""`verify` finds what lies beside the log, and a thread that it finds broken is refused by every process."""

import sqlite3
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, closing
from pathlib import Path

import pytest

import memory_engine
from memory_engine import Engine, UserMessage
from memory_engine.engine import kernel_of
from memory_engine.errors import IntegrityError
from memory_engine.files.verify_file import verify_file
from memory_engine.testing import HashEmbedder

COUNT = 70
"""Messages: as many as are indexed together."""
PAGE = 4096
INDEX_LEAF = 0x0A


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A file that is not there yet."""
    return str(tmp_path / "m.db")


def opened(path: str) -> AbstractAsyncContextManager[Engine]:
    """An engine with vectors."""
    return memory_engine.open(path, embedder=HashEmbedder())


async def made(path: str) -> str:
    """A file with a thread that is indexed and embedded; the id of its third event."""
    async with opened(path) as engine:
        thread = await engine.create_thread("t", user_id="u1")
        receipts = await thread.dispatch_all([UserMessage(content=f"The word{n} of plants") for n in range(COUNT)])
        await thread.search("plants")
        await engine.settle()
        await kernel_of(engine).store.passages.index_words("t")
        await (await engine.create_thread("other")).dispatch(UserMessage(content="Hello"))
    return receipts[2].event_id


def altered(path: str, *statements: str) -> None:
    """Change the file with another program."""
    with closing(sqlite3.connect(path)) as raw, raw:
        for statement in ("DROP TRIGGER IF EXISTS events_are_immutable", *statements):
            raw.execute(statement)


async def verified(path: str) -> list[tuple[str, str]]:
    """What does not agree, as an engine that opens the file says it."""
    async with opened(path) as engine:
        found = [report.divergence for report in await engine.verify()]
    return [(one.kind, "; ".join(one.lines)) for one in found if one is not None]


LIES = {
    "a vector of another dimension": (
        "UPDATE vector_blocks SET numbers = zeroblob(2), places = substr(places, -8) WHERE length(places) = 48",
        "search",
        "1 are not of 256 dimensions",
    ),
    "a vector of no passage": (
        "INSERT INTO vector_blocks SELECT tid, model, 7, x'0700000000000000', zeroblob(512) FROM vector_blocks LIMIT 1",
        "search",
        "1 are of no passage",
    ),
    "vectors whose places are damaged": (
        "UPDATE vector_blocks SET places = x'00' WHERE length(places) = 48",
        "search",
        "is damaged",
    ),
    "a count of terms": ("UPDATE passage_indexes SET terms = terms + 1", "search", "terms: "),
    "a list of words": (
        "INSERT INTO passage_terms (passage_terms, rowid, terms) SELECT 'delete', pos, terms FROM passages LIMIT 1",
        "search",
        "wrong about 1 of",
    ),
    "a status": ("UPDATE heads SET status = 'paused' WHERE tid = 1", "head", "status"),
    "a status that is none": ("UPDATE heads SET status = 'x' WHERE tid = 1", "head", "status"),
    "a compaction under way": ("UPDATE heads SET open_compaction = 3 WHERE tid = 1", "head", "open_compaction"),
    "a user": ("UPDATE threads SET user_id = char(0) WHERE tid = 1", "thread", "user_id"),
}


@pytest.mark.parametrize(("statement", "kind", "said"), LIES.values(), ids=LIES)
async def test_what_lies_beside_the_log_is_found(path: str, statement: str, kind: str, said: str) -> None:
    """Whatever the store keeps beside the events, `verify` compares it with them."""
    await made(path)
    assert [] == await verified(path)
    altered(path, statement)
    [(found, lines)] = await verified(path)
    assert (kind, True) == (found, said in lines), lines


async def test_an_id_that_leads_nowhere_is_found(path: str) -> None:
    """One byte of the index of ids is another: the event could be recorded twice."""
    wanted = bytes.fromhex((await made(path)).replace("-", ""))
    flip(path, lambda page, at: page[0] == INDEX_LEAF and wanted in page and at == page.find(wanted) + 15)
    [(kind, lines)] = await verified(path)
    assert ("ids", True) == (kind, "seq 3 is not found by its id" in lines)


async def test_an_id_of_two_events_is_found(path: str) -> None:
    """The index of ids is one that lets an id lead to two places."""
    event_id = await made(path)
    altered(
        path,
        "DROP INDEX events_by_id",
        "UPDATE events SET id = (SELECT e.id FROM events e WHERE e.pos & 255 = 3 AND e.tid = 1) WHERE pos & 255 = 4",
        "CREATE INDEX events_by_id ON events (id, tid)",
    )
    async with opened(path) as engine:
        found = await kernel_of(engine).store.faults("t")
    assert {"ids": [f"event {event_id} is recorded 2 times, the last at seq 4"]} == found


def flip(path: str, where: Callable[[bytes, int], bool]) -> None:
    """Change the bytes of a file that are picked by their page and their place in it."""
    content = bytearray(Path(path).read_bytes())
    for start in range(0, len(content), PAGE):
        page = bytes(content[start : start + PAGE])
        for at in range(len(page)):
            if where(page, at):
                content[start + at] ^= 1
    Path(path).write_bytes(content)


async def broken(path: str) -> None:
    """A file whose thread `t` has another text in its third event."""
    await made(path)
    altered(path, "UPDATE events SET payload = CAST(replace(payload, 'word2', 'wordX') AS BLOB) WHERE pos & 255 = 3")


def repaired(path: str) -> None:
    """The same text as before."""
    altered(path, "UPDATE events SET payload = CAST(replace(payload, 'wordX', 'word2') AS BLOB) WHERE pos & 255 = 3")


async def refused(engine: Engine) -> None:
    """Events and the present are; the past before the damage, and other threads, are not."""
    thread = engine.thread("t")
    for call in (lambda: thread.dispatch(UserMessage(content="more")), thread.state, thread.context):
        with pytest.raises(IntegrityError, match=r"broken at seq 3.*put a backup"):
            await call()
    assert 2 == len(list((await (await thread.at(2)).state()).chunks()))
    await engine.dispatch("other", UserMessage(content="more"))


async def test_a_broken_thread_is_refused_until_it_is_repaired(path: str) -> None:
    """Also by the processes that come later; a `verify` that finds it whole lets it go on."""
    await broken(path)
    assert ["hash"] == [kind for kind, _ in await verified(path)]
    for _ in range(2):
        async with opened(path) as engine:
            await refused(engine)
    repaired(path)
    async with opened(path) as engine:
        await refused(engine)
        assert [] == [report for report in await engine.verify() if not report.ok]
        await engine.dispatch("t", UserMessage(content="more"))
    async with opened(path) as engine:
        await engine.dispatch("t", UserMessage(content="more"))


async def test_a_broken_thread_is_noted_by_who_verifies_a_file(path: str) -> None:
    """What the command calls does as the method does."""
    await broken(path)
    assert [False, True] == [report.ok for report in await verify_file(path)]
    async with opened(path) as engine:
        await refused(engine)
    repaired(path)
    assert [True, True] == [report.ok for report in await verify_file(path)]
    async with opened(path) as engine:
        await engine.dispatch("t", UserMessage(content="more"))
