"""The origin of an imported entry: from its metadata, and in words for a model."""

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from memory_engine.core.moments import moment

IMPORTED: Final[Literal["imported"]] = "imported"
"""The value of `origin` in the metadata of an entry that came from another system."""
FROM_TOOLS: Final[Literal["tool"]] = "tool"
"""The value of `origin` in the metadata of an entry that an agent kept after it had read a tool's output."""
NATIVE = "memory-engine"
"""The system of memories that come from another store of this library."""


def origin_note(metadata: Mapping[str, object]) -> str:
    """`imported from mem0, true until 2024-05-01`, or that a tool may have said it; empty for any other entry."""
    if metadata.get("origin") == FROM_TOOLS:
        return "after reading a tool's output"
    system = metadata.get("system")
    if metadata.get("origin") != IMPORTED or not isinstance(system, str):
        return ""
    ended = moment(metadata.get("invalid_at"))
    return f"imported from {system}" + (f", true until {ended.date().isoformat()}" if ended is not None else "")


def metadata_in(encoded: str) -> dict[str, object]:
    """The metadata of a row, which holds it as JSON."""
    return msgspec.json.decode(encoded, type=dict[str, object]) if encoded else {}


def imported_name(metadata: Mapping[str, object]) -> str:
    """The heading that an imported entry bears; empty if it has none."""
    name = metadata.get("name")
    return name if isinstance(name, str) else ""
