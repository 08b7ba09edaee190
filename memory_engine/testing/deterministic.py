"""Time and ids that a test sets: equal runs write equal logs, hash for hash."""

from hashlib import sha256

from memory_engine.ids import uuid7

START_US = 1_700_000_000_000_000
"""2023-11-14 22:13:20 UTC: where a `ManualClock` begins that is not told otherwise."""


class ManualClock:
    """A clock that stands still until it is advanced. `us` are microseconds since 1970, UTC."""

    def __init__(self, start_us: int = START_US) -> None:
        self.us = start_us

    def now_us(self) -> int:
        """The time it was last set to."""
        return self.us

    def advance(self, seconds: float) -> None:
        """Go on by so many seconds; a negative number sets it back, as real clocks are set back."""
        self.us += round(seconds * 1_000_000)


class SequentialIds:
    """Event ids (valid UUIDv7) and salts, counted and not drawn: two sources of one seed give the same."""

    def __init__(self, seed: str = "") -> None:
        self._seed = seed
        self._ids = 0
        self._salts = 0

    def event_id(self, now_us: int) -> str:
        """The next id."""
        self._ids += 1
        return uuid7(now_us // 1000, self._digest("id", self._ids)[:10])

    def salt(self) -> bytes:
        """The next 16 bytes."""
        self._salts += 1
        return self._digest("salt", self._salts)[:16]

    def _digest(self, kind: str, number: int) -> bytes:
        return sha256(f"{self._seed}/{kind}/{number}".encode()).digest()
