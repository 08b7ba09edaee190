"""The page that a full run writes: facts of the machine, a table, and the chart's place."""

import os
import platform
import sqlite3
from collections.abc import Sequence
from datetime import UTC, datetime

from benchmarks.figures import Figure
from benchmarks.peer_process import Peers

HEAD = """\
# Benchmark results

Written by `python -m benchmarks --write`; do not edit. Times are of one machine, which may have
been busy: the ratios, of sides that took turns in one run, say more than the microseconds. Each
peer is used as its documentation says and with the settings that it ships with, which for most of
them is a sync to disk with every commit; the rows of `durability` compare the engine with the same
guarantee.

{facts}

![The same figures as a chart](results.svg)

| bench | case | value | reference | ratio | best rounds | bar | |
|---|---|---:|---|---:|---:|---|---|
{rows}

`best rounds` is the ratio between the best rounds of both sides, which noise cannot flatter. A bar
is what the engine promises; `no` is a promise that this run did not see kept.

{details}
"""


def write_page(figures: Sequence[Figure], peers: Peers) -> str:
    """The page, as Markdown."""
    return HEAD.format(
        facts="\n".join(f"- {fact}" for fact in facts(peers)),
        rows="\n".join(map(_row, figures)),
        details=_details(figures),
    )


def facts(peers: Peers) -> list[str]:
    """What the figures depend on, without a name or a place."""
    version = f"{platform.python_implementation()} {platform.python_version()}"
    found = [
        f"{datetime.now(UTC):%Y-%m-%d}; {version}; SQLite {sqlite3.sqlite_version}; "
        f"{platform.system()} on {platform.machine()}, {os.cpu_count()} cores"
    ]
    if peers.names:
        found.append("compared with " + ", ".join(f"{name} ({peers.versions[name]})" for name in peers.names))
    if peers.why:
        found.append(f"compared with no peer: {peers.why}")
    found += [f"{name} was not measured: {why}" for name, why in peers.missing.items()]
    return found


def _row(figure: Figure) -> str:
    reference = ratio = ""
    if figure.reference is not None:
        known = figure.reference.value
        reference = f"{figure.reference.name}: {_number(known) if known is not None else 'missing'}"
        ratio = _number(figure.ratio) if figure.ratio is not None else ""
    best = _number(figure.ratio_best) if figure.ratio_best is not None else ""
    bar = str(figure.bar).replace("<=", "≤").replace(">=", "≥") if figure.bar is not None else ""
    verdict = {True: "yes", False: "**no**", None: ""}[figure.ok]
    value = f"{_number(figure.value)} {figure.unit}".strip() if figure.value is not None else ""
    return f"| {figure.bench} | {figure.case} | {value} | {reference} | {ratio} | {best} | {bar} | {verdict} |"


def _details(figures: Sequence[Figure]) -> str:
    """What else was seen, a line for each figure that has more to say."""
    lines = []
    for figure in figures:
        seen = [f"{key} {_number(v) if not isinstance(v, str) else v}" for key, v in figure.detail.items()]
        if figure.note:
            seen.append(figure.note)
        if figure.reference is not None and figure.reference.why:
            seen.append(figure.reference.why)
        if seen:
            lines.append(f"- {figure.bench}, {figure.case}: {', '.join(seen)}")
    return "\n".join(lines)


def _number(value: float) -> str:
    if value == int(value) or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 100 else f"{value:.3g}"
