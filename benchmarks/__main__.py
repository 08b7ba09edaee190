"""Run the benches: `python -m benchmarks --help`."""

import argparse
import asyncio
import inspect
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import monotonic

from attrs import evolve

from benchmarks import kept
from benchmarks.briefs import briefs
from benchmarks.chart import draw
from benchmarks.compacting import compacting
from benchmarks.dispatching import dispatch, durability, meanwhile
from benchmarks.encryption import encryption
from benchmarks.figures import Figure
from benchmarks.first_use import first_use
from benchmarks.growing import cold, contexts, flat, one_use
from benchmarks.importing import import_time
from benchmarks.judgement import judgement
from benchmarks.looking_back import looking_back
from benchmarks.page import write_page
from benchmarks.peer_process import peers_python, peers_running
from benchmarks.postgres import postgres
from benchmarks.quality import compaction_quality, recall_lists, recall_now, recall_quality
from benchmarks.recall import recall
from benchmarks.replaying import replay
from benchmarks.setting import Bench, Setting, say
from benchmarks.sizes import size
from benchmarks.stalling import deleting, many_threads, stalls
from benchmarks.tokens import tokens
from benchmarks.usefulness import usefulness
from benchmarks.vector_indexes import vector_indexes
from benchmarks.views import views
from benchmarks.writing import threads64

HERE = Path(__file__).resolve().parent
BENCHES: dict[str, Bench] = {
    "dispatch": dispatch,
    "meanwhile": meanwhile,
    "threads64": threads64,
    "compacting": compacting,
    "flat": flat,
    "contexts": contexts,
    "many_threads": many_threads,
    "stalls": stalls,
    "deleting": deleting,
    "replay": replay,
    "looking_back": looking_back,
    "cold": cold,
    "one_use": one_use,
    "size": size,
    "import": import_time,
    "first_use": first_use,
    "durability": durability,
    "encryption": encryption,
    "views": views,
    "compaction_quality": compaction_quality,
    "briefs": briefs,
    "usefulness": usefulness,
    "recall": recall,
    "vector_indexes": vector_indexes,
    "recall_quality": recall_quality,
    "judgement": judgement,
    "tokens": tokens,
    "recall_now": recall_now,
    "recall_lists": recall_lists,
    "postgres": postgres,
}
ABOUT = {name: (inspect.getdoc(bench) or name).splitlines()[0] for name, bench in BENCHES.items()}
WITH_PEERS = frozenset({"dispatch", "durability", "size"})


def parse(words: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measure the engine, on this machine, against bare SQLite and against its peers. "
        "Ends with 1 where a bar was missed, or could not be checked because its reference is missing.",
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="benches to run (default: all); see --list")
    parser.add_argument("--json", action="store_true", help="one JSON object a line, instead of a table")
    parser.add_argument("--quick", action="store_true", help="see that they run: seconds each, no bar")
    parser.add_argument("--list", action="store_true", help="name the benches and say what each does")
    parser.add_argument("--write", action="store_true", help="keep the figures in benchmarks/RESULTS.md")
    vectors = "how many vectors `vector_indexes` compares indexes by: give it again for another number"
    parser.add_argument("--vectors", type=int, action="append", metavar="N", default=[], help=vectors)
    asked = parser.parse_args(words)
    unknown = [name for name in asked.names if name not in BENCHES]
    if unknown:
        parser.error(f"no bench is called {unknown[0]}; there are {', '.join(BENCHES)}")
    if asked.write and asked.quick:
        parser.error("--write keeps figures, and those of --quick are worth nothing")
    return asked


def run(names: Sequence[str], quick: bool, as_json: bool, vectors: Sequence[int] = ()) -> Iterator[kept.Measured]:
    """Run benches one after another, print each figure once it is measured, and yield each finished bench."""
    python = peers_python() if WITH_PEERS.intersection(names) else None
    with tempfile.TemporaryDirectory(prefix="memory-engine-bench-") as folder, peers_running(python) as peers:
        setting = Setting(Path(folder), peers, quick)
        if vectors:
            setting = evolve(setting, vectors=vectors)
        if peers.why and WITH_PEERS.intersection(names):
            say(peers.why)
        for name in names:
            begun, load = monotonic(), os.getloadavg()[0]
            say(f"{name}: begins")
            figures = _run_one(name, setting)
            setting.sweep()
            for figure in figures:
                print(json.dumps(figure.as_json()) if as_json else line(figure), flush=True)
            say(f"{name}: done in {monotonic() - begun:.1f} s")
            yield kept.measured(name, figures, peers, load)
        for name, why in peers.missing.items():
            say(f"{name} was not measured: {why}")


def _run_one(name: str, setting: Setting) -> list[Figure]:
    """Run one bench, on an event loop of its own."""

    async def work() -> list[Figure]:
        return await BENCHES[name](setting)

    return asyncio.run(work())


def line(figure: Figure) -> str:
    """Return one figure as a line for people."""
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


def keep(measured: kept.Measured) -> None:
    """Save a bench's figures over its previous ones, right after it ends, so a later failure does not lose them."""
    known = kept.joined(kept.read(HERE / "results.json"), [measured], BENCHES)
    kept.write(HERE / "results.json", known)
    (HERE / "RESULTS.md").write_text(write_page(known, ABOUT), encoding="utf-8")
    (HERE / "results.svg").write_text(draw([figure for one in known for figure in one.figures]), encoding="utf-8")
    say(f"{measured.bench}: kept in RESULTS.md")


def main(words: Sequence[str] | None = None) -> int:
    """Run what the command line asks for; return the exit code."""
    asked = parse(words)
    if asked.list:
        for name, what in ABOUT.items():
            print(f"{name:<20}{what}")
        return 0
    missed: list[Figure] = []
    for measured in run(asked.names or list(BENCHES), asked.quick, asked.json, asked.vectors):
        missed += [figure for figure in measured.figures if figure.ok is False]
        if asked.write:
            keep(measured)
    for figure in missed:
        say(f"not reached: {figure.bench}, {figure.case}: {figure.bar}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
