"""Sessions of a framework: entries come back as they were given, state is where it belongs."""

import json
from typing import Any

import pytest

import memory_engine
from memory_engine.core.records import NewEvent
from memory_engine.errors import Conflict
from memory_engine.events import (
    Destination,
    LlmTextResponse,
    SessionBegun,
    SessionEntryKept,
    SharedStateSet,
    TextPart,
    UserMessage,
)
from memory_engine.thread import handle_of
from memory_engine.views.sessions.events import SharedState
from memory_engine.views.sessions.view import Session, Shared

ANN = Destination("user", "ann")
ENTRY: dict[str, Any] = {"parts": [{"text": "Hello, Ann."}, {"text": "Not said."}], "n": None}
TEXTS = {"parts/0/text": "Hello, Ann.", "parts/1/text": "Not said.", "gone/0/text": "Hello, Ann."}


def kept(name: str, shared: str = "", **state: int) -> NewEvent:
    """An entry."""
    given = (SharedState(ANN, "shop", shared, "t"),) if shared else ()
    event = SessionEntryKept(
        id=name, entry=json.dumps(ENTRY), timestamp=2.0, invocation="i", state=json.dumps(state), shared=given
    )
    return NewEvent(event, name)


async def begun(engine: memory_engine.Engine) -> Session:
    """A session."""
    session = Session(handle_of(await engine.create_thread("t", user_id="ann")))
    await session.begin(SessionBegun(timestamp=1.0, state='{"a":[1]}'), expected_seq=0)
    return session


async def test_an_entry_comes_back_as_it_was_given() -> None:
    """A text that a message holds is not repeated, whether it is all of the message or a part."""
    async with memory_engine.open(":memory:") as engine:
        session = await begun(engine)
        parts = LlmTextResponse(content=(TextPart("Hello, Ann."), TextPart("Welcome.")))
        assert 3 == await session.keep(kept("e1"), [NewEvent(UserMessage(content="Hello, Ann."))], TEXTS)
        assert 5 == await session.keep(kept("e2", b=2), [NewEvent(parts)], TEXTS, expected_seq=3)
        rows = await session.entry_rows()
        assert [(3, 1), (5, 1)] == [(row.seq, row.messages) for row in rows]
        assert [ENTRY, ENTRY] == [one.entry for one in await session.entries(rows)]
        assert [rows[1:], rows[1:]] == [await session.entry_rows(1), await session.entry_rows_from(4)]
        assert {"a": [1], "b": 2} == await session.state()
        head = await session.head()
        assert head is not None
        assert (5, 2.0) == (head.seq, head.timestamp)
        assert 2 == sum("Hello, Ann." in str(one.event) for one in [e async for e in session.thread.events()])
        with pytest.raises(Conflict):
            await session.keep(kept("e3"), [], {}, expected_seq=3)


async def test_an_erased_text_is_empty_and_a_forgotten_entry_is_gone() -> None:
    """With the state that it has set."""
    async with memory_engine.open(":memory:") as engine:
        session = await begun(engine)
        await session.keep(kept("e1", a=7), [NewEvent(UserMessage(content="Hello, Ann."))], TEXTS)
        thread = engine.thread("t")
        await thread.admin.erase(seqs=[2])
        [entry] = await session.entries(await session.entry_rows())
        assert ENTRY | {"parts": [{"text": ""}, {"text": "Not said."}]} == entry.entry
        await thread.forget(seqs=[3])
        assert [] == await session.entry_rows()
        assert {} == await session.state()
        assert (await thread.replay.verify()).ok


async def test_shared_state_lives_with_its_owner_and_outlives_its_session() -> None:
    """It arrives once; what a session that is to be deleted has set is set anew, and nothing else."""
    async with memory_engine.open(":memory:") as engine:
        session, shared = await begun(engine), Shared(handle_of(engine.user("ann")), "shop")
        await shared.outlive("t")
        await session.keep(kept("e1", '{"x":1,"y":null}'), [], {})
        await engine.thread("t").views.delivered()
        assert {"x": 1, "y": None} == await shared.state()
        assert {} == await Shared(handle_of(engine.user("ann")), "other").state()
        await shared.outlive("another")
        await shared.outlive("t")
        await shared.outlive("t")
        assert 2 == await handle_of(engine.user("ann")).last_seq()
        await engine.thread("t").admin.delete()
        assert {"x": 1, "y": None} == await shared.state()


async def test_a_thread_without_a_session_has_none_and_state_that_is_none_sets_nothing() -> None:
    """Whatever an event of this type says."""
    async with memory_engine.open(":memory:") as engine:
        assert await Session(handle_of(engine.thread("none"))).head() is None
        thread = await engine.create_thread("t")
        assert await Session(handle_of(thread)).head() is None
        await thread.dispatch(SessionBegun(timestamp=1.0, state="[1"))
        assert {} == await Session(handle_of(thread)).state()


@pytest.mark.parametrize("key", ["\U0010ffffz", "\U0010ffff", "a:b", "", "state:"])
async def test_a_value_has_any_key(key: str) -> None:
    """Also one that sorts behind all others: it is among the session's values, and among those that sessions share."""
    async with memory_engine.open(":memory:") as engine:
        thread = await engine.create_thread("t", user_id="ann")
        session = Session(handle_of(thread))
        await session.begin(SessionBegun(timestamp=1.0, state=json.dumps({key: 1, "b": 2})), expected_seq=0)
        assert {key: 1, "b": 2} == await session.state()
        assert (1, True) == (await session.value(key), await session.has(key))
        await thread.dispatch(SharedStateSet(app="shop", state=json.dumps({key: 3})))
        assert {key: 3} == await Shared(handle_of(thread), "shop").state()
