"""A thread's log replayed into a fork with other reducers, compactors, thresholds, or edits."""

import time
from collections.abc import Iterator, Mapping, Sequence

import msgspec
from attrs import evolve, field, fields, frozen

from memory_engine.compaction.applied import applied_policy
from memory_engine.compaction.assignment import checked_compactor
from memory_engine.compaction.base import Compactor, calls_model
from memory_engine.compaction.service import CompactionService
from memory_engine.context.builder import ContextBuilder
from memory_engine.core.cancellation import finished
from memory_engine.core.events.compaction import CompactionCompleted
from memory_engine.core.excerpts import counted, number
from memory_engine.core.ids import check_identifier
from memory_engine.core.json_form import as_data, named
from memory_engine.core.state import State
from memory_engine.core.threads import WHAT_IF, CompactionPolicy, LoadedThread, check_record
from memory_engine.errors import InvalidChange, ModelNotAllowed, ReadOnly, ThreadExists, ThreadNotFound, UnknownReducer
from memory_engine.plugins import Plugin
from memory_engine.replay.diff import Diff, diff
from memory_engine.replay.verify import VerifyProgress
from memory_engine.replay.what_if.calls import Call, Measure, Prices, Spending, Turn, paired
from memory_engine.replay.what_if.change import (
    EDITS,
    Compactions,
    Edit,
    EventCounts,
    InsertEvent,
    Refused,
    ReplaceEvent,
    Script,
    SkipEvent,
)
from memory_engine.replay.what_if.fork_log import ForkRules
from memory_engine.replay.what_if.runner import Rerun, Setting
from memory_engine.reports import Column, Drawable, Line, Paper, line, table_lines
from memory_engine.runtime.handle import ThreadHandle
from memory_engine.runtime.kernel import Kernel
from memory_engine.runtime.threads import OpenThreads
from memory_engine.store.reader import MomentLike, seq_of

__all__ = [
    "Call", "Change", "Compactions", "EventCounts", "InsertEvent", "Prices", "Refused", "ReplaceEvent", "SkipEvent",
    "Spending", "Trial", "Turn", "WhatIfReport", "try_change", "what_if",
]  # fmt: skip

TOLD_EVERY = 32
"""Events between two calls of `progress`."""
LOOK_BACK = 512
"""Events before the first edit that are read, to find the model call before it."""


@frozen(kw_only=True)
class Change:
    """The change for a rerun. Give at least one of `edits`, `plugins`, `policy` and `compactor`.

    `edits` skip, replace and insert events, by the seqs of the original. `plugins` bring compactors, and reducers in
    addition to the kernel's or in place of them. With a `policy`, a `compactor` or a plug-in's, the recorded
    compactions are left out and redone where the thresholds call for them: by the given compactor, else by the built-in
    one; with `call_models` alone, by the engine's. Without these, compactions stay as recorded. With a policy that is
    not `enabled` it has no compactions. A compactor that calls a model is used only with `call_models`.

    `upto` ends the rerun at a seq. `max_tokens` is the token budget that contexts are measured with (default: all of
    the state), `prices` give the report its costs, `metadata` is added to the fork's.
    """

    edits: Sequence[Edit] = ()
    plugins: Sequence[Plugin] = ()
    policy: CompactionPolicy | None = None
    compactor: Compactor | None = None
    call_models: bool = False
    upto: MomentLike | None = None
    max_tokens: int | None = None
    prices: Prices | None = None
    metadata: Mapping[str, str] = field(factory=dict)

    def __attrs_post_init__(self) -> None:
        if isinstance(self.edits, EDITS):
            raise InvalidChange("edits", f"put the {type(self.edits).__name__} into a list")
        for edit in self.edits:
            _check_value("edits", edit, isinstance(edit, EDITS), "a SkipEvent, a ReplaceEvent or an InsertEvent")
        given = self.policy
        _check_value("policy", given, given is None or isinstance(given, CompactionPolicy), "a CompactionPolicy")
        asked = self.compactor
        _check_value("compactor", asked, asked is None or hasattr(asked, "compact"), "a compactor, not its name")
        if asked is not None:
            checked_compactor(asked)

    def __str__(self) -> str:
        parts = [f"{len(self.edits)} edit{'s' * (len(self.edits) != 1)}"] if self.edits else []
        parts += [f"plug-in {plugin.name}" for plugin in self.plugins]
        parts += ["another policy"] if self.policy is not None else []
        parts += [f"compactor {self.compactor.name}"] if self.compactor is not None else []
        return ", ".join(parts)


def _check_value(what: str, value: object, fits: object, wanted: str) -> None:
    if not fits:
        raise InvalidChange(f"{what} {value!r}", f"it is {wanted} that is wanted")


