"""The contract of adapters, with the Claude Agent SDK: its program, which is not here, writes transcripts."""

from pathlib import Path
from typing import Any

import pytest

import memory_engine
from memory_engine.integrations.claude_agent import MemoryEngineSessionStore
from tests.integrations.claude_agent.transcripts import Writer
from tests.integrations.contract import ASPECTS, NEVER, PIXEL, RESULTS, Contract, Driver, Step


def key_of(session: str) -> Any:
    """The key of a session."""
    return {"project_key": "-home-ann", "session_id": session}


def ends(entries: list[Any]) -> list[str]:
    """The entries that end the turns of the branch that a transcript is on."""
    by_uuid, at, path = {one["uuid"]: one for one in entries}, entries[-1]["uuid"], list[Any]()
    while at is not None:
        path.insert(0, by_uuid[at])
        at = by_uuid[at]["parentUuid"]
    starts = [n for n, one in enumerate(path) if one["type"] == "user" and "toolUseResult" not in one]
    return [path[n - 1]["uuid"] for n in [*starts[1:], len(path)]]


async def turn(path: Path, step: Step) -> list[str]:
    """A resumed session, with its next turn; streamed, an entry at a time. The entries of its branch, as texts."""
    async with memory_engine.open(str(path), config=NEVER) as engine:
        store = MemoryEngineSessionStore(engine, user_id=step.user)
        before: Any = await store.load(key_of(step.session)) or []
        writer = Writer(f"{step.session}{len(before)}{step.text}")  # a uuid is used once, also after a rewind
        writer.at = ends(before)[(step.after or 0) - 1] if before else None
        image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}}
        writer.said([image, {"type": "text", "text": step.text}] if step.image else step.text)
        if step.calls:
            asked: list[Any] = [
                {"type": "tool_use", "id": f"{step.session}-{place}", "name": "depot", "input": {"place": place}}
                for place in RESULTS
            ]
            at = [writer.answered(one) for one in asked]
            for call, parent in zip(asked, at, strict=True):
                writer.result(call["id"], RESULTS[call["input"]["place"]], parent=parent)
        writer.answered(step.answer, name="msg_2")
        for batch in [[one] for one in writer.entries] if step.streams else [writer.entries]:
            await store.append(key_of(step.session), batch)
        loaded: Any = await store.load(key_of(step.session))
        return [str(one["message"]["content"]) for one in _branch(loaded)]


def _branch(entries: list[Any]) -> list[Any]:
    """The entries of the last branch; results of parallel calls stand beside each other on it."""
    by_uuid, at, found = {one["uuid"]: one for one in entries}, entries[-1]["uuid"], list[Any]()
    while at is not None:
        found.insert(0, by_uuid[at])
        at = by_uuid[at]["parentUuid"]
    on = {one["uuid"] for one in found}
    return [one for one in entries if one["uuid"] in on or (one["parentUuid"] in on and "toolUseResult" in one)]


async def remove(path: Path, session: str) -> None:
    """Delete a session."""
    async with memory_engine.open(str(path)) as engine:
        await MemoryEngineSessionStore(engine, user_id="ann").delete(key_of(session))


DRIVER = Driver(
    turn=turn,
    thread_id=lambda session: f"claude/-home-ann/{session}",
    remove=remove,
    lacks={
        "rewind": "the SDK takes nothing back without going on from there: see `branch`",
        "interrupt": "a question of the SDK waits in its process, and is asked again when the session resumes",
    },
)


@pytest.mark.parametrize("aspect", ASPECTS)
async def test_the_memory_follows_the_framework(aspect: str, tmp_path: Path) -> None:
    """What all adapters have in common."""
    await Contract(DRIVER, tmp_path).check(aspect)
