"""A small memory with something of everything, and the questions that are put to it and to its damaged copies."""

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable
from pathlib import Path

import attrs
import msgspec

import memory_engine
from memory_engine import CompactionPolicy, Engine, EngineConfig, LlmTextResponse, NewEvent, Thread, UserMessage
from memory_engine.errors import IntegrityError, MemoryEngineError
from memory_engine.replay.export.log_file import LogFile
from memory_engine.testing import ManualClock, SequentialIds
from memory_engine.wiring import builtin_projections
from tests.scripted_compactors import Scripted

POLICY = CompactionPolicy(threshold=12, tokens_min=0, keep_recent=3)
CONFIG = EngineConfig(compaction=POLICY)
ANSWER_S_MAX = 60.0
"""An answer that takes longer never comes: nothing here takes a hundredth of that."""
Question = Callable[[Engine, Path], Awaitable[object]]


async def write_specimen(path: str) -> None:
    """Three threads, a fork, a user, a tenant and an agent: compacted, indexed, erased in part. Always the same."""
    async with memory_engine.open(
        path, compactor=Scripted(), config=CONFIG, clock=ManualClock(), ids=SequentialIds()
    ) as engine:
        thread = await engine.create_thread("t", user_id="ann", tenant_id="acme", metadata={"from": "a test"})
        for n in range(9):
            asked = NewEvent(UserMessage(content=f"My {n}. bike is blue, or so I said."), correlation_id="ride")
            await thread.dispatch_all([asked, LlmTextResponse(content=f"Noted: bike {n} is blue. " * 5)])
            await thread.compaction.settle()
        await thread.dispatch(UserMessage(content="A long tale of wheels. " * 4000))
        await thread.scratchpad.write("Blue sells best.")
        await engine.user("ann", tenant_id="acme").preferences.update("verbosity", "concise")
        await engine.agent("a", tenant_id="acme").memory.append("semantic", "Ann rides a blue bike", key="bike")
        await engine.tenant("acme").documents.add_text("The manual: oil the chain weekly.", title="Manual", id="manual")
        fork = await thread.fork(at=5, thread_id="fork")
        await fork.dispatch(UserMessage(content="I go on elsewhere."))
        other = await engine.create_thread("other")
        receipt = await other.dispatch(UserMessage(content="My passport is 77412"))
        await other.dispatch(UserMessage(content="Forget that."))
        await other.admin.erase([receipt.event_id])
        for one in (thread, fork, other):
            await one.search("bike")
        await engine.settle()


def plain(value: object) -> object:
    """A value as one that can be compared: attrs classes and handles have no equality of their own everywhere."""
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    if isinstance(value, msgspec.Struct):
        return (type(value).__name__, plain(msgspec.structs.asdict(value)))
    kind = type(value)
    if attrs.has(kind):
        return (kind.__name__, plain({one.name: getattr(value, one.name) for one in attrs.fields(kind)}))
    if dataclasses.is_dataclass(value):
        return repr(value)
    return value


async def _listed(engine: Engine) -> object:
    """The threads. A list that names a damaged one refuses in place of an answer."""
    found = await engine.threads()
    for info in found:
        if info.damaged:
            raise IntegrityError(info.id, info.events, "; ".join(info.damaged))
    return found


async def _log(thread: Thread) -> object:
    return [event async for event in thread.events()]


async def _state(thread: Thread, at: int | None = None) -> object:
    return [(placed.chunk, placed.key, placed.container) for placed in (await thread.state(at=at)).placed()]


async def _context(thread: Thread) -> object:
    return (await thread.context()).messages


async def _found(thread: Thread) -> object:
    return [hit.text for hit in (await thread.search("which bike is blue")).hits]


async def _exported(thread: Thread, folder: Path) -> object:
    file = folder / f"{thread.id}.jsonl"
    try:
        await thread.replay.export(file)
        with LogFile(file) as written:  # a damaged log can be exported, and no one can import it
            while written.take(1_000, 1 << 20) is not None:
                pass
        return file.read_bytes()
    finally:
        file.unlink(missing_ok=True)


