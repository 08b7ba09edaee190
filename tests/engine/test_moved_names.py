"""The names of the public face, the groups of its verbs, and the names that these had before."""

from operator import attrgetter
from pathlib import Path

import pytest

from memory_engine import Engine, Thread, UserMessage, sync
from memory_engine.moved import OF_ENGINES, OF_THREADS, where_now
from memory_engine.runtime.handle import ThreadHandle
from memory_engine.scopes import Agent, Industry, Tenant, User
from memory_engine.thread import Past, handle_of
from tests.completion import LanguageServer
from tests.sync_stub import MOVED_STUB, stubs

NAMES_MAX = 30
OF_SCOPES = {"exists", "scope_id", "tenant_id"}
OWN: dict[type, set[str]] = {
    Thread: set(),
    Engine: set(),
    Past: {"event", "seq", "then"},
    User: OF_SCOPES | {"erase_all", "playbooks", "preferences"},
    Tenant: OF_SCOPES | {"agent_md", "documents", "erase_all", "patterns"},
    Agent: OF_SCOPES | {"grants", "revoke", "share_with", "shared"},
    Industry: OF_SCOPES,
}
"""The names that each class has besides the thirty."""
ASKED = """
from memory_engine import Engine, Thread, sync
from memory_engine.scopes import User
from memory_engine.thread import Past, handle_of

def asked(
    thread: Thread, engine: Engine, user: User, past: Past, waiting_thread: sync.Thread, waiting_engine: sync.Engine
) -> None:
    thread.
    engine.
    user.
    past.
    waiting_thread.
    waiting_engine.
"""


def public(kind: type) -> set[str]:
    """The public names of a class and its bases."""
    return {name for name in dir(kind) if not name.startswith("_")}


@pytest.mark.parametrize("kind", OWN)
def test_the_public_names_are_few(kind: type) -> None:
    """Those that moved are not among them."""
    names = public(kind)
    assert len(names - OWN[kind]) <= NAMES_MAX
    moved = OF_ENGINES if kind is Engine else OF_THREADS
    assert set() == (names & moved.keys()) - OF_SCOPES


def test_an_editor_shows_as_few(tmp_path: Path) -> None:
    """What completion offers is counted: attributes of an object are among it, names that moved are not."""
    with LanguageServer(tmp_path, ASKED) as server:
        for kind, words in ((Thread, "thread."), (Engine, "engine."), (User, "user."), (Past, "past.")):
            names = server.names_after(f"    {words}")
            assert names >= public(kind)
            assert len(names - OWN[kind]) <= NAMES_MAX
        for words in ("waiting_thread.", "waiting_engine."):
            assert 20 < len(server.names_after(f"    {words}")) <= NAMES_MAX


def test_the_stub_names_what_the_table_names() -> None:
    """It is made of it (`python3 tasks.py sync`), and the faces that wait have the same names."""
    assert stubs()[MOVED_STUB] == MOVED_STUB.read_text("utf-8"), "python3 tasks.py sync"


@pytest.mark.parametrize("name", OF_THREADS)
async def test_an_older_name_of_a_thread_leads_to_where_it_is_now(engine: Engine, name: str) -> None:
    """On threads as they are, as they were, and on scopes."""
    thread = await engine.create_thread("t")
    await thread.dispatch(UserMessage(content="Hello"))
    threads, scope = (thread, await thread.at(1)), engine.user("u")
    for face in {"kind": (scope,), "exists": threads}.get(name, (*threads, scope)):
        assert same(getattr(face, name), attrgetter(OF_THREADS[name])(face))


@pytest.mark.parametrize("name", OF_ENGINES)
async def test_an_older_name_of_an_engine_leads_to_where_it_is_now(engine: Engine, name: str) -> None:
    """Its parts too."""
    assert same(getattr(engine, name), attrgetter(OF_ENGINES[name])(engine))


def same(one: object, other: object) -> bool:
    """Whether two attributes are one: a method of two objects of a group that was made twice, or an equal value."""
    functions = [getattr(found, "__func__", None) for found in (one, other)]
    return functions[0] is functions[1] and (functions[0] is not None or one == other or type(one) is type(other))


