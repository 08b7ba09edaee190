"""What must stay together: one invariant a file, and the atoms that follow from all of them.

A compaction takes whole atoms, and none that is open; a context includes whole atoms.
"""

from memory_engine.context.invariants.atoms import Atom, Group, Invariant, atoms_of
from memory_engine.context.invariants.calls import calls_with_results
from memory_engine.context.invariants.clarifications import clarifications_with_answers
from memory_engine.context.invariants.long_running import long_running_calls
from memory_engine.context.invariants.responses import parts_of_one_response
from memory_engine.context.invariants.thinking import thinking_tool_loops

INVARIANTS: tuple[Invariant, ...] = (
    calls_with_results,
    long_running_calls,
    parts_of_one_response,
    thinking_tool_loops,
    clarifications_with_answers,
)

__all__ = ["INVARIANTS", "Atom", "Group", "Invariant", "atoms_of"]
