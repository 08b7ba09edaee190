"""The finds and the cost of an embedder, one line of a table each, measured the same way for any.

    python -m benchmarks.embedding                       without an embedder, and with "minilm"
    python -m benchmarks.embedding minilm my_module:E5   these; a name is what `open(embedder=…)` takes, or
                                                         module:factory of an embedder of your own
    python -m benchmarks.embedding --costs minilm        only what it costs

R@10 is the share of the turns asked for that are among the first ten hits, over the sets of `recall_quality`, each
thread through the engine. A set is below its floor where this is more than a point less than without an embedder.
Costs are those of a process of its own on one core, in the processor's time, so that a busy machine shows the same
(and a provider's model almost nothing): milliseconds for a sentence of 9 words and a passage of 200, seconds until
the first vector, and the memory that all this added.
"""

import argparse
import asyncio
import gc
import importlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from time import process_time

from benchmarks.compaction_quality import SharedDataMissing
from benchmarks.recall_child import resident_bytes
from benchmarks.recall_quality import AGENTS, of_agents, retrieval
from memory_engine.errors import MemoryEngineError
from memory_engine.llm import LiteLLMEmbedder
from memory_engine.recall import Embedder
from memory_engine.recall.embedders import MiniLMEmbedder

SETS = ("locomo", *AGENTS)
FLOOR_POINTS = 1.0
WITHOUT = "no embedder"
SENTENCE = "The flight to Rome on Friday costs ninety euros."
PASSAGE_WORDS = 200
SENTENCES, PASSAGES = 40, 8
"""How many of each are timed, one at a time; the least counts, as that which other work on the machine slowed least."""
ONE_CORE = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS"), "1")
COSTS = ("dimension", "sentence_ms", "passage_ms", "load_s", "added_mb")


def named(name: str) -> Embedder:
    """The embedder of a name. Raises `MissingExtra`, or an error of importing its module."""
    if name == "minilm":
        return MiniLMEmbedder()
    module, separator, factory = name.partition(":")
    if separator and "/" not in name:
        made: Embedder = getattr(importlib.import_module(module), factory)()
        return made
    return LiteLLMEmbedder(name)


async def costs(embedder: Embedder) -> dict[str, float]:
    """The cost of loading it and of embedding, in this process, which must not have used it yet."""
    gc.collect()
    before, begun = resident_bytes(), process_time()
    await embedder.embed(["one"])
    loaded = process_time() - begun
    words = SENTENCE.rstrip(".").split()
    passage = " ".join(words[n % len(words)] for n in range(PASSAGE_WORDS))
    sentence_ms = await _least_ms(embedder, [f"{SENTENCE} {n}" for n in range(SENTENCES)])
    passage_ms = await _least_ms(embedder, [f"{n} {passage}" for n in range(PASSAGES)])
    added = (resident_bytes() - before) / 1e6
    await embedder.aclose()
    figures = (embedder.dimension, round(sentence_ms, 2), round(passage_ms, 1), round(loaded, 1), round(added))
    return dict(zip(COSTS, figures, strict=True))


async def _least_ms(embedder: Embedder, texts: Sequence[str]) -> float:
    taken = []
    for text in texts:
        begun = process_time()
        await embedder.embed([text])
        taken.append(1_000 * (process_time() - begun))
    return min(taken)


def costs_in_a_process(name: str) -> dict[str, float]:
    """The same in a process of its own, on one core where the system can say so."""
    command = [sys.executable, "-m", "benchmarks.embedding", "--child", name]
    done = subprocess.run(command, env=os.environ | ONE_CORE, stdout=subprocess.PIPE, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def found(embedder: Embedder | None) -> dict[str, float]:
    """R@10 by set. Raises `SharedDataMissing` where the recordings are not there."""
    agents = of_agents(embedder=embedder)
    return {"locomo": retrieval(embedder=embedder)["R@10"], **{name: agents[name]["R@10"] for name in AGENTS}}


def line(name: str, spent: Mapping[str, float], shares: Mapping[str, float], floor: Mapping[str, float]) -> str:
    """One line of the table; a figure below its floor is marked."""
    cells = [f"{spent[cost]:g}" if cost in spent else "–" for cost in COSTS]
    for one in SETS:
        low = one in shares and shares[one] < floor[one] - FLOOR_POINTS
        cells.append(f"{shares[one]:.1f}{' (below)' if low else ''}" if one in shares else "–")
    return f"| {name} | {' | '.join(cells)} |"


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=["minilm"], metavar="NAME", help="embedders")
    parser.add_argument("--costs", action="store_true", help="not what they find")
    parser.add_argument("--child", metavar="NAME", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.child:
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        print(json.dumps(asyncio.run(costs(named(asked.child)))))
        return 0
    try:
        for name in asked.names:
            named(name)
        floor = {} if asked.costs else found(None)
        print(f"| embedder | {' | '.join((*COSTS, *SETS))} |\n|---|{'--:|' * len((*COSTS, *SETS))}")
        if floor:
            print(line(WITHOUT, {}, floor, floor), flush=True)
        for name in asked.names:
            shares = {} if asked.costs else found(named(name))
            print(line(name, costs_in_a_process(name), shares, floor), flush=True)
    except (SharedDataMissing, MemoryEngineError, ImportError, AttributeError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
