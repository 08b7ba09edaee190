"""What an agent lets others see of its memory: a fact in its own log."""

import msgspec

from memory_engine.events import Destination, Layer, MemoryForget, MemoryGranted, MemoryRevoked
from memory_engine.projections.base import ProjectionMode, Rows
from memory_engine.records import RecordedEvent


class GrantRow(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What an agent may see of this one's memory, by the grant of this event."""

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
    """Different for any two agents, whatever their ids hold."""
    return msgspec.json.encode((grantee.kind, grantee.tenant_id, grantee.id)).decode()


GRANTS = GrantsFold()
