"""Reducers: pure functions from (view, event, ctx) to operations and chunks.

Unlike in Redux, a reducer returns operations, not a state, so that the log can hold each event's changes.
"""

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Protocol, TypeVar

import msgspec

from memory_engine.core.arguments import with_tuples
from memory_engine.core.chunks import Chunk
from memory_engine.core.events.base import Event
from memory_engine.core.executor import applied, apply_to_draft, check_ids
from memory_engine.core.operations import Add, Operation
from memory_engine.core.state import Placed, State, StateDraft, StateView
from memory_engine.core.tokens import estimate_chunk, recorded_tokens
from memory_engine.errors import DuplicateRegistration, EventRefused, InvalidOperation, ReducerError, UnknownReducer

if TYPE_CHECKING:
    from random import Random

_replaced = msgspec.structs.replace


class Reduction(msgspec.Struct, frozen=True, gc=False):
    """The effect of an event: operations in order, and the new chunks that they place. Lists work too."""

    operations: tuple[Operation, ...] = ()
    chunks: tuple[Chunk, ...] = ()


NOTHING = Reduction()
"""The reduction of an event that leaves the state unchanged."""


class ReduceContext(msgspec.Struct, eq=False):
    """Time, ids and randomness for reducers, all derived from the event: same log, same bytes."""

    seq: int
    event_id: str
    now_us: int
    tokens_of_text: Callable[[str], int] = recorded_tokens
    reducer: str = ""
    _made: int = 0

    def new_id(self) -> str:
        """The next chunk id of this event: `"<seq>.<n>"`, counted over all its reducers in order."""
        made = self._made
        self._made = made + 1
        return f"{self.seq}.{made}"

    @property
    def random(self) -> "Random":
        """A generator seeded by the event's id and the reducer's name; each access returns a new one."""
        from random import Random  # no reducer of this package needs one

        return Random(f"{self.event_id}/{self.reducer}")


E_contra = TypeVar("E_contra", bound=Event, contravariant=True)


class Reducer(Protocol[E_contra]):
    """Pure, synchronous, total: no clock, no randomness but `ctx`'s, no I/O, no mutation.

    To refuse an event that does not fit the state, raise an `InvalidOperation` that says why.
    """

    def __call__(self, view: StateView, event: E_contra, ctx: ReduceContext, /) -> Reduction:
        """The effect of `event` on the state in `view`."""
        ...


class RegisteredReducer(msgspec.Struct, frozen=True):
    """A reducer with its name and position."""

    name: str
    event_type: str
    reduce: Callable[[StateView, Event, ReduceContext], Reduction]
    order: int = 0


class ReducerRegistry:
    """The reducers that one engine runs. Several for a type run by `order`, then by registration."""

    def __init__(self) -> None:
        self._by_type: dict[str, tuple[RegisteredReducer, ...]] = {}
        self._names: dict[str, str] = {}

    def copy(self) -> "ReducerRegistry":
        """A copy with the same reducers, independent of this one."""
        copied = ReducerRegistry()
        copied._by_type.update(self._by_type)
        copied._names.update(self._names)
        return copied

    def add(self, event_class: type[Event], reducer: Reducer[Event], *, name: str = "", order: int = 0) -> None:
        """Run `reducer` for events of a class. Built-ins have order 0.

        Raises `DuplicateRegistration` if the name (default: the function's) is taken.
        """
        name = name or getattr(reducer, "__name__", type(reducer).__name__)
        self.add_for(event_class.event_type, reducer, name=name, order=order)

    def add_for(self, event_type: str, reducer: Reducer[Event], *, name: str, order: int = 0) -> None:
        """Run `reducer` for events of the class of this name, which may not be loaded yet."""
        if name in self._names:
            raise DuplicateRegistration("reducer", name)
        self._names[name] = event_type
        self._insert(RegisteredReducer(name, event_type, reducer, order))

    def replace(self, name: str, reducer: Reducer[Event]) -> None:
        """Replace the function of the reducer `name`. Raises `UnknownReducer`, a `KeyError`, if there is none."""
        self._check_known(name)
        event_type = self._names[name]
        self._by_type[event_type] = tuple(
            RegisteredReducer(name, event_type, reducer, old.order) if old.name == name else old
            for old in self._by_type[event_type]
        )

    def remove(self, name: str) -> None:
        """Remove the reducer `name`. Raises `UnknownReducer`, a `KeyError`, if there is none."""
        self._check_known(name)
        event_type = self._names.pop(name)
        self._by_type[event_type] = tuple(old for old in self._by_type[event_type] if old.name != name)

    def of_type(self, event_type: str) -> tuple[RegisteredReducer, ...]:
        """The reducers for a type, in the order they run."""
        return self._by_type.get(event_type, ())

    def names(self) -> tuple[str, ...]:
        """Every registered name."""
        return tuple(self._names)

    def _check_known(self, name: str) -> None:
        if name not in self._names:
            from difflib import get_close_matches  # for one that is mistaken

            raise UnknownReducer(name, tuple(get_close_matches(str(name), list(self._names), n=2)))

    def _insert(self, entry: RegisteredReducer) -> None:
        entries = (*self._by_type.get(entry.event_type, ()), entry)
        self._by_type[entry.event_type] = tuple(sorted(entries, key=lambda e: e.order))


