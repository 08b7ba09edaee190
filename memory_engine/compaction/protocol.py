"""The protocol of a compaction: started → compactor, outside any transaction → completed, failed or abandoned.

The thread's queue is blocked during the whole run, or only while the result is checked and written
(`CompactionPolicy.blocking`). A compactor that works ahead has its result before the compaction starts: its start and
its end are then one commit.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

import msgspec
from msgspec.structs import replace

from memory_engine.compaction.base import CompactionContext, CompactionResult, Compactor, works_ahead
from memory_engine.compaction.changes import obstacle
from memory_engine.compaction.failures import SUPERSEDED, TOO_SLOW
from memory_engine.compaction.hooks import Wishes
from memory_engine.compaction.plan import SUMMARY_TOKENS_MIN, Plan, working_flow
from memory_engine.context.invariants import atoms_of
from memory_engine.core.aside import aside
from memory_engine.core.cancellation import observed
from memory_engine.core.chunks import Chunk, ChunkType, Retention
from memory_engine.core.events.base import Event, SummaryLine
from memory_engine.core.events.compaction import (
    CompactionAbandoned,
    CompactionCompleted,
    CompactionFailed,
    CompactionStarted,
    CompactorStoodIn,
    Replacement,
)
from memory_engine.core.lazy import lazy_module
from memory_engine.core.origins import SPOKEN, attributed
from memory_engine.core.records import Receipt
from memory_engine.core.slices import Pause, let_others
from memory_engine.core.state import State
from memory_engine.core.threads import CompactionPolicy, encode_policy
from memory_engine.core.tokens import estimate_text, recorded_tokens
from memory_engine.errors import CompactorFailed, MemoryEngineError, ModelError
from memory_engine.errors.effects import Usage
from memory_engine.language.masking import SECRETS, Mask, without_secrets

if TYPE_CHECKING:
    from memory_engine.compaction import masked
else:
    masked = lazy_module("memory_engine.compaction.masked")

Trigger = Literal["auto", "manual", "hard"]
ORIGINAL_TOKENS_MAX = 20_000
"""Maximum tokens of originals that earlier summaries are rebuilt from; above it, the summaries' lines are reused."""
TO_DO_LIST = "todos"
"""Name of the chunk that contains the to-dos."""
GRACE_S = 0.5
"""Seconds that a cancelled compactor may take to end. After that, it is no longer awaited."""
DEADLINE_S_MAX = 1e9
"""Maximum deadline in seconds (about thirty years). A longer deadline is recorded as this one."""
ERROR_CHARS_MAX = 2_000
"""Maximum number of characters of an error's text to record."""


class CompactionReport(msgspec.Struct, frozen=True, kw_only=True):
    """Outcome of a compaction. `new_chunks` replace `covered`; `dropped` were removed without a summary.

    `focus` is what the caller asked the summary to cover in most detail. `instead_of` names the failed compactor, if
    another replaced it. `left_out` are chunks that stay because the summary by `left_out_by` (names joined by "+") was
    not shorter.
    """

    compaction_id: str
    trigger: Trigger
    compactor: str
    covered: tuple[str, ...]
    dropped: tuple[str, ...]
    new_chunks: tuple[str, ...]
    tokens_before: int
    tokens_after: int
    model: str = ""
    usage: Usage = Usage()
    instead_of: str = ""
    left_out: tuple[str, ...] = ()
    left_out_by: str = ""
    focus: str = ""


class _LeftOut(msgspec.Struct, frozen=True):
    """A part whose summary was not shorter, and the reason."""

    chunk_ids: tuple[str, ...]
    failure: CompactorFailed


class Originals(Protocol):
    """Reader of the chunks that earlier summaries cover."""

    async def covered_by(self, summary: Chunk, tokens_max: int) -> Sequence[Chunk] | None:
        """Return the originals, in order, resolved through summaries of summaries.

        Return `None` if they take more than `tokens_max`, or if some of them were forgotten.
        """
        ...

    async def times(self, chunks: Sequence[Chunk]) -> Mapping[str, str]:
        """Return ISO times by chunk id."""
        ...


async def _at_once() -> None:
    """Do nothing: the result may be written immediately."""


