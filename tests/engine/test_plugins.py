"""Plug-ins: what a user adds to one engine, in order, by name, and to no other engine."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest

import memory_engine
from memory_engine import (
    Add,
    Chunk,
    Delete,
    Event,
    Plugin,
    ReduceContext,
    Reduction,
    Replace,
    StateView,
    errors,
)
from memory_engine import events as e
from memory_engine.administration.retention import RetentionRule
from memory_engine.compaction.base import CompactionContext, CompactionResult
from memory_engine.core.events.base import SummaryLine
from memory_engine.core.operations import Batch, BatchReplace
from memory_engine.core.reduction import ReducerRegistry
from memory_engine.events import EventRegistry
from memory_engine.testing import FakeCompactor, given

billing = Plugin("billing")


@billing.event("invoice_paid", version=2)
class InvoicePaid(Event):
    """Somebody paid."""

    amount_cents: int
    content: str = ""


@billing.upcaster("invoice_paid", 1)
def upcast_invoice_paid_v1(payload: dict[str, object]) -> dict[str, object]:
    """Version 1 had euros."""
    return {"amount_cents": int(str(payload["euros"])) * 100}


@billing.reducer(InvoicePaid)
def reduce_invoice_paid(_view: StateView, event: InvoicePaid, ctx: ReduceContext) -> Reduction:
    """One chunk of a type of its own."""
    return note(ctx, f"{event.amount_cents / 100:.2f} paid", "invoice")


@billing.renderer("invoice")
def render_invoice(chunk: Chunk) -> list[dict[str, object]]:
    """As a system message."""
    return [{"role": "system", "content": f"<<{chunk.text}>>"}]


def note(ctx: ReduceContext, text: str, type_: str = "note") -> Reduction:
    """One new chunk at the end."""
    chunk = Chunk(id=ctx.new_id(), type=type_, content=text)
    return Reduction(operations=(Add(chunk.id),), chunks=(chunk,))


def noting(text: str) -> memory_engine.Reducer[Event]:
    """A reducer that leaves a note, whatever the event is."""
    return lambda _view, _event, ctx: note(ctx, text)


async def test_a_plugins_event_lives_in_an_engine() -> None:
    """It is recorded, reduced and rendered by what its plug-in says."""
    async with memory_engine.open(":memory:", plugins=[billing]) as engine:
        thread = await engine.create_thread()
        await thread.dispatch(InvoicePaid(amount_cents=1999))
        context = await thread.context()
        assert [{"role": "system", "content": "<<19.99 paid>>"}] == context.messages
        assert (InvoicePaid(amount_cents=1999), True) == (
            (await thread.replay.latest(1))[0].event,
            (await thread.replay.verify()).ok,
        )


def test_a_plugins_older_versions_are_read() -> None:
    """Its upcaster makes the present event of a payload of version 1."""
    registry = EventRegistry(billing.events)
    for upcaster in billing.upcasters:
        registry.register_upcaster(*upcaster)
    assert InvoicePaid(amount_cents=700) == registry.decode("invoice_paid", 1, b'{"euros":7}')


async def test_a_plugin_is_one_engines_own() -> None:
    """Another engine does not know its events, and refuses them; nothing is registered by an import."""
    async with memory_engine.open(":memory:") as engine:
        thread = await engine.create_thread()
        with pytest.raises(errors.UnknownEventClass, match="InvoicePaid"):
            await thread.dispatch(InvoicePaid(amount_cents=1))
        assert 0 == (await thread.info()).events


async def test_a_class_with_a_reducer_is_known() -> None:
    """A plug-in that reduces events of a class brings the class with it."""
    plugin = Plugin("p")
    plugin.reducer(InvoicePaid)(noting("note"))
    async with memory_engine.open(":memory:", plugins=[plugin]) as engine:
        thread = await engine.create_thread()
        await thread.dispatch(InvoicePaid(amount_cents=1))
        assert 1 == len(await thread.state())


def test_reducers_run_in_order() -> None:
    """By `order`, then as they were added; each sees what those before it did."""
    plugin = Plugin("p")
    for name, order in (("late", 10), ("second", 0), ("early", -1), ("third", 0)):
        plugin.reducer(e.UserMessage, name=name, order=order)(noting(name))
    given(plugins=[plugin]).when(e.UserMessage(content="built-in")).then(
        chunk_texts=["early", "built-in", "second", "third", "late"]
    )


def test_a_reducer_sees_what_those_before_it_did() -> None:
    """One may replace what another placed for the same event."""
    plugin = Plugin("p")

    @plugin.reducer(e.UserMessage, order=1)
    def shout(view: StateView, _event: e.UserMessage, ctx: ReduceContext) -> Reduction:
        last = view.last()
        assert last is not None
        loud = Chunk(id=ctx.new_id(), type="loud", content=last.text.upper())
        return Reduction(operations=(Replace(last.id, loud.id),), chunks=(loud,))

    given(plugins=[plugin]).when(e.UserMessage(content="hello")).then(
        operations=["ADD 1.0", "REPLACE 1.0 -> 1.1"], state=["HELLO"]
    )


def test_one_reducer_serves_several_events() -> None:
    """It is registered for each class, under a name that tells them apart."""
    plugin = Plugin("p")
    plugin.reducer(e.ExecutionPause, e.ExecutionResume, name="log")(noting("noted"))
    assert ["log[execution_pause]", "log[execution_resume]"] == [name for _, _, name, _ in plugin.reducers]
    given(e.ExecutionPause(), plugins=[plugin]).when(e.ExecutionResume()).then(state=["noted", "noted"])


def test_a_built_in_reducer_is_replaced_by_name() -> None:
    """The new one stands in the old one's place."""
    plugin = Plugin("p")
    plugin.replaces_reducer("reduce_user_message")(noting("instead"))
    given(plugins=[plugin]).when(e.UserMessage(content="hello")).then(state=["instead"])