@frozen(kw_only=True)
class Trial(Drawable):
    """The outcome of a rerun under a change. `print()` shows it in a few lines.

    `thread_id` is the original, up to the seq `upto`; the rerun ends at `head`. They share the past up to `shared`; all
    else here is about what comes after. `calls_shared` model calls were made before; `turns` are those after, and
    `original` and `fork` sum them up. `before` and `after` are the compactions of the original and of the rerun,
    `refused` the events that no longer fit. `states` are the final states of both.
    """

    thread_id: str
    upto: int
    head: int
    shared: int
    change: str
    events: EventCounts
    refused: tuple[Refused, ...]
    before: Compactions
    after: Compactions
    calls_shared: int
    turns: tuple[Turn, ...] = field(repr=False)
    original: Spending
    fork: Spending
    states: tuple[State, State] = field(repr=False)

    def as_data(self) -> dict[str, object]:
        """As plain JSON values, without turns and states."""
        return {
            **named(self, "thread_id upto head shared change events refused"),
            "compactions": {"original": as_data(self.before), "fork": as_data(self.after)},
            "totals": {"original": as_data(self.original), "fork": as_data(self.fork)},
        }

    def drawn(self, paper: Paper) -> Iterator[Line]:
        """The summary of a what-if, then the calls that differ most."""
        return _trial_lines(self, paper.room)


@frozen(kw_only=True)
class WhatIfReport(Trial):
    """The outcome of a rerun that was written as the fork `fork_id`. `state` is the difference of the final states."""

    fork_id: str
    state: Diff = field(repr=False)
    seconds: float

    def as_data(self) -> dict[str, object]:
        """As plain JSON values, without the states."""
        more = named(self, "fork_id calls_shared turns state")
        return {**super().as_data(), **more, "seconds": round(self.seconds, 3)}


async def try_change(thread: ThreadHandle, change: Change, *, progress: VerifyProgress | None = None) -> Trial:
    """Replay a thread's log in memory, and compare. Nothing is written, so a read-only store works.

    Raises what `what_if` raises, except `ThreadExists` and `ReadOnly`.
    """
    return await _tried(thread, _checked_change(change), "", progress)


async def what_if(
    thread: ThreadHandle, change: Change, *, fork_id: str = "", progress: VerifyProgress | None = None
) -> WhatIfReport:
    """Replay a thread's log into a fork of it, and compare.

    See `Replay.what_if` for the errors; then there is no fork, though after 20,000 events it may count as deleted.
    """
    begun = time.perf_counter()
    kernel, change = thread.kernel, _checked_change(change)
    if kernel.config.read_only:
        raise ReadOnly("the fork of a what-if")
    fork_id = fork_id or kernel.new_id()
    await _check_free(kernel, fork_id)
    trial = await _tried(thread, change, fork_id, progress)
    try:
        compared = await diff(await thread.at(trial.upto), await ThreadHandle(kernel, fork_id).at(trial.head))
    except BaseException:  # after any error, there is no fork; it goes on to the caller
        await finished(kernel.store.delete(fork_id))
        raise
    return WhatIfReport(
        **{one.name: getattr(trial, one.name) for one in fields(Trial)},
        fork_id=fork_id,
        state=compared,
        seconds=time.perf_counter() - begun,
    )


def _checked_change(change: Change) -> Change:
    _check_value("the change", change, isinstance(change, Change), "a Change, such as Change(edits=[SkipEvent(3)]),")
    return change


async def _tried(thread: ThreadHandle, change: Change, fork_id: str, progress: VerifyProgress | None) -> Trial:
    """The outcome of a rerun, which is written where a fork's id is given."""
    kernel = thread.kernel
    loaded = await kernel.store.load(thread.id, sources=False)
    upto = loaded.head.seq if change.upto is None else await seq_of(kernel.store, thread.id, change.upto)
    run = await rerun(await setting_of(kernel, loaded, change, upto, fork_id=fork_id, measured=True), progress)
    assert run.log is not None
    assert run.calls is not None
    turns = paired(run.calls.original, run.calls.fork)
    return Trial(
        thread_id=thread.id,
        upto=upto,
        head=run.log.head.seq,
        shared=run.log.point,
        change=str(change),
        events=run.counts,
        refused=tuple(run.refused),
        before=run.before,
        after=run.after,
        calls_shared=run.shared_calls,
        turns=turns,
        original=Spending.of([t.original for t in turns if t.original], run.before.usage, change.prices),
        fork=Spending.of([t.fork for t in turns if t.fork], run.after.usage, change.prices),
        states=(run.original_state(), run.log.state),
    )


