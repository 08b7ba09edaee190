"""What ADK adds to a user's memory."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from google.adk.events import Event
from google.adk.memory.memory_entry import MemoryEntry
from google.adk.sessions import Session
from google.genai import types

import memory_engine
from memory_engine.integrations.adk import MemoryEngineMemoryService

OWNER: Any = {"app_name": "shop", "user_id": "ann"}


@pytest.fixture
async def memory(tmp_path: Path) -> AsyncIterator[MemoryEngineMemoryService]:
    """On a file."""
    async with memory_engine.open(str(tmp_path / "agent.db")) as engine:
        yield MemoryEngineMemoryService(engine)


def said(text: str, **more: Any) -> Event:
    """An event that a user says."""
    return Event(author="user", content=types.Content(role="user", parts=[types.Part(text=text)]), **more)


async def found(memory: MemoryEngineMemoryService, query: str, **owner: str) -> list[str]:
    """The texts that a search finds."""
    response = await memory.search_memory(**(OWNER | owner), query=query)
    return [one.content.parts[0].text for one in response.memories]


async def test_a_session_that_was_added_is_found(memory: MemoryEngineMemoryService) -> None:
    """As it was said, once however often it is added, by its user in its app alone."""
    image = types.Part.from_bytes(data=b"\xfb\xff", mime_type="image/png")
    cat = said("My cat is called Tom, and he likes to sleep on warm keyboards.", timestamp=1_000.5)
    cat.content.parts.append(image)
    session = Session(id="s", **OWNER, events=[cat, Event(author="clerk"), said("I live in Rome.")])
    await memory.add_session_to_memory(session)
    session.events.append(said("My dog is called Rex."))
    await memory.add_session_to_memory(session)
    response = await memory.search_memory(**OWNER, query="what is my cat called?")
    first = response.memories[0]
    assert (cat.content, cat.id, "user") == (first.content, first.id, first.author)
    assert "1970-01-01T00:16:40.500000+00:00" == first.timestamp
    assert {"session_id": "s"} == first.custom_metadata
    assert 1 == (await found(memory, "cat")).count(cat.content.parts[0].text)
    assert ["My dog is called Rex."] == (await found(memory, "what is the dog called?"))[:1]
    assert [] == await found(memory, "cat", user_id="bob")
    assert [] == await found(memory, "cat", app_name="other")
    assert [] == await found(memory, " ")


async def test_memories_are_added_and_deleted(memory: MemoryEngineMemoryService) -> None:
    """One that was deleted is not found, and not added again."""
    content = types.Content(parts=[types.Part(text="Ann drinks her coffee black.")])
    await memory.add_memory(**OWNER, memories=[MemoryEntry(content=content, author="clerk")], custom_metadata={"n": 1})
    events = [said("Ann drinks tea in the evening.", id="e1"), said("", id="e2"), said("half", id="e3", partial=True)]
    await memory.add_events_to_memory(**OWNER, events=events, session_id="s", custom_metadata={"ttl": 5})
    response = await memory.search_memory(**OWNER, query="what does Ann drink?")
    metadata = [one.custom_metadata for one in response.memories]
    assert 2 == len(metadata)
    assert {"n": 1} in metadata
    assert {"ttl": 5, "session_id": "s"} in metadata
    await memory.delete_memory(**OWNER, memory_id="e1")
    await memory.delete_memory(**OWNER, memory_id="none")
    await memory.delete_memory(**OWNER)
    assert ["Ann drinks her coffee black."] == await found(memory, "what does Ann drink?")
    await memory.add_events_to_memory(**OWNER, events=events)
    assert ["Ann drinks her coffee black."] == await found(memory, "what does Ann drink?")
    await memory.delete_memory(app_name="shop", user_id="nobody", memory_id="e1")


async def test_a_search_gives_ten_memories_at_most(memory: MemoryEngineMemoryService) -> None:
    """Each once, however many passages of it are found."""
    long = "\n\n".join(f"The cat sat on mat {n}, and looked at bird {n} for an hour." for n in range(60))
    await memory.add_events_to_memory(**OWNER, events=[said(long), *(said(f"Cat {n} is grey.") for n in range(20))])
    texts = await found(memory, "cat")
    assert 10 == len(texts) == len(set(texts))
