"""The groups of a thread's verbs, and the names that these had before."""

from pathlib import Path
from typing import get_args

import pytest

import memory_engine
from memory_engine import Engine, Thread, UserMessage, sync
from memory_engine.administration.handle import MOVED, MovedName
from memory_engine.administration.of_thread import Admin, Replay

NAMES_MAX = 59
"""Public names of a thread. Lower it with each that goes to a group."""


def test_a_threads_names_are_few() -> None:
    """Those that moved are not among them, and each is in its group."""
    names = {name for name in dir(Thread) if not name.startswith("_")}
    assert len(names) <= NAMES_MAX
    assert set() == names & MOVED.keys()
    groups = {"replay": Replay, "admin": Admin}
    assert [] == [old for old, (group, verb) in MOVED.items() if not hasattr(groups[group], verb)]


def test_type_checkers_know_the_names_that_moved() -> None:
    """Those that read a list of names, and those that read annotations."""
    assert sorted(MOVED) == sorted(get_args(MovedName))
    source = Path(str(memory_engine.administration.handle.__file__)).read_text("utf-8")
    assert [] == [name for name in MOVED if f"            {name}: Any\n" not in source]


@pytest.mark.parametrize("name", sorted(MOVED))
async def test_an_older_name_leads_to_the_verb(engine: Engine, name: str) -> None:
    """On threads as they are, as they were, and on scopes."""
    thread = await engine.create_thread("t")
    await thread.dispatch(UserMessage(content="Hello"))
    group, verb = MOVED[name]
    for handle in (thread, await thread.at(1), engine.user("u")):
        older, newer = getattr(handle, name), getattr(getattr(handle, group), verb)
        assert older.__func__ is newer.__func__


async def test_older_names_do_the_same(engine: Engine) -> None:
    """With the same arguments."""
    thread = await engine.create_thread("t")
    await thread.dispatch_all([UserMessage(content="Hello"), UserMessage(content="Bye")])
    assert (await thread.replay.verify()).ok
    assert (await thread.verify()).ok
    assert (await thread.replay.diff(1)).added == (await thread.diff(1)).added
    assert (
        2
        == (await thread.replay.bisect(lambda past: past.seq > 1)).seq
        == (await thread.bisect(lambda p: p.seq > 1)).seq
    )
    await thread.admin.hold(reason="a case")
    await thread.release()
    await (await thread.at(1)).replay.verify()


async def test_a_name_that_never_was_is_an_attribute_error(engine: Engine) -> None:
    """It is named, and `hasattr` says so."""
    thread = engine.thread("t")
    with pytest.raises(AttributeError, match="'Thread' object has no attribute 'verfy'"):
        thread.verfy  # type: ignore[attr-defined]  # noqa: B018
    assert not hasattr(thread, "verfy")


def test_the_blocking_face_has_both() -> None:
    """A predicate may use handles, by either name."""
    with sync.open(":memory:") as engine:
        thread = engine.create_thread("t")
        thread.dispatch_all([UserMessage(content="Hello"), UserMessage(content="Bye")])
        assert thread.verify().ok
        assert thread.replay.verify().ok
        assert 2 == thread.bisect(lambda past: past.info().events > 1).seq
        assert 2 == thread.replay.bisect(lambda past: past.info().events > 1).seq
        thread.admin.archive()
        assert "archived" == thread.info().status
