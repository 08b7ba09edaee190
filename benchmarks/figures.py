"""One measured figure: what it is compared with, the bar it must reach, and how both are written down."""

import math
import statistics
from collections.abc import Sequence
from typing import Literal

from attrs import field, frozen


@frozen
class Reference:
    """The reference of a figure; without a measurement, no `value`, and `why` not."""

    name: str
    value: float | None
    why: str = ""


@frozen
class Bar:
    """The bar of a figure: its value, or its ratio to the reference, at most or at least this."""

    of: Literal["value", "ratio"]
    sign: Literal["<=", ">="]
    limit: float

    def __str__(self) -> str:
        return f"{self.of} {self.sign} {self.limit:g}"

    def allows(self, value: float) -> bool:
        """Whether `value` reaches the bar."""
        return value <= self.limit if self.sign == "<=" else value >= self.limit


@frozen(kw_only=True)
class Figure:
    """One line of a report. Without a value it was skipped, and `note` says why.

    `asserted` is false for a quick run, whose figures are worth nothing. `ratio_best`
    compares the best rounds of both sides, which noise cannot make better.
    """

    bench: str
    case: str
    value: float | None
    unit: str
    reference: Reference | None = None
    ratio_best: float | None = None
    bar: Bar | None = None
    asserted: bool = True
    note: str = ""
    detail: dict[str, float | int | str] = field(factory=dict)

    @property
    def ratio(self) -> float | None:
        """The value over the reference's."""
        if self.value is None or self.reference is None or not self.reference.value:
            return None
        return self.value / self.reference.value

    @property
    def ok(self) -> bool | None:
        """Whether the bar is reached; `None` without one. A figure that could not be compared has not reached it."""
        if self.bar is None or not self.asserted:
            return None
        compared = self.value if self.bar.of == "value" else self.ratio
        return compared is not None and self.bar.allows(compared)

    def as_json(self) -> dict[str, object]:
        """The line as plain values, numbers to four digits."""
        reference = None
        note = self.note
        if self.reference is not None:
            reference = {"name": self.reference.name, "value": _short(self.reference.value)}
            note = "; ".join(part for part in (note, self.reference.why) if part)
        return {
            "bench": self.bench,
            "case": self.case,
            "value": _short(self.value),
            "unit": self.unit,
            "reference": reference,
            "ratio": _short(self.ratio),
            "ratio_best": _short(self.ratio_best),
            "bar": str(self.bar) if self.bar is not None else None,
            "ok": self.ok,
            "note": note,
            "detail": {key: _short(v) if isinstance(v, float) else v for key, v in self.detail.items()},
        }


def _short(value: float | None) -> float | None:
    """Four significant digits, which is more than any of these figures is good for."""
    if value is None or not value or isinstance(value, int):
        return value
    return round(value, 3 - math.floor(math.log10(abs(value))))


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which `share` of the values lie."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


@frozen
class Rounds:
    """Times in nanoseconds, round by round, of one contender among several that took turns."""

    taken: list[list[int]] = field(factory=list)

    def add(self, times: list[int]) -> None:
        """One more round."""
        self.taken.append(times)

    @property
    def p50_us(self) -> float:
        """The median over all rounds."""
        return statistics.median(t for times in self.taken for t in times) / 1000

    @property
    def p99_us(self) -> float:
        """The 99th percentile over all rounds."""
        return quantile([t for times in self.taken for t in times], 0.99) / 1000

    @property
    def best_us(self) -> float:
        """The median of the best round."""
        return min(statistics.median(times) for times in self.taken) / 1000

    @property
    def mean_us(self) -> float:
        """The mean over all rounds."""
        return statistics.fmean(t for times in self.taken for t in times) / 1000