class CompactionRun(msgspec.Struct, frozen=True, kw_only=True):
    """One compaction of one thread, planned on `state`.

    If events may arrive during the run, `ready` blocks them before the result is written, and `append` must call
    `check` with the result and the state that the result is applied to.
    """

    thread_id: str
    compaction_id: str
    state: State
    plan: Plan
    trigger: Trigger
    pieces: tuple[tuple[Compactor, tuple[str, ...]], ...]
    policy: CompactionPolicy
    originals: Originals
    append: Callable[[Sequence[Event]], Awaitable[Receipt]]
    """Commits events together, and returns the receipt of the last one."""
    now_us: int
    incompressible: set[str]
    """Collects the COMPRESSIBLE chunks that did not get shorter."""
    afresh: Mapping[str, Sequence[Chunk]] = {}
    """Maps covered summaries to the originals to compact instead. Lengths are compared with these originals."""
    failure: CompactorFailed | None = None
    """Failure of the compactor that others replace."""
    ready: Callable[[], Awaitable[None]] = _at_once
    pause: Pause = let_others
    """Pause function for compactors that compute (`CompactionContext.pause`)."""
    ahead: bool = False
    """Whether nothing is recorded until the result is available."""
    wishes: Wishes = Wishes()
    count: Callable[[str], int] = estimate_text
    brief: Callable[[], Awaitable[Sequence[str]]] | None = None
    """Reads the statements of people that contexts show next to summaries."""
    hurry: asyncio.Event | None = None
    """Event that makes the run give up the working compactor immediately."""
    mask: Mask | None = SECRETS
    """The input of a compactor that may send it to a model."""
    left_out: list[_LeftOut] = []
    """Collects the parts that did not get shorter."""

    async def execute(self) -> CompactionReport:
        """Run the compaction, and record its end in every case.

        Raises `CompactorFailed` after recording the failure; the originals stay. If cancelled, records that the
        compaction was abandoned.
        """
        name = "+".join(dict.fromkeys(compactor.name for compactor, _ in self.pieces)) or "drop"
        deadline_us = self.now_us + int(min(self.policy.deadline_s, DEADLINE_S_MAX) * 1_000_000)
        started = CompactionStarted(
            compaction_id=self.compaction_id,
            trigger=self.trigger,
            chunk_ids=self.plan.chunk_ids,
            compactor=name,
            owner=this_process(),
            deadline_us=deadline_us,
            policy=encode_policy(replace(self.policy, instructions="")),
            instructions=self.wishes.instructions,
            focus=self.wishes.focus,
            note=self.wishes.note,
        )
        opening: list[Event] = [started] if self.failure is None else [started, self._stood_in(name, self.failure)]
        if not self.ahead:
            try:
                await self.append(opening)
            except asyncio.CancelledError:
                await self._abandon()
                raise
            opening = []
        try:
            completed = await self._in_time(name)
            await self.ready()
        except asyncio.CancelledError:
            if not opening:
                await self._abandon()
            raise
        except Exception as error:  # boundary to compactors: every error is recorded and re-raised with a type
            raise await self._fail(name, error, opening) from error
        try:
            receipt = await self.append([*opening, completed])
        except MemoryEngineError as error:
            raise await self._fail(name, error, opening, completed.usage) from error
        return self._report(name, completed, receipt)

    def _stood_in(self, name: str, failure: CompactorFailed) -> CompactorStoodIn:
        return CompactorStoodIn(
            compaction_id=self.compaction_id,
            compactor=name,
            instead_of=failure.compactor,
            reason=failure.reason,
            error=failure.error,
        )

    def check(self, completed: CompactionCompleted, now: State) -> None:
        """Raise `CompactorFailed` if the result no longer fits the state."""
        if why := obstacle(self.plan, self._shown(), self.state, now) or self._gone_to_do(completed, now):
            raise CompactorFailed("", SUPERSEDED, why)

    def _gone_to_do(self, completed: CompactionCompleted, now: State) -> str:
        """Return why a result that quotes a removed to-do, and no chunk, is invalid: the to-do may be forgotten."""
        said = "\n".join(line.text for one in completed.replacements for line in one.lines)
        gone = [item for item in self._to_dos() if now.get(item.id) is None and item.text and item.text in said]
        taken = filter(None, map(self.state.get, self.plan.chunk_ids)) if gone else ()
        told = "\n".join(text for chunk in taken for text in (chunk.text, *(call.arguments for call in chunk.calls)))
        lost = (f"to-do {item.id}, which the compactor was shown, is gone" for item in gone if item.text not in told)
        return next(lost, "")

    async def _abandon(self) -> None:
        await self.append([CompactionAbandoned(compaction_id=self.compaction_id, reason="cancelled")])

    async def _fail(
        self,
        name: str,
        error: Exception,
        opening: Sequence[Event],
        usage: Usage = Usage(),  # noqa: B008 - frozen
    ) -> CompactorFailed:
        """Record the failure after the `opening` events, and return it as the error to raise.

        `usage` is the usage of a discarded result.
        """
        named = error.compactor if isinstance(error, CompactorFailed) else ""
        failure = _failure(named or name, error, usage)
        failed = CompactionFailed(
            compaction_id=self.compaction_id,
            compactor=failure.compactor,
            reason=failure.reason,
            error=failure.error,
            usage=failure.usage,
        )
        await self.append([*opening, failed])
        return failure

    async def _in_time(self, name: str) -> CompactionCompleted:
        """Return the result within the deadline; a compactor that ignores its cancellation is not awaited."""
        at_work = [name]
        working = asyncio.ensure_future(self._compact(at_work))
        working.add_done_callback(observed)  # an error that it raises after being left behind is ignored
        hurrying = asyncio.ensure_future(self.hurry.wait()) if self.hurry is not None else None
        try:
            waiting = [working] if hurrying is None else [working, hurrying]
            await asyncio.wait(waiting, timeout=self.policy.deadline_s, return_when=asyncio.FIRST_COMPLETED)
            late = not working.done()
        finally:
            if not working.done():
                working.cancel()
                await asyncio.wait([working], timeout=GRACE_S)
            if hurrying is not None:
                hurrying.cancel()
        if late and self.hurry is not None and self.hurry.is_set():
            why = "the thread passed its hard limit while it was at work"
            raise CompactorFailed(at_work[-1], TOO_SLOW, why)
        if late:
            raise CompactorFailed(at_work[-1], "timeout", f"no result within {self.policy.deadline_s:g} s")
        if working.cancelled():
            raise CompactorFailed(at_work[-1], "raised", "it was cancelled from within")
        return working.result()

    async def _compact(self, at_work: list[str]) -> CompactionCompleted:
        """Return the result of all pieces. Appends the name of the working compactor to `at_work`."""
        name = at_work[0]
        replacements: list[Replacement] = []
        model, usage, before, after = "", Usage(), 0, 0
        for compactor, covers in self.pieces:
            at_work.append(compactor.name)
            try:
                result, tokens, replaced = await self._one(compactor, covers)
            except Exception as error:  # boundary to compactors: among several, name the one that failed
                raise _failure(compactor.name, error) from error
            usage = usage.plus(result.usage)
            if tokens >= replaced:
                self._leave_out(compactor, covers, f"{tokens} tokens for {replaced}")
                continue
            replacements.append(Replacement(covers=covers, lines=result.lines, retention=self._retention(covers)))
            model = result.model or model
            before, after = before + replaced, after + tokens
        if drops := self._drops():
            replacements.insert(0, Replacement(covers=drops))
            before += self._tokens(drops)
        if not replacements:
            batch = next((one.failure for one in self.left_out if len(one.chunk_ids) > 1), None)
            if batch is not None:
                raise CompactorFailed(batch.compactor, batch.reason, batch.error, usage)
            raise CompactorFailed(name, "no_progress", "no replacement is shorter than what it replaces", usage)
        return CompactionCompleted(
            compaction_id=self.compaction_id,
            trigger=self.trigger,
            replacements=tuple(replacements),
            compactor=name,
            model=model,
            usage=usage,
            tokens_before=before,
            tokens_after=after,
        )

    def _retention(self, covers: Sequence[str]) -> Literal["compressible", "ephemeral"]:
        chunks = map(self.state.get, covers)
        ephemeral = all(chunk is not None and chunk.retention is Retention.EPHEMERAL for chunk in chunks)
        return "ephemeral" if ephemeral else "compressible"

    async def _one(self, compactor: Compactor, covers: tuple[str, ...]) -> tuple[CompactionResult, int, int]:
        """Return the result of one part, its tokens, and the tokens that it would replace."""
        chunks, earlier = await self._originals(covers)
        context = await self._context(chunks, earlier)
        if self.brief is not None and not works_ahead(compactor):
            context = replace(context, brief=tuple(await self.brief()))
        result = await masked.compacted(compactor, chunks, context, self.mask)
        tokens = check_result(compactor.name, result)
        replaced = await aside(partial(self._tokens, covers), items=len(covers))
        known = {*covers, *(chunk.id for chunk in chunks), *(source for line in earlier for source in line.sources)}
        lines = attributed(_cited(result.lines, known), {chunk.id: chunk for chunk in chunks}, earlier)
        return replace(result, lines=lines), tokens, replaced

    def _leave_out(self, compactor: Compactor, covers: tuple[str, ...], why: str) -> None:
        """Keep the chunks of a part, because its result is not shorter. The other parts go on."""
        if len(covers) == 1 or covers[0] in self.plan.outside:
            self.incompressible.update(covers)
        self.left_out.append(_LeftOut(covers, CompactorFailed(compactor.name, "not_shorter", why)))

    def _drops(self) -> tuple[str, ...]:
        """Return the chunks to drop, except those in atoms that are left out: an atom is taken whole or not at all."""
        staying = {chunk_id for part in self.left_out for chunk_id in part.chunk_ids}
        if not (staying and self.plan.drops):
            return self.plan.drops
        for atom in atoms_of(working_flow(self.state)):
            ids = {chunk.id for chunk in atom.chunks}
            if ids & staying:
                staying |= ids
        return tuple(chunk_id for chunk_id in self.plan.drops if chunk_id not in staying)

    async def _originals(self, covers: Sequence[str]) -> tuple[list[Chunk], tuple[SummaryLine, ...]]:
        """Return the chunks to compact; earlier summaries are expanded to their originals if these are small enough."""
        chunks: list[Chunk] = []
        earlier: list[SummaryLine] = []
        room = ORIGINAL_TOKENS_MAX
        for chunk_id in covers:
            chunk = self.state.get(chunk_id)
            if chunk is None:
                raise CompactorFailed("", SUPERSEDED, f"chunk {chunk_id} is gone")
            if chunk_id in self.afresh:
                chunks += self.afresh[chunk_id]
                continue
            if chunk.type != ChunkType.COMPACTED:
                chunks.append(chunk)
                continue
            originals = await self.originals.covered_by(chunk, room)
            if originals is None:
                earlier += (replace(line, sources=line.sources or (chunk.id,)) for line in chunk.lines)
            else:
                room -= sum(original.tokens for original in originals)
                chunks += originals
        return chunks, tuple(earlier)

    async def _context(self, chunks: Sequence[Chunk], earlier: tuple[SummaryLine, ...]) -> CompactionContext:
        replaced = sum(chunk.tokens for chunk in chunks) + sum(recorded_tokens(line.text) for line in earlier)
        shown = [chunk for chunk in map(self.state.get, self._shown()) if chunk is not None]
        goals = [chunk.text for chunk in shown if chunk.type == ChunkType.TASK]
        system = [chunk.text for chunk in shown if chunk.type == ChunkType.SYSTEM]
        summaries = [chunk.text for chunk in shown if chunk.type == ChunkType.COMPACTED]
        request = next((chunk for chunk in reversed(shown) if chunk.type in SPOKEN), None)
        return CompactionContext(
            thread_id=self.thread_id,
            budget_tokens=summary_budget(replaced, self.policy),
            task_goal="\n".join(goals),
            progress_summary="\n".join(summaries),
            system_context="\n".join(system),
            current_request=request.text if request is not None else "",
            brief=tuple(chunk.text for chunk in shown if chunk.type in SPOKEN and chunk.text.strip()),
            todos=tuple(item.text for item in self._to_dos()),
            instructions=self.wishes.instructions,
            focus=self.wishes.focus,
            earlier=earlier,
            recorded_at=dict(await self.originals.times(chunks)),
            deadline_s=self.policy.deadline_s,
            pause=self.pause,
            count=self.count,
        )

    def _shown(self) -> list[str]:
        """Return the ids of chunks that a compactor sees as context: instructions, goals, requests, other summaries."""
        taken = set(self.plan.chunk_ids)
        told = (ChunkType.SYSTEM, ChunkType.TASK, ChunkType.COMPACTED, *SPOKEN)
        return [chunk.id for chunk in self.state.chunks() if chunk.type in told and chunk.id not in taken]

    def _to_dos(self) -> list[Chunk]:
        """Return the to-dos that are not done."""
        items = self.state.children(listed.id) if (listed := self.state.named(TO_DO_LIST)) else ()
        return [item for item in items if item.type == ChunkType.TODO_ITEM and item.status != "completed"]

    def _tokens(self, chunk_ids: Sequence[str]) -> int:
        return sum(map(self._tokens_of, chunk_ids))

    def _tokens_of(self, chunk_id: str) -> int:
        if chunk_id in self.afresh:
            return sum(chunk.tokens for chunk in self.afresh[chunk_id])
        chunk = self.state.get(chunk_id)
        return chunk.tokens if chunk is not None else 0

    def _report(self, name: str, completed: CompactionCompleted, receipt: Receipt) -> CompactionReport:
        dropped = tuple(chunk_id for r in completed.replacements if not r.lines for chunk_id in r.covers)
        return CompactionReport(
            compaction_id=self.compaction_id,
            trigger=self.trigger,
            compactor=name,
            covered=tuple(c for r in completed.replacements for c in r.covers if c not in dropped),
            dropped=dropped,
            new_chunks=tuple(chunk.id for chunk in receipt.chunks),
            tokens_before=completed.tokens_before,
            tokens_after=completed.tokens_after,
            model=completed.model,
            usage=completed.usage,
            instead_of=self.failure.compactor if self.failure is not None else "",
            left_out=tuple(chunk_id for part in self.left_out for chunk_id in part.chunk_ids),
            left_out_by="+".join(dict.fromkeys(part.failure.compactor for part in self.left_out)),
            focus=self.wishes.focus,
        )