def test_replacing_what_is_not_there_is_a_key_error() -> None:
    """A misspelt name does not pass in silence."""
    plugin = Plugin("p")
    plugin.replaces_reducer("reduce_nothing")(noting("x"))
    with pytest.raises(KeyError, match="reduce_nothing"):
        given(plugins=[plugin])


async def test_the_names_of_all_reducers_are_public() -> None:
    """Where no name is near, the error says where to find them all."""
    plugin = Plugin("p")
    plugin.replaces_reducer("xyz")(noting("x"))
    with pytest.raises(errors.UnknownReducer, match=r"no reducer 'xyz' to replace; `engine\.reducers` of an engine"):
        await memory_engine.open(":memory:", plugins=[plugin])
    async with memory_engine.open(":memory:") as engine:
        assert "reduce_user_message" in engine.reducers
        assert len(engine.reducers) == len(set(engine.reducers))


def test_a_reducer_that_returns_no_reduction_is_told_what_it_returned() -> None:
    """A forgotten `return`, a list and an `async def` are named, not an attribute that they lack."""

    async def waiting(_view: StateView, _event: Event, _ctx: ReduceContext) -> Reduction:
        return Reduction()

    wrong: list[tuple[Any, str]] = [
        (lambda _view, _event, _ctx: None, "NoneType"),
        (lambda _view, _event, _ctx: [], "list"),
        (waiting, "coroutine"),
    ]
    for reducer, found in wrong:
        plugin = Plugin("p")
        plugin.replaces_reducer("reduce_user_message")(reducer)
        with pytest.raises(errors.ReducerError, match=f"it returned a {found}, not a Reduction"):
            given(plugins=[plugin]).when(e.UserMessage(content="hello")).then(state=[])


def test_a_declaration_with_a_wrong_value_says_what_it_takes() -> None:
    """A misspelt role, a decorator without its call, a class that is not an event."""
    plugin, declare = Plugin("p"), cast("Any", billing.event)
    with pytest.raises(errors.InvalidArgument, match=r"role of event 'a' cannot be 'boss': give one of 'user', "):
        declare("a", role="boss")
    with pytest.raises(errors.InvalidArgument, match=r"chunks of event 'a' cannot be 'mine': give one of 'any', "):
        declare("a", chunks="mine")
    with pytest.raises(errors.InvalidArgument, match=r'write @event\("name"\) above the class'):
        declare(InvoicePaid)
    with pytest.raises(errors.InvalidArgument, match=r"the class of event 'a' .* derive it from memory_engine\.Event"):
        cast("Any", plugin.event("a"))(int)
    assert plugin.events == []


def test_a_registry_tells_and_forgets_its_reducers() -> None:
    """Names are unique; a removed reducer runs no more and its name is free."""
    registry = ReducerRegistry()
    registry.add(e.UserMessage, noting("a"), name="a")
    with pytest.raises(errors.DuplicateRegistration, match="'a'"):
        registry.add(e.ToolResult, noting("b"), name="a")
    registry.remove("a")
    assert ((), ()) == (registry.names(), registry.of_type("user_message"))


class Second(Event):
    """To be declared under a name that is taken."""


DUPLICATES = [
    ("reducer", lambda p: p.reducer(e.UserMessage, name="reduce_user_message")(noting("x"))),
    ("event type", lambda p: p.event("user_message")(Second)),
    ("upcaster", lambda p: p.upcaster("todo_set", 1)(dict)),
]


