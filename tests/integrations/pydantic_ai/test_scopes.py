"""Conversations of another scope or tenant are neither read nor changed, nor listed."""

from collections.abc import Awaitable, Callable
from itertools import product
from typing import NamedTuple
from uuid import uuid4

import pytest
from pydantic_ai import Agent
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.conversation import Conversation
from pydantic_ai.conversation_store import (
    ConversationConflict,
    ConversationEntry,
    ConversationRecord,
    ConversationStore,
)
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

import memory_engine
from memory_engine import EngineConfig
from memory_engine.errors import ScopeRequired, ThreadDiffers
from memory_engine.integrations.pydantic_ai import MemoryEngineConversationStore, MemoryEngineHistory
from tests.integrations.scoped import ASKERS, OWNERS, SECRET, THREAD, Asked, Contract, Table, logs, public

SAID: list[ModelMessage] = [
    ModelRequest(parts=[UserPromptPart(SECRET)]),
    ModelResponse(parts=[TextPart("Noted.")]),
]
ENTRY = "entry-1"


class Scoped(NamedTuple):
    """A store, and the scope that calls name; `None`: they name none, and the store has a user."""

    store: MemoryEngineConversationStore
    scope: str | None

    async def seed(self) -> None:
        """A conversation, whose first entry has an id that a stranger may have heard of."""
        record = ConversationRecord(conversation_id=THREAD, head_id=f"{ENTRY}b", scope=self.scope, revision="r1")
        entries = [ConversationEntry(id=ENTRY, parent_id=None, message=SAID[0])]
        entries.append(ConversationEntry(id=f"{ENTRY}b", parent_id=ENTRY, message=SAID[1]))
        await self.store.write_record(record, new_entries=entries, expected_revision=None)


def conversation(revision: str | None = "r1") -> Conversation:
    """The conversation as one who has never loaded it makes it up."""
    return Conversation(messages=[*SAID[1:]], conversation_id=THREAD, revision=revision)


def taken(scope: str | None, head_id: str, name: str = "") -> ConversationRecord:
    """The record of a conversation, a new one unless it is named, that goes on from an entry of another."""
    return ConversationRecord(conversation_id=name or uuid4().hex, head_id=head_id, scope=scope, revision="r2")


PRIMITIVES: Table[Scoped] = {
    "read_record": [Asked(lambda one: one.store.read_record(THREAD))],
    "read_records": [Asked(lambda one: one.store.read_records(scope=one.scope), "hidden")],
    "list_conversations": [Asked(lambda one: one.store.list_conversations(scope=one.scope), "hidden")],
    "read_entry": [Asked(lambda one: one.store.read_entry(ENTRY), "hidden", shows=True, errors=(KeyError,))],
    "read_history": [
        Asked(lambda one: one.store.read_history(f"{ENTRY}b"), "hidden", shows=True, errors=(KeyError,)),
        Asked(lambda one: one.store.read_history(ENTRY, limit=1), "hidden", shows=True, errors=(KeyError,)),
    ],
    "write_record": [
        Asked(lambda one: one.store.write_record(taken(one.scope, ENTRY, THREAD), expected_revision="r1")),
        Asked(
            lambda one: one.store.write_record(taken(one.scope, ENTRY), expected_revision=None),
            "hidden",
            errors=(ConversationConflict,),
        ),
    ],
    "delete_record": [Asked(lambda one: one.store.delete_record(THREAD, expected_revision="r1"))],
}
OF_THE_STORE: Table[Scoped] = PRIMITIVES | {
    "load": [Asked(lambda one: one.store.load(THREAD), shows=True)],
    "load_entries": [Asked(lambda one: one.store.load_entries(THREAD), shows=True)],
    "save": [Asked(lambda one: one.store.save(conversation()))],
    "branch": [Asked(lambda one: one.store.branch(THREAD, at=1, expected_revision="r1"), shows=True)],
    "fork": [Asked(lambda one: one.store.fork(THREAD, at=1), shows=True)],
    "delete": [Asked(lambda one: one.store.delete(THREAD))],
}
"""The calls of a store that has a user, and of one that has none."""


async def test_every_method_asks_whose_the_conversation_is() -> None:
    """Of a store's user and tenant, also where one is left out."""
    await Contract(
        methods=public(MemoryEngineConversationStore),
        make=lambda engine, user, tenant: Scoped(
            MemoryEngineConversationStore(engine, user_id=user, tenant_id=tenant), None
        ),
        seed=Scoped.seed,
        table=OF_THE_STORE,
    ).check()
    assert public(ConversationStore) == OF_THE_STORE.keys()


def naming(
    store: ConversationStore, scope: str
) -> list[tuple[Callable[[], Awaitable[object]], type[Exception] | None]]:
    """Calls that name a scope, and what each says of a conversation that the store does not have; `None`: nothing."""
    return [
        (lambda: store.load(THREAD, scope=scope), None),
        (lambda: store.load_entries(THREAD, scope=scope), None),
        (lambda: store.delete(THREAD, scope=scope), None),
        (lambda: store.save(conversation(), scope=scope), ConversationConflict),
        (lambda: store.save(conversation(None), scope=scope), ConversationConflict),
        (lambda: store.branch(THREAD, at=1, expected_revision="r1", scope=scope), UserError),
        (lambda: store.fork(THREAD, source_scope=scope), UserError),
    ]