def _asked_of(name: str, question: Callable[[Thread, Path], Awaitable[object]]) -> Question:
    return lambda engine, folder: question(engine.thread(name), folder)


def _questions() -> dict[str, Question]:
    questions: dict[str, Question] = {
        "threads": lambda engine, _: _listed(engine),
        "anchors": lambda engine, _: engine.admin.anchors(),
        "correlated": lambda engine, _: engine.correlated("ride"),
        "preferences": lambda engine, _: engine.user("ann", tenant_id="acme").preferences.all(),
        "memory": lambda engine, _: engine.agent("a", tenant_id="acme").memory.entries("semantic"),
        "documents": lambda engine, _: engine.tenant("acme").documents.list(),
        "acts": lambda engine, _: engine.admin.acts(),
        "past": lambda engine, _: _state(engine.thread("t"), 9),
    }
    of_thread: dict[str, Callable[[Thread, Path], Awaitable[object]]] = {
        "log": lambda thread, _: _log(thread),
        "state": lambda thread, _: _state(thread),
        "context": lambda thread, _: _context(thread),
        "search": lambda thread, _: _found(thread),
        "export": _exported,
    }
    for what, question in of_thread.items():
        for name in ("t", "fork", "other"):
            questions[f"{what} of {name}"] = _asked_of(name, question)
    for projection in builtin_projections():
        view = projection.name
        questions[f"view {view}"] = lambda engine, _, view=view: engine.thread("t").view(view)  # type: ignore[misc]
    return questions


QUESTIONS = _questions()


@attrs.frozen
class Refused:
    """A typed error in place of an answer."""

    error: str


@attrs.frozen
class Broken:
    """Anything else that was raised: a fault of the engine."""

    error: str


@attrs.define
class Answers:
    """What a file says. `verified`: whether `verify` found nothing."""

    given: dict[str, object] = attrs.field(factory=dict)
    verified: object = None
    broken: list[str] = attrs.field(factory=list)


async def ask(path: str) -> Answers:
    """Put every question to a file. Only typed errors belong into the answers; anything else is in `broken`."""
    answers = Answers()

    def in_background(_loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        error = context.get("exception")
        if not isinstance(error, MemoryEngineError):
            answers.broken.append(f"in the background: {error!r} {context.get('message')}")

    asyncio.get_running_loop().set_exception_handler(in_background)
    manager = memory_engine.open(path, config=CONFIG, compactor=Scripted(), clock=ManualClock(), ids=SequentialIds())
    opened = await _tried(manager.__aenter__)
    if isinstance(opened, Engine):
        for name, question in QUESTIONS.items():
            answers.given[name] = await _tried(lambda question=question: question(opened, Path(path).parent))  # type: ignore[misc]
        answers.verified = await _tried(lambda: _verified(opened))
        closed = await _tried(lambda: manager.__aexit__(None, None, None))
        outcomes = {**answers.given, "verify": answers.verified, "close": closed}
    else:
        answers.given = dict.fromkeys(QUESTIONS, opened)
        outcomes = {"open": opened}
    answers.broken += [f"{name}: {one.error}" for name, one in outcomes.items() if isinstance(one, Broken)]
    return answers


async def _verified(engine: Engine) -> bool:
    return all(report.ok for report in await engine.verify())


async def _tried(question: Callable[[], Awaitable[object]]) -> object:
    try:
        async with asyncio.timeout(ANSWER_S_MAX):
            answer = await question()
            return answer if isinstance(answer, Engine) else plain(answer)
    except MemoryEngineError as error:
        return Refused(type(error).__name__)
    except Exception as error:  # a finding: it is named with its seed
        frame = error.__traceback__
        while frame is not None and frame.tb_next is not None:
            frame = frame.tb_next
        where = f" in {Path(frame.tb_frame.f_code.co_filename).name}:{frame.tb_lineno}" if frame is not None else ""
        return Broken(f"{error!r:.200}{where}")
