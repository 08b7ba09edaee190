"""The options of `open` that come together, and their older names."""

import inspect
import subprocess
import sys

import pytest

import memory_engine
from memory_engine import Models, Parts, UserMessage, errors, sync
from memory_engine.testing import HashEmbedder, ManualClock, SequentialIds


def test_open_takes_twelve_options() -> None:
    """Further ones have older names, which type checkers know."""
    parameters = inspect.signature(memory_engine.open).parameters.values()
    assert 12 == sum(one.kind is not inspect.Parameter.VAR_KEYWORD for one in parameters)


async def _first_event(**options: object) -> tuple[object, object]:
    async with memory_engine.open(":memory:", **options) as engine:  # type: ignore[arg-type]
        receipt = await (await engine.create_thread("t")).dispatch(UserMessage(content="Hello"))
        return receipt.event_id, receipt.recorded_at_us


async def test_parts_do_what_their_older_names_do() -> None:
    """The same ids and times, whichever way they are given."""
    new = await _first_event(parts=Parts(clock=ManualClock(), ids=SequentialIds()))
    assert new == await _first_event(clock=ManualClock(), ids=SequentialIds())
    assert new == await _first_event(parts=Parts(clock=ManualClock()), ids=SequentialIds())


async def test_models_do_what_their_older_names_do() -> None:
    """An embedder finds by meaning, a model's lack is told, by either name."""
    for options in ({"models": Models(embedder=HashEmbedder())}, {"embedder": HashEmbedder()}):
        async with memory_engine.open(":memory:", **options) as engine:
            thread = await engine.create_thread()
            await thread.dispatch(UserMessage(content="A cat sat on the mat."))
            await thread.admin.prepare_search()
            assert "hybrid" == (await thread.search("mat")).how
    for seven in (Models(compact=7), None):  # type: ignore[arg-type]
        with pytest.raises(errors.InvalidArgument, match=r"compact_model.*complete"):
            await memory_engine.open(":memory:", **({"models": seven} if seven else {"compact_model": 7}))


WRONG: list[tuple[dict[str, object], str]] = [
    ({"models": Models(memory="m"), "memory_model": "n"}, r"models=Models\(memory=…\) too"),
    ({"parts": Parts(clock=ManualClock()), "clock": ManualClock()}, r"parts=Parts\(clock=…\) too"),
    ({"models": "gpt-4o"}, r"give Models\(…\)"),
    ({"parts": ManualClock()}, r"give Parts\(…\)"),
]


@pytest.mark.parametrize(("options", "says"), WRONG)
async def test_an_option_is_given_once(options: dict[str, object], says: str) -> None:
    """By one of its names."""
    with pytest.raises(errors.InvalidArgument, match=says):
        await memory_engine.open(":memory:", **options)  # type: ignore[arg-type]


async def test_an_unknown_option_is_named() -> None:
    """As Python does."""
    with pytest.raises(TypeError, match="unexpected keyword argument 'embeder'"):
        await memory_engine.open(":memory:", embeder="minilm")  # type: ignore[call-arg]


def test_the_blocking_face_takes_them_too() -> None:
    """Both ways."""
    for options in ({"parts": Parts(ids=SequentialIds())}, {"ids": SequentialIds()}):
        with sync.open(":memory:", **options) as engine:
            assert engine.create_thread("t").dispatch(UserMessage(content="Hello")).event_id


def test_a_star_import_leaves_pythons_open_alone() -> None:
    """Everything else comes; `memory_engine.open` is still there by its full name."""
    program = (
        "from memory_engine import *; import builtins, memory_engine as m; "
        "assert open is builtins.open and callable(m.open) and UserMessage and Models; assert 'open' in dir(m)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