def reduce_onto(
    state: State, reducers: Sequence[RegisteredReducer], event: Event, ctx: ReduceContext, thread_id: str
) -> tuple[State, Reduction, Mapping[str, Placed | None]]:
    """Reduce an event onto a state: the state after it, the whole reduction, and each new place by chunk id.

    `None` is the place of a removed chunk. Raises what `reduce_into` raises; `state` itself is as it was.
    """
    if len(reducers) != 1:
        draft = state.draft()
        whole = reduce_into(draft, reducers, event, ctx, thread_id)
        return draft.freeze(ctx.seq), whole, draft.touched
    try:
        proposal = _proposed(state, reducers[0], event, ctx, thread_id)
        after, chunks, places = applied(state, proposal.operations, proposal.chunks, seq=ctx.seq)
    except ReducerError:
        raise
    except Exception as error:  # the boundary to user code: every error becomes the typed one
        raise _as_reducer_error(error, thread_id, event, reducers[0]) from error
    return after, proposal if chunks is proposal.chunks else Reduction(proposal.operations, tuple(chunks)), places


def reduce_into(
    draft: StateDraft, reducers: Iterable[RegisteredReducer], event: Event, ctx: ReduceContext, thread_id: str
) -> Reduction:
    """Run the reducers in turn on the draft; each sees the changes of the ones before.

    Returns the whole reduction, with tokens set. Raises `ReducerError` naming event, reducer and operation,
    `EventRefused` if a reducer refuses the event; do not use the draft after that.
    """
    whole = NOTHING
    for entry in reducers:
        reduction = run_reducer(draft, entry, event, ctx, thread_id)
        if whole is NOTHING:
            whole = reduction
        else:
            whole = Reduction(whole.operations + reduction.operations, whole.chunks + reduction.chunks)
    draft.seq = ctx.seq
    return whole


def run_reducer(
    draft: StateDraft, entry: RegisteredReducer, event: Event, ctx: ReduceContext, thread_id: str
) -> Reduction:
    """Run one reducer on the draft: see `reduce_into`. It leaves the draft's `seq` alone where it does nothing."""
    try:
        proposal = _proposed(draft, entry, event, ctx, thread_id)
        if proposal is NOTHING:
            return NOTHING
        chunks = apply_to_draft(draft, proposal.operations, proposal.chunks, seq=ctx.seq)
        return Reduction(proposal.operations, tuple(chunks))
    except ReducerError:
        raise
    except Exception as error:  # the boundary to user code: every error becomes the typed one
        raise _as_reducer_error(error, thread_id, event, entry) from error


def _proposed(view: StateView, entry: RegisteredReducer, event: Event, ctx: ReduceContext, thread_id: str) -> Reduction:
    """What a reducer wants done, its chunks' ids checked and their tokens set; `NOTHING` where that is nothing."""
    ctx.reducer = entry.name
    try:
        reduction: object = entry.reduce(view, event, ctx)
    except InvalidOperation as error:
        raise EventRefused(thread_id, event.event_type, entry.name, "", str(error)) from error
    if not isinstance(reduction, Reduction):
        raise _no_reduction(reduction, thread_id, event, entry)
    if not reduction.operations and not reduction.chunks:
        return NOTHING
    chunks = tuple(map(_stamped, reduction.chunks, repeat(ctx.tokens_of_text)))
    check_ids(chunks, seq=ctx.seq)
    return Reduction(tuple(reduction.operations), chunks)


def _no_reduction(returned: object, thread_id: str, event: Event, entry: RegisteredReducer) -> ReducerError:
    if isinstance(returned, Coroutine):
        returned.close()  # else Python warns that it was not awaited
    why = f"it returned a {type(returned).__name__}, not a Reduction"
    return ReducerError(thread_id, event.event_type, entry.name, "", why)


def _as_reducer_error(error: Exception, thread_id: str, event: Event, entry: RegisteredReducer) -> ReducerError:
    """The error of a reducer that raised, or of what it returned."""
    if isinstance(error, InvalidOperation):
        operation, why = str(getattr(error, "operation", "")), str(error)
    else:
        operation, why = "", f"{type(error).__name__}: {error}"
    return ReducerError(thread_id, event.event_type, entry.name, operation, why)


def _stamped(chunk: Chunk, tokens_of_text: Callable[[str], int]) -> Chunk:
    content: object = chunk.content  # a reducer's lists; looked at one by one, as every dispatch comes by
    calls: object = chunk.calls
    parent_ids: object = chunk.parent_ids
    if type(parent_ids) is list or type(content) is list or type(calls) is list:
        chunk = with_tuples(chunk, "parent_ids", "content", "calls")
    return _replaced(chunk, tokens=estimate_chunk(chunk, tokens_of_text))


def appended(chunk: Chunk) -> Reduction:
    """Appends one new chunk to the state."""
    return Reduction((Add(chunk.id),), (chunk,))


def reduce_view_change(_view: StateView, _event: Event, _ctx: ReduceContext) -> Reduction:
    """Change no chunk: projections fold the event, and the model's context stays the same."""
    return NOTHING
