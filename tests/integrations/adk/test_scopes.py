"""Sessions and memories of another user or tenant are neither read nor changed, nor listed."""

from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.adk.memory.base_memory_service import BaseMemoryService
from google.adk.memory.memory_entry import MemoryEntry
from google.adk.models.llm_request import LlmRequest
from google.adk.sessions.base_session_service import BaseSessionService
from google.adk.sessions.session import Session
from google.genai import types

import memory_engine
from memory_engine import Engine, EngineConfig, UserMessage
from memory_engine.errors import ScopeRequired, ThreadDiffers
from memory_engine.integrations.adk import MemoryEngineMemoryService, MemoryEngineSessionService
from memory_engine.integrations.adk_events import thread_id_of
from tests.integrations.scoped import SECRET, THREAD, Apart, Asked, Contract, Table, logs, public

APP = "observatory"
OWNERS = [("ann", ""), ("ann", "acme")]
ASKERS = [(user, tenant) for user in ("ann", "bob") for tenant in ("", "acme", "umbrella")]


def said(text: str) -> types.Content:
    """What a user said."""
    return types.Content(role="user", parts=[types.Part(text=text)])


def event(text: str, **actions: Any) -> Event:
    """An event of the user's."""
    return Event(author="user", content=said(text), invocation_id="i1", actions=EventActions(**actions))


class Sessions(NamedTuple):
    """A service, and the user whom calls name."""

    service: MemoryEngineSessionService
    user: str

    @classmethod
    def of(cls, engine: Engine, user: str, tenant: str) -> "Sessions":
        """Those of a user in a tenant."""
        return cls(MemoryEngineSessionService(engine, tenant_id=tenant, recall=True), user)

    @property
    def named(self) -> dict[str, Any]:
        """The app and the user, as every call names them."""
        return {"app_name": APP, "user_id": self.user}

    async def seed(self) -> None:
        """A session with an event, and state of it and of its user."""
        session = await self.service.create_session(**self.named, session_id=THREAD)
        await self.service.append_event(session, event(SECRET, state_delta={"user:key": SECRET, "own": SECRET}))

    async def append(self) -> object:
        """Append to the session, by an object of one's own."""
        session = Session(id=THREAD, app_name=APP, user_id=self.user, last_update_time=9e12)
        return await self.service.append_event(session, event("Mine."))

    async def shown(self) -> object:
        """What a model would be shown."""
        request = LlmRequest(contents=[said("Where is the key?")])
        session = Session(id=THREAD, app_name=APP, user_id=self.user)
        context: Any = SimpleNamespace(session=session)
        await self.service.show_brief(context, request)
        return request.contents

    async def recalled(self) -> object:
        """What a model would be shown that is asked something."""
        asked = event("Where does the spare key of the observatory hang?")
        request = LlmRequest(contents=[asked.content])
        session = Session(id=THREAD, app_name=APP, user_id=self.user, events=[asked])
        context: Any = SimpleNamespace(session=session)
        await self.service.show_recall(context, request)
        return request.contents


SESSIONS: Table[Sessions] = {
    "get_session": [Asked(lambda one: one.service.get_session(**one.named, session_id=THREAD), "hidden", shows=True)],
    "list_sessions": [Asked(lambda one: one.service.list_sessions(**one.named), "hidden", shows=True)],
    "get_user_state": [Asked(lambda one: one.service.get_user_state(**one.named), "hidden", shows=True)],
    "show_brief": [Asked(Sessions.shown, "hidden", shows=True)],
    "show_recall": [Asked(Sessions.recalled, "hidden", shows=True)],
    "append_event": [Asked(Sessions.append, "hidden", errors=(SessionNotFoundError,))],
    "delete_session": [Asked(lambda one: one.service.delete_session(**one.named, session_id=THREAD), "hidden")],
    "create_session": [Asked(lambda one: one.service.create_session(**one.named), "hidden")],
    "flush": Apart("it waits for what is under way"),
}


async def test_every_method_of_a_session_service_stays_with_its_user() -> None:
    """A session is found by its user and tenant; the same id elsewhere is another session, or none."""
    await Contract(
        methods=public(MemoryEngineSessionService),
        make=Sessions.of,
        seed=Sessions.seed,
        table=SESSIONS,
        owners=OWNERS,
        askers=ASKERS,
    ).check()
    assert public(BaseSessionService) <= SESSIONS.keys()


