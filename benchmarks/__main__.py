"""Run the benches: `python -m benchmarks --help`."""

import argparse
import asyncio
import inspect
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from time import monotonic

from benchmarks.chart import draw
from benchmarks.compacting import compacting
from benchmarks.dispatching import dispatch, durability, meanwhile
from benchmarks.figures import Figure
from benchmarks.growing import cold, flat
from benchmarks.importing import import_time
from benchmarks.judgement import judgement
from benchmarks.looking_back import looking_back
from benchmarks.page import write_page
from benchmarks.peer_process import Peers, peers_python, peers_running
from benchmarks.postgres import postgres
from benchmarks.quality import compaction_quality, recall_now, recall_quality
from benchmarks.recall import recall
from benchmarks.replaying import replay
from benchmarks.setting import Bench, Setting, say
from benchmarks.sizes import size
from benchmarks.stalling import many_threads, stalls
from benchmarks.views import views
from benchmarks.writing import threads64

HERE = Path(__file__).resolve().parent
BENCHES: dict[str, Bench] = {
    "dispatch": dispatch,
    "meanwhile": meanwhile,
    "threads64": threads64,
    "compacting": compacting,
    "flat": flat,
    "many_threads": many_threads,
    "stalls": stalls,
    "replay": replay,
    "looking_back": looking_back,
    "cold": cold,
    "size": size,
    "import": import_time,
    "durability": durability,
    "views": views,
    "compaction_quality": compaction_quality,
    "recall": recall,
    "recall_quality": recall_quality,
    "judgement": judgement,
    "recall_now": recall_now,
    "postgres": postgres,
}
WITH_PEERS = frozenset({"dispatch", "durability", "size"})


def parse(words: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measure the engine, on this machine, against bare SQLite and against its peers. "
        "Ends with 1 where a bar was missed, or could not be checked because its reference is missing.",
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="benches to run (default: all); see --list")
    parser.add_argument("--json", action="store_true", help="one JSON object a line, instead of a table")
    parser.add_argument("--quick", action="store_true", help="see that they run: seconds each, no bar")
    parser.add_argument("--list", action="store_true", help="name the benches and say what each does")
    parser.add_argument("--write", action="store_true", help="write benchmarks/RESULTS.md and results.svg")
    asked = parser.parse_args(words)
    unknown = [name for name in asked.names if name not in BENCHES]
    if unknown:
        parser.error(f"no bench is called {unknown[0]}; there are {', '.join(BENCHES)}")
    if asked.write and (asked.quick or asked.names):
        parser.error("--write keeps the figures of a whole run: it goes with neither names nor --quick")
    return asked


def run(names: Sequence[str], quick: bool, as_json: bool) -> tuple[list[Figure], Peers]:
    """Run benches one after the other, and print each figure as soon as it is there."""
    python = peers_python() if WITH_PEERS.intersection(names) else None
    found: list[Figure] = []
    with tempfile.TemporaryDirectory(prefix="memory-engine-bench-") as folder, peers_running(python) as peers:
        setting = Setting(Path(folder), peers, quick)
        if peers.why and WITH_PEERS.intersection(names):
            say(peers.why)
        for name in names:
            begun = monotonic()
            say(f"{name}: begins")
            figures = _run_one(name, setting)
            setting.sweep()
            for figure in figures:
                print(json.dumps(figure.as_json()) if as_json else line(figure), flush=True)
            found += figures
            say(f"{name}: done in {monotonic() - begun:.1f} s")
        for name, why in peers.missing.items():
            say(f"{name} was not measured: {why}")
    return found, peers


def _run_one(name: str, setting: Setting) -> list[Figure]:
    """One bench, on an event loop of its own."""

    async def work() -> list[Figure]:
        return await BENCHES[name](setting)

    return asyncio.run(work())


def line(figure: Figure) -> str:
    """One figure, for people."""
    shown = figure.as_json()
    parts = [f"{figure.bench:<10} {figure.case:<58} {shown['value']!s:>8} {figure.unit}"]
    if figure.reference is not None:
        known = shown["reference"]
        value = known["value"] if isinstance(known, dict) else None
        parts.append(f"[{figure.reference.name}: {'missing' if value is None else value}]")
    if figure.ratio is not None:
        parts.append(f"ratio {shown['ratio']}")
    if figure.ratio_best is not None:
        parts.append(f"(best rounds {shown['ratio_best']})")
    if figure.bar is not None:
        parts.append(f"bar {figure.bar}" + {True: ": reached", False: ": MISSED", None: ""}[figure.ok])
    if shown["note"]:
        parts.append(f"- {shown['note']}")
    return " ".join(parts)


def main(words: Sequence[str] | None = None) -> int:
    """Do what the command line says; the exit code."""
    asked = parse(words)
    if asked.list:
        for name, bench in BENCHES.items():
            print(f"{name:<20}{(inspect.getdoc(bench) or name).splitlines()[0]}")
        return 0
    figures, peers = run(asked.names or list(BENCHES), asked.quick, asked.json)
    if asked.write:
        (HERE / "RESULTS.md").write_text(write_page(figures, peers), encoding="utf-8")
        (HERE / "results.svg").write_text(draw(figures), encoding="utf-8")
        say("wrote RESULTS.md and results.svg")
    missed = [figure for figure in figures if figure.ok is False]
    for figure in missed:
        say(f"not reached: {figure.bench}, {figure.case}: {figure.bar}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
