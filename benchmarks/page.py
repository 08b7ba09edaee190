"""The page of the figures that are kept: a table for each bench, and the run that it is of."""

from collections.abc import Mapping, Sequence

from benchmarks.figures import Figure
from benchmarks.kept import Measured

HEAD = """\
# Benchmark results

Written by `python -m benchmarks --write`, which measures all benches or those that you name; do not edit.
Times are of one machine, which may have been busy (`load`: how many processes wanted its cores when a bench
began): the ratios, of sides that took turns in one run, say more than the microseconds. Each peer is used as
its documentation says and with the settings that it ships with. For most of them that is a sync to disk with every
commit: `dispatch` has them without it, as the engine's default, and `durability` has both sides with it.

A bar is what the engine is meant to reach; **no** is one that this run missed. `best` is the ratio between the
best rounds of both sides, which noise cannot flatter.

![The same figures as a chart](results.svg)
"""
TABLE = """\
| case | value | reference | ratio | best | bar | |
|---|---:|---|---:|---:|---|---|
"""


def write_page(kept: Sequence[Measured], about: Mapping[str, str]) -> str:
    """The page, as Markdown. `about` says of each bench in a line what it measures."""
    return "\n".join([HEAD, *(_section(one, about.get(one.bench, "")) for one in kept)])


def _section(one: Measured, about: str) -> str:
    run = f"{one.at}; {one.machine}" + (f"; load {one.load:.1f}" if one.load is not None else "")
    if one.compared_with:
        run += "; compared with " + ", ".join(one.compared_with)
    rows = "\n".join(map(_row, one.figures))
    details = _details(one.figures)
    if details:
        details = f"\n<details><summary>What else was seen</summary>\n\n{details}\n\n</details>\n"
    return f"## {one.bench}\n\n{about}\n\n{run}\n\n{TABLE}{rows}\n{details}"


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
    return f"| {figure.case} | {value} | {reference} | {ratio} | {best} | {bar} | {verdict} |"


def _details(figures: Sequence[Figure]) -> str:
    """Further observations, a line for each figure that has some."""
    lines = []
    for figure in figures:
        seen = [f"{key} {_number(v) if not isinstance(v, str) else v}" for key, v in figure.detail.items()]
        if figure.note:
            seen.append(figure.note)
        if figure.reference is not None and figure.reference.why:
            seen.append(figure.reference.why)
        if seen:
            lines.append(f"- {figure.case}: {', '.join(seen)}")
    return "\n".join(lines)


def _number(value: float) -> str:
    if value == int(value) or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 100 else f"{value:.3g}"
