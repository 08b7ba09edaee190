"""The reducer for changes of views, which projections fold: the state of chunks stays as it is."""

from memory_engine.events import Event
from memory_engine.reducing import NOTHING, ReduceContext, Reduction
from memory_engine.state import StateView


def reduce_view_change(_view: StateView, _event: Event, _ctx: ReduceContext) -> Reduction:
    """Nothing changes for the model's context."""
    return NOTHING