async def test_older_names_do_the_same(engine: Engine) -> None:
    """With the same arguments."""
    thread = await engine.create_thread("t")
    await thread.dispatch_all([UserMessage(content="Hello"), UserMessage(content="Bye")])
    assert (await thread.replay.verify()).ok
    assert (await thread.verify()).ok
    assert (await thread.replay.diff(1)).added == (await thread.diff(1)).added
    assert 2 == (await thread.replay.bisect(lambda past: past.seq > 1)).seq
    assert 2 == (await thread.bisect(lambda past: past.seq > 1)).seq
    await thread.admin.hold(reason="a case")
    await thread.release()
    await (await thread.at(1)).replay.verify()
    await thread.pause("a look")
    assert await thread.admin.is_blocked()
    await thread.admin.resume()
    assert not await thread.is_blocked()
    assert await thread.latest(3) == await thread.replay.latest(3)
    assert await thread.view("preferences") == await thread.views.read("preferences")
    assert await engine.acts() == await engine.admin.acts()


class Remembered:
    """A view that was written for threads: it uses what only they have."""

    def __init__(self, thread: Thread) -> None:
        self.thread = thread

    async def pinned(self) -> int:
        """How much is pinned."""
        return len(await self.thread.brief.read())


class Counted:
    """A view that is made of a handle."""

    def __init__(self, thread: ThreadHandle) -> None:
        self.thread = thread

    async def rows(self) -> int:
        """How many rows another view has."""
        return len((await self.thread.view("preferences")).keys())


async def test_a_view_of_ones_own_is_given_what_it_was_given(engine: Engine) -> None:
    """By the older name a thread, which still does what its handle does; by the new one the handle."""
    thread = await engine.create_thread("t")
    await thread.pin("Label every crate")
    assert 1 == await thread.of(Remembered).pinned()
    assert 0 == await thread.of(Counted).rows() == await thread.views.of(Counted).rows()
    assert isinstance(thread.views.of(Counted).thread, ThreadHandle)


async def test_a_name_that_never_was_is_an_attribute_error(engine: Engine) -> None:
    """It is named, and `hasattr` says so."""
    for face, kind in ((engine.thread("t"), "Thread"), (engine, "Engine"), (engine.user("u"), "User")):
        with pytest.raises(AttributeError, match=f"'{kind}' object has no attribute 'verfy'"):
            face.verfy  # type: ignore[union-attr]  # noqa: B018
        assert not hasattr(face, "verfy")
        assert "" == where_now(type(face), "verfy")


class Branded(Thread):
    """A thread of one's own, with a property that fails."""

    @property
    def brand(self) -> object:
        """Something of a part that has no such thing."""
        return self.id.brand  # type: ignore[attr-defined]  # what is tested


async def test_an_attribute_error_within_a_property_names_what_is_missing(engine: Engine) -> None:
    """Not the property, which is there."""
    with pytest.raises(AttributeError, match="'str' object has no attribute 'brand'"):
        Branded(handle_of(engine.thread("t"))).brand  # noqa: B018


def test_the_blocking_face_has_both() -> None:
    """A predicate may use handles, by either name; the parts of the engine stay in its loop."""
    with sync.open(":memory:") as engine:
        thread = engine.create_thread("t")
        thread.dispatch_all([UserMessage(content="Hello"), UserMessage(content="Bye")])
        assert thread.verify().ok
        assert thread.replay.verify().ok
        assert 2 == thread.bisect(lambda past: past.info().events > 1).seq
        assert 2 == thread.replay.bisect(lambda past: past.info().events > 1).seq
        assert [] == engine.acts() == engine.admin.acts()
        assert 2 == thread.latest(1)[0].seq == thread.replay.latest(1)[0].seq == thread.last_seq()
        for face, name in ((thread, "kernel"), (thread, "rows"), (engine, "kernel"), (engine, "store")):
            with pytest.raises(AttributeError, match=name):
                getattr(face, name)
        thread.admin.archive()
        assert "archived" == thread.info().status
