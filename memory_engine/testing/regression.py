"""The function that the tests of `memory-engine to-pytest` call: recorded events must do what they did.

No store, no loop, no time: the events go through their reducers on the state that stood before them.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

import msgspec

from memory_engine.context.builder import ContextBuilder
from memory_engine.context.rendering import DEFAULT_RENDERERS
from memory_engine.core.chunks import Chunk
from memory_engine.core.codec import checked_record, decode_reduction, resolve_chunks
from memory_engine.core.events.base import Event
from memory_engine.core.reduction import ReduceContext, Reduction, RegisteredReducer, reduce_onto
from memory_engine.core.state import Placed, State
from memory_engine.core.tokens import EstimatedTokens
from memory_engine.errors import MemoryEngineError
from memory_engine.plugins import Plugin
from memory_engine.replay.differences import chunks_differ, fields_differ, limited, operation_line
from memory_engine.replay.to_pytest import state_lines
from memory_engine.testing.scenarios import registries

T = TypeVar("T")
Data = Mapping[str, object]


class _Recorded(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An event, and what it did when it was recorded."""

    seq: int
    id: str
    type: str
    version: int
    recorded_at_us: int
    payload: msgspec.Raw
    operations: list[str] = []
    chunks: tuple[Chunk, ...] = ()


def check_regression(  # noqa: PLR0913 - the parts of a recorded piece of a log, by keyword
    thread_id: str,
    *,
    before: Sequence[Data] = (),
    events: Sequence[Data],
    after: Mapping[str, str] | None = None,
    messages: Sequence[Data] | None = None,
    plugins: Sequence[Plugin] = (),
) -> None:
    """Reduce recorded events on the state before them, and compare with what they did.

    `before`: chunks with `key` (hexadecimal), `container` and `chunk`; `events`: `seq`, `id`, `type`, `version`,
    `recorded_at_us`, `payload`, and the recorded `operations` (lines) and `chunks`; `after`: the texts of the state by
    place; `messages`: of the whole context then. Arguments that are `None` are not compared. `plugins`
    bring the events and reducers that are not the package's own, and render their chunks.

    Raises `AssertionError` that names the event, the difference, and the reducer that makes it.
    """
    replay = _PluginReplay(thread_id, plugins)
    recorded = [_converted(event, _Recorded) for event in events]
    state = replay.state_of(map(_placed, before), recorded)
    for event in recorded:
        state = replay.step(state, event)
    if after is not None:
        _compare(f"the state after event {state.seq}", fields_differ("chunk", after, dict(state_lines(state))))
        _compare("the order of the state", _order(list(after), [path for path, _ in state_lines(state)]))
    if messages is not None:
        now = json.loads(json.dumps(replay.messages(state)))
        _compare(f"the context after event {state.seq}", _messages_differ(messages, now))


class _PluginReplay:
    """The events, reducers and renderers of the plug-ins, at work for one thread."""

    def __init__(self, thread_id: str, plugins: Sequence[Plugin]) -> None:
        self._thread_id = thread_id
        self._plugins = plugins
        self._events, self._reducers = registries(plugins)

    def state_of(self, places: Iterable[Placed], events: Sequence[_Recorded]) -> State:
        draft = State().draft()
        for place in places:
            draft.insert(place)
        return draft.freeze(events[0].seq - 1 if events else 0)

    def step(self, state: State, recorded: _Recorded) -> State:
        what = f"event {recorded.seq} ({recorded.type})"
        event = self._events.decode(recorded.type, recorded.version, bytes(recorded.payload))
        if not isinstance(event, Event):
            why = f"nothing here declares version {recorded.version} of {recorded.type!r}"
            raise AssertionError(f"{what}: {why}; put its plug-in into PLUGINS, or `plugins=[...]`")
        entries = self._reducers.of_type(recorded.type)
        try:
            reduction, state = self._reduced(state, entries, event, recorded)
            decoded = decode_reduction(checked_record(reduction, event, thread_id=self._thread_id, reducers=entries))
        except MemoryEngineError as error:
            raise AssertionError(f"{what} did what it does no more: {error}") from error
        lines = _lines_differ(recorded.operations, list(map(operation_line, decoded.operations)))
        chunks = chunks_differ(recorded.chunks, resolve_chunks(decoded, event))
        names = ", ".join([entry.name for entry in entries])
        by = f", of reducer {names}" if names else ", which has no reducer"
        _compare(f"{what}{by}", [*lines, *chunks])
        return state

    def _reduced(
        self, state: State, entries: Sequence[RegisteredReducer], event: Event, recorded: _Recorded
    ) -> tuple[Reduction, State]:
        context = ReduceContext(recorded.seq, recorded.id, recorded.recorded_at_us)
        after, reduction, _ = reduce_onto(state, entries, event, context, self._thread_id)
        return reduction, after

    def messages(self, state: State) -> Sequence[object]:
        renderers = {**DEFAULT_RENDERERS, **{kind: render for p in self._plugins for kind, render in p.renderers}}
        return ContextBuilder(renderers, EstimatedTokens()).build(state, self._thread_id).messages


def _converted(data: Data, kind: type[T]) -> T:
    return msgspec.json.decode(json.dumps(data), type=kind)


def _placed(place: Data) -> Placed:
    """A chunk of the state before; its key is in hexadecimal."""
    if unknown := place.keys() - set(Placed.__struct_fields__):
        raise msgspec.ValidationError(f"a chunk of the state before has no field {min(unknown)!r}")
    return msgspec.convert({**place, "key": bytes.fromhex(str(place["key"]))}, Placed)


def _compare(what: str, lines: Iterable[str]) -> None:
    found = limited(lines)
    if found:
        raise AssertionError("\n  ".join([f"{what}: recorded → now", *found]))


def _lines_differ(before: Sequence[str], after: Sequence[str]) -> Iterable[str]:
    for n in range(max(len(before), len(after))):
        one, other = (lines[n] if n < len(lines) else "nothing" for lines in (before, after))
        if one != other:
            yield f"operation {n + 1}: {one} → {other}"


def _order(before: Sequence[str], after: Sequence[str]) -> Iterable[str]:
    if before != after:
        yield f"{', '.join(before)} → {', '.join(after)}"


def _messages_differ(before: Sequence[Data], after: Sequence[Data]) -> Iterable[str]:
    for n in range(max(len(before), len(after))):
        one, other = (messages[n] if n < len(messages) else None for messages in (before, after))
        if one != other:
            yield from fields_differ(f"message {n + 1}", one, other)