async def test_a_thread_that_others_made_under_a_sessions_id_is_refused() -> None:
    """Ids of threads can be guessed: whoever made one is not the user whom a call names."""
    async with memory_engine.open(":memory:") as engine:
        for what, names in (("session", (APP, "bob", THREAD)), ("memory", (APP, "bob"))):
            made = await engine.create_thread(
                thread_id_of(what, "acme", *names), user_id="ann", tenant_id="acme", agent_id=APP
            )
            await made.dispatch(UserMessage(content=SECRET))
        before = await logs(engine)
        one = Sessions.of(engine, "bob", "acme")
        for name in ("get_session", "show_brief", "show_recall", "append_event", "delete_session"):
            (asked,) = SESSIONS[name]  # type: ignore[misc]
            with pytest.raises(ThreadDiffers):
                await asked.call(one)
        with pytest.raises(ThreadDiffers):
            await one.service.create_session(**one.named, session_id=THREAD)
        memories = Memories.of(engine, "bob", "acme")
        for entry in MEMORIES.values():
            assert not isinstance(entry, Apart)
            for asked_of_memory in entry:
                with pytest.raises(ThreadDiffers):
                    await asked_of_memory.call(memories)
        assert before == await logs(engine)


async def test_all_users_are_listed_only_in_their_tenant() -> None:
    """A list without a user is of all users of the app, as in ADK; none of them is another tenant's."""
    async with memory_engine.open(":memory:") as engine:
        for user, tenant in (("ann", "acme"), ("bob", "acme"), ("cleo", "umbrella"), ("dan", "")):
            await Sessions.of(engine, user, tenant).service.create_session(app_name=APP, user_id=user)
        for tenant, users in (("acme", ["ann", "bob"]), ("umbrella", ["cleo"]), ("", ["dan"])):
            found = await MemoryEngineSessionService(engine, tenant_id=tenant).list_sessions(app_name=APP)
            assert users == sorted(session.user_id for session in found.sessions)
        assert not (await MemoryEngineSessionService(engine, tenant_id="acme").list_sessions(app_name="other")).sessions


async def test_an_engine_that_requires_a_scope_lists_no_users_without_a_tenant() -> None:
    """Every other call of ADK names a user."""
    async with memory_engine.open(":memory:", config=EngineConfig(scopes_required=True)) as engine:
        await Sessions.of(engine, "ann", "").seed()
        with pytest.raises(ScopeRequired):
            await MemoryEngineSessionService(engine).list_sessions(app_name=APP)
        assert 1 == len((await MemoryEngineSessionService(engine).list_sessions(app_name=APP, user_id="ann")).sessions)


class Memories(NamedTuple):
    """A service, and the user whom calls name."""

    service: MemoryEngineMemoryService
    user: str

    @classmethod
    def of(cls, engine: Engine, user: str, tenant: str) -> "Memories":
        """Those of a user in a tenant."""
        return cls(MemoryEngineMemoryService(engine, tenant_id=tenant), user)

    @property
    def named(self) -> dict[str, Any]:
        """The app and the user, as every call names them."""
        return {"app_name": APP, "user_id": self.user}

    async def seed(self) -> None:
        """A memory, whose id a stranger may have heard of."""
        await self.service.add_memory(**self.named, memories=[MemoryEntry(id="m1", content=said(SECRET))])


MINE = MemoryEntry(id="m2", content=said("Mine."))
MEMORIES: Table[Memories] = {
    "search_memory": [
        Asked(lambda one: one.service.search_memory(**one.named, query="where is the spare key?"), "hidden", shows=True)
    ],
    "delete_memory": [Asked(lambda one: one.service.delete_memory(**one.named, memory_id="m1"), "hidden")],
    "add_memory": [Asked(lambda one: one.service.add_memory(**one.named, memories=[MINE]), "hidden")],
    "add_events_to_memory": [
        Asked(lambda one: one.service.add_events_to_memory(**one.named, events=[event("Mine.")]), "hidden")
    ],
    "add_session_to_memory": [
        Asked(
            lambda one: one.service.add_session_to_memory(
                Session(id=THREAD, app_name=APP, user_id=one.user, events=[event("Mine.")])
            ),
            "hidden",
        )
    ],
}


async def test_every_method_of_a_memory_service_stays_with_its_user() -> None:
    """A memory is found by its user and tenant."""
    await Contract(
        methods=public(MemoryEngineMemoryService),
        make=Memories.of,
        seed=Memories.seed,
        table=MEMORIES,
        owners=OWNERS,
        askers=ASKERS,
    ).check()
    assert public(BaseMemoryService) <= MEMORIES.keys()