@pytest.mark.parametrize(("what", "add"), DUPLICATES, ids=[what for what, _ in DUPLICATES])
async def test_a_name_that_is_taken_is_refused(what: str, add: object) -> None:
    """The engine does not open: the later of two would silently win."""
    plugin = Plugin("p")
    assert callable(add)
    add(plugin)
    with pytest.raises(errors.DuplicateRegistration, match=what):
        async with memory_engine.open(":memory:", plugins=[plugin]):
            raise AssertionError("it opened")


# Reducers that do wrong.


def fails(_view: StateView, _event: Event, _ctx: ReduceContext) -> Reduction:
    """Raise."""
    raise LookupError("boom")


def of(*operations: object, chunks: tuple[object, ...] = ()) -> memory_engine.Reducer[Event]:
    """A reducer that returns just this, whatever it is."""
    reduction = Reduction(cast("tuple[memory_engine.Operation, ...]", operations), cast("tuple[Chunk, ...]", chunks))
    return lambda _view, _event, _ctx: reduction


WRONG: list[tuple[str, memory_engine.Reducer[Event], str]] = [
    ("raises", fails, "LookupError: boom"),
    ("returns nothing", lambda _v, _e, _c: cast("Reduction", None), "NoneType"),
    ("deletes nothing", of(Delete("9.9")), "chunk '9.9' is not in the state"),
    (
        "takes an id of its own",
        of(Add("x.0"), chunks=(Chunk(id="x.0", type="t"),)),
        "take ids from ctx.new_id",
    ),
    ("no operation", of("ADD 1.0"), "str"),
    (
        "a lone surrogate",
        of(Add("1.1"), chunks=(Chunk(id="1.1", type="t", content="\ud800"),)),
        "cannot be recorded",
    ),
    ("a content of no kind", of(Add("1.1"), chunks=(Chunk(id="1.1", type="t", content=cast("str", 5)),)), ""),
    (
        "a status that is a number",
        of(Add("1.1"), chunks=(Chunk(id="1.1", type="t", status=cast("str", 5)),)),
        "cannot be recorded",
    ),
]


@pytest.mark.parametrize(("reducer", "why"), [w[1:] for w in WRONG], ids=[w[0] for w in WRONG])
async def test_a_wrong_reducer_breaks_no_log(reducer: memory_engine.Reducer[Event], why: str, tmp_path: Path) -> None:
    """The event is refused with an error that names the reducer, and the thread opens again without it."""
    plugin = Plugin("p")
    plugin.reducer(e.UserMessage, name="wrong", order=1)(reducer)
    path = str(tmp_path / "log.db")
    async with memory_engine.open(path, plugins=[plugin]) as engine:
        thread = await engine.create_thread("t")
        with pytest.raises(errors.ReducerError) as caught:
            await thread.dispatch(e.UserMessage(content="x"))
        assert ("wrong", True) == (caught.value.reducer.split(", ")[-1], why in str(caught.value))
        await thread.dispatch(e.LlmTextResponse(content="still here"))
    async with memory_engine.open(path) as engine:
        assert ["still here"] == [chunk.text for chunk in (await engine.thread("t").state()).chunks()]


def test_a_reducer_that_is_not_pure_is_found_out() -> None:
    """`given/when` runs reducers twice: one that counts its calls says something else the second time."""
    plugin = Plugin("p")
    calls: list[int] = []

    @plugin.reducer(e.UserMessage, order=1)
    def counts(_view: StateView, _event: e.UserMessage, ctx: ReduceContext) -> Reduction:
        calls.append(1)
        return note(ctx, str(len(calls)))

    with pytest.raises(AssertionError, match="not pure"):
        given(plugins=[plugin]).when(e.UserMessage(content="x"))


def test_a_reducers_chance_comes_from_the_event() -> None:
    """Two reducers of one event draw differently, and each draws the same again at replay."""
    plugin = Plugin("p")
    for name in "ab":
        plugin.reducer(e.UserMessage, name=name)(lambda _v, _e, ctx: note(ctx, str(ctx.random.random())))
    scenario = given(plugins=[plugin])
    first, second = (scenario.when(e.UserMessage(content="x")).then() for _ in range(2))
    assert first.chunks == second.chunks
    assert first.chunks[1].text != first.chunks[2].text


async def test_changed_reducers_are_told_by_verify(tmp_path: Path) -> None:
    """What was recorded stays what happened: `verify` names the first event that reduces differently now."""
    path = str(tmp_path / "log.db")
    async with memory_engine.open(path) as engine:
        thread = await engine.create_thread("t")
        await thread.dispatch_all([e.SystemFailure(content="x"), e.UserMessage(content="hello")])
    plugin = Plugin("p")
    plugin.replaces_reducer("reduce_user_message")(noting("instead"))
    async with memory_engine.open(path, plugins=[plugin]) as engine:
        thread = engine.thread("t")
        divergence = (await thread.replay.verify()).divergence
        assert divergence is not None
        assert (2, "operations", "reduce_user_message") == (
            divergence.seq,
            divergence.kind,
            divergence.reducer,
        )
        assert ["x", "hello"] == [chunk.text for chunk in (await thread.state()).chunks()]


