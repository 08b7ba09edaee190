"""Routes of the what-ifs: what can be changed, and a log run again in memory under a change, its contexts side by side.

Looking writes nothing. Changes to keep go through `acts`, if the inspector may write.
"""

from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from functools import partial

import msgspec
from attrs import frozen

from memory_engine.compaction.applied import applied_policy
from memory_engine.compaction.base import Compactor, calls_model
from memory_engine.compaction.listing import compactions
from memory_engine.compaction.service import CompactionService
from memory_engine.compaction.undo import undoing
from memory_engine.context.builder import ContextBuilder
from memory_engine.context.rendering import Message, message_bytes
from memory_engine.core.events.base import Event
from memory_engine.core.json_form import as_data
from memory_engine.core.reduction import NOTHING, ReduceContext, Reduction
from memory_engine.core.state import StateView
from memory_engine.core.threads import CompactionPolicy
from memory_engine.engine import Engine, kernel_of
from memory_engine.errors import ContextBudgetError, InvalidPolicy
from memory_engine.ingest.events import EventReader, UnusableRecord
from memory_engine.inspector.answers import Inspection, Query, Route, TooLong, WrongQuery
from memory_engine.inspector.offload import apart, beside
from memory_engine.inspector.routes_state import message_row
from memory_engine.plugins import Plugin
from memory_engine.replay.what_if import Change, Trial, try_change
from memory_engine.replay.what_if.change import Edit, InsertEvent, ReplaceEvent, SkipEvent
from memory_engine.thread import handle_of

EVENTS_MAX = 20_000
"""Events that are run again for a page."""
AROUND = 2
"""Messages that are shown before and after a difference."""
ALIKE_LEAST = 3
"""Messages that are the same on both sides and are only counted."""
PAIRS_MAX = 300
"""Pairs of messages that are given."""
_LOOK_BACK = 512


