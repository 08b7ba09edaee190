"""One thread under one change: what its contexts, its brief, its values, its cache and its answers come to.

The log is imported into a database of its own, run again there as `what_if` does, and read as any thread is: nothing
here knows how a context or a ledger is made.
"""

from collections.abc import Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, cast

import msgspec
from attrs import define, field

from memory_engine.compaction.base import Compactor
from memory_engine.compaction.service import CompactionService
from memory_engine.context.budget import DEFAULT_POLICY, ContextPolicy
from memory_engine.context.context import Context
from memory_engine.context.thread_context import standing_blocks
from memory_engine.context.unsaid import with_unsaid
from memory_engine.core.chain import decode_row
from memory_engine.core.events.compaction import STEPS, CompactionFailed
from memory_engine.core.events.memory import SessionStarted
from memory_engine.core.records import StoredEvent
from memory_engine.core.threads import DEFAULT_WINDOW, CompactionPolicy
from memory_engine.engine import Engine, kernel_of
from memory_engine.errors import ContextBudgetError, InvalidChange
from memory_engine.files.comparison import AS_RECORDED, text_with_calls
from memory_engine.files.facts import facts_of, missing
from memory_engine.lab.change import CompactionTable, LabChange, RecallQuestion, is_place
from memory_engine.options import Models, Parts
from memory_engine.plugins import Plugin, object_at, plugin_at
from memory_engine.recall.ranking import rank
from memory_engine.replay.cache_breaks import Runs
from memory_engine.replay.diff import message_text
from memory_engine.replay.ledger import CacheLedger, cache_ledger
from memory_engine.replay.what_if import Change, Compactions, Prices, Refused, ReplaceEvent
from memory_engine.replay.what_if.change import Edit
from memory_engine.runtime.config import EngineConfig
from memory_engine.thread import Past, Thread, handle_of
from memory_engine.wiring import Opening, model_compactor
from memory_engine.wiring import open as open_engine

if TYPE_CHECKING:
    from memory_engine.llm.base import LanguageModel
    from memory_engine.llm.vectors import Embedder
    from memory_engine.recall.ranking import Ranker
    from memory_engine.recall.rerankers import Reranker

DEFAULT_COMPACTION = CompactionPolicy()
INDEX_S = 600.0
"""Seconds that a question waits for the index of its thread: an answer must not depend on how fast this machine is."""
TROUBLES_KEPT = 20
"""Cache breaks (those that cost most) and failed compactions that are kept of a thread."""
NOW_US = 1_750_000_000_000_000
"""The time of every run, so that two runs give the same bytes: recency is counted from it."""


class LabJob(msgspec.Struct, frozen=True, kw_only=True):
    """A thread's exported log, and what is measured of it.

    `side` names the fork. `window` is the tokens that the model takes, where the change does not say; `moments` the
    most contexts to build; `place` the path of the database to work in, which need not be there. `plugins`
    ("module:NAME"), and with `entry_points` those that installed packages publish, declare what is in the log.
    """

    export: str
    log: str
    change: LabChange
    side: str
    moments: int
    window: int | None = None
    call_models: bool = False
    place: str
    plugins: tuple[str, ...] = ()
    entry_points: bool = False
    questions: tuple[RecallQuestion, ...] = ()


class MissingStatement(msgspec.Struct, frozen=True):
    """A statement of the brief that a context must show and does not: its event, its number there, and its text."""

    seq: int
    n: int
    text: str


class LabMoment(msgspec.Struct, frozen=True, kw_only=True):
    """A context: before the event `seq` of the recorded log, a model's answer, or after the last (`event` is empty).

    `own` is the seq that the thread is at in its own log, `digest` of the messages, `fits` if the budget was enough.
    """

    event: str
    seq: int
    own: int
    tokens: int = 0
    digest: str = ""
    fits: bool = True
    stood: int = 0
    missing: tuple[MissingStatement, ...] = ()


class Trouble(msgspec.Struct, frozen=True, kw_only=True):
    """An event that broke the prompt cache, and the tokens sent again for it; or a compaction that failed.

    `own` is its seq in the thread's own log, `seq` that of the recorded event that it is, or follows.
    """

    own: int
    why: str
    seq: int = 0
    lost_tokens: int = 0


class LabAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A recall question: whether its answer was among the hits, and in the context that the question recalls."""

    question: str
    found: bool
    shown: bool


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """A thread under a change. Tokens are estimates, and those of `calls` count contexts without standing blocks.

    `values` are the facts that its messages state; `values_missing` those that the last context does not say.
    `cache_lost` tokens were in a prompt cache and had to be sent again. `verified` is empty if the thread verifies.
    """

    log: str
    thread: str
    events: int
    fork: str
    max_tokens: int
    moments: tuple[LabMoment, ...]
    values: int
    values_missing: tuple[str, ...]
    calls: int
    tokens: int
    kept_tokens: int
    cache_breaks: int
    cache_lost: int
    breaks: tuple[Trouble, ...]
    compactions: Compactions
    failures: tuple[Trouble, ...]
    refused: tuple[Refused, ...]
    verified: str
    answers: tuple[LabAnswer, ...]
    cost_usd: float | None = None

    def priced(self, prices: Prices | None) -> "Measured":
        """With what contexts and compactions cost; the answers are the recorded ones, so they cost the same."""
        if prices is None:
            return msgspec.structs.replace(self, cost_usd=None)
        cost = prices.of_usage(self.compactions.usage)
        cost += prices.of_call(self.tokens - self.kept_tokens, self.kept_tokens, 0)
        return msgspec.structs.replace(self, cost_usd=round(cost, 9))


async def measure(job: LabJob) -> Measured:
    """Run a log again under a change, and measure it. Raises the errors of importing and of `what_if`."""
    own = [place for place in job.plugins if place not in job.change.plugins]
    async with _opened(job, own) as engine:
        imported = await engine.transfer.import_log(job.export, scopes="as exported")
        rerun = await _Rerun.of(job, engine, imported.thread_id)
    search = job.change.search
    models = Models(
        embedder=cast("Embedder", _object(search.embedder)) if is_place(search.embedder) else search.embedder or None,
        ranker=cast("Ranker", _object(search.ranker)) if search.ranker else rank,
        reranker=cast("Reranker", _object(search.reranker)) if search.reranker else None,
    )
    async with _opened(job, [*own, *job.change.plugins], models) as engine:
        return await _Measuring(job, engine, rerun).measured()


def _opened(job: LabJob, plugins: Sequence[str], models: Models | None = None) -> Opening:
    config = EngineConfig(compaction=AS_RECORDED.compaction, search_index_timeout_s=INDEX_S)
    return open_engine(
        job.place,
        config=config,
        plugins=list(map(plugin_at, plugins)),
        entry_points=job.entry_points,
        models=models,
        parts=FIXED,
    )


class _FixedClock:
    def now_us(self) -> int:
        return NOW_US


FIXED = Parts(clock=_FixedClock())
"""The parts of each engine of a run, also of those that read recordings without times."""


def _object(place: str) -> object:
    """An object that a change names, such as a ranker. Raises `InvalidArgument`."""
    return object_at(place, "an object", lambda found: found)


@define
class _Rerun:
    """A log that was run again: the ids of both threads, and what is read of the recorded one."""

    thread: str
    fork: str = ""
    policy: CompactionPolicy = DEFAULT_COMPACTION
    refused: tuple[Refused, ...] = ()
    calls: list[StoredEvent] = field(factory=list)
    sessions: list[tuple[int, SessionStarted]] = field(factory=list)
    texts: list[str] = field(factory=list)
    last: int = 0

    @classmethod
    async def of(cls, job: LabJob, engine: Engine, thread_id: str) -> "_Rerun":
        """Read a log, and run it again into a fork; without one where the change is not about what a log holds."""
        made, change = cls(thread_id, thread_id), job.change
        await made._read(engine)
        loaded = await kernel_of(engine).store.load(thread_id, sources=False)
        made.policy = change.compaction_policy(loaded.record.policy, job.window)
        edits: list[Edit] = [
            ReplaceEvent(seq, msgspec.structs.replace(event, content=change.system_prompt, native=""))
            for seq, event in made.sessions
            if change.system_prompt is not None
        ]
        plugins, table = list(map(plugin_at, change.plugins)), change.compaction
        if edits or plugins or table is not None:
            asked = Change(
                edits=edits,
                plugins=plugins,
                policy=made.policy if table is not None else None,
                compactor=_compactor(table, engine, plugins) if table is not None else None,
                call_models=job.call_models,
            )
            report = await engine.thread(thread_id).replay.what_if(asked, fork_id=job.side)
            made.fork, made.refused = report.fork_id, report.refused
        return made

    async def _read(self, engine: Engine) -> None:
        kernel = kernel_of(engine)
        runs = Runs(kernel.events)
        head = (await kernel.reader.head(self.thread)).seq
        async for stored in kernel.reader.walk(self.thread, upto=head):
            event, reduction = decode_row(self.thread, stored, kernel.events)
            if runs.next(event, str(stored.seq))[1]:
                self.calls.append(stored)
            if isinstance(event, SessionStarted):  # its values may go with the system prompt
                self.sessions += [(stored.seq, event)] if event.content else []
            elif stored.type not in STEPS:
                self.texts += map(text_with_calls, reduction.chunks)
            self.last = stored.seq


def _compactor(table: CompactionTable, engine: Engine, plugins: Sequence[Plugin]) -> Compactor | None:
    """The compactor that a change names; `None`: the plug-ins' own, else the built-in one."""
    if table.model:
        named = _object(table.model) if is_place(table.model) else table.model
        return model_compactor(cast("LanguageModel", named))
    if not table.compactor or is_place(table.compactor):
        return cast("Compactor", _object(table.compactor)) if table.compactor else None
    brought = [one for plugin in plugins for one, _ in plugin.compactors]
    known = {one.name: one for one in (*brought, *kernel_of(engine)[CompactionService].compactors)}
    if table.compactor not in known:
        raise InvalidChange(f"compactor {table.compactor!r}", f"there are {', '.join(sorted(known))}, or module:NAME")
    return known[table.compactor]


