"""The clock: the only place that reads the time, so that tests can set it."""

import time
from datetime import UTC, datetime, timedelta
from typing import Protocol

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Clock(Protocol):
    """Gives the time that events are recorded with. Correctness never depends on it."""

    def now_us(self) -> int:
        """Microseconds since 1970-01-01 UTC."""
        ...


class SystemClock:
    """The operating system's clock."""

    def now_us(self) -> int:
        """Microseconds since 1970-01-01 UTC."""
        return time.time_ns() // 1000


def to_us(moment: datetime) -> int:
    """Microseconds since 1970 (negative before it) of a moment with a time zone.

    Raises `ValueError` for a naive datetime, which would mean another moment on another machine.
    """
    if moment.tzinfo is None:
        raise ValueError(f"{moment.isoformat()} has no time zone; use datetime(..., tzinfo=UTC)")
    return (moment - EPOCH) // timedelta(microseconds=1)


def to_datetime(us: int) -> datetime:
    """The moment in UTC."""
    return EPOCH + timedelta(microseconds=us)
