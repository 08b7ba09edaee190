"""Every error of the package is raised, once, by what a user does wrong or what goes wrong around them."""

import copy
import inspect
import pickle
import re
from collections.abc import AsyncIterator
from pathlib import Path
from string import Formatter

import pytest

import memory_engine
from memory_engine import NewEvent, errors
from memory_engine.storage.memory import MemoryStore
from memory_engine.testing import FaultyStore
from tests.mistake_rows import ROWS
from tests.mistakes import SAID, Place, Row
from tests.modules import every_module
from tests.wrong_arguments import INSTEAD


@pytest.fixture
async def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Place]:
    """A place."""
    store = FaultyStore(MemoryStore())
    async with memory_engine.open(store) as engine:
        thread = await engine.create_thread("t")
        await thread.dispatch_all([NewEvent(SAID, id="first"), SAID])
        yield Place(engine, store, thread, tmp_path, monkeypatch)


async def to_its_end(do: Row, place: Place) -> None:
    """Do it, and wait for what it began."""
    done = do(place)
    if inspect.isawaitable(done):
        await done


@pytest.mark.parametrize(("kind", "do"), ROWS, ids=[kind.__name__ for kind, _ in ROWS])
async def test_an_error_is_raised_and_says_what_happened(
    kind: type[errors.MemoryEngineError], do: Row, place: Place
) -> None:
    """Exactly this class, with a message of its own; it can be copied and sent to another process as it is."""
    with pytest.raises(kind) as raised:
        await to_its_end(do, place)
    error = raised.value
    assert kind is type(error)
    assert str(error)
    for same in (copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert (error, repr(error), str(error)) == (same, repr(same), str(same))


@pytest.mark.parametrize(("says", "do"), INSTEAD.values(), ids=INSTEAD)
async def test_a_wrong_argument_is_told_from_a_right_one(says: str, do: Row, place: Place) -> None:
    """It says what to give instead, and the thread is as it was."""
    with pytest.raises(errors.InvalidArgument, match=re.escape(says)):
        await to_its_end(do, place)
    assert 2 == (await place.thread.info()).events


def all_classes() -> set[type[errors.MemoryEngineError]]:
    """Every class of error that a module of the package defines."""
    assert list(every_module())
    found: set[type[errors.MemoryEngineError]] = set()
    new = {errors.MemoryEngineError}
    while new:
        found |= new
        new = {kind for parent in new for kind in parent.__subclasses__()}
    return {kind for kind in found if kind.__module__.startswith("memory_engine.")}


def test_every_class_has_a_row() -> None:
    """One each; those that have none are families, which others of the tree belong to and nothing raises."""
    classes, rows = all_classes(), [kind for kind, _ in ROWS]
    families = {parent for kind in classes for parent in kind.__mro__[1:] if parent in classes}
    raised = families.intersection(rows)
    assert sorted(kind.__name__ for kind in classes - families | raised) == sorted(kind.__name__ for kind in rows)


def test_every_class_is_drawn_and_exported_once() -> None:
    """The tree at the top of the package names each, and nothing else defines or exports it."""
    drawn = re.findall(r"\b[A-Z]\w+(?=[ ,\n]|$)", str(errors.__doc__).partition("\n\n")[2])
    names = sorted(kind.__name__ for kind in all_classes() if kind.__module__.startswith("memory_engine.errors"))
    exported = sorted(name for name, value in vars(errors).items() if isinstance(value, type))
    assert (names, names) == (exported, sorted(name for name in drawn if name in names))


def test_a_template_is_the_message_of_its_class_and_names_its_facts_alone() -> None:
    """A name that is no fact would fail where the error is shown. A template wins over the message of a parent."""
    for kind in all_classes():
        named = {name for _, name, _, _ in Formatter().parse(kind.template) if name is not None}
        assert named <= set(kind.__match_args__), kind
        assert "template" not in vars(kind) or kind.__str__ is errors.MemoryEngineError.__str__, kind


def test_an_error_takes_its_facts_by_position_or_by_name() -> None:
    """As its class declares them; too few, too many or unknown ones are a `TypeError`."""
    refused = errors.ImportRefused("log.jsonl", 3, why="it ends", kept=2)
    assert ("log.jsonl", 3, "it ends", 2) == (refused.path, refused.line, refused.why, refused.kept)
    assert refused == errors.ImportRefused(path="log.jsonl", line=3, why="it ends", kept=2)
    assert refused != errors.ImportRefused("log.jsonl", 3, "it ends")
    assert "ImportRefused(path='log.jsonl', line=3, why='it ends', kept=2)" == repr(refused)
    for values, named in (((), {}), (("a", 1, "b", 2, 3), {}), (("a", 1), {"path": "b"}), (("a", 1, "b"), {"odd": 1})):
        with pytest.raises(TypeError, match="ImportRefused takes path, line, why, kept"):
            errors.ImportRefused(*values, **named)
