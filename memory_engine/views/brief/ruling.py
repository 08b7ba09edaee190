"""The ruling on a statement: what became of it, by which event, and what it is worth."""

from typing import Literal

import msgspec

Status = Literal["stands", "spent", "superseded"]
"""Whether a statement still holds, was served by what happened, or was replaced by its speaker's later words."""


class Ruling(msgspec.Struct, frozen=True, gc=False):
    """What became of a statement, by which event (0: none), and its worth (0: none)."""

    status: Status
    by: int = 0
    worth: float = 0.0
