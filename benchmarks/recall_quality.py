"""Does search find what a question needs? Measured from annotated conversations, without a model as a judge.

The recordings and their metrics are next to the repository (../shared/quality) and are not part of it. Each
conversation is dispatched turn by turn to a thread of its own, as an application would; then every question is
asked through `Thread.search` and `Thread.context`. `QDATA` names another file of the same format.

    python -m benchmarks.recall_quality                 without an embedding model
    python -m benchmarks.recall_quality --embedder      with MiniLM, where its package is installed
    python -m benchmarks.recall_quality --compacted     after an automatic compaction with the defaults
    python -m benchmarks.recall_quality --agents        conversations of agents too

A hit represents its repetitions: they count as found after it (`Hit.sources`).
"""

import argparse
import asyncio
import json
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from types import ModuleType

import memory_engine
from benchmarks.compaction_quality import SharedDataMissing, quality_module
from memory_engine import CompactionPolicy, Engine, EngineConfig, Receipt, Thread
from memory_engine.context import Context
from memory_engine.core.chunks import RECALLED
from memory_engine.core.events.base import Event
from memory_engine.core.records import NewEvent
from memory_engine.events import LlmTextResponse, UserMessage
from memory_engine.recall import Embedder

Unit = Mapping[str, str]
AGENTS = ("sgd", "tau_retail", "tau_airline", "swe")
"""Conversations of agents: one that looks things up, a shop's, an airline's, and coding agents' runs."""
Item = dict[str, object]
CONTEXT_TOKENS = (250, 500, 1_000, 2_000, 4_000)
_ISO = re.compile(r"\d{4}-\d\d-\d\d")
_WHEN = re.compile(r"(?:(\d{1,2}):(\d\d) (am|pm) on )?(\d{1,2} \w+, \d{4})")


class MiniLM:
    """all-MiniLM-L6-v2 as the harness runs it: real weights from a package, on NumPy."""

    name = "all-MiniLM-L6-v2"
    dimension = 384

    def __init__(self) -> None:
        self._embed = quality_module("qembed").embed

    async def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """One vector a text."""
        return [row.tolist() for row in self._embed(list(texts))]

    async def aclose(self) -> None:
        """Nothing is open."""


class Conversation:
    """One conversation in an engine of its own, asked from synchronous code."""

    def __init__(self, units: Sequence[Unit], *, embedder: Embedder | None, compacted: bool) -> None:
        self._runner = asyncio.Runner()
        policy = CompactionPolicy() if compacted else CompactionPolicy(enabled=False)
        self._opened = memory_engine.open(":memory:", config=EngineConfig(compaction=policy), embedder=embedder)
        self.units: dict[str, str] = {}
        self.thread = self._runner.run(self._fill(units))

    async def _fill(self, units: Sequence[Unit]) -> Thread:
        engine: Engine = await self._opened.__aenter__()
        thread = await engine.create_thread()
        for unit in units:
            if "raw" in unit:
                receipts: Sequence[Receipt] = await thread.record(unit["raw"])
            else:
                receipts = [await thread.dispatch(NewEvent(as_event(unit), occurred_at=said_at(unit["date"])))]
            self.units |= {receipt.event_id: unit["id"] for receipt in receipts}
        await thread.compaction.settle()
        await thread.admin.prepare_search()
        return thread

    def search(self, question: str, limit: int) -> list[str]:
        """The ids of the best units."""
        found = self._runner.run(self.thread.search(question, limit=limit))
        return self._of([event_id for hit in found for event_id in hit.sources])

    def context(self, question: str, tokens: float) -> list[Item]:
        """The text for a model, with the units that it comes from."""
        return self._runner.run(self._context(question, int(tokens)))

    async def _context(self, question: str, tokens: int) -> list[Item]:
        context = await self.thread.context(max_tokens=tokens, query=question)
        return await self._items(context)

    async def _items(self, context: Context) -> list[Item]:
        """Recalled originals, then what else the messages show, by the units that they come of."""
        items: list[Item] = [{"text": hit.rendered(), "sources": self._of((hit.event_id,))} for hit in context.recalled]
        events = {event.seq: event.id async for event in self.thread.events()}
        shown = "\n".join(str(message.get("content")) for message in context.messages)
        for chunk in context.chunks:
            if chunk.status == RECALLED:
                continue
            if chunk.lines:
                for line in chunk.lines:
                    if line.text not in shown:
                        continue  # a summary that is cut shows its last lines
                    seqs = [int(source.partition(".")[0]) for source in line.sources]
                    items.append({"text": line.text, "sources": self._of([events[seq] for seq in seqs])})
            else:
                items.append({"text": f"{chunk.label}: {chunk.text}", "sources": self._of((events[chunk.seq],))})
        return items

    def _of(self, event_ids: Sequence[str]) -> list[str]:
        return list(dict.fromkeys(self.units[event_id] for event_id in event_ids if event_id in self.units))

    def close(self) -> None:
        """Close the engine."""
        self._runner.run(self._opened.__aexit__(None, None, None))
        self._runner.close()


