"""Calls and their outcomes: which result answers which call, and whether it worked."""

from collections.abc import Sequence

import msgspec

from memory_engine.compactors.extractive.entries import Entry

ERROR_PREFIXES = ("error", "traceback", "exception", "fatal", "failed")


class Action(msgspec.Struct, frozen=True):
    """A call and its outcome as places in the entries; -1 where one of them is missing."""

    call: int
    outcome: int

    @property
    def place(self) -> int:
        """Where the action stands in the input."""
        return self.call if self.call >= 0 else self.outcome


def pair_calls(entries: Sequence[Entry]) -> tuple[Action, ...]:
    """Each outcome with the latest open call of its id (ids may repeat), in the order of the calls."""
    open_calls: dict[str, list[int]] = {}
    outcome_of: dict[int, int] = {}
    actions: list[Action] = []
    for index, entry in enumerate(entries):
        if entry.kind == "tool_call":
            open_calls.setdefault(entry.call_id, []).append(index)
        elif entry.kind in ("tool_result", "error"):
            waiting = open_calls.get(entry.call_id, [])
            if waiting:
                outcome_of[waiting.pop()] = index
            elif entry.kind == "tool_result":
                actions.append(Action(-1, index))
    actions.extend(Action(i, outcome_of.get(i, -1)) for i, entry in enumerate(entries) if entry.kind == "tool_call")
    return tuple(sorted(actions, key=lambda action: action.place))


def failed(entry: Entry) -> bool:
    """Whether an outcome is an error, by its flag or by how tools begin their errors."""
    return entry.failed or entry.kind == "error" or entry.text.lstrip()[:9].lower().startswith(ERROR_PREFIXES)
