"""Dates as files write them."""

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime


def as_date(text: str) -> datetime | None:
    """A day or a moment in ISO 8601, in UTC where it has no time zone; `None` for anything else."""
    try:
        found = datetime.fromisoformat(text.strip())
        return in_utc(found)
    except (ValueError, OverflowError):
        return None


def as_mail_date(text: str) -> datetime | None:
    """The moment of a `Date:` line; `None` for one that nobody can read."""
    try:
        return in_utc(parsedate_to_datetime(text))
    except (ValueError, OverflowError, TypeError):
        return None


def from_seconds(seconds: float) -> datetime | None:
    """The moment so many seconds after the beginning of 1970."""
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return None


def in_utc(moment: datetime) -> datetime:
    """The moment in UTC, which one without a time zone is taken for."""
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