class EditSaid(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One edit, as the page says it: what to do (skip, replace, insert), at which seq, and with which event."""

    do: str
    seq: int
    event: dict[str, object] | None = None


class ChangeSaid(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A change, as the page says it. `policy` are the fields that differ, `without` the reducers that do not run."""

    policy: dict[str, object] = {}
    compactor: str = ""
    without: tuple[str, ...] = ()
    edits: tuple[EditSaid, ...] = ()
    undo: str = ""


async def options(inspection: Inspection, query: Query) -> object:
    """The possible changes of a thread, and the compactions of it that can be undone."""
    engine, thread_id = inspection.engine, query.text("thread")
    head = await kernel_of(engine).store.head(thread_id)
    walk = await inspection.states.walks.upto(thread_id, head.seq, head=head.seq, events=EVENTS_MAX)
    reducers = [
        {"name": one.name, "type": one.event_type}
        for kind in sorted(walk.annals.types)
        for one in kernel_of(engine).reducers.of_type(kind)
    ]
    outlined = await inspection.outlines.compactions(thread_id, head)
    is_compacted = any(one.is_completed for one in outlined)
    service = kernel_of(engine)[CompactionService]
    return {
        "head": head.seq,
        "may_write": inspection.may_write,
        "policy": as_data(await _applied(engine, thread_id, head.seq)),
        "compactors": [{"name": one.name, "calls_model": calls_model(one)} for one in _compactors(service).values()],
        "reducers": reducers,
        "compactions": as_data(list(await compactions(inspection.seen(thread_id, head.seq)) if is_compacted else ())),
    }


def _compactors(service: CompactionService) -> Mapping[str, Compactor]:
    return {one.name: one for one in (service.fallback, *service.compactors)}


async def what_if(inspection: Inspection, query: Query) -> object:
    """A thread's log run again in memory under a `change` (JSON), up to a seq, with both contexts side by side.

    Raises `WrongQuery`, `InvalidChange`, `CompactionNotLive`, `ReducerError`, and `TooLong` for a log that a page does
    not wait for.
    """
    past = await inspection.past(query, "upto")
    max_tokens = query.number_if_given("max_tokens", least=1)
    said = change_said(query.text("change"))
    kernel = kernel_of(inspection.engine)

    async def tried() -> Trial:
        change = await change_of(inspection.engine, past.id, said, past.seq, max_tokens)
        return await try_change(handle_of(inspection.engine.thread(past.id)), change)

    check_length(said, past.seq)
    trial = await apart(kernel, tried)
    compare = partial(_compared, kernel[ContextBuilder], trial, max_tokens)
    return {**trial.as_data(), **await beside(compare)}


def change_said(text: str) -> ChangeSaid:
    """A change from its JSON. Raises `WrongQuery`."""
    try:
        return msgspec.json.decode(text, type=ChangeSaid)
    except (msgspec.DecodeError, RecursionError) as error:
        raise WrongQuery("change", text, str(error)) from None


def check_length(said: ChangeSaid, upto: int) -> None:
    """Raise `TooLong` where more events would be run again than a page waits for."""
    begins = [edit.seq for edit in said.edits] + ([upto] if said.undo else [])
    is_whole = bool(said.policy or said.compactor or said.without)
    events = upto if is_whole or not begins else upto - max(0, min(begins) - _LOOK_BACK)
    if events > EVENTS_MAX:
        raise TooLong("running this log again", events, "choose an earlier end, or use `memory-engine what-if`")


async def change_of(engine: Engine, thread_id: str, said: ChangeSaid, upto: int, max_tokens: int | None) -> Change:
    """The change that a page says. Raises `WrongQuery`, `CompactionNotLive`."""
    edits = [_edit(engine, thread_id, edit) for edit in said.edits]
    if said.undo:
        undone = await undoing(handle_of(engine.thread(thread_id)), said.undo)
        if undone.seen != upto:
            raise WrongQuery("upto", str(upto), f"a compaction is undone at the end of the log, {undone.seen}")
        edits.append(InsertEvent(upto, undone))
    known = _compactors(kernel_of(engine)[CompactionService])
    if said.compactor and said.compactor not in known:
        raise WrongQuery("compactor", said.compactor, f"there are {', '.join(sorted(known))}")
    return Change(
        edits=edits,
        plugins=[_without_reducers(engine, said.without)] if said.without else [],
        policy=_policy(await _applied(engine, thread_id, upto), said.policy),
        compactor=known[said.compactor] if said.compactor else None,
        upto=upto,
        max_tokens=max_tokens,
    )


async def _applied(engine: Engine, thread_id: str, upto: int) -> CompactionPolicy:
    """The policy that the log was compacted by."""
    record = (await kernel_of(engine).store.load(thread_id, sources=False)).record
    return await applied_policy(kernel_of(engine).reader, record, upto, engine.config.compaction)


def _policy(base: CompactionPolicy, fields: Mapping[str, object]) -> CompactionPolicy | None:
    if not fields:
        return None
    unknown = [name for name in fields if name not in base.__struct_fields__]
    if unknown:
        raise WrongQuery("change", unknown[0], "a policy has no such field")
    try:
        return msgspec.convert({**msgspec.structs.asdict(base), **fields}, CompactionPolicy)
    except (msgspec.ValidationError, InvalidPolicy) as error:
        raise WrongQuery("change", "", str(error)) from None


def _edit(engine: Engine, thread_id: str, said: EditSaid) -> Edit:
    if said.do == "skip":
        return SkipEvent(said.seq)
    try:
        new = EventReader(thread_id, engine.events).read(said.event, 1).events[0]
    except UnusableRecord as error:
        raise WrongQuery("change", "", f"the event cannot be read: {error}") from None
    match said.do:
        case "replace":
            return ReplaceEvent(said.seq, new.event)
        case "insert":
            return InsertEvent(said.seq, new.event)
    raise WrongQuery("change", said.do, "an event is skipped, replaced or inserted")


def _without_reducers(engine: Engine, names: Sequence[str]) -> Plugin:
    """A plug-in in which these reducers do nothing. Raises `WrongQuery` for one that is not there."""
    plugin = Plugin("without " + ", ".join(names))
    known = set(kernel_of(engine).reducers.names())
    for name in names:
        if name not in known:
            raise WrongQuery("change", name, "there is no such reducer")
        plugin.replaces_reducer(name)(_nothing)
    return plugin


def _nothing(_view: StateView, _event: Event, _ctx: ReduceContext) -> Reduction:
    return NOTHING


# ---- both contexts, message by message


@frozen
class _Built:
    messages: Sequence[Message]
    tokens: int


def _compared(builder: ContextBuilder, trial: Trial, max_tokens: int | None) -> dict[str, object]:
    try:
        sides = [
            _Built(made.messages, made.tokens)
            for made in (builder.build(s, trial.thread_id, max_tokens) for s in trial.states)
        ]
    except ContextBudgetError as error:
        return {"contexts": None, "why_none": str(error)}
    before, after = sides
    pairs: list[object] = []
    left_out = 0
    for one, other in _aligned(before.messages, after.messages):
        if isinstance(one, int):
            pairs.append({"alike": one})
        elif len(pairs) < PAIRS_MAX:
            rows = [message_row(message, builder.counter) if message else None for message in (one, other)]
            pairs.append({"same": one is other, "original": rows[0], "fork": None if one is other else rows[1]})
        else:
            left_out += 1
    return {
        "contexts": {"tokens": [before.tokens, after.tokens], "messages": [len(before.messages), len(after.messages)]},
        "pairs": pairs,
        "cut": left_out,
    }


def _aligned(
    before: Sequence[Message], after: Sequence[Message]
) -> Iterator[tuple[Message | int | None, Message | None]]:
    """The messages of both, those that differ by their order; of many that are the same, how many they are."""
    one, other = [list(map(message_bytes, messages)) for messages in (before, after)]
    for tag, low, high, first, last in SequenceMatcher(None, one, other, autojunk=False).get_opcodes():
        if tag != "equal":
            for n in range(max(high - low, last - first)):
                left = before[low + n] if low + n < high else None
                yield left, after[first + n] if first + n < last else None
            continue
        ends = (AROUND if low else 0, AROUND if high < len(before) or last < len(after) else 0)
        alike = high - low - sum(ends)
        shown = before[low:high] if alike < ALIKE_LEAST else before[low : low + ends[0]]
        yield from ((message, message) for message in shown)
        if alike >= ALIKE_LEAST:
            yield alike, None
            yield from ((message, message) for message in before[high - ends[1] : high])


WHAT_IF_ROUTES = (
    Route.of("options", "thread", options),
    Route.of("what_if", "thread upto change max_tokens", what_if),
)
