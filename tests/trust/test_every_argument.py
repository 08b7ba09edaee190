"""Whatever is given to whichever method of the public face: it is done, or refused by an error of ours."""

import asyncio
import inspect
from collections.abc import AsyncIterable, Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from types import UnionType
from typing import Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import pytest

import memory_engine.engine
from memory_engine import Engine, Thread, UserMessage, errors
from memory_engine.projections.outbox import OUTBOX
from memory_engine.replay.what_if import Change
from memory_engine.views.layers.entries import MemoryEntry
from tests.patience import PATIENCE_S
from tests.sync_stub import imported_names

ODD: tuple[object, ...] = (None, 0, "", 1.5, object(), -1, [5], b"x", True, {"a": 1})
PUBLIC: dict[str, Callable[[Engine, Thread], object]] = {
    "engine": lambda engine, _: engine,
    "thread": lambda _, thread: thread,
    "agent": lambda engine, _: engine.agent("a", tenant_id="acme"),
    "scratchpad": lambda _, thread: thread.scratchpad,
    "conversation": lambda _, thread: thread.conversation,
    "tool_cache": lambda _, thread: thread.tool_cache,
    "screen": lambda _, thread: thread.screen,
    "memory": lambda _, thread: thread.memory,
    "flows": lambda _, thread: thread.views.flows,
    "promotion": lambda _, thread: thread.promotion,
    "preferences": lambda engine, _: engine.user("u", tenant_id="acme").preferences,
    "playbooks": lambda engine, _: engine.user("u", tenant_id="acme").playbooks,
    "documents": lambda engine, _: engine.tenant("acme").documents,
    "patterns": lambda engine, _: engine.tenant("acme").patterns,
    "agent_md": lambda engine, _: engine.tenant("acme").agent_md,
}


async def tool_called() -> str:
    """A tool."""
    return "result"


USUAL: dict[str, object] = {
    "a": 1, "agent_id": "a", "anchored": [], "answer": "a", "at": 1, "b": 2, "by": "ann", "call": tool_called,
    "change": Change(), "chunk_id": "1.0", "content": "a page", "correlation_id": "c", "duration": 2, "entry": "text",
    "hook": lambda _thread, _upcoming: None,
    "entry_id": "e", "event": UserMessage(content="x"), "event_ids": ["e"],
    "exchange": None, "events": [UserMessage(content="x")], "first": 1, "flow": "f",
    "flow_dact": "f", "flow_id": "f", "from_seq": 1, "id": "d", "industry": "retail", "key": "verbosity", "last": 2,
    "layer": "episodic", "layers": ["episodic"], "limit": 3, "line": "Returns", "markdown": "# A", "messages": [],
    "moment": 1, "name": "retail", "observer": lambda _event: None, "parameters": {}, "paths": Path("nowhere"),
    "pattern": "p", "pin": 1, "playbook_id": "p", "predicate": lambda _past: True, "projection": OUTBOX,
    "proposal_id": "p", "query": "revenue", "question": "q", "reference": "1.0", "result": "r", "satisfied": True,
    "situation": {},
    "snippet_id": "s", "source": "text", "summary": MemoryEntry(content="x"),
    "tenant_id": "acme", "text": "Revenue dips", "thread_id": "t", "title": "T",
    "tool": "tool", "user_id": "u", "user_message": "Hello", "user_query": "q", "value": "concise", "what": "1.0",
}  # fmt: skip
ELSEWHERE = {
    "archive", "backup", "close", "copy_to", "delete", "erase_all", "export", "export_all", "export_memories", "follow",
    "from_file", "hold", "import_all", "import_log", "import_memories", "of", "pause", "register_compactor", "release",
    "resume", "retain", "retain_every", "to_pytest",
}  # fmt: skip
"""They end the thread or the engine, let it wait, write files, or take an object with methods of its own."""
OWN_ERRORS = (errors.MemoryEngineError, OSError)


def methods(of: object) -> Iterator[tuple[str, list[inspect.Parameter]]]:
    """The public methods of an object, with their parameters."""
    for name in sorted({name for name in dir(type(of)) if not name.startswith("_")} - ELSEWHERE):
        held = inspect.getattr_static(type(of), name)
        if callable(held) and not isinstance(held, type):
            yield name, list(inspect.signature(getattr(of, name)).parameters.values())


async def called(method: Callable[..., object], given: dict[str, object], rest: tuple[object, ...]) -> None:
    """Call it to its end."""
    done = method(*rest, **given) if not rest else method(*rest)
    if isinstance(done, AsyncIterable):
        async for _ in done:
            pass
    elif inspect.isawaitable(done):
        await asyncio.wait_for(done, PATIENCE_S)