def summary_budget(replaced: int, policy: CompactionPolicy) -> int:
    """Return the maximum tokens of a summary: its share or 400, but always less than what it replaces."""
    least = min(SUMMARY_TOKENS_MIN, replaced * 4 // 5)
    return max(min(max(int(replaced * policy.ratio), least), policy.summary_tokens_max // 2), 32)


def check_result(name: str, result: CompactionResult) -> int:
    """Return the tokens of a usable result. Raises `CompactorFailed` if it is invalid, empty, or has empty lines."""
    if not isinstance(result, CompactionResult):
        raise CompactorFailed(name, "invalid", f"it returned a {type(result).__name__}, not a CompactionResult")
    if not all(map(_is_line, result.lines)):
        raise CompactorFailed(name, "invalid", "its lines are not all of them a SummaryLine")
    if not result.lines or not all(line.text.strip() and line.section for line in result.lines):
        why = "it returned no lines, or a line without text or section"
        raise CompactorFailed(name, "empty", why, result.usage)
    return sum(recorded_tokens(line.text) + 1 for line in result.lines)


def _is_line(line: object) -> bool:
    """Return True if the object is a line whose fields have the right types, which nothing has checked before."""
    match line:
        case SummaryLine(section=str(), text=str(), sources=tuple() as sources):
            return all(isinstance(source, str) for source in sources)
    return False


def _cited(lines: Sequence[SummaryLine], known: Collection[str]) -> tuple[SummaryLine, ...]:
    """Return the lines without citations of chunks that the compactor did not receive. A line without any cites all."""
    return tuple(replace(line, sources=tuple(source for source in line.sources if source in known)) for line in lines)


def _failure(name: str, error: Exception, usage: Usage = Usage()) -> CompactorFailed:  # noqa: B008 - frozen
    """Return the error in recordable form: its text may have any length, lone surrogates and secrets."""
    reason, text = "raised", f"{type(error).__name__}: {error}"
    if isinstance(error, CompactorFailed):
        reason, text, usage = error.reason, error.error, error.usage.plus(usage)
    elif isinstance(error, ModelError):
        reason, text, usage = error.reason, str(error), error.usage
    elif isinstance(error, MemoryEngineError):
        reason, text = "refused", str(error)
    text = without_secrets(text[: 2 * ERROR_CHARS_MAX])[:ERROR_CHARS_MAX]
    return CompactorFailed(name, reason, text.encode("utf-8", "replace").decode(), usage)


def this_process() -> str:
    """Return the owner of a compaction: host, process id, and the process's start time, because ids are reused."""
    return _name_of(os.getpid())


@lru_cache(maxsize=1)
def _name_of(pid: int) -> str:
    return f"{os.uname().nodename if hasattr(os, 'uname') else ''}/{pid}/{_started(pid)}"


def owner_is_gone(owner: str) -> bool:
    """Return True if the owner has certainly ended. An owner on another host may still be alive."""
    host, pid, started = ["", "", "", *owner.rsplit("/", 2)][-3:]
    if not pid.isdecimal() or host != this_process().rsplit("/", 2)[0]:
        return False
    return _started(int(pid)) != started


def _started(pid: int) -> str:
    """Return a process's start time in kernel ticks; `""` if there is no such process, or no /proc."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""
