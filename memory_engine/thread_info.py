"""What a thread is and where it stands, as one value."""

from collections.abc import Mapping
from datetime import datetime

import msgspec

from memory_engine.clock import to_datetime
from memory_engine.persistence import CompactionPolicy, ForkPoint, Head, ThreadRecord


class ThreadInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What a thread is and where it stands. `events` counts a fork's shared past too."""

    id: str
    kind: str
    user_id: str
    tenant_id: str
    agent_id: str
    parent_id: str
    metadata: Mapping[str, str]
    policy: CompactionPolicy | None
    created_at: datetime
    forked_from: ForkPoint | None
    status: str
    events: int
    head_hash: str
    chunks: int
    tokens: int

    @classmethod
    def of(cls, record: ThreadRecord, head: Head) -> "ThreadInfo":
        """From what the store keeps."""
        return cls(
            id=record.id,
            kind=record.kind,
            user_id=record.user_id,
            tenant_id=record.tenant_id,
            agent_id=record.agent_id,
            parent_id=record.parent_id,
            metadata=record.metadata,
            policy=record.policy,
            created_at=to_datetime(record.created_at_us),
            forked_from=record.forked_from,
            status=head.status,
            events=head.seq,
            head_hash=head.hash.hex(),
            chunks=head.chunks,
            tokens=head.tokens,
        )
