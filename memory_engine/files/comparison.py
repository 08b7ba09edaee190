"""Comparing compactors: each log of a folder runs again under each of them, and the facts that they kept are counted.

See `facts` for what counts as a fact.
"""

import asyncio
import errno
import os
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from attrs import evolve, field, frozen

from memory_engine.compaction.base import (
    CompactionContext,
    CompactionResult,
    Compactor,
    calls_model,
    categories_of,
    works_ahead,
)
from memory_engine.context.builder import ContextBuilder
from memory_engine.core.arguments import PathLike
from memory_engine.core.bounded import open_file
from memory_engine.core.chunks import Chunk, ChunkType
from memory_engine.core.events.compaction import CompactionCompleted
from memory_engine.core.json_form import JsonForm, as_data
from memory_engine.core.threads import CompactionPolicy
from memory_engine.engine import Engine, kernel_of
from memory_engine.errors import InvalidChange, MemoryEngineError, ModelNotAllowed
from memory_engine.errors.effects import Usage
from memory_engine.files.facts import facts_of, missing
from memory_engine.ingest.ingestion import Ingestion, IngestOptions
from memory_engine.options import Parts
from memory_engine.plugins import Plugin
from memory_engine.replay.diff import message_text
from memory_engine.replay.export.log_file import FORMAT
from memory_engine.replay.what_if import Change, rerun, setting_of
from memory_engine.replay.what_if.fork_log import ForkLog
from memory_engine.runtime.config import EngineConfig
from memory_engine.runtime.kernel import Kernel
from memory_engine.storage.driver import needs_key
from memory_engine.store.keys import KeySource
from memory_engine.thread import Thread, handle_of
from memory_engine.wiring import open as open_engine

SUFFIXES = (".jsonl", ".ndjson", ".json", ".jsonl.gz", ".db")
"""Files of a folder that are read: exported logs, recorded conversations, databases."""
AS_RECORDED = EngineConfig(compaction=CompactionPolicy(enabled=False))
SMALL_WINDOW = CompactionPolicy.for_window(4_000)
"""The policy for logs that have none of their own: the window is so small that short ones are compacted too."""
_BEGINNING_BYTES = 64 * 1024
_GZIP = b"\x1f\x8b"

ComparisonProgress = Callable[[str, str], None]
"""Called before each rerun, with the log's name and the compactor's."""
KeyOf = Callable[[str], KeySource | None]
"""Gives the key of the encrypted database at a path."""


@frozen(kw_only=True)
class CompactorScore(JsonForm):
    """The result of one compactor on one log, or on all (`log` is empty).

    `tokens` (estimated) and `facts` of the messages that were compacted: first those they held, then those
    left at the end: the tokens of the summaries, and the facts that the last context still says anywhere.
    """

    json_names = "log compactor compactions failed tokens tokens_kept facts facts_kept usage seconds"

    log: str
    compactor: str
    compactions: int = 0
    failed: int = 0
    tokens: tuple[int, int] = (0, 0)
    facts: tuple[int, int] = (0, 0)
    usage: Usage = Usage()
    seconds: float = 0.0

    @property
    def tokens_kept(self) -> float | None:
        """The share of tokens that is left; `None` where nothing was compacted."""
        return self.tokens[1] / self.tokens[0] if self.tokens[0] else None

    @property
    def facts_kept(self) -> float | None:
        """The share of facts that is left; `None` where none was compacted."""
        return self.facts[1] / self.facts[0] if self.facts[0] else None

    def plus(self, other: "CompactorScore") -> "CompactorScore":
        """Both together."""
        return CompactorScore(
            log=self.log,
            compactor=self.compactor,
            compactions=self.compactions + other.compactions,
            failed=self.failed + other.failed,
            tokens=(self.tokens[0] + other.tokens[0], self.tokens[1] + other.tokens[1]),
            facts=(self.facts[0] + other.facts[0], self.facts[1] + other.facts[1]),
            usage=self.usage.plus(other.usage),
            seconds=self.seconds + other.seconds,
        )

    def as_data(self) -> dict[str, object]:
        """As plain JSON values."""
        return super().as_data() | {"seconds": round(self.seconds, 4)}


@frozen
class Unread:
    """A file, or a thread of one, that could not be compared, and why."""

    path: str
    why: str


