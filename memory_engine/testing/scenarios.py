"""Given, when, then: the effect of an event on a state, without a store and without a loop.

given(UserMessage(content="Hi")).when(LlmTextResponse(content="Hello")).then(
    operations=["ADD 2.0"], chunk_texts=["Hello"], state=["Hi", "Hello"]
)
"""

from collections.abc import Sequence

from attrs import frozen

from memory_engine.core.chunks import Chunk
from memory_engine.core.codec import checked_record, decode_reduction, encode_event, resolve_chunks
from memory_engine.core.executor import describe
from memory_engine.core.operations import Operation
from memory_engine.core.reduction import ReduceContext, ReducerRegistry, Reduction, reduce_onto
from memory_engine.core.state import State
from memory_engine.errors import MemoryEngineError
from memory_engine.events import Event, EventRegistry
from memory_engine.plugins import Plugin
from memory_engine.testing.fakes import START_US, SequentialIds
from memory_engine.wiring import builtin_plugins

THREAD_ID = "scenario"


class Scenario:
    """A state that events led to. `when` does not change it, so you may call it many times."""

    def __init__(self, plugins: Sequence[Plugin] = (), now_us: int = START_US) -> None:
        self.state = State()
        self._now_us = now_us
        self._events, self._reducers = registries(plugins)

    def when(self, event: Event) -> "Outcome":
        """The outcome of one more event.

        It goes through the same codec and executor as in an engine. Fails where a reducer is
        not pure (it says something else the second time) or the log could not give its
        chunks back.
        """
        seq = self.state.seq + 1
        event_id = SequentialIds(f"{THREAD_ID}/{seq}").event_id(self._now_us)
        try:
            _, recorded = encode_event(event, self._events)
            reduction, state = self._reduce(recorded, ReduceContext(seq, event_id, self._now_us))
            entries = self._reducers.of_type(recorded.event_type)
            record = checked_record(reduction, recorded, thread_id=THREAD_ID, reducers=entries)
        except MemoryEngineError as error:
            return Outcome(self.state, Reduction(), error)
        again, _ = self._reduce(recorded, ReduceContext(seq, event_id, self._now_us))
        if again != reduction:
            raise AssertionError(f"a reducer of {event.event_type!r} is not pure: {reduction}, then {again}")
        _check_recorded(reduction, record, recorded)
        return Outcome(state, reduction)

    def _reduce(self, event: Event, context: ReduceContext) -> tuple[Reduction, State]:
        entries = self._reducers.of_type(event.event_type)
        after, reduction, _ = reduce_onto(self.state, entries, event, context, THREAD_ID)
        return reduction, after


@frozen
class Outcome:
    """The outcome of an event: the state after it, and its reduction; or the error, and the unchanged state."""

    state: State
    reduction: Reduction
    error: MemoryEngineError | None = None

    @property
    def operations(self) -> tuple[Operation, ...]:
        """The operations, in order."""
        return self.reduction.operations

    @property
    def chunks(self) -> tuple[Chunk, ...]:
        """The new chunks in their places."""
        return self.reduction.chunks

    def then(
        self,
        *,
        operations: Sequence[Operation | str] | None = None,
        chunk_texts: Sequence[str] | None = None,
        state: Sequence[str] | None = None,
    ) -> "Outcome":
        """Check the arguments that are given, and nothing else.

        `operations`: values, or lines such as `"UPDATE 1.0 -> 2.0"`; `chunk_texts`: the texts of
        the new chunks; `state`: the texts of all chunks after it, in order, children after
        their container.
        """
        if self.error is not None:
            raise self.error
        if operations is not None:
            found = zip(operations, self.operations, strict=False)
            seen = [describe(op) if isinstance(wanted, str) else op for wanted, op in found]
            seen += [describe(op) for op in self.operations[len(operations) :]]
            _expect("operations", list(operations), seen)
        if chunk_texts is not None:
            _expect("chunk_texts", list(chunk_texts), [chunk.text for chunk in self.chunks])
        if state is not None:
            _expect("state", list(state), [chunk.text for chunk in self.state.everything()])
        return self

    def then_raises(self, kind: type[Exception]) -> Exception:
        """Check that the event is refused with this error, or with one that this error caused; return it."""
        found: BaseException | None = self.error
        while found is not None:
            if isinstance(found, kind):
                return found
            found = found.__cause__
        raise AssertionError(f"expected {kind.__name__}, got {self.error!r}") from self.error


def given(*events: Event, plugins: Sequence[Plugin] = (), now_us: int = START_US) -> Scenario:
    """The state after these events, with the built-in reducers and those of the plug-ins.

    Event n gets the seq n, so its chunks have the ids `"n.0"`, `"n.1"`, … Raises what an
    event raises.
    """
    scenario = Scenario(plugins, now_us)
    for event in events:
        scenario.state = scenario.when(event).then().state
    return scenario


def registries(plugins: Sequence[Plugin]) -> tuple[EventRegistry, ReducerRegistry]:
    """The events and reducers of an engine with these plug-ins."""
    events, reducers = EventRegistry(), ReducerRegistry()
    for plugin in (*builtin_plugins(), *plugins):
        plugin.install(events, reducers)
    return events, reducers


def _check_recorded(reduction: Reduction, record: bytes, event: Event) -> None:
    decoded = decode_reduction(record)
    chunks = resolve_chunks(decoded, event)
    if Reduction(decoded.operations, chunks) != reduction:
        raise AssertionError(f"the log would give back {chunks} for {reduction.chunks}")


def _expect(what: str, expected: Sequence[object], found: Sequence[object]) -> None:
    if expected != found:
        raise AssertionError(f"{what}: expected {expected}, found {found}")