@pytest.mark.parametrize("name", PUBLIC)
async def test_an_odd_argument_is_taken_or_refused_by_an_error_of_ours(name: str) -> None:
    """Each parameter of each method with each odd value, the others as usual; then the thread is as whole as before."""
    raw: list[str] = []
    async with memory_engine.open(":memory:") as engine:
        thread = await engine.create_thread("t", user_id="u", tenant_id="acme")
        await thread.dispatch_all([UserMessage(content="Revenue dips every Sunday"), UserMessage(content="more")])
        of = PUBLIC[name](engine, thread)
        for method, parameters in methods(of):
            needed = [one.name for one in parameters if one.default is one.empty and one.kind < one.VAR_POSITIONAL]
            needed += [one.name for one in parameters if one.default is one.empty and one.kind == one.KEYWORD_ONLY]
            for parameter in parameters:
                for odd in ODD:
                    several = parameter.kind is parameter.VAR_POSITIONAL
                    given = {needs: USUAL[needs] for needs in needed} | ({} if several else {parameter.name: odd})
                    if parameter.kind is parameter.VAR_KEYWORD:
                        continue
                    try:
                        await called(getattr(of, method), given, (odd,) if several else ())
                    except OWN_ERRORS:
                        pass
                    except Exception as error:  # what is looked for: an error that is not ours
                        raw.append(f"{method}({parameter.name}={odd!r}): {type(error).__name__}: {error}")
        assert [] == raw
        reports = await engine.verify()
        assert [] == [str(report.divergence) for report in reports if not report.ok]


def hints(method: Callable[..., object]) -> dict[str, object]:
    """The types of a method's parameters; names that its module imports for types only are looked up.

    So are those of the engine's module: its aliases are texts.
    """
    function = inspect.unwrap(method)
    found: dict[str, object] = {}
    for home in (memory_engine.engine.__name__, function.__module__):
        names = {name: where.rpartition(".") for name, where in imported_names(home).items()}
        known = {name: getattr(import_module(module), one, None) for name, (module, _, one) in names.items()}
        modules = {name: import_module(".".join(names[name][::2])) for name, one in known.items() if one is None}
        found |= {**vars(import_module(home)), **known, **modules}
    return get_type_hints(function, found)


def fits(value: object, hint: object) -> bool:
    """Whether a value is of a type, as type checkers see it."""
    kind, inner = get_origin(hint) or hint, get_args(hint)
    if hint is object or isinstance(hint, TypeVar):
        return True
    if kind in (Union, UnionType):
        return any(fits(value, one) for one in inner)
    if kind is Literal:
        return value in inner
    if kind is Callable:
        return callable(value)
    if not isinstance(kind, type) or getattr(kind, "_is_protocol", False):
        return False
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if not isinstance(value, kind) or not inner:
        return isinstance(value, kind)
    if isinstance(value, Mapping):
        return all(fits(key, inner[0]) and fits(one, inner[-1]) for key, one in value.items())
    return not isinstance(value, Iterable) or all(fits(one, inner[0]) for one in value)


TAKEN = {("create_thread", "thread_id", None), *(("check_present", "what", odd) for odd in (None, ...))}
"""No id is asked for; and the word for what a view would change."""


@pytest.mark.parametrize("name", PUBLIC)
async def test_an_argument_of_a_wrong_type_is_never_passed_over(name: str) -> None:
    """It is refused by an error of ours; nothing comes back as if it had been understood."""
    silent: list[str] = []
    async with memory_engine.open(":memory:") as engine:
        thread = await engine.create_thread("t", user_id="u", tenant_id="acme")
        await thread.dispatch_all([UserMessage(content="Revenue dips every Sunday"), UserMessage(content="more")])
        of = PUBLIC[name](engine, thread)
        for method, parameters in methods(of):
            needed = {one.name: USUAL[one.name] for one in parameters if one.default is one.empty and one.name in USUAL}
            known = hints(getattr(type(of), method))
            for one in parameters:
                for odd in (*ODD, "text"):
                    if fits(odd, known[one.name]) or (method, one.name, odd if odd is None else ...) in TAKEN:
                        continue
                    several = one.kind is one.VAR_POSITIONAL
                    try:
                        given = {} if several else needed | {one.name: odd}
                        await called(getattr(of, method), given, (odd,) if several else ())
                    except OWN_ERRORS:
                        continue
                    silent.append(f"{method}({one.name}={odd!r})")
    assert [] == silent


ENDING = sorted(ELSEWHERE - {"close", "follow", "from_file", "of"})


