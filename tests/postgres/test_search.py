"""Search over PostgreSQL finds what search over a file finds, in the same order."""

from collections.abc import Iterable
from pathlib import Path

import msgspec
import pytest

import memory_engine
from memory_engine import Engine, Event, LlmTextResponse, UserMessage
from memory_engine.engine import kernel_of
from memory_engine.store.passages import PLACES_BITS, LookUp
from tests.golden_logs import LOGS, logs_in
from tests.recall_samples import QUERIES, TALK, contents

RELEASE = max(path.name for path in LOGS.iterdir())
WORDS = ("puppy name", "harbour", "pottery course cost euros", "Emil cello", "blue bike shed", "Sunday revenue")


def said() -> Iterable[Event]:
    """A conversation of some hundred messages, with words of every rarity."""
    for n in range(30):
        for speaker, text in TALK:
            kind = UserMessage if speaker == "Ann" else LlmTextResponse
            yield kind(content=f"{text} Round {n}, {'odd' if n % 2 else 'even'}.")


def questions(last: int) -> list[LookUp]:
    """Look-ups of every kind: words, kinds, times, moments, places, and none of them."""
    words = [tuple(text.lower().split()) for text in WORDS] + [("round", "odd"), ("nothing",), ("7",), ()]
    plain = [LookUp(terms=terms, limit=limit) for terms in words for limit in (1, 80)]
    narrow = [
        msgspec.structs.replace(one, **options)
        for one in plain[:6]
        for options in (
            {"upto": last // 2},
            {"kinds": ("message",)},
            {"unwanted": ("message",)},
            {"since_us": 1_000, "until_us": 1 << 60},
            {"listed": ((0, 1 << 60),), "listed_max": 7},
            {"near": tuple(seq << PLACES_BITS for seq in (3, last, 7)), "near_max": 2},
            {"postings_max": 40},
        )
    ]
    return [*plain, *narrow]


async def filled(engine: Engine) -> None:
    """The conversation, with an index of which some words wait."""
    thread = await engine.create_thread("t")
    await thread.search("anything")
    await thread.dispatch_all(list(said()))
    await thread.compaction.settle()
    await kernel_of(engine).store.passages.index_words("t")
    await thread.dispatch_all([UserMessage(content=f"The harbour at last, {n}.") for n in range(5)])


async def test_a_look_up_answers_the_same(url: str, tmp_path: Path) -> None:
    """Candidates, counters, neighbours and rows, for many questions on one log, however many words wait in each."""
    path = tmp_path / "t.jsonl"
    async with memory_engine.open(str(tmp_path / "log.db")) as file, memory_engine.open(url) as server:
        await filled(file)
        await file.thread("t").replay.export(path)
        await server.transfer.import_log(path, scopes="as exported")
        for engine in (file, server):
            await engine.thread("t").admin.prepare_search()
        assert await contents(file.thread("t")) == await contents(server.thread("t"))
        last = (await file.thread("t").info()).events
        for wanted in questions(last):
            expected = await kernel_of(file).store.passages.look_up("t", wanted)
            found = await kernel_of(server).store.passages.look_up("t", wanted)
            assert expected == msgspec.structs.replace(found, unindexed=expected.unindexed), wanted
            fitting = await kernel_of(file).store.passages.fitting("t", wanted)
            assert list(fitting) == list(await kernel_of(server).store.passages.fitting("t", wanted))


@pytest.mark.parametrize("name", ["everything.jsonl.gz", "sales.jsonl.gz", "tenant-acme.jsonl.gz"])
async def test_a_search_finds_the_same(url: str, tmp_path: Path, name: str) -> None:
    """Hits, their order and their texts, on the golden logs."""
    [path] = [path for path in logs_in(LOGS / RELEASE) if path.name == name]
    async with memory_engine.open(str(tmp_path / "log.db")) as file, memory_engine.open(url) as server:
        thread_id = (await file.transfer.import_log(path, scopes="as exported")).thread_id
        await server.transfer.import_log(path, scopes="as exported")
        for query in (*QUERIES, *WORDS):
            if query:
                assert await file.thread(thread_id).search(query) == await server.thread(thread_id).search(query)


async def test_words_go_with_their_passages(url: str) -> None:
    """What is forgotten leaves no list of words behind, nor a fault in the index."""
    async with memory_engine.open(url) as engine:
        await filled(engine)
        thread = engine.thread("t")
        receipt = await thread.dispatch(UserMessage(content="Quagga zebra crossing."))
        await thread.dispatch_all([UserMessage(content=f"Filler {n}.") for n in range(80)])
        await kernel_of(engine).store.passages.index_words("t")
        await thread.forget(chunk_ids=[receipt.chunks[0].id])
        looked = await kernel_of(engine).store.passages.look_up("t", LookUp(terms=("quagga", "harbour")))
        assert 0 == looked.holding["quagga"] < looked.holding["harbour"]
        assert {} == dict(await kernel_of(engine).store.faults("t"))
