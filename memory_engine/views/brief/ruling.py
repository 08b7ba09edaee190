"""The ruling on a statement: its status, the event that decided it, and its worth."""

from typing import Literal

import msgspec

Status = Literal["stands", "spent", "superseded"]
"""Whether a statement still applies, was dealt with, or was replaced by a later statement of its speaker."""


class Ruling(msgspec.Struct, frozen=True, gc=False):
    """The status of a statement, the seq of the event that decided it (0: none), and its worth (0: none)."""

    status: Status
    by: int = 0
    worth: float = 0.0