def said_at(date: str) -> datetime | None:
    """When a session was, as the recordings write it."""
    if _ISO.fullmatch(date):
        return datetime.fromisoformat(date).replace(tzinfo=UTC)
    found = _WHEN.fullmatch(date)
    if found is None:
        return None
    hour = int(found[1] or 0) % 12 + (12 if found[3] == "pm" else 0)
    day = datetime.strptime(found[4], "%d %B, %Y").replace(tzinfo=UTC)
    return day.replace(hour=hour, minute=int(found[2] or 0))


def as_event(unit: Unit) -> Event:
    """The event that a turn is."""
    text = unit["text"] + (f" [image: {unit['caption']}]" if unit["caption"] else "")
    if unit["speaker"].casefold() == "assistant":
        return LlmTextResponse(content=text)
    if unit["speaker"].casefold() == "user":
        return UserMessage(content=text)
    return UserMessage(content=text, name=unit["speaker"])


def retrieval(
    *, embedder: Embedder | None = None, compacted: bool = False, conversations: int | None = None
) -> dict[str, float]:
    """Shares of gold turns among the first hits, in percent, over all questions of the first `conversations`."""
    harness = quality_module("eval_retrieval")
    data = harness.qdata.load()[:conversations]
    with _Opened(embedder, compacted) as opened:
        rows, info = harness.evaluate("locomo", lambda units, _variant: opened(units).search, data=data)
    return {**harness.agg(rows), "questions": len(rows), "p50_ms": info["p50_ms"]}


def of_agents(*, embedder: Embedder | None = None) -> dict[str, dict[str, float]]:
    """The same of conversations of agents, by set."""
    harness, agents = quality_module("eval_retrieval"), quality_module("agents")
    found: dict[str, dict[str, float]] = {}
    for name in AGENTS:
        with _Opened(embedder, compacted=False) as opened:
            rows, _ = harness.evaluate(
                name, lambda units, _variant, opened=opened: opened(units).search, data=agents.load(name)
            )
        found[name] = {**harness.agg(rows), "questions": len(rows)}
    return found


def context(*, embedder: Embedder | None = None, compacted: bool = True) -> dict[int, dict[str, float]]:
    """Share of questions that a context of a number of tokens can answer, in percent."""
    harness = quality_module("eval_context")
    compaction: ModuleType = quality_module("eval_compaction")
    with _Opened(embedder, compacted) as opened:
        found: dict[int, dict[str, float]] = harness.measure(
            compaction.prepare(compaction.load()), lambda units: opened(units).context
        )
    return found


class _Opened:
    """Opens conversations, one at a time."""

    def __init__(self, embedder: Embedder | None, compacted: bool) -> None:
        self._embedder = embedder
        self._compacted = compacted
        self._last: Conversation | None = None

    def __enter__(self) -> Callable[[Sequence[Unit]], Conversation]:
        return self._open

    def _open(self, units: Sequence[Unit]) -> Conversation:
        self.__exit__()
        self._last = Conversation(units, embedder=self._embedder, compacted=self._compacted)
        return self._last

    def __exit__(self, *_error: object) -> None:
        if self._last is not None:
            self._last.close()
            self._last = None


def main() -> None:
    """Print the figures, as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--embedder", action="store_true", help="with MiniLM")
    parser.add_argument("--compacted", action="store_true", help="after automatic compaction")
    parser.add_argument("--agents", action="store_true", help="conversations of agents too")
    parser.add_argument("--context", action="store_true", help="contexts too (slower)")
    options = parser.parse_args()
    try:
        embedder = MiniLM() if options.embedder else None
        figures: dict[str, object] = {"retrieval": retrieval(embedder=embedder, compacted=options.compacted)}
        if options.agents:
            figures["agents"] = of_agents(embedder=embedder)
        if options.context:
            figures["context"] = context(embedder=embedder)
    except SharedDataMissing as missing:
        print(missing)
        return
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
