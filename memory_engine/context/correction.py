"""Correction of the token count by what providers report for the contexts of a thread.

A loop asks for a context, and its model's response says how many tokens the request had. `ContextAsked`, recorded in
the same commit directly before the response, holds our own count of that context. The correction is a fold over these
pairs: the same log gives the same correction, also as of an earlier seq. It changes in steps, so that the window of a
loop stays still.

A count is increased at once, but decreased only after three reports. The correction follows the newest model, and errs
on the safe side by 3 %, or by more if the latest reports differ.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec
from attrs import evolve
from msgspec.structs import replace

from memory_engine.context.context import Context, Spent
from memory_engine.core.events.context import ContextAsked
from memory_engine.core.lazy import lazy_module
from memory_engine.core.threads import Head
from memory_engine.errors import EventDecodeError, StorageError
from memory_engine.runtime.kernel import Kernel
from memory_engine.store.reader import LogReader

if TYPE_CHECKING:
    from memory_engine.formats import native
else:
    native = lazy_module("memory_engine.formats.native")

REPORTS_MIN = 3
"""Number of reports of one model required before a count decreases, and the number of latest reports that count."""
REPORTS_MAX = 16
"""Maximum number of a thread's latest reports that are read."""
MARGIN_PERCENT = 3
"""Margin by which a new correction exceeds what the latest reports require, in percent."""
SLACK_PERCENT = 6
"""Margin by which an existing correction may exceed what the latest reports require, in percent."""
COUNTED_MIN = 100
"""Minimum count of a context that is compared: what a caller adds to a smaller one may be larger than the context."""
PERCENT_MIN, PERCENT_MAX = 40, 160
"""Range outside which a report does not describe the context, but a recording's own request or one with much more
content.

Our count is 1.0 to 1.4 times that of one tokenizer, and tokenizers differ by less than half."""
FOLLOWING_MAX = 16
"""Maximum number of events of one response; the last one reports the usage."""
_TYPE = ContextAsked.event_type


class UsageReport(msgspec.Struct, frozen=True):
    """Our own count of a context, and the tokens of the request that a provider reports for it."""

    counted: int
    used: int
    model: str = ""

    @property
    def percent(self) -> int:
        """Reported tokens in percent of ours, rounded up."""
        return _up(100 * self.used, self.counted)


class Correction(msgspec.Struct, frozen=True):
    """The multiplier of our count, in percent, and the number of reports that it is based on."""

    percent: int = 100
    usages: int = 0

    @property
    def factor(self) -> float:
        """Multiplier of our count."""
        return self.percent / 100

    def real(self, counted: int) -> int:
        """Return our own count, corrected and rounded up."""
        return _up(counted * self.percent, 100)

    def counted(self, real: int) -> int:
        """Return the number of tokens by our own count that fit into `real` corrected tokens."""
        return real * 100 // self.percent

    def applied(self, context: Context) -> Context:
        """Return the context with corrected token counts, and with the correction recorded in it."""
        if not self.usages:
            return context
        corrected = evolve(context, spent=self._spent(context.spent))
        if self.percent == 100:
            return corrected
        return evolve(
            corrected,
            tokens=self.real(context.tokens),
            thinking_tokens=self.real(context.thinking_tokens),
            tokenizer=f"{context.tokenizer}, corrected",
        )

    def _spent(self, spent: Spent) -> Spent:
        """Return the parts corrected, such that their sum equals the corrected total."""
        parts: dict[str, int] = {}
        before = 0
        for name in ("pinned", "standing", "summary", "recent", "recalled"):
            after = before + int(getattr(spent, name))
            parts[name] = self.real(after) - self.real(before)
            before = after
        return replace(spent, **parts, correction=self.factor, usages=self.usages)


def learned(reports: Sequence[UsageReport]) -> Correction:
    """Return the correction after these reports, which are in the order of the log. Pure."""
    percent, latest = 100, list[UsageReport]()
    for report in reports:
        if report.counted < COUNTED_MIN or not PERCENT_MIN <= report.percent <= PERCENT_MAX:
            continue
        latest = [*[one for one in latest if one.model == report.model][1 - REPORTS_MIN :], report]
        most = max(one.percent for one in latest)
        is_far = _up(most * (100 + SLACK_PERCENT), 100) < percent and len(latest) == REPORTS_MIN
        if percent < most or is_far:
            percent = _up(most * (100 + MARGIN_PERCENT), 100)
    return Correction(percent, len(latest))


async def read_reports(reader: LogReader, thread_id: str, *, upto: int) -> list[UsageReport]:
    """Return the latest reports of a thread up to a seq, in order."""
    counted: dict[int, int] = {}
    reports = 0
    async for stored, event in reader.events_of(ContextAsked, thread_id, upto=upto):
        if event.counted and event.reports > reports:
            counted[stored.seq] = event.counted
        reports = event.reports
    return await _reported(reader, thread_id, dict(list(counted.items())[-REPORTS_MAX:]), upto)


async def _reported(reader: LogReader, thread_id: str, counted: dict[int, int], upto: int) -> list[UsageReport]:
    """Return the reports of the responses that directly follow these seqs."""
    behind = {seq: range(seq + 1, min(seq + FOLLOWING_MAX, upto) + 1) for seq in counted}
    rows = await reader.rows_at(thread_id, {at for seqs in behind.values() for at in seqs})
    found = []
    for seq, seqs in behind.items():
        events = (reader.decode(thread_id, rows[at]).event for at in seqs if at in rows)
        usages = (one for event in events for one in native.reported_usages(getattr(event, "native", "")))
        if (one := next(usages, None)) is not None:
            found.append(UsageReport(counted[seq], one.usage.input_tokens, one.model))
    return found


class _KnownCorrection(msgspec.Struct, frozen=True):
    """A thread's correction as of its latest `ContextAsked`."""

    seq: int
    correction: Correction


async def correction_at(kernel: Kernel, thread_id: str, head: Head, *, at: int | None) -> Correction:
    """Return the correction of a thread's counts, at its head or as of a seq; none if the log cannot be read.

    At the head, the log is read again only after a new `ContextAsked`.
    """
    mark = head.marks.get(_TYPE, 0)
    if not mark:
        return Correction()
    known = kernel.caches.get(thread_id, "correction", _KnownCorrection) if at is None else None
    if known is not None and known.seq == mark:
        return known.correction
    correction = Correction()
    with suppress(StorageError, EventDecodeError):
        upto = at if at is not None else head.seq
        correction = learned(await read_reports(kernel.reader, thread_id, upto=upto))
        if at is None:
            kernel.caches.put(thread_id, "correction", _KnownCorrection(mark, correction))
    return correction


def _up(value: int, by: int) -> int:
    return -(-value // by)