@define
class _Measuring:
    job: LabJob
    engine: Engine
    rerun: _Rerun

    async def measured(self) -> Measured:
        job, change, rerun = self.job, self.job.change, self.rerun
        fork = self.engine.thread(rerun.fork)
        max_tokens = change.contexts.max_tokens or job.window or rerun.policy.window or DEFAULT_WINDOW
        head = (await fork.info()).events
        compactions, failed = await self._compactions(fork, head)
        moments, last = await self._moments(fork, head, max_tokens)
        values = facts_of("\n".join(rerun.texts))
        said = "\n".join(map(message_text, last.messages)) if last is not None else ""
        ledger = await _ledger(await fork.at(0), await fork.at(head), max_tokens, change.context_policy())
        lost = [one for one in ledger.breaks if not one.trailing]
        breaks = [Trouble(own=one.seq, why=one.why, lost_tokens=one.lost_tokens) for one in lost]
        breaks.sort(key=lambda one: (-one.lost_tokens, one.own))
        totals, report = ledger.totals, await fork.replay.verify()
        return Measured(
            log=job.log,
            thread=rerun.thread,
            events=rerun.last,
            fork=fork.id if fork.id != rerun.thread else "",
            max_tokens=max_tokens,
            moments=moments,
            values=len(values),
            values_missing=tuple(missing(said, values)),
            calls=totals.calls,
            tokens=totals.tokens,
            kept_tokens=totals.kept_tokens,
            cache_breaks=len(lost),
            cache_lost=sum(one.lost_tokens for one in lost),
            breaks=await self._placed(fork, breaks[:TROUBLES_KEPT]),
            compactions=compactions,
            failures=await self._placed(fork, failed),
            refused=rerun.refused,
            verified="" if report.divergence is None else f"event {report.divergence.seq}: {report.divergence.title}",
            answers=await self._answers(fork, head, max_tokens),
        )

    async def _compactions(self, fork: Thread, head: int) -> tuple[Compactions, list[Trouble]]:
        """The compactions of a thread, and those that failed, with the reasons."""
        kernel, total, failed = kernel_of(self.engine), Compactions(), list[Trouble]()
        async for stored in kernel.reader.walk(fork.id, upto=head, types=STEPS):
            event, _ = decode_row(fork.id, stored, kernel.events)
            total = total.plus(event)
            if isinstance(event, CompactionFailed):
                failed.append(Trouble(own=stored.seq, why=f"{event.compactor}: {event.reason} {event.error}".strip()))
        return total, failed[:TROUBLES_KEPT]

    async def _placed(self, fork: Thread, found: Sequence[Trouble]) -> tuple[Trouble, ...]:
        """Events of a thread's own log, with their places in the recorded one."""
        store = kernel_of(self.engine).store
        rows = await store.read_at(fork.id, sorted({one.own for one in found})) if found else ()
        ids = {row.seq: (row.id, row.causation_id) for row in rows}
        wanted = sorted({id_ for both in ids.values() for id_ in both if id_})
        seqs = {row.id: row.seq for row in (await store.find(self.rerun.thread, wanted) if wanted else ())}
        last = self.rerun.last
        places = [next((seqs[id_] for id_ in ids.get(one.own, ()) if id_ in seqs), last) for one in found]
        return tuple(msgspec.structs.replace(one, seq=seq) for one, seq in zip(found, places, strict=True))

    async def _moments(self, fork: Thread, head: int, max_tokens: int) -> tuple[tuple[LabMoment, ...], Context | None]:
        """Contexts before some of the model's answers, spread evenly, and after the last event; that one as well."""
        chosen = _spread(self.rerun.calls, self.job.moments - 1)
        rows = await kernel_of(self.engine).store.find(fork.id, [one.id for one in chosen])
        own = {row.id: row.seq - 1 for row in rows}
        places = [LabMoment(event=one.id, seq=one.seq, own=own[one.id]) for one in chosen if one.id in own]
        moments: list[LabMoment] = []
        last: Context | None = None
        for place in (*places, LabMoment(event="", seq=self.rerun.last, own=head)):
            moment, last = await self._moment(await fork.at(place.own), place, max_tokens)
            moments.append(moment)
        return tuple(moments), last

    async def _moment(self, past: Past, place: LabMoment, max_tokens: int) -> tuple[LabMoment, Context | None]:
        try:
            context = await past.context(max_tokens, policy=self.job.change.context_policy())
        except ContextBudgetError as error:
            return msgspec.structs.replace(place, fits=False, tokens=error.needed), None
        # what must be there does not depend on the policy under test, which may leave the brief out
        offered = await standing_blocks(handle_of(past), await past.state(), DEFAULT_POLICY, at=place.own)
        context = with_unsaid(context, offered)
        digest = blake2b(msgspec.json.encode(context.messages), digest_size=12).hexdigest()
        absent = tuple(MissingStatement(one.seq, one.n, one.text) for one in context.unsaid)
        stood = len(context.stood)
        return msgspec.structs.replace(
            place, tokens=context.tokens, digest=digest, stood=stood, missing=absent
        ), context

    async def _answers(self, fork: Thread, head: int, max_tokens: int) -> tuple[LabAnswer, ...]:
        change = self.job.change
        asked = [one for one in self.job.questions if one.thread in ("", self.rerun.thread)]
        past, answers = await fork.at(head), list[LabAnswer]()
        for one in asked:
            hits = await past.search(one.question, limit=change.search.limit)
            is_found = _answers_it(one, [hit.text for hit in hits], {id_ for hit in hits for id_ in hit.sources})
            try:
                context = await past.context(max_tokens, query=one.question, policy=change.context_policy())
            except ContextBudgetError:
                answers.append(LabAnswer(question=one.question, found=is_found, shown=False))
                continue
            ids = {id_ for hit in context.recalled for id_ in hit.sources}
            ids.update(await self._events_shown(fork, context))
            is_shown = _answers_it(one, list(map(message_text, context.messages)), ids)
            answers.append(LabAnswer(question=one.question, found=is_found, shown=is_shown))
        return tuple(answers)

    async def _events_shown(self, fork: Thread, context: Context) -> set[str]:
        seqs = {piece.chunk.said_at for piece in context.pieces if not piece.shortened}
        rows = await kernel_of(self.engine).store.read_at(fork.id, sorted(seqs - {0}))
        return {row.id for row in rows}


def _spread(calls: Sequence[StoredEvent], most: int) -> list[StoredEvent]:
    """At most so many of them, evenly, the last one with them."""
    if len(calls) <= most:
        return list(calls)
    return [calls[(n + 1) * len(calls) // most - 1] for n in range(most)]


def _answers_it(one: RecallQuestion, texts: Sequence[str], events: set[str]) -> bool:
    said = " ".join(" ".join(texts).split()).casefold()
    has_words = bool(one.words) and all(" ".join(word.split()).casefold() in said for word in one.words)
    return has_words or not events.isdisjoint(one.events)


async def _ledger(begin: Past, end: Past, max_tokens: int, policy: ContextPolicy) -> CacheLedger:
    """The ledger within the budget; of whole states if one of the contexts does not fit (`LabMoment.fits` says so)."""
    after, upto = handle_of(begin), handle_of(end)
    try:
        return await cache_ledger(after, upto, max_tokens, policy=policy)
    except ContextBudgetError:
        return await cache_ledger(after, upto, None)
