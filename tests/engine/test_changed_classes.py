"""A class of events that was changed under the same version: the error is of the class, never of the log."""

from collections.abc import Callable
from pathlib import Path
from types import new_class
from typing import Any

import msgspec
import pytest

import memory_engine
from memory_engine import Event, Plugin, Reduction
from memory_engine.errors import EventClassChanged, IntegrityError
from tests.trust.files import tamper

Fields = list[tuple[str, type] | tuple[str, type, Any]]


class Line(msgspec.Struct, frozen=True):
    """Of an order, as it was."""

    what: str


class PricedLine(msgspec.Struct, frozen=True):
    """Of an order, as it is now."""

    what: str
    price: int


BEFORE: Fields = [("number", str), ("lines", tuple[Line, ...])]


def struct(fields: Fields) -> type[Event]:
    """A class of events with these fields."""
    body: dict[str, object] = {name: default for name, _, *defaults in fields for default in defaults}
    body["__annotations__"] = {name: kind for name, kind, *_ in fields}
    return new_class("Order", (Event,), {"frozen": True}, lambda namespace: namespace.update(body))


def shop(fields: Fields, *, version: int = 1, upcast: Callable[[Any], Any] | None = None) -> tuple[Plugin, type[Event]]:
    """A plug-in with an event of these fields, whose reducer adds nothing."""
    plugin = Plugin("shop")
    cls = plugin.event("order", version=version)(struct(fields))
    plugin.reducer(cls)(lambda _view, _event, _ctx: Reduction())
    if upcast is not None:
        plugin.upcaster("order", 1)(upcast)
    return plugin, cls


@pytest.fixture
async def path(tmp_path: Path) -> str:
    """A file with an event of the class as it was."""
    plugin, order = shop(BEFORE)
    async with memory_engine.open(str(tmp_path / "m.db"), plugins=[plugin]) as engine:
        thread = await engine.create_thread("t")
        await thread.dispatch(memory_engine.UserMessage(content="a lamp"))
        await thread.dispatch(msgspec.convert({"number": "1", "lines": [{"what": "lamp"}]}, order))
    return str(tmp_path / "m.db")


async def read(path: str, plugin: Plugin) -> Event:
    """The event, as a process with this plug-in reads it."""
    async with memory_engine.open(path, plugins=[plugin]) as engine:
        [_, recorded] = await engine.thread("t").replay.latest(2)
        assert isinstance(recorded.event, Event)
        return recorded.event


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ([*BEFORE, ("currency", str)], "currency"),
        ([("number", int), BEFORE[1]], "number"),
        ([BEFORE[0], ("lines", tuple[PricedLine, ...])], "lines[0].price"),
    ],
)
async def test_the_field_is_named_and_the_log_stays_whole(path: str, fields: Fields, field: str) -> None:
    """With the type, the version and what to do; no verify marks the thread, which goes on with the older class."""
    plugin, _ = shop(fields)
    with pytest.raises(EventClassChanged) as raised:
        await read(path, plugin)
    error = raised.value
    assert ("t", 2, "order", 1, field) == (error.thread_id, error.seq, error.event_type, error.version, error.field)
    for words in ("default", "upcaster", "whole"):
        assert words in str(error)
    assert "backup" not in str(error)
    async with memory_engine.open(path, plugins=[plugin]) as engine:
        report = await engine.thread("t").replay.verify()
        assert (False, None) == (report.ok, report.broken)
    plugin, order = shop(BEFORE)
    async with memory_engine.open(path, plugins=[plugin]) as engine:
        assert (await engine.thread("t").replay.verify()).ok
        assert 3 == (await engine.thread("t").dispatch(msgspec.convert({"number": "2", "lines": []}, order))).seq


async def test_what_it_says_to_do_helps(path: str) -> None:
    """A default, or a new version with an upcaster."""
    assert "EUR" == getattr(await read(path, shop([*BEFORE, ("currency", str, "EUR")])[0]), "currency", "")
    newer = shop([*BEFORE, ("currency", str)], version=2, upcast=lambda old: {**old, "currency": "CHF"})[0]
    assert "CHF" == getattr(await read(path, newer), "currency", "")


async def test_a_damaged_row_is_none_of_the_class(path: str) -> None:
    """Bytes that the hash does not bind are damage, whether they fit the class or not."""
    tamper(path, "UPDATE events SET payload = CAST('{}' AS BLOB) WHERE type = 'order'")
    with pytest.raises(IntegrityError, match="backup") as raised:
        await read(path, shop(BEFORE)[0])
    assert IntegrityError is type(raised.value)
