"""Three ways to find the nearest of one tenant's vectors: the engine's codes, and the graphs of hnswlib and usearch."""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from attrs import frozen

from benchmarks.figures import Bar, Figure, Reference
from benchmarks.peer_process import ROOT
from benchmarks.setting import Setting, say

KINDS = ("codes", "hnswlib", "usearch")
ASKED = 200


@frozen
class Measure:
    """One figure of each kind: the name in the process's answer, what it is, its unit, and what it is divided by."""

    name: str
    what: str
    unit: str
    by: float = 1
    bar: Bar | None = None


MEASURES = (
    Measure("found", "of the ten nearest, found", "recall@10", bar=Bar("value", ">=", 0.98)),
    Measure("search_p50_ms", "a search of all, median", "ms"),
    Measure("search_p95_ms", "a search of all, 95th percentile", "ms"),
    Measure("search_cpu_ms", "a search of all, on the processor", "ms"),
    Measure("filtered_p50_ms", "a search of 1 % of them, median", "ms"),
    Measure("open_ms", "opening, until the first answer", "ms"),
    Measure("open_cpu_ms", "opening, until the first answer, on the processor", "ms"),
    Measure("added_mib", "memory, once searched", "MiB"),
    Measure("index_mib", "bytes in the file", "MiB"),
    Measure("build_cpu_ms", "building, on the processor", "s", 1_000),
    Measure("add_one_p50_ms", "adding one (codes: with its message and durable; graphs: in memory)", "ms"),
    Measure("add_1000_ms", "adding 1,000, likewise", "ms"),
    Measure("save_ms", "writing the file, for what was added (codes: nothing more)", "ms"),
    Measure("forget_ms", "forgetting one, in the file too", "ms"),
    Measure("pieces_forgotten", "pieces of 64 bytes of the forgotten one that are left in the files", "pieces"),
    Measure("erase_ms", "destroying one (codes: `erase`; graphs: written over)", "ms"),
    Measure("pieces_erased", "pieces of 64 bytes of the destroyed one that are left in the files", "pieces"),
)
Answers = Mapping[str, Mapping[str, float | str]]


async def vector_indexes(setting: Setting) -> list[Figure]:
    """Codes, hnswlib and usearch on the same vectors of one tenant (`--vectors N`): finding, memory, changes."""
    try:
        from benchmarks.index_rows import write_rows
    except ModuleNotFoundError as error:
        note = f"skipped: vectors need NumPy ({error})"
        return [Figure(bench="vector_indexes", case="search", value=None, unit="", note=note)]
    found: list[Figure] = []
    for count in [2_000] if setting.quick else setting.vectors:
        folder = setting.folder / f"vectors-{count}"
        folder.mkdir()
        say(f"  {count:,} vectors, and which are nearest")
        write_rows(folder, count, setting.size(ASKED, 10))
        found += _compared(setting, count, {kind: _measured(kind, folder) for kind in KINDS})
    return found


def _measured(kind: str, folder: Path) -> dict[str, float | str]:
    """The cost of building and using one kind, each in a process of its own."""
    answer: dict[str, float | str] = {}
    for step in ("build", "use"):
        if "missing" not in answer:
            say(f"  {kind}: {step}")
            words = [sys.executable, "-m", "benchmarks.index_child", kind, step, str(folder)]
            ended = subprocess.run(words, cwd=ROOT, stdout=subprocess.PIPE, check=True)
            answer |= json.loads(ended.stdout)
    return answer


def _compared(setting: Setting, count: int, answers: Answers) -> list[Figure]:
    def of(kind: str, measure: Measure) -> float | None:
        value = answers[kind].get(measure.name, 0 if measure.name == "save_ms" and kind == "codes" else None)
        return float(value) / measure.by if value is not None else None

    def figure(measure: Measure) -> Figure:
        usearch = of("usearch", measure)
        return Figure(
            bench="vector_indexes",
            case=f"{count:,} vectors: {measure.what}",
            value=of("codes", measure),
            unit=measure.unit,
            reference=Reference("hnswlib", of("hnswlib", measure), str(answers["hnswlib"].get("missing", ""))),
            bar=measure.bar,
            asserted=not setting.quick,
            detail={"usearch": answers["usearch"]["missing"] if usearch is None else usearch},
        )

    return [figure(measure) for measure in MEASURES]