async def rerun(setting: Setting, progress: VerifyProgress | None = None) -> Rerun:
    """Replay a log with a setting; after an error no fork is left."""
    kernel, thread_id = setting.kernel, setting.loaded.record.id
    recompacts, changes_rules = setting.compactors is not None, bool(setting.changed_types)
    begin = 0 if recompacts or changes_rules else max(0, setting.script.first - 1 - LOOK_BACK)
    there = await kernel.reader.rows_at(thread_id, {begin} if begin else ())
    digest = there[begin].hash if begin else b""
    run = Rerun.begin(setting, await kernel.reader.state_at(thread_id, begin), digest)
    try:
        async for stored in kernel.reader.walk(thread_id, after=begin, upto=setting.upto):
            await run.step(stored)
            if progress is not None and stored.seq % TOLD_EVERY == 0:
                progress(stored.seq - begin)
        await run.finish()
    except BaseException:  # after any error, drop the unfinished fork; it goes on to the caller
        if run.log is not None:
            await finished(run.log.discard())
        raise
    return run


async def setting_of(  # noqa: PLR0913 - what is run, and what comes of it
    kernel: Kernel, loaded: LoadedThread, change: Change, upto: int, *, fork_id: str = "", measured: bool = False
) -> Setting:
    """The settings of a rerun, built from a change.

    Without a `fork_id` nothing is written, and contexts are built only if they are to be `measured`. Raises
    `InvalidChange`.
    """
    record = loaded.record
    compactors = _compactors(kernel, change)
    if not (change.edits or change.plugins or compactors is not None):
        raise InvalidChange("the change", "it changes nothing; give edits, plug-ins, a policy or a compactor")
    rules = _rules(kernel, change.plugins)
    script = Script.of(change.edits, upto)
    await _check_ids(kernel, record.id, script)
    fork = None
    if fork_id:
        fork = msgspec.structs.replace(
            record,
            id=fork_id,
            created_at_us=kernel.now_us(),
            metadata={**record.metadata, WHAT_IF: str(change)[:1000], **change.metadata},
            policy=change.policy or record.policy,
        )
        check_record(fork)
    applied = await applied_policy(kernel.reader, record, upto, kernel.config.compaction)
    applied = applied.applied(_window(kernel, record.id))
    builder = kernel[ContextBuilder]
    measures = (
        Measure(thread_id=record.id, max_tokens=change.max_tokens, builder=builder),
        Measure(thread_id=record.id, max_tokens=change.max_tokens, builder=evolve(builder, renderers=rules.renderers)),
    )
    return Setting(
        kernel=kernel,
        loaded=loaded,
        upto=upto,
        script=script,
        rules=rules,
        changed_types=_changed_types(kernel, rules),
        policy=(change.policy or applied).applied(applied.window),
        applied=applied,
        compactors=compactors,
        by_hand=change.policy is None or change.policy.enabled,
        record=fork,
        measures=measures if measured else None,
    )


def _window(kernel: Kernel, thread_id: str) -> int | None:
    """The window that the thread's own contexts ask for, if the thread is open."""
    runtime = kernel[OpenThreads].get(thread_id)
    return runtime.window if runtime is not None else None


def _compactors(kernel: Kernel, change: Change) -> Sequence[Compactor] | None:
    """Those that compact again, in the order of asking; `None`: recorded compactions remain."""
    brought = [entry for plugin in change.plugins for entry in plugin.compactors]
    if change.compactor is not None:
        chosen: Sequence[Compactor] = (change.compactor,)
    elif brought:
        chosen = [compactor for compactor, _ in sorted(brought, key=lambda entry: -entry[1])]
    elif change.policy is None:
        return None
    else:
        chosen = kernel[CompactionService].compactors if change.call_models else (kernel[CompactionService].fallback,)
    for compactor in chosen:
        if calls_model(compactor) and not change.call_models:
            raise ModelNotAllowed(f"the compactor {compactor.name!r}")
    return chosen


def _rules(kernel: Kernel, plugins: Sequence[Plugin]) -> ForkRules:
    events, reducers, renderers = kernel.events.copy(), kernel.reducers.copy(), dict(kernel[ContextBuilder].renderers)
    for plugin in plugins:
        try:
            plugin.install(events, reducers)
        except UnknownReducer as error:
            raise InvalidChange(f"plug-in {plugin.name}", str(error)) from None
        renderers.update(plugin.renderers)
    return ForkRules(events=events, reducers=reducers, renderers=renderers)


def _changed_types(kernel: Kernel, rules: ForkRules) -> frozenset[str]:
    """The types of events that other reducers run for, or that another class decodes."""
    before = {cls.event_type for cls in kernel.events.classes()}
    types = {cls.event_type for cls in rules.events.classes()}
    return frozenset(
        name for name in types if name not in before or kernel.reducers.of_type(name) != rules.reducers.of_type(name)
    )


async def _check_free(kernel: Kernel, fork_id: str) -> None:
    check_identifier("thread id", fork_id)
    try:
        await kernel.store.head(fork_id)
    except ThreadNotFound:
        return
    raise ThreadExists(fork_id)


