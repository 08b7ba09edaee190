"""What got worse: the measures of each thread under two changes, compared, judged, and drawn."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import inf
from shlex import quote

import msgspec
from attrs import frozen

from memory_engine.core.excerpts import counted, number, one_line
from memory_engine.core.json_form import JsonForm, named
from memory_engine.lab.change import LabChange, LabThresholds
from memory_engine.lab.measuring import LabMoment, Measured
from memory_engine.reports import Column, Drawable, Line, Paper, line, table_lines

FORMAT = 1
"""The version of the JSON form; `--against` reads no other."""
FINDINGS_SHOWN = 3
VALUES_SHOWN = 6
UNKEPT = "lab-kept"
"""The folder that commands name where no database was kept."""


@frozen(kw_only=True)
class LabFinding(JsonForm):
    """Something that got worse: in which thread, at which event of the recorded log, and what shows it."""

    metric: str
    log: str
    thread: str
    seq: int
    what: str
    command: str


@frozen(kw_only=True)
class Metric(JsonForm):
    """A measure of both sides, summed over all threads. `worse` is compared with `limit` (`None`: any will do)."""

    metric: str
    label: str
    before: float
    after: float
    worse: float
    limit: float | None
    broken: bool


@frozen(kw_only=True)
class ThreadPair(JsonForm):
    """A thread as it was measured under both changes, and the metrics that got worse in it, each by how much."""

    log: str
    thread: str
    worse: Mapping[str, float]
    contexts_changed: int
    against: Measured
    under: Measured
    kept: str = ""


@frozen(kw_only=True)
class UnmeasuredLog(JsonForm):
    """A file, or a thread of one, that could not be measured, and why."""

    log: str
    why: str


@frozen(kw_only=True)
class LabReport(Drawable):
    """What changed under a change. `safe` if no threshold is broken and nothing is missing from the comparison.

    `metrics` are in order of gravity; `findings` too, those of broken metrics first, the worst of each first.
    `seconds` is the time that each thread took, by log and thread: all else is the same in two runs on the same logs.
    `print()` shows it in lines.
    """

    under: LabChange
    against: LabChange
    versions: tuple[str, str]
    metrics: tuple[Metric, ...]
    findings: tuple[LabFinding, ...]
    threads: tuple[ThreadPair, ...]
    unmeasured: tuple[UnmeasuredLog, ...] = ()
    interrupted: bool = False
    seconds: Mapping[str, float] = {}

    @property
    def broken(self) -> tuple[Metric, ...]:
        """The metrics that are worse than their thresholds allow."""
        return tuple(one for one in self.metrics if one.broken)

    @property
    def safe(self) -> bool:
        """Whether no threshold is broken, and every log was measured."""
        return bool(self.threads) and not (self.broken or self.unmeasured or self.interrupted)

    @property
    def verdict(self) -> str:
        """The result in a sentence."""
        if self.broken:
            return f"WORSE: {'; '.join(map(_broken_text, self.broken))}"
        if not self.threads:
            return "UNKNOWN: no thread was measured"
        if self.unmeasured or self.interrupted:
            left = (
                "interrupted" if self.interrupted else f"{counted(len(self.unmeasured), 'log')} could not be measured"
            )
            return f"INCOMPLETE: no threshold is broken so far, but {left}"
        return "SAFE: no threshold is broken"

    def as_data(self) -> dict[str, object]:
        """As plain JSON values: `timings` alone differ between two runs."""
        names = "verdict safe versions metrics findings unmeasured interrupted threads"
        changes = {name: _finite(msgspec.to_builtins(getattr(self, name))) for name in ("under", "against")}
        timings = {key: round(value, 3) for key, value in self.seconds.items()}
        return {"lab": FORMAT, **changes, **named(self, names), "timings": timings}

    def drawn(self, paper: Paper) -> Iterator[Line]:
        """The verdict, the metrics, what got worse, and the threads that changed most."""
        return _report_lines(self, paper.room)

    def _repr_html_(self) -> str:
        """The verdict and what got worse, as tables for a notebook; `page.page` gives a whole page."""
        from memory_engine.core.notebook import table

        found = [(one.thread, one.seq, one.what, one.command) for one in self.findings]
        measures = [(one.label, *metric_texts(one)) for one in self.metrics]
        worse = table("What got worse", ("thread", "event", "what", "command"), found) if found else ""
        return table(self.verdict, ("", "before", "after", "worse by", "allowed"), measures) + worse


def _broken_text(one: Metric) -> str:
    _, _, worse, allowed = metric_texts(one)
    return f"{one.label} (worse by {worse}, {allowed} allowed)"


def _finite(value: object) -> object:
    """JSON has no infinity."""
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in value.items()}
    return None if value == inf else value


# the comparison

Rows = Iterable[tuple[int, str, float]]
"""What got worse in a thread: the seq in the recorded log, a line, and by how much, to put the worst first."""


@frozen
class _Measure:
    """A metric: what a side has of it in a thread, and what got worse; a share is of `whole`, a growth of the sum."""

    name: str
    label: str
    count: Callable[[Measured], float]
    worse: Callable[[ThreadPair], Rows]
    whole: Callable[[Measured], float] | None = None
    grows: bool = False

    def compared(self, pairs: Sequence[ThreadPair], limit: float) -> Metric:
        """The metric over all threads."""
        before, after = (sum(self.count(side(one)) for one in pairs) for side in (_against, _under))
        worse = self.amount(pairs)
        return Metric(
            metric=self.name,
            label=self.label,
            before=round(before, 6),
            after=round(after, 6),
            worse=round(worse, 6),
            limit=None if limit == inf else limit,
            broken=worse > limit + 1e-9,
        )

    def amount(self, pairs: Sequence[ThreadPair]) -> float:
        """By how much it is worse in these threads; below 0 it is better."""
        before, after = (sum(self.count(side(one)) for one in pairs) for side in (_against, _under))
        if self.grows and self.whole is None:
            return (after - before) / before if before else float(after > 0)
        if self.grows and self.whole is not None:
            old, new = (sum(self.whole(side(one)) for one in pairs) for side in (_against, _under))
            return (after / new if new else 0.0) - (before / old if old else 0.0)
        found = sum(count for one in pairs for _, _, count in self.worse(one))
        if self.whole is None:
            return found
        whole = sum(self.whole(one.against) for one in pairs)
        return found / whole if whole else 0.0


def _against(pair: ThreadPair) -> Measured:
    return pair.against


def _under(pair: ThreadPair) -> Measured:
    return pair.under


def both_moments(pair: ThreadPair) -> Iterator[tuple[LabMoment, LabMoment]]:
    """The contexts of both sides at the same event."""
    before = {one.event: one for one in pair.against.moments}
    return ((before[one.event], one) for one in pair.under.moments if one.event in before)


def _brief_missing(pair: ThreadPair) -> Rows:
    seen: set[tuple[int, int]] = set()
    for before, after in both_moments(pair):
        known = {(one.seq, one.n) for one in before.missing} | seen
        for one in after.missing:
            if (one.seq, one.n) not in known:
                seen.add((one.seq, one.n))
                where = f"before event {after.seq}" if after.event else "after the last event"
                yield after.seq, f'{where}, the context does not show "{one_line(one.text, 100)}" (event {one.seq})', 1


def _answers_lost(pair: ThreadPair) -> Rows:
    before = {one.question: one for one in pair.against.answers}
    for one in pair.under.answers:
        was = before.get(one.question)
        lost = [] if was is None else ["is not among the hits"] * (was.found and not one.found)
        lost += ["is not in the context"] * (was is not None and was.shown and not one.shown)
        if lost:
            yield pair.under.events, f'the answer to "{one_line(one.question, 100)}" {" and ".join(lost)} any more', 1


def _over_budget(pair: ThreadPair) -> Rows:
    for before, after in both_moments(pair):
        if before.fits and not after.fits:
            needed = f"needs {number(after.tokens)} tokens of {number(pair.under.max_tokens)}"
            yield after.seq, f"the context {needed}: the model call would fail", 1


def _compactions_failed(pair: ThreadPair) -> Rows:
    more = pair.under.compactions.failed - pair.against.compactions.failed
    if more > 0:
        first = pair.under.failures[0]
        yield first.seq, f"{counted(more, 'more compaction')} failed, the first here: {one_line(first.why, 100)}", more


def _events_refused(pair: ThreadPair) -> Rows:
    known = {one.seq for one in pair.against.refused}
    for one in pair.under.refused:
        if one.seq not in known:
            yield one.seq, f"{one.event_type} no longer fits: {one.why}", 1


def _unverified(pair: ThreadPair) -> Rows:
    if pair.under.verified and not pair.against.verified:
        yield pair.under.events, f"the thread does not verify: {pair.under.verified}", 1


def _values_lost(pair: ThreadPair) -> Rows:
    absent = set(pair.against.values_missing)
    lost = [value for value in pair.under.values_missing if value not in absent]
    if lost:
        shown = ", ".join(one_line(value, 40) for value in lost[:VALUES_SHOWN]) + ", …" * (len(lost) > VALUES_SHOWN)
        yield pair.under.events, f"the last context no longer says {counted(len(lost), 'value')}: {shown}", len(lost)


def _cache_lost(pair: ThreadPair) -> Rows:
    if pair.under.cache_lost > pair.against.cache_lost:
        for one in pair.under.breaks[:1]:
            own = next((m.seq for m in pair.under.moments if m.own >= one.seq), pair.under.events)
            yield (
                own,
                f"{number(one.lost_tokens)} cached tokens were sent again: {one.why}",
                pair.under.cache_lost - pair.against.cache_lost,
            )


def _more_tokens(pair: ThreadPair) -> Rows:
    more = pair.under.tokens - pair.against.tokens
    if more > 0:
        old, new = max(both_moments(pair), key=lambda both: both[1].tokens - both[0].tokens)
        whole = f"{number(pair.against.tokens)} → {number(pair.under.tokens)} tokens of all calls"
        this = f"; this context: {number(old.tokens)} → {number(new.tokens)}" if new.tokens > old.tokens else ""
        yield new.seq if this else pair.under.events, f"{whole}{this}", more


def _more_cost(pair: ThreadPair) -> Rows:
    old, new = pair.against.cost_usd or 0.0, pair.under.cost_usd or 0.0
    if new > old:
        yield pair.under.events, f"{old:.4f} → {new:.4f} USD", new - old


def _contexts_changed(pair: ThreadPair) -> Rows:
    for before, after in both_moments(pair):
        if before.digest != after.digest:
            yield after.seq, f"another context: {number(before.tokens)} → {number(after.tokens)} tokens", 1


def _missing_count(one: Measured) -> float:
    return len({(absent.seq, absent.n) for moment in one.moments for absent in moment.missing})


MEASURES = (
    _Measure("brief_missing", "brief statements missing", _missing_count, _brief_missing),
    _Measure(
        "answers_lost", "answers missing", lambda m: sum(not (a.found and a.shown) for a in m.answers), _answers_lost
    ),
    _Measure("over_budget", "contexts over the budget", lambda m: sum(not one.fits for one in m.moments), _over_budget),
    _Measure("unverified", "threads that do not verify", lambda m: bool(m.verified), _unverified),
    _Measure("events_refused", "events refused", lambda m: len(m.refused), _events_refused),
    _Measure("compactions_failed", "compactions failed", lambda m: m.compactions.failed, _compactions_failed),
    _Measure(
        "values_lost", "values missing", lambda m: len(m.values_missing), _values_lost,
        whole=lambda m: m.values - len(m.values_missing),
    ),
    _Measure(
        "cache_lost", "cached tokens sent again", lambda m: m.cache_lost, _cache_lost,
        whole=lambda m: m.tokens, grows=True,
    ),
    _Measure("tokens", "tokens of all calls", lambda m: m.tokens, _more_tokens, grows=True),
    _Measure("cost", "cost, USD", lambda m: m.cost_usd or 0.0, _more_cost, grows=True),
    _Measure(
        "contexts_changed", "contexts changed", lambda _: 0, _contexts_changed, whole=lambda m: len(m.moments)
    ),
)  # fmt: skip
"""The gravest first."""


def compared(before: Measured, after: Measured, kept: str = "") -> ThreadPair:
    """Both measures of a thread, side by side."""
    pair = ThreadPair(
        log=after.log, thread=after.thread, worse={}, contexts_changed=0, against=before, under=after, kept=kept
    )
    worse = {one.name: round(amount, 6) for one in MEASURES if (amount := one.amount([pair])) > 0}
    changed = len([*_contexts_changed(pair)])
    return ThreadPair(
        log=pair.log, thread=pair.thread, worse=worse, contexts_changed=changed, against=before, under=after, kept=kept
    )


def judged(pairs: Sequence[ThreadPair], limits: LabThresholds) -> tuple[tuple[Metric, ...], tuple[LabFinding, ...]]:
    """The metrics over all threads, and what got worse, the gravest first."""
    metrics = tuple(one.compared(pairs, getattr(limits, one.name)) for one in MEASURES)
    order = sorted(range(len(MEASURES)), key=lambda n: not metrics[n].broken)
    findings: list[LabFinding] = []
    for measure, metric in ((MEASURES[n], metrics[n]) for n in order):
        if measure.name == "contexts_changed" and not metric.broken:
            continue
        rows = [(pair, *row) for pair in pairs for row in measure.worse(pair)]
        findings += (
            LabFinding(
                metric=measure.name, log=pair.log, thread=pair.thread, seq=seq, what=what,
                command=_command(pair, seq, measure.name),
            )
            for pair, seq, what, _ in sorted(rows, key=lambda row: -row[3])
        )  # fmt: skip
    return metrics, tuple(findings)


def _command(pair: ThreadPair, seq: int, metric: str) -> str:
    """The command that shows a finding, in the database that `keep` keeps."""
    under, against = pair.under.fork or pair.thread, pair.against.fork or pair.thread
    own = {one.seq: one.own for one in pair.under.moments}.get(seq, pair.under.moments[-1].own)
    begin = f"memory-engine --db {quote(pair.kept or f'{UNKEPT}/…')}"
    if metric == "unverified":
        return f"{begin} verify {quote(under)}"
    if metric == "compactions_failed":
        return f"{begin} compactions {quote(under)}"
    if metric in ("cache_lost", "cost"):
        return f"{begin} ledger {quote(under)} --max-tokens {pair.under.max_tokens}"
    if under == against:
        return f"{begin} why {quote(under)} --context --at {own} --max-tokens {pair.under.max_tokens}"
    was = {one.seq: one.own for one in pair.against.moments}.get(seq, pair.against.moments[-1].own)
    return f"{begin} diff {quote(against)} {was} {own} --with {quote(under)}"


# as lines


def _report_lines(found: LabReport, width: int | None) -> Iterator[Line]:
    """The verdict, the metrics, what got worse, and the threads that changed most."""
    colour = "green" if found.safe else "red" if found.broken or not found.threads else "yellow"
    yield line(found.verdict, colour)
    logs = len({one.log for one in found.threads})
    size = f"{counted(len(found.threads), 'thread')} of {counted(logs, 'log')}"
    yield line(f"{found.under.name}, against {found.against.name}: {size}")
    for one in found.unmeasured:
        yield line(f"not measured: {one.log}: {one.why}", "yellow")
    if not found.threads:
        return
    if found.findings:
        yield line("")
        yield line(f"what got worse ({number(len(found.findings))}):", "bold")
    shown = foremost(found.findings, FINDINGS_SHOWN)
    for finding in shown:
        is_broken = any(metric.metric == finding.metric for metric in found.broken)
        yield line(f"{finding.thread}, event {finding.seq}: {finding.what}", "yellow" if is_broken else "")
        yield line(f"    {finding.command}", "dim")
    if len(found.findings) > len(shown):
        yield line(f"… and {number(len(found.findings) - len(shown))} more: --json or --html has them")
    if found.findings and not any(one.kept for one in found.threads):
        yield line(f"to run these commands, run again with --keep {UNKEPT} (and --thread, for one)", "dim")
    yield line("")
    yield from table_lines(_HEADS, [_metric_cells(one) for one in found.metrics], width)


def foremost(findings: Sequence[LabFinding], most: int) -> list[LabFinding]:
    """At most so many findings of each metric, in their order: the worst of each."""
    shown: Counter[str] = Counter()
    found: list[LabFinding] = []
    for one in findings:
        shown[one.metric] += 1
        if shown[one.metric] <= most:
            found.append(one)
    return found


_HEADS = [
    Column("", least=20), Column("BEFORE", right=True), Column("AFTER", right=True), Column("WORSE BY", right=True),
    Column("ALLOWED", right=True), Column(""),
]  # fmt: skip
_SHARES = frozenset(one.name for one in MEASURES if one.whole is not None or one.grows)


def _metric_cells(one: Metric) -> tuple[str, ...]:
    return one.label, *metric_texts(one), "BROKEN" if one.broken else ""


def metric_texts(one: Metric) -> tuple[str, str, str, str]:
    """Before, after, how much worse, and what is allowed, as people read it."""
    limit = "any" if one.limit is None else _worse_text(one, one.limit)
    before, after = ("-", "-") if one.metric == "contexts_changed" else map(_amount_text, (one.before, one.after))
    return before, after, _worse_text(one, one.worse), limit


def _worse_text(one: Metric, amount: float) -> str:
    return f"{amount:.1%}" if one.metric in _SHARES else number(int(amount))


def _amount_text(amount: float) -> str:
    return number(int(amount)) if amount == int(amount) else f"{amount:,.4f}"


_READER = msgspec.json.Decoder(dict[str, msgspec.Raw])


def measured_in(data: bytes) -> tuple[LabChange, str, list[Measured]]:
    """The `under` side of a report's JSON: its change, its version, and its measures. Raises `ValueError`."""
    found = _READER.decode(data)
    if msgspec.json.decode(found.get("lab", msgspec.Raw(b"0"))) != FORMAT:
        raise ValueError("it is not the JSON of `lab run`, or of another version of it")
    threads = msgspec.json.decode(found["threads"], type=list[dict[str, msgspec.Raw]])
    measures = [msgspec.json.decode(one["under"], type=Measured) for one in threads]
    under = msgspec.json.decode(found["under"], type=dict[str, object])
    under.pop("thresholds", None)
    versions = msgspec.json.decode(found["versions"], type=tuple[str, str])
    return msgspec.convert(under, LabChange), versions[0], measures
