"""What the inspector's Recall tab asks for, of a database that nobody has searched: the hits, and nothing written."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import cast

import pytest

import memory_engine
from memory_engine import CompactionPolicy, EngineConfig, UserMessage
from memory_engine.recall.hits import Found
from memory_engine.testing import HashEmbedder
from tests.inspecting import Browser, inspected
from tests.recall_samples import TALK
from tests.trust.older_files import contents

READS = EngineConfig(read_only=True)
QUESTION = "pottery course euros"
SEQ = 45


async def get(browser: Browser, name: str, asked: Mapping[str, object]) -> Mapping[str, object]:
    """An answer that is one."""
    answer = await browser.api(name, asked)
    assert 200 == answer.status, answer.body
    return cast("Mapping[str, object]", answer.data())


def told(hits: object) -> list[object]:
    """What a page shows of each."""
    return [(hit["seq"], hit["score"], hit["text"], hit["why"]) for hit in cast("list[dict[str, object]]", hits)]


def expected(found: Found) -> list[object]:
    """The same of a search's hits."""
    return [(hit.seq, hit.score, hit.text, hit.why) for hit in found]


@pytest.mark.parametrize("embedder", [None, HashEmbedder(16)], ids=["words", "vectors"])
async def test_a_question_about_what_was_never_searched_is_answered(
    tmp_path: Path, embedder: HashEmbedder | None
) -> None:
    """As an engine answers that may write; again, and after events that came since."""
    path = tmp_path / "there" / "m.db"
    path.parent.mkdir()
    async with memory_engine.open(path, config=EngineConfig(compaction=CompactionPolicy(enabled=False))) as engine:
        thread = await engine.create_thread("talk")
        said = [UserMessage(content=f"{text} Round {n}.", name=name) for n in range(5) for name, text in TALK]
        await thread.dispatch_all(said)
    shutil.copy2(path, tmp_path / "copy.db")
    async with memory_engine.open(tmp_path / "copy.db", embedder=embedder) as engine:
        hits = expected(await engine.thread("talk").search(QUESTION, at=SEQ, explain=True))
    before = contents(path.parent)
    asked = {"thread": "talk", "seq": SEQ, "query": QUESTION}
    async with (
        memory_engine.open(path, config=READS, embedder=embedder) as engine,
        inspected(engine, str(path)) as browser,
    ):
        found = await get(browser, "recall", {**asked, "limit": 10})
        built = await get(browser, "context", {**asked, "max_tokens": 200})
        await engine.settle()
        assert before == contents(path.parent)
        async with memory_engine.open(path) as writer:
            await writer.thread("talk").dispatch(UserMessage(content="The pottery course is full."))
        later = await get(browser, "recall", {**asked, "seq": len(said) + 1, "query": "pottery course full"})
    assert hits
    assert hits == told(found["hits"])
    assert (0, 0, "") == (found["unindexed"], found["waiting"], found["failure"])
    assert built["recalled"]
    assert len(said) + 1 == cast("list[dict[str, object]]", later["hits"])[0]["seq"]
