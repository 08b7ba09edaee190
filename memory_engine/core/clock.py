"""The clock: the only place that reads the time, so that tests can set it."""

import time
from datetime import UTC, datetime, timedelta
from typing import Protocol

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DAY_US = 86_400_000_000
"""Microseconds of a day."""


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

    Raises `ValueError` for what is not a datetime, and for a naive one, which would mean another moment on another
    machine.
    """
    if not isinstance(moment, datetime):
        raise ValueError(f"{moment!r} is not a datetime; use datetime(..., tzinfo=UTC)")
    if moment.tzinfo is None:
        raise ValueError(f"{moment.isoformat()} has no time zone; use datetime(..., tzinfo=UTC)")
    return (moment - EPOCH) // timedelta(microseconds=1)


def to_datetime(us: int) -> datetime:
    """The moment in UTC; the first or the last that a datetime can hold for one beyond them."""
    try:
        return EPOCH + timedelta(microseconds=us)
    except OverflowError:  # written before times were checked: what holds it must stay readable
        return _FIRST if us < 0 else _LAST


_FIRST, _LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
_US_MIN, _US_MAX = to_us(_FIRST + timedelta(days=2)), to_us(_LAST - timedelta(days=2))


def checked_us(us: int) -> int:
    """`us`, if it is a moment that every time zone can show: two days within the years 1 to 9999.

    Raises `ValueError`. Every time that is kept is checked so before it is written.
    """
    if type(us) is not int:
        raise ValueError(f"{us!r} is not a whole number of microseconds")
    if not _US_MIN <= us <= _US_MAX:
        raise ValueError(f"it is {to_datetime(us).isoformat()}; give a time between the years 1 and 9999")
    return us
