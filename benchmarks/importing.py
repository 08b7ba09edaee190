"""The cost of importing the package, in fresh interpreters."""

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from time import perf_counter_ns

import memory_engine
from benchmarks.figures import Bar, Figure, Reference
from benchmarks.setting import Setting, say

HEAVY = ("litellm", "numpy", "openai")
CASES = {
    "": "a bare interpreter",
    "import memory_engine": "import memory_engine",
    "open and UserMessage taken from it": "from memory_engine import open, UserMessage",
}
LOADED = f"import sys, json; print(json.dumps([name for name in {HEAVY!r} if name in sys.modules]))"


async def import_time(setting: Setting) -> list[Figure]:
    """Interpreters in turn: bare, importing the package, and taking what an application takes from it."""
    taken: dict[str, list[float]] = {case: [] for case in CASES}
    loaded: dict[str, list[str]] = {}
    rounds = setting.size(15, 3)
    say(f"  {rounds} rounds")
    for _ in range(rounds):
        for case, code in CASES.items():
            ms, loaded[case] = _start(f"{code}; {LOADED}" if case else LOADED)
            taken[case].append(ms)
    found: list[Figure] = []
    for case in list(CASES)[1:]:
        found += _figures(setting, case, taken, loaded[case])
    return found


def _start(code: str) -> tuple[float, list[str]]:
    """Milliseconds of a whole interpreter, and the heavy modules in it at its end."""
    root = str(Path(memory_engine.__file__).parents[1])
    paths = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    words = [sys.executable, "-c", code]
    begun = perf_counter_ns()
    ended = subprocess.run(words, env=os.environ | {"PYTHONPATH": paths}, stdout=subprocess.PIPE, check=True)
    return (perf_counter_ns() - begun) / 1e6, json.loads(ended.stdout)


def _figures(setting: Setting, case: str, taken: dict[str, list[float]], heavy: list[str]) -> list[Figure]:
    """The time and the modules. Only the bare import has a bar for time: the rest is paid when it is used."""
    bare = statistics.median(taken[""])
    return [
        Figure(
            bench="import",
            case=case,
            value=statistics.median(taken[case]) - bare,
            unit="ms",
            reference=Reference("a bare interpreter (subtracted)", bare),
            bar=Bar("value", "<=", 150) if case == CASES[case] else None,
            asserted=not setting.quick,
            detail={"best_ms": min(taken[case]) - min(taken[""])},
        ),
        Figure(
            bench="import",
            case=f"heavy modules loaded: {case}",
            value=float(len(heavy)),
            unit="modules",
            bar=Bar("value", "<=", 0),
            asserted=not setting.quick,
            note=", ".join(heavy) or f"none of {', '.join(HEAVY)}",
        ),
    ]