@pytest.mark.parametrize("name", ["engine", "thread", "agent", "agent_md"])
async def test_what_ends_or_writes_passes_over_no_argument_either(name: str, tmp_path: Path) -> None:
    """Refused, it ends nothing: the thread is there for the next call."""
    silent: list[str] = []
    usual = USUAL | {
        "path": tmp_path / "no" / "file",
        "folder": tmp_path / "no" / "folder",
        "rules": [],
        "target": None,
    }
    usual |= {"every": timedelta(hours=1), "compactor": None}
    async with memory_engine.open(":memory:") as engine:
        thread = await engine.create_thread("t", user_id="u", tenant_id="acme")
        await thread.dispatch_all([UserMessage(content="Revenue dips every Sunday"), UserMessage(content="more")])
        of = PUBLIC[name](engine, thread)
        for method in (one for one in ENDING if hasattr(type(of), one)):
            parameters = inspect.signature(getattr(of, method)).parameters.values()
            needed = {one.name: usual[one.name] for one in parameters if one.default is one.empty}
            known = hints(getattr(type(of), method))
            for one in parameters:
                for odd in (odd for odd in (*ODD, "text") if not fits(odd, known[one.name])):
                    with suppress(*OWN_ERRORS):
                        await called(getattr(of, method), needed | {one.name: odd}, ())
                        silent.append(f"{method}({one.name}={odd!r})")
    assert [] == silent


OPENED = list(inspect.signature(memory_engine.open).parameters)


@pytest.mark.parametrize("name", OPENED)
async def test_what_an_engine_is_opened_with_is_checked(name: str) -> None:
    """Before any file is made; what was meant as a name of a model says that it is not one when it is asked."""
    passed = []
    known = hints(memory_engine.open)
    for odd in ODD:
        if odd is not None and not fits(odd, known[name]):
            try:
                engine = await memory_engine.open(**{"path": ":memory:", name: odd})  # type: ignore[arg-type]
            except (*OWN_ERRORS, TypeError):
                continue
            await engine.close()
            passed.append(odd)
    assert [] == passed


def test_a_policy_says_which_of_its_words_is_unknown() -> None:
    """A misspelled limit is Python's own error, which names it."""
    with pytest.raises(TypeError, match="thresold"):
        memory_engine.CompactionPolicy(thresold=3)  # type: ignore[call-arg]


@pytest.mark.parametrize("policy", [{"thresold": 3}, 3, "often", []])
async def test_a_policy_that_is_none_is_named(engine: Engine, policy: object) -> None:
    """And no thread is made."""
    with pytest.raises(errors.InvalidPolicy):
        await engine.create_thread("t", policy=policy)  # type: ignore[arg-type]
    assert [] == await engine.threads()


@pytest.mark.parametrize("odd", ODD)
async def test_what_has_no_end_takes_or_refuses_an_odd_argument(engine: Engine, odd: object) -> None:
    """Following a log, and copying to another store."""
    thread = await engine.create_thread("t")
    await thread.dispatch(UserMessage(content="Revenue dips every Sunday"))

    async def follow(**given: object) -> None:
        await anext(thread.follow(**given))  # type: ignore[arg-type]

    for attempt in (follow(after=odd), follow(poll_s=odd), engine.copy_to(odd)):  # type: ignore[arg-type]
        with suppress(*OWN_ERRORS, TimeoutError):
            await asyncio.wait_for(attempt, 0.05)


SCOPES = ("user_id", "tenant_id", "agent_id", "parent_id", "kind", "thread_id")


@pytest.mark.parametrize("what", SCOPES)
@pytest.mark.parametrize("value", [None, 0, False, 1.5, b"u", [], ["u"], {}])
async def test_a_scope_that_is_not_a_text_is_named(engine: Engine, what: str, value: object) -> None:
    """It said `ThreadExists`, of a thread that was not there. Without a `thread_id` it gets one."""
    if (what, value) == ("thread_id", None):
        return
    with pytest.raises(errors.InvalidIdentifier, match=what.replace("_id", ".id")):
        await engine.create_thread(**{what: value})  # type: ignore[arg-type]
    assert [] == await engine.threads()


async def test_a_call_without_what_it_needs_is_pythons_own_error(engine: Engine) -> None:
    """Which says what is missing."""
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'event'"):
        await engine.dispatch("t")  # type: ignore[call-arg]


@pytest.mark.parametrize("event", [None, 5, "text", UserMessage, {"type": "user_message"}, []])
async def test_what_is_not_an_event_is_refused_everywhere(engine: Engine, event: object) -> None:
    """By threads and by scopes, alone and among others; no scope is made by it."""
    thread = await engine.create_thread("t")
    for target in (thread, engine.user("u")):
        with pytest.raises(errors.InvalidEvent):
            await target.dispatch(event)  # type: ignore[arg-type]
        with pytest.raises(errors.InvalidEvent):
            await target.dispatch_all([UserMessage(content="x"), event])  # type: ignore[list-item]
        if event != []:
            with pytest.raises(errors.InvalidEvent):
                await target.dispatch_all(event)  # type: ignore[arg-type]
    assert [0] == [info.events for info in await engine.threads()]
