"""A process that opens a file, searches it once, and says what that took: `python -m benchmarks.recall_child`.

Arguments: the file, the thread's id, `words` or `vectors`, and the question. Answers with one JSON object.
"""

import asyncio
import gc
import json
import sys
from pathlib import Path
from time import perf_counter_ns

import memory_engine
from benchmarks.ours import WITHOUT_COMPACTION
from memory_engine.recall import Embedder


def resident_bytes() -> int:
    """The memory of this process; 0 where the system does not report it as Linux does."""
    status = Path("/proc/self/status")
    if not status.exists():
        return 0
    lines = dict(line.split(":", 1) for line in status.read_text(encoding="utf-8").splitlines())
    return int(lines["VmRSS"].split()[0]) * 1024


async def search(path: str, thread_id: str, question: str, embedder: Embedder | None) -> dict[str, float]:
    """Milliseconds from opening to hits and of the second search, and the bytes that the first one added.

    `floor_ms` is the time to read the file next to it whose name ends with `.bytes`.
    """
    begun = perf_counter_ns()
    async with memory_engine.open(path, config=WITHOUT_COMPACTION, embedder=embedder) as engine:
        thread = engine.thread(thread_id)
        await thread.info()
        opened = perf_counter_ns()
        gc.collect()
        before = resident_bytes()
        waited = perf_counter_ns()
        found = await thread.search(question)
        first = perf_counter_ns()
        gc.collect()
        added = resident_bytes() - before
        again = perf_counter_ns()
        await thread.search(question)
        done = perf_counter_ns()
        Path(path).with_suffix(".bytes").read_bytes()
        return {
            "floor_ms": (perf_counter_ns() - done) / 1e6,
            "ms": (first - waited + opened - begun) / 1e6,
            "first_ms": (first - waited) / 1e6,
            "second_ms": (done - again) / 1e6,
            "added_bytes": added,
            "resident_bytes": before + added,
            "hits": len(found),
        }


def main() -> None:
    """Search once by words or by vectors too."""
    path, thread_id, mode, question = sys.argv[1:]
    embedder: Embedder | None = None
    if mode == "vectors":
        from benchmarks.recall_vectors import Clusters

        embedder = Clusters()
    print(json.dumps(asyncio.run(search(path, thread_id, question, embedder))))


if __name__ == "__main__":
    main()