# Compactors.


async def test_the_compactor_of_the_highest_priority_is_asked() -> None:
    """A plug-in's compactor goes before the built-in one, where it can take the chunks."""
    low, high = FakeCompactor("low", name="low"), FakeCompactor("high", name="high")
    picky = FakeCompactor("picky", name="picky", takes=lambda chunk: False)
    plugin = Plugin("p")
    for compactor, priority in ((low, 5), (picky, 99), (high, 50)):
        plugin.compactor(compactor, priority=priority)
    async with memory_engine.open(":memory:", plugins=[plugin]) as engine:
        thread = await engine.create_thread()
        await thread.dispatch_all([e.UserMessage(content="long " * 50)] * 3)
        report = await thread.compact()
        assert ("high", 0, 0, 1) == (report.compactor, len(low.calls), len(picky.calls), len(high.calls))


# Entry points.


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A package on the path that publishes two plug-ins."""
    info = tmp_path / "shop-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: shop\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[memory_engine.plugins]\nzz = shop:later\naa = shop:sooner\n")
    (tmp_path / "shop.py").write_text(
        "from memory_engine import Add, Chunk, Plugin, Reduction, UserMessage\n"
        "sooner, later = Plugin('sooner'), Plugin('later')\n"
        "for plugin in (later, sooner):\n"
        "    @plugin.reducer(UserMessage, name=plugin.name)\n"
        "    def reduce(view, event, ctx, name=plugin.name):\n"
        "        chunk = Chunk(id=ctx.new_id(), type='note', content=name)\n"
        "        return Reduction((Add(chunk.id),), (chunk,))\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop("shop", None)


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(("asked", "expected"), [(True, ["hi", "sooner", "later"]), (False, ["hi"])])
async def test_installed_plugins_are_taken_when_asked_for(asked: bool, expected: list[str]) -> None:
    """Entry points are loaded in order of their names, and only with `entry_points=True`."""
    async with memory_engine.open(":memory:", entry_points=asked) as engine:
        thread = await engine.create_thread()
        await thread.dispatch(e.UserMessage(content="hi"))
        assert expected == [chunk.text for chunk in (await thread.state()).chunks()]


def listed(values: Iterable[object]) -> Any:
    """A list, for a type checker anything."""
    return list(values)


async def test_lists_do_where_tuples_are_kept() -> None:
    """In events, reductions, chunks, summaries and rules: what is read back, and what is handed out, holds tuples."""

    class Lister:
        name = "lister"

        def can_compact(self, _chunks: Sequence[Chunk]) -> bool:
            return True

        async def compact(self, chunks: Sequence[Chunk], _context: CompactionContext) -> CompactionResult:
            line: Any = [SummaryLine("current_state", "short", listed(one.id for one in chunks))]
            return CompactionResult(lines=line)

    plugin = Plugin("lists")

    @plugin.event("gathered")
    class Gathered(Event):
        """Takes the place of two chunks."""

        chunks: tuple[str, ...]

    @plugin.reducer(Gathered)
    def reduce_gathered(_view: StateView, event: Gathered, ctx: ReduceContext) -> Reduction:
        """One chunk, said in lists."""
        both, old = listed([e.TextPart("both")]), listed(event.chunks)
        chunk = Chunk(id=ctx.new_id(), type="note", content=both, calls=listed([]), parent_ids=old)
        replaced = BatchReplace(chunks=old, by=listed([chunk.id]))
        return Reduction(operations=listed([Batch(operations=listed([replaced]))]), chunks=listed([chunk]))

    async with memory_engine.open(":memory:", plugins=[plugin]) as engine:
        engine.register_compactor(Lister())
        thread = await engine.create_thread()
        long = listed([e.TextPart("word " * 99)])
        ids = [(await thread.dispatch(e.UserMessage(content=long))).chunks[0].id for _ in range(3)]
        receipt = await thread.dispatch(Gathered(chunks=listed(ids[:2])))
        chunk = await thread.replay.chunk(receipt.chunks[0].id)
        assert ((e.TextPart("both"),), (), tuple(ids[:2])) == (chunk.content, chunk.calls, chunk.parent_ids)
        assert (Batch(operations=(BatchReplace(tuple(ids[:2]), (chunk.id,)),)),) == receipt.operations
        ids += [(await thread.dispatch(e.UserMessage(content=long))).chunks[0].id for _ in range(9)]
        assert {chunk.id, ids[2]} <= set((await thread.compact()).covered)
        assert (await thread.replay.verify()).ok
    assert ("user_message",) == RetentionRule(
        act="erase", older_than=timedelta(1), types=listed(["user_message"])
    ).types
