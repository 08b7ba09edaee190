"""Time zones: the local days of stored times, which are microseconds since 1970-01-01 UTC."""

from datetime import UTC, date, datetime, timedelta, timezone, tzinfo

from memory_engine.core.clock import DAY_US, EPOCH, to_datetime, to_us
from memory_engine.errors import InvalidArgument, MissingTimeZones

_EPOCH_DAY = EPOCH.toordinal()
_LAST_DAY = date.max.toordinal()


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