@frozen(kw_only=True)
class Comparison(JsonForm):
    """A result for each compactor and log, in the order of the logs, and the files that could not be read."""

    rows: tuple[CompactorScore, ...]
    unread: tuple[Unread, ...] = ()

    def totals(self) -> tuple[CompactorScore, ...]:
        """One for each compactor, over all logs."""
        found: dict[str, CompactorScore] = {}
        for row in self.rows:
            found[row.compactor] = found.get(row.compactor, CompactorScore(log="", compactor=row.compactor)).plus(row)
        return tuple(found.values())

    def as_data(self) -> dict[str, object]:
        """As plain JSON values."""
        return {"logs": as_data(self.rows), "totals": as_data(self.totals()), "unread": as_data(self.unread)}


async def compare_compactors(  # noqa: PLR0913 - what is compared, all but the two by keyword
    logs: Sequence[PathLike | Thread],
    compactors: Sequence[Compactor],
    *,
    policy: CompactionPolicy | None = None,
    plugins: Sequence[Plugin] = (),
    call_models: bool = False,
    key_of: KeyOf | None = None,
    progress: ComparisonProgress | None = None,
) -> Comparison:
    """Run each log again under each compactor, in memory: nothing is written, and the logs do not change.

    `logs` are threads of an open engine, and files and folders: exported logs, conversations as `memory-engine ingest`
    takes them, databases (their conversations, without forks). `policy` says when to compact (default: the thread's
    own, else one for a window of 4,000 tokens, so that short logs are compacted too); recorded compactions count for
    nothing. `plugins` declare the events of the logs; `key_of` gives the key of an encrypted database, by its path.

    Raises `InvalidChange` where there is no compactor, or two of one name, and `ModelNotAllowed`
    for one that calls a model without `call_models`. Files that cannot be read are in `unread`.
    """
    names = [compactor.name for compactor in compactors]
    if not names or len(set(names)) < len(names):
        raise InvalidChange("the compactors", "give at least one, each of a name of its own")
    for compactor in compactors:
        if calls_model(compactor) and not call_models:
            raise ModelNotAllowed(f"the compactor {compactor.name!r}")
    scoring = _Scoring(compactors, policy, call_models, progress)
    for thread in (log for log in logs if isinstance(log, Thread)):
        await scoring.add(handle_of(thread).kernel, thread.id, thread.id)
    unread: list[Unread] = []
    for path in files_of([log for log in logs if not isinstance(log, Thread)]):
        try:
            async with opened_log(path, plugins, key_of) as engine:
                for thread_id in await conversations_of(engine):
                    await scoring.add(kernel_of(engine), thread_id, log_label(path, thread_id))
        except MemoryEngineError as error:
            unread.append(Unread(str(path), str(error)))
        except OSError as error:
            unread.append(Unread(str(path), error.strerror or str(error)))
    return Comparison(rows=tuple(scoring.rows), unread=tuple(unread))


@frozen
class _Scoring:
    """The compactors that each log runs under, and what came of it."""

    compactors: Sequence[Compactor]
    policy: CompactionPolicy | None
    call_models: bool
    progress: ComparisonProgress | None
    rows: list[CompactorScore] = field(factory=list)

    async def add(self, kernel: Kernel, thread_id: str, name: str) -> None:
        """Run one log again under each compactor."""
        for compactor in self.compactors:
            if self.progress is not None:
                self.progress(name, compactor.name)
            timed = _Timed(compactor)
            change = Change(compactor=timed, policy=self.policy, call_models=self.call_models)
            self.rows.append(evolve(await _score_of(kernel, thread_id, change, name), seconds=timed.seconds))


async def conversations_of(engine: Engine) -> list[str]:
    """The ids of the conversations, without forks: their shared past would count again."""
    return [info.id for info in await engine.threads(kind="conversation") if info.forked_from is None]


def files_of(logs: Sequence[PathLike], suffixes: tuple[str, ...] = SUFFIXES) -> list[Path]:
    """The files, and those of the folders by name, however deep, each once; no link that leads out of its folder."""
    found: dict[Path, None] = {}
    for path in map(Path, logs):
        if path.is_dir():
            root = path.resolve()
            inside = (file for file in sorted(path.rglob("*")) if file.name.endswith(suffixes) and file.is_file())
            found.update((file, None) for file in inside if file.resolve().is_relative_to(root))
        else:
            found[path] = None
    return list(found)