async def _check_ids(kernel: Kernel, thread_id: str, script: Script) -> None:
    """Raise `InvalidChange` for an inserted event under an id that the log has, or that another has."""
    ids = [new.id for events in script.inserted.values() for new in events if new.id]
    for event_id in ids:
        check_identifier("event id", event_id)
        if ids.count(event_id) > 1:
            raise InvalidChange(f"inserting {event_id!r}", "two events bear this id")
    for stored in await kernel.store.find(thread_id, ids) if ids else ():
        raise InvalidChange(f"inserting {stored.id!r}", f"event {stored.seq} of the log has this id")


# ---- as lines

TURNS_SHOWN_MAX = 8
_COUNTS = ("kept", "renumbered", "replaced", "skipped", "refused", "left_out", "inserted", "added")


def _trial_lines(trial: Trial, width: int | None) -> Iterator[Line]:
    """The summary of a what-if, then the calls that differ most."""
    written = trial if isinstance(trial, WhatIfReport) else None
    into = f" → fork {written.fork_id}" if written is not None else ""
    yield line(f"{trial.thread_id} up to event {trial.upto}{into}: {trial.change}", "bold")
    counts = [(getattr(trial.events, name), name.replace("_", " ")) for name in _COUNTS]
    said = ", ".join(f"{number(count)} {name}" for count, name in counts if count) or "none else"
    yield line(f"events       {number(trial.shared)} shared, {said}")
    before, after = trial.before, trial.after
    taken = f"{number(before.tokens_before)} → {number(before.tokens_after)} tokens"
    new = f"{number(after.tokens_before)} → {number(after.tokens_after)} tokens"
    yield line(f"compactions  {before.completed} ({taken}) as recorded, {after.completed} ({new}) in the fork")
    sizes = (f"{counted(s.tally.chunks, 'chunk')}, {counted(s.tally.tokens, 'token')}" for s in trial.states)
    differing = f": {_differing(written.state)}" if written is not None else ""
    yield line(f"state        {' → '.join(sizes)}{differing}")
    for one in trial.refused:
        yield line(f"event {one.seq} ({one.event_type}) no longer fits and was left out: {one.why}", "yellow")
    if any(one.event_type == CompactionCompleted.event_type for one in trial.refused):
        yield line(
            "(recorded compactions are taken as they are; another compactor or threshold makes them anew)", "dim"
        )
    yield line("")
    yield from _spending_lines(trial, width)
    yield from _turn_lines(trial.turns, width)


def _differing(state: Diff) -> str:
    changed = sum(1 for change in state.changed if change.fields)
    moved = f", {len(state.moved)} moved" if state.moved else ""
    return f"{len(state.added)} added, {len(state.removed)} removed, {changed} changed{moved}"


def _spending_lines(trial: Trial, width: int | None) -> Iterator[Line]:
    sides = (trial.original, trial.fork)
    rows = [
        (name, *(number(getattr(side, field)) for side in sides), _change_of(*(getattr(side, field) for side in sides)))
        for name, field in (
            ("model calls", "calls"),
            ("tokens of contexts", "tokens"),
            ("kept by a prompt cache", "kept_tokens"),
            ("fresh", "fresh_tokens"),
            ("tokens of answers", "output_tokens"),
        )
    ]
    if trial.original.cost_usd is not None and trial.fork.cost_usd is not None:
        costs = trial.original.cost_usd, trial.fork.cost_usd
        rows.append(("cost, USD", f"{costs[0]:.4f}", f"{costs[1]:.4f}", _change_of(*costs)))
    heads = [Column(f"AFTER EVENT {trial.shared}"), Column("ORIGINAL", right=True), Column("FORK", right=True)]
    yield from table_lines([*heads, Column("CHANGE", right=True)], rows, width)


def _change_of(before: float, after: float) -> str:
    return f"{(after - before) / before:+.0%}" if before else "-"


def _turn_lines(turns: Sequence[Turn], width: int | None) -> Iterator[Line]:
    """The calls whose contexts differ most, in the order of the log."""
    differing = [turn for turn in turns if turn.original != turn.fork and turn.difference]
    most = sorted(differing, key=lambda turn: -abs(turn.difference))[:TURNS_SHOWN_MAX]
    if not most:
        return
    yield line("")
    yield line(f"{counted(len(differing), 'call')} of {len(turns)} with another context; those that differ most:")
    heads = [Column(title, right=True) for title in ("EVENT", "TOKENS", "KEPT", "IN FORK", "TOKENS", "KEPT")]
    rows = [(*_call_cells(turn.original), *_call_cells(turn.fork)) for turn in turns if turn in most]
    yield from table_lines(heads, rows, width)


def _call_cells(call: Call | None) -> tuple[str, str, str]:
    if call is None:
        return "-", "-", "-"
    return str(call.seq), number(call.tokens), number(call.kept_tokens)
