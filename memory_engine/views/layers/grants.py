"""The grants of a memory: which agents may read or write which of its layers."""

import msgspec

from memory_engine.core.events.delivery import Destination
from memory_engine.core.events.memory import MemoryForget
from memory_engine.core.records import RecordedEvent
from memory_engine.projections.base import ProjectionMode, Rows
from memory_engine.views.layers.events import Layer, MemoryGranted, MemoryRevoked


class GrantRow(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A grant of this agent's memory to another agent, by this event."""

    grantee: Destination
    layers: tuple[Layer, ...]
    write: bool
    seq: int
    event_id: str


class GrantsFold:
    """The grants that hold, one for an agent: a later one takes the place of the former."""

    name = "grants"
    version = 1
    mode: ProjectionMode = "inline"
    row = GrantRow
    events = (MemoryGranted, MemoryRevoked, MemoryForget)
    lazy = False

    def apply(self, rows: Rows[GrantRow], event: RecordedEvent) -> None:
        """Grant, revoke."""
        match event.event:
            case MemoryGranted(grantee=grantee, layers=layers, write=write):
                rows.put(grant_key(grantee), GrantRow(grantee, layers, write, event.seq, event.id))
            case MemoryRevoked(grantee=grantee):
                rows.drop(grant_key(grantee))
            case MemoryForget(seqs=seqs):
                for key in [key for key, grant in rows.items() if grant.seq in seqs]:
                    rows.drop(key)


def grant_key(grantee: Destination) -> str:
    """A key that differs for any two agents, with any ids."""
    return msgspec.json.encode((grantee.kind, grantee.tenant_id, grantee.id)).decode()


GRANTS = GrantsFold()