@asynccontextmanager
async def opened_log(
    path: Path, plugins: Sequence[Plugin], key_of: KeyOf | None, parts: Parts | None = None
) -> AsyncIterator[Engine]:
    """An engine with the threads of a file: the database itself, to look at only, or one in memory."""
    if path.suffix == ".db":
        _check_is_there(path)
        key = key_of(str(path)) if key_of is not None and await asyncio.to_thread(needs_key, str(path)) else None
        async with open_engine(str(path), key=key, config=EngineConfig(read_only=True), plugins=plugins) as engine:
            yield engine
        return
    async with open_engine(":memory:", config=AS_RECORDED, plugins=plugins, parts=parts) as engine:
        if is_export(path):
            await engine.transfer.import_log(path, scopes="as exported")
        else:
            ingestion = Ingestion(engine, IngestOptions())
            await ingestion.file(path)
            if ingestion.report.errors:
                raise ingestion.report.errors[0]
        yield engine


def _check_is_there(path: Path) -> None:
    """A database that is opened is made if it is not there."""
    if not path.is_file():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))


def log_label(path: Path, thread_id: str) -> str:
    """The file, and which of its threads, if there are several."""
    own = thread_id.removeprefix(f"{path.stem}/")
    return str(path) if own == path.stem else f"{path}#{own}"


def is_export(path: Path) -> bool:
    """Whether a file begins as `Replay.export` writes it, which alone writes compressed ones. Raises `OSError`."""
    with open_file(path) as file:
        first = file.readline(_BEGINNING_BYTES)
    return first.startswith(_GZIP) or f'"{FORMAT}"'.encode() in first


class _Timed:
    """A compactor, and how long it took."""

    def __init__(self, compactor: Compactor) -> None:
        self._compactor = compactor
        self.name = compactor.name
        self.calls_model = calls_model(compactor)
        self.works_ahead = works_ahead(compactor)
        self.categories = categories_of(compactor)
        self.seconds = 0.0

    def can_compact(self, chunks: Sequence[Chunk]) -> bool:
        return self._compactor.can_compact(chunks)

    async def compact(self, chunks: Sequence[Chunk], context: CompactionContext) -> CompactionResult:
        begun = time.perf_counter()
        try:
            return await self._compactor.compact(chunks, context)
        finally:
            self.seconds += time.perf_counter() - begun


async def _score_of(kernel: Kernel, thread_id: str, change: Change, name: str) -> CompactorScore:
    """Run one log again, and measure what is left of the compacted messages."""
    loaded = await kernel.store.load(thread_id, sources=False)
    policy = change.policy or loaded.record.policy or SMALL_WINDOW
    setting = await setting_of(kernel, loaded, evolve(change, policy=policy), loaded.head.seq)
    run = await rerun(setting)
    assert run.log is not None
    assert change.compactor is not None
    state = run.log.state
    originals = await _compacted(run.log)
    said = "\n".join(map(text_with_calls, originals))
    facts = facts_of(said)
    context = kernel[ContextBuilder].build(state, thread_id)
    lost = missing("\n".join(map(message_text, context.messages)), facts)
    summaries = [chunk for chunk in state.chunks() if chunk.type == ChunkType.COMPACTED]
    return CompactorScore(
        log=name,
        compactor=change.compactor.name,
        compactions=run.after.completed,
        failed=run.after.failed,
        tokens=(sum(chunk.tokens for chunk in originals), sum(chunk.tokens for chunk in summaries)),
        facts=(len(facts), len(facts) - len(lost)),
        usage=run.after.usage,
    )


async def _compacted(log: ForkLog) -> list[Chunk]:
    """The messages that were compacted in a rerun, in order, each once; summaries of summaries not."""
    covered: dict[str, None] = {}
    span = log.reader.events_of(CompactionCompleted, log.thread_id, after=log.point, upto=log.head.seq)
    async for _, event in span:
        covered.update((chunk_id, None) for one in event.replacements for chunk_id in one.covers)
    chunks = await log.reader.chunks(log.thread_id, list(covered))
    return [chunk for chunk in chunks.values() if chunk.type != ChunkType.COMPACTED]


def text_with_calls(chunk: Chunk) -> str:
    """The text of a chunk, and the names and arguments of its calls."""
    calls = (f"{call.name} {call.arguments}" for call in chunk.calls)
    return "\n".join((chunk.text, *calls))