async def test_a_scope_that_a_call_names_is_asked_in_the_frameworks_words() -> None:
    """Another scope's conversation is one that the store does not have; another tenant's is refused."""
    for owner, asker in product([one for one in OWNERS if one[0]], [one for one in ASKERS if one[0]]):
        if owner == asker:
            continue
        async with memory_engine.open(":memory:") as engine:
            await Scoped(MemoryEngineConversationStore(engine, tenant_id=owner[1]), owner[0]).seed()
            before, store = await logs(engine), MemoryEngineConversationStore(engine, tenant_id=asker[1])
            for n, (call, unknown) in enumerate(naming(store, asker[0])):
                where = f"call {n} as {asker} on a thread of {owner}"
                expected = unknown if asker[1] == owner[1] else ThreadDiffers
                if expected is None:
                    assert await call() is None, where
                else:
                    with pytest.raises(expected):
                        await call()
                assert before == await logs(engine), where
            assert [] == await store.list_conversations(scope=asker[0])


async def test_entries_of_another_scope_are_not_taken_over() -> None:
    """A conversation that is written to go on from another's entry, known by its id, holds none of its words."""
    async with memory_engine.open(":memory:") as engine:
        store = MemoryEngineConversationStore(engine)
        await Scoped(store, "ann").seed()
        before = await logs(engine)
        for scope in ("bob", None):
            with pytest.raises(ConversationConflict):
                await store.write_record(taken(scope, ENTRY), expected_revision=None)
            said = ConversationEntry(parent_id=ENTRY, message=SAID[1])
            with pytest.raises(ConversationConflict):
                await store.write_record(taken(scope, said.id), new_entries=[said], expected_revision=None)
        assert before == {one: log for one, log in (await logs(engine)).items() if one in before}
        for info in await engine.threads():
            if info.id != THREAD:
                assert SECRET not in str([event.event async for event in engine.thread(info.id).events()])


async def test_a_fork_goes_where_its_caller_says() -> None:
    """From one scope to another, if the call names both."""
    async with memory_engine.open(":memory:") as engine:
        store = MemoryEngineConversationStore(engine)
        await Scoped(store, "ann").seed()
        with pytest.raises(UserError):
            await store.fork(THREAD, new_conversation_id="fork", scope="bob", source_scope="bob")
        with pytest.raises(ThreadDiffers):
            await store.fork(THREAD, new_conversation_id="fork", scope="bob")
        await store.fork(THREAD, new_conversation_id="fork", scope="bob", source_scope="ann")
        loaded = await store.load("fork", scope="bob")
        assert loaded is not None
        assert SAID == loaded.messages
        assert "bob" == (await engine.thread("fork").info()).user_id


async def test_a_store_with_a_user_saves_and_lists_as_that_user() -> None:
    """As if each call named the scope; so an older conversation of the scope is the user's."""
    async with memory_engine.open(":memory:") as engine:
        ann = MemoryEngineConversationStore(engine, user_id="ann")
        await ann.save(Conversation(messages=[*SAID], conversation_id="one"))
        await MemoryEngineConversationStore(engine).save(
            Conversation(messages=[*SAID], conversation_id="two"), scope="ann"
        )
        assert ["two", "one"] == [record.conversation_id for record in await ann.list_conversations()]
        for name in ("one", "two"):
            named = await MemoryEngineConversationStore(engine).load(name, scope="ann")
            loaded = await ann.load(name)
            assert named is not None
            assert loaded is not None
            assert (SAID, "ann") == (loaded.messages, (await engine.thread(name).info()).user_id)


async def test_a_capability_shows_nothing_of_another_scope() -> None:
    """The run ends before the model is called; the scope is the capability's, or its store's user."""
    seen: list[str] = []

    def answer(messages: list[ModelMessage], _info: AgentInfo) -> ModelResponse:
        seen.append(str(messages))
        return ModelResponse(parts=[TextPart("I do not know.")])

    async with memory_engine.open(":memory:") as engine:
        store = MemoryEngineConversationStore(engine)
        await store.save(Conversation(messages=[*SAID], conversation_id=THREAD), scope="ann")
        for made, scope in (
            (store, None),
            (store, "bob"),
            (MemoryEngineConversationStore(engine, user_id="bob"), None),
        ):
            history = MemoryEngineHistory(made, max_tokens=8_000, scope=scope, recall=True)
            with pytest.raises(ThreadDiffers):
                await Agent(FunctionModel(answer), capabilities=[history]).run("The key?", conversation_id=THREAD)
        assert not seen
        loaded = await store.load(THREAD, scope="ann")
        mine = MemoryEngineHistory(store, max_tokens=8_000, scope="ann")
        await Agent(FunctionModel(answer), capabilities=[mine]).run("The key?", conversation=loaded)
        assert SECRET in seen[0]
    assert {"prepare_model_request"} == {
        name for name in vars(MemoryEngineHistory) if name[0] != "_" and callable(getattr(MemoryEngineHistory, name))
    } & public(AbstractCapability)


async def test_an_engine_that_requires_a_scope_refuses_calls_without_one() -> None:
    """A scope that the call or the store names is enough."""
    async with memory_engine.open(":memory:", config=EngineConfig(scopes_required=True)) as engine:
        store = MemoryEngineConversationStore(engine)
        for call in (
            store.load(THREAD),
            store.save(conversation(None)),
            store.list_conversations(),
            store.read_entry("e"),
        ):
            with pytest.raises(ScopeRequired):
                await call
        await store.save(conversation(None), scope="ann")
        assert await MemoryEngineConversationStore(engine, user_id="ann").load(THREAD) is not None
