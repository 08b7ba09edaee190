"""The clock, the only place that reads the time, so that tests can set it; times, and their days in time zones."""

import time
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from typing import Protocol

from memory_engine.errors import InvalidArgument, MissingTimeZones

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DAY_US = 86_400_000_000
"""Microseconds per day."""
_EPOCH_DAY, _LAST_DAY = EPOCH.toordinal(), date.max.toordinal()


class Clock(Protocol):
    """Source of the time that events are recorded with. Correctness never depends on it."""

    def now_us(self) -> int:
        """Return microseconds since 1970-01-01 UTC."""
        ...


class SystemClock:
    """The operating system's clock."""

    def now_us(self) -> int:
        """Return microseconds since 1970-01-01 UTC."""
        return time.time_ns() // 1000


def to_us(moment: datetime) -> int:
    """Return the microseconds since 1970-01-01 UTC (negative before it) of a time with a time zone.

    Raises `ValueError` if `moment` is not a datetime, or is a naive one, which would be another time on another
    machine.
    """
    if not isinstance(moment, datetime):
        raise ValueError(f"{moment!r} is not a datetime; use datetime(..., tzinfo=UTC)")
    if moment.tzinfo is None:
        raise ValueError(f"{moment.isoformat()} has no time zone; use datetime(..., tzinfo=UTC)")
    return (moment - EPOCH) // timedelta(microseconds=1)


def to_datetime(us: int) -> datetime:
    """Return the time in UTC; out of range, the first or the last time that a datetime can represent."""
    try:
        return EPOCH + timedelta(microseconds=us)
    except OverflowError:  # written before times were checked: the data must stay readable
        return _FIRST if us < 0 else _LAST


_FIRST, _LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
_US_MIN, _US_MAX = to_us(_FIRST + timedelta(days=2)), to_us(_LAST - timedelta(days=2))


def checked_us(us: int) -> int:
    """Return `us` if every time zone can show it: the years 1 to 9999, except their first and last two days.

    Raises `ValueError`. Every stored time is checked by this function before it is written.
    """
    if type(us) is not int:
        raise ValueError(f"{us!r} is not a whole number of microseconds")
    if not _US_MIN <= us <= _US_MAX:
        raise ValueError(f"it is {to_datetime(us).isoformat()}; give a time between the years 1 and 9999")
    return us


def zone_of(name: str) -> tzinfo:
    """Return the time zone of an IANA name. `UTC` needs no time zone database.

    Raises `InvalidArgument` for another name, and `MissingTimeZones` on a machine without a database.
    """
    if name == "UTC":
        return UTC
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, TypeError, OSError):
        if not available_timezones():
            raise MissingTimeZones(name) from None
        raise InvalidArgument("timezone", name, "give an IANA name, such as 'Europe/Berlin' or 'UTC'") from None


def local_time(at_us: int, zone: tzinfo) -> datetime:
    """Return a time as the clocks of a zone show it; in UTC if the zone has no such date.

    Its `tzinfo` is the offset at that time, since two times of one zone compare by their clocks, even in the hour that
    clocks repeat.
    """
    at = to_datetime(at_us)
    if zone is UTC:
        return at
    try:
        offset = at.astimezone(zone).utcoffset()
        return at.astimezone(timezone(offset or timedelta()))
    except OverflowError:
        return at


def local_day(at_us: int, zone: tzinfo) -> date:
    """Return the day of a time in a zone, or the nearest day that a calendar can represent."""
    if zone is UTC:
        return date.fromordinal(min(max(_EPOCH_DAY + at_us // DAY_US, 1), _LAST_DAY))
    return local_time(at_us, zone).date()


def midnight_us(ordinal: int, zone: tzinfo) -> int:
    """Return the start of a day in a zone. Days are ordinals (`date.toordinal`), since the last day has a next one."""
    if zone is UTC or not 1 <= ordinal <= _LAST_DAY:
        return (ordinal - _EPOCH_DAY) * DAY_US
    return to_us(datetime.combine(date.fromordinal(ordinal), datetime.min.time(), zone))
