"""What a request asks: its parameters, each known, given once, and of its kind."""

from collections.abc import Collection, Mapping
from urllib.parse import parse_qsl

from attrs import frozen

from memory_engine.errors import InvalidInput
from memory_engine.errors.base import facts

TOKEN = "token"
"""The parameter that every request may have."""
WHOLE_MAX = 2**53 - 1
"""The greatest whole number that a page's scripts hold exactly."""


@facts
class WrongQuery(InvalidInput):
    """A parameter of a request that cannot be taken as it is."""

    parameter: str
    value: str
    why: str

    def __str__(self) -> str:
        given = f" ({self.value[:200]!r})" if self.value else ""
        return f"parameter {self.parameter!r}{given}: {self.why}"


@frozen
class Query:
    """The parameters of one request by name."""

    given: Mapping[str, str]

    @classmethod
    def parse(cls, raw: bytes, known: Collection[str]) -> "Query":
        """From the bytes behind the `?`. Raises `WrongQuery` for what is not `known`, comes twice, or is no UTF-8."""
        try:
            pairs = parse_qsl(raw.decode("ascii"), keep_blank_values=True, strict_parsing=bool(raw), errors="strict")
        except ValueError as error:  # UnicodeDecodeError is one
            raise WrongQuery("?", ascii(raw), f"it cannot be read: {error}") from None
        given: dict[str, str] = {}
        for name, value in pairs:
            if name == TOKEN:
                continue
            if name not in known:
                raise WrongQuery(name, value, f"there is none; there are {', '.join(sorted(known)) or 'none at all'}")
            if name in given:
                raise WrongQuery(name, value, "it is given twice")
            given[name] = value
        return cls(given)

    def text(self, name: str, default: str | None = None) -> str:
        """A text; without a default it must be there, and not be empty."""
        value = self.given.get(name, "")
        if value:
            return value
        if default is None:
            raise WrongQuery(name, "", "it is missing")
        return default

    def number(self, name: str, default: int | None = None, *, least: int = 0, most: int = WHOLE_MAX) -> int:
        """A whole number within the bounds; without a default it must be there."""
        value = self.given.get(name, "")
        if not value:
            if default is None:
                raise WrongQuery(name, "", "it is missing")
            return default
        if not (value.isascii() and value.isdecimal()) or len(value) > len(str(WHOLE_MAX)):
            raise WrongQuery(name, value, "it is no whole number from 0 on")
        found = int(value)
        if not least <= found <= most:
            raise WrongQuery(name, value, f"it is not within {least} and {most}")
        return found

    def number_if_given(self, name: str, *, least: int = 0, most: int = WHOLE_MAX) -> int | None:
        """A whole number, or `None` where there is none."""
        return self.number(name, least=least, most=most) if self.given.get(name) else None


@facts
class TooMuch(InvalidInput):
    """An answer that would take minutes, which nobody waits for in front of a page."""

    what: str
    chunks: int

    def __str__(self) -> str:
        return f"{self.what} of a state of {self.chunks:,} chunks takes too long for a page: compact the thread"
