"""Errors of industry patterns."""

from attrs import frozen

from memory_engine.errors.base import MemoryEngineError
from memory_engine.errors.inputs import InvalidInput


@frozen
class NotJoined(MemoryEngineError):
    """A tenant asked for the patterns of an industry that it has not joined. `industry` is empty for any."""

    tenant_id: str
    industry: str

    def __str__(self) -> str:
        which = f"industry {self.industry!r}" if self.industry else "no industry"
        wanted = repr(self.industry) if self.industry else '"..."'
        has = "has not joined" if self.industry else "has joined"
        return (
            f"tenant {self.tenant_id!r} {has} {which}: patterns are read and shared by those who joined; "
            f"await engine.tenant({self.tenant_id!r}).patterns.join({wanted}, by=...)"
        )


@frozen
class InvalidPattern(InvalidInput):
    """Something that cannot be proposed, approved or asked for."""

    field: str
    value: object
    why: str

    def __str__(self) -> str:
        shown = repr(self.value)
        shown = shown if len(shown) <= 60 else shown[:57] + "..."
        return f"patterns cannot take {self.field}={shown}: {self.why}; nothing was written"


@frozen
class UnknownPattern(InvalidInput):
    """A pattern, or a proposal (a number), that this tenant has not."""

    tenant_id: str
    id: str

    def __str__(self) -> str:
        return (
            f"tenant {self.tenant_id!r} has no {self.id}: `review()` lists what waits for a decision, `shared()` "
            "what it shares; nothing was written"
        )
