"""The route that gives the store at a glance: events a day, the largest threads, compactions, failures, models."""

from collections import Counter
from collections.abc import Sequence
from functools import reduce

from attrs import define, field

from memory_engine.administration.days import events_by_day
from memory_engine.core.json_form import as_data, named
from memory_engine.core.threads import ThreadInfo
from memory_engine.engine import kernel_of
from memory_engine.errors import IntegrityError
from memory_engine.errors.effects import Usage
from memory_engine.inspector.annals import Annals, ModelUse
from memory_engine.inspector.answers import Inspection, Query, Route
from memory_engine.replay.what_if.change import Compactions
from memory_engine.store.protocol import ThreadFilter

DAYS = 30
DAYS_OF = 300
"""How many of the most recent threads are counted by day."""
WALKED_AT_ONCE = 4_000
"""The most events that one request reads: some tenths of a second."""
LOG_EVENTS = 20
"""To begin to read a log takes as long as to read so many events."""
COUNTED = 100_000
"""How many events of the most recent threads are counted for failures and models by default."""
LISTED = 8


async def glance(inspection: Inspection, query: Query) -> object:
    """The store at a glance. Logs are counted piece by piece, the most recent threads first.

    `counted` of `events` are included so far; `is_done`: asking again with the same `most` gives no more.
    """
    most = query.number("most", COUNTED)
    found = await kernel_of(inspection.engine).store.listed(ThreadFilter(order="updated"))
    threads = [ThreadInfo.of(*one) for one in found]

    async def counted_days() -> dict[str, int]:
        counts = await events_by_day(kernel_of(inspection.engine), threads[:DAYS_OF], DAYS)
        return {day.isoformat(): count for day, count in counts.items()}

    days = await inspection.days.now(counted_days)
    sums, is_done = await _recent_sums(inspection, threads, most)
    largest = sorted(threads, key=lambda info: -info.tokens)[:LISTED]
    return {
        "days": days,
        "days_of": min(DAYS_OF, len(threads)),
        "threads": len(threads),
        "events": sum(info.events for info in threads if info.forked_from is None),
        "largest": [_glance_row(info) | {"tokens": info.tokens} for info in largest],
        "damaged": [info.id for info in threads if info.damaged],
        **sums.as_data(),
        "is_done": is_done,
    }


def _glance_row(info: ThreadInfo) -> dict[str, object]:
    return {"id": info.id, "kind": info.kind, "events": info.events}


@define
class _Sums:
    """The totals of many threads' logs, without forks, whose shared past would count twice."""

    counted: int = 0
    compactions: Compactions = Compactions()
    failures: Counter[str] = field(factory=Counter)
    models: dict[tuple[str, str], ModelUse] = field(factory=dict)
    failing: list[dict[str, object]] = field(factory=list)
    spending: list[dict[str, object]] = field(factory=list)

    def add(self, info: ThreadInfo, annals: Annals) -> None:
        """Add a thread's counts."""
        if not (annals.models or annals.failures or annals.compactions.completed):  # as of nearly all of many
            return
        one, other = self.compactions, annals.compactions
        self.compactions = Compactions(
            completed=one.completed + other.completed,
            failed=one.failed + other.failed,
            tokens_before=one.tokens_before + other.tokens_before,
            tokens_after=one.tokens_after + other.tokens_after,
            usage=one.usage.plus(other.usage),
        )
        self.failures += annals.failures
        for key, used in annals.models.items():
            self.models.setdefault(key, ModelUse(model=used.model, purpose=used.purpose)).add(used)
        if failures := annals.failures.total():
            self.failing.append(_glance_row(info) | {"failures": failures})
        spent = reduce(Usage.plus, (used.usage for used in annals.models.values()), Usage())
        if spent != Usage():
            self.spending.append(_glance_row(info) | named(spent))

    def as_data(self) -> dict[str, object]:
        """As plain JSON values, with the largest threads."""
        return {
            "counted": self.counted,
            "compactions": as_data(self.compactions),
            "failures": [{"type": name, "count": count} for name, count in self.failures.most_common()],
            "failing": sorted(self.failing, key=lambda row: -int(str(row["failures"])))[:LISTED],
            "models": as_data(sorted(self.models.values(), key=lambda used: (-used.usage.cost_usd, used.model))),
            "spending": sorted(self.spending, key=_spent)[:LISTED],
        }


def _spent(row: dict[str, object]) -> tuple[float, int]:
    return -float(str(row["cost_usd"])), -int(str(row["input_tokens"]))


async def _recent_sums(inspection: Inspection, threads: Sequence[ThreadInfo], most: int) -> tuple[_Sums, bool]:
    """The sums over the most recent threads, up to a number of events, and whether all of these are counted."""
    sums, room = _Sums(), WALKED_AT_ONCE
    left = most
    for info in threads:
        if info.forked_from is not None or info.damaged or not info.events:
            continue
        left -= info.events
        if left < 0 and sums.counted:
            break
        if room <= 0:
            return sums, False
        walks = inspection.states.walks
        before = walks.reached(info.id)
        walk = walks.at_hand(info.id, info.events)
        if walk is None:
            try:
                walk = await walks.upto(info.id, info.events, head=info.events, events=room)
            except IntegrityError:  # the thread itself says so
                continue
            room -= walk.seq - before + (0 if before else LOG_EVENTS)
        sums.add(info, walk.annals)
        sums.counted += walk.seq
        if walk.seq < info.events:
            return sums, False
    return sums, True


GLANCE_ROUTES = (Route.of("glance", "most", glance),)
