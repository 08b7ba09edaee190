"""Moments as files of other programs write them."""

from collections.abc import Mapping
from datetime import UTC, datetime

from memory_engine.core.clock import checked_us, to_datetime, to_us

_KEYS = ("timestamp", "created_at", "createdAt", "create_time", "created", "ts", "time", "date")
_PER_SECOND = ((1e17, 1_000), (1e14, 1), (1e11, 1 / 1_000))
"""From which size on a number counts nano-, micro- or milliseconds, and how many of them are a microsecond."""


def moment(value: object) -> datetime | None:
    """The moment of an ISO 8601 text or of a number since 1970, in whichever unit; `None` if it is neither.

    Without a zone it is UTC.
    """
    try:
        if isinstance(value, str):
            return _checked_datetime(_of_text(value.strip()))
        if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
            return None
        us = next((value / per for size, per in _PER_SECOND if value >= size), value * 1_000_000)
        return _checked_datetime(to_datetime(round(us)))
    except (ValueError, OverflowError):
        return None


def moment_of(value: Mapping[str, object]) -> datetime | None:
    """The moment under whichever usual key an object has it."""
    return next((found for key in _KEYS if key in value and (found := moment(value[key])) is not None), None)


def _of_text(text: str) -> datetime:
    if not text or not text[0].isdigit() or text.isdigit() or len(text) < 10:
        if text.replace(".", "", 1).isdigit() and len(text) > 8:
            found = moment(float(text))
            if found is not None:
                return found
        raise ValueError(text)
    found = datetime.fromisoformat(text)
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def _checked_datetime(found: datetime) -> datetime:
    checked_us(to_us(found))
    return found
