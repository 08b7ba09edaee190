"""What a user sees of the public face: never run, checked by mypy (strict) and pyright in `tasks.py types`."""

from collections.abc import Sequence
from pathlib import Path
from typing import assert_type

import memory_engine
from memory_engine import (
    Agent,
    Chunk,
    CompactionContext,
    CompactionReport,
    CompactionResult,
    Context,
    Domain,
    Engine,
    Kind,
    MemoryForget,
    Plugin,
    Receipt,
    RecordedEvent,
    Rows,
    Snippet,
    State,
    Tenant,
    Thread,
    ThreadInfo,
    User,
    UserMessage,
    View,
    sync,
)
from memory_engine.agents.extraction import Fact
from memory_engine.core.events.base import SummaryLine
from memory_engine.recall.hits import Found
from memory_engine.replay import VerifyReport
from memory_engine.replay.anchors import Anchor
from memory_engine.replay.bisect import Bisection
from memory_engine.replay.diff import Diff
from memory_engine.replay.export.export import ExportReport
from memory_engine.replay.export.redaction import Redaction
from memory_engine.replay.ledger import CacheLedger
from memory_engine.replay.what_if import Change, WhatIfReport
from memory_engine.replay.why import Why
from memory_engine.runtime.handle import ThreadHandle
from memory_engine.thread import Past
from memory_engine.views.conversation.view import Conversation
from memory_engine.views.documents.view import Documents
from memory_engine.views.layers.view import Memory
from memory_engine.views.patterns.view import Patterns
from memory_engine.views.playbooks.flows import Flows
from memory_engine.views.playbooks.view import Playbooks
from memory_engine.views.preferences.view import Preferences
from memory_engine.views.promotion.agent_md import AgentMd
from memory_engine.views.promotion.scorers import PromotionContext, Score
from memory_engine.views.promotion.view import Promotion
from memory_engine.views.report import Report
from memory_engine.views.scratchpad.view import Scratchpad
from memory_engine.views.screen.view import Screen
from memory_engine.views.tool_cache.view import ToolCache


class Numbers:
    """A read model of one's own: what it declares are plain attributes of a class."""

    name = "numbers"
    version = 1
    mode = "inline"
    row = int
    events = (UserMessage, MemoryForget)
    lazy = False

    def apply(self, rows: Rows[int], event: RecordedEvent) -> None:
        """Count."""
        rows.put("all", (rows.get("all") or 0) + event.seq)


class Plain:
    """The parts that an engine may be opened with, each with plain attributes."""

    name = "plain"
    dimension = 2
    exact = False
    criterion = "salience"
    threshold = 0.5

    def can_compact(self, chunks: Sequence[Chunk]) -> bool:
        """Of a compactor."""
        return bool(chunks)

    async def compact(self, chunks: Sequence[Chunk], context: CompactionContext) -> CompactionResult:
        """Of a compactor."""
        return CompactionResult(
            lines=(SummaryLine(section="progress", text=f"{len(chunks)} chunks of {context.thread_id}"),)
        )

    async def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """Of an embedder."""
        return [[1.0, 0.0] for _ in texts]

    async def rerank(self, query: str, texts: Sequence[str]) -> Sequence[float]:
        """Of a re-ranker."""
        return [float(query in text) for text in texts]

    async def score(self, snippet: Snippet, context: PromotionContext) -> Score:
        """Of a scorer."""
        return Score(value=float(snippet in context.snippets), reason="it is there")

    def count(self, text: str) -> int:
        """Of a tokenizer."""
        return len(text)

    async def aclose(self) -> None:
        """Nothing to close."""


def parts_of_ones_own(path: Path) -> None:
    """Each fits the protocol that it is meant for; lists go where tuples are kept."""
    plugin = Plugin("numbers")
    plugin.projection(Numbers())
    view: View[int] = Numbers()
    assert_type(view.row, type[int])
    plain = Plain()
    domain = Domain(kinds=[Kind("tone", allowed=["dry", "formal"], flows=["report"])])
    memory_engine.open(
        path,
        plugins=[plugin],
        compactor=plain,
        embedder=plain,
        reranker=plain,
        scorers=[plain],
        tokens=plain,
        domain=domain,
    )
    assert_type(Redaction(fields=["content"], seqs=[1, 2]).fields, tuple[str, ...])
    assert_type(Fact(key="unit", value="EUR", sources=["e1"]).sources, tuple[str, ...])


class Highlights:
    """A view of one's own."""

    def __init__(self, thread: ThreadHandle) -> None:
        self.thread = thread


async def engines(path: str) -> None:
    """What is asked of an engine."""
    async with memory_engine.open(path) as engine:
        assert_type(engine, Engine)
        assert_type(await engine.create_thread(user_id="u1"), Thread)
        assert_type(await engine.dispatch("t", UserMessage(content="Hello")), Receipt)
        assert_type(await engine.threads(), list[ThreadInfo])
        assert_type(await engine.verify(), list[VerifyReport])
        assert_type(await engine.search("parcel"), Found)
        assert_type(await engine.correlated("order-17"), list[RecordedEvent])
        assert_type(await engine.admin.anchors(), list[Anchor])
        assert_type(engine.user("u1"), User)
        assert_type(engine.tenant("acme"), Tenant)
        assert_type(engine.agent("coder"), Agent)
        assert_type(engine.user("u1").preferences, Preferences)
        assert_type(engine.user("u1").playbooks, Playbooks)
        assert_type(engine.tenant("acme").agent_md, AgentMd)
        assert_type(engine.tenant("acme").documents, Documents)
        assert_type(engine.tenant("acme").patterns, Patterns)
        assert_type(engine.agent("coder").memory, Memory)


async def threads(thread: Thread) -> None:
    """What is asked of a thread: a line a feature."""
    assert_type(await thread.dispatch_all([UserMessage(content="Hello")]), tuple[Receipt, ...])
    assert_type(await thread.state(), State)
    assert_type(await thread.context(max_tokens=8_000), Context)
    assert_type(await thread.search("parcel"), Found)
    assert_type(await thread.compact(), CompactionReport)
    assert_type(await thread.forget(chunk_ids=["1.0"]), Receipt)
    assert_type(await thread.fork(), Thread)
    assert_type(thread.views.of(Highlights), Highlights)
    assert_type(thread.scratchpad, Scratchpad)
    assert_type(thread.promotion, Promotion)
    assert_type(thread.views.flows, Flows)
    assert_type(thread.conversation, Conversation)
    assert_type(thread.tool_cache, ToolCache)
    assert_type(thread.screen, Screen)
    assert_type(thread.memory, Memory)
    assert_type(await thread.views.report(), Report)


async def older_names(thread: Thread, engine: Engine) -> None:
    """The names that moved lead to what they led to; a name that never was is an error."""
    assert_type(await thread.verify(), VerifyReport)
    assert_type(await thread.diff(1, 2), Diff)
    assert_type(await thread.undo_compaction("c", reason="wrong"), Receipt)
    assert_type(await thread.view("preferences", at=1), dict[str, object])
    assert_type(thread.flows, Flows)
    assert_type(await thread.report(), Report)
    assert_type(await engine.user("u1").chunk("1.0"), Chunk)
    assert_type(await (await thread.at(1)).export("t.jsonl"), ExportReport)
    assert_type(await engine.anchors(), list[Anchor])
    async for event in engine.reader.events(thread.id, after=0, upto=9):
        assert_type(event, RecordedEvent)
    thread.verfy  # type: ignore[attr-defined]  # pyright: ignore[reportCallIssue, reportArgumentType]  # noqa: B018
    engine.bakcup  # type: ignore[attr-defined]  # pyright: ignore[reportCallIssue, reportArgumentType]  # noqa: B018


async def looking_back(thread: Thread) -> None:
    """What is asked of a log that is there."""
    past = await thread.at(10)
    assert_type(past, Past)
    assert_type(past.seq, int)
    assert_type(await past.event(), RecordedEvent | None)
    assert_type(past.scratchpad, Scratchpad)
    assert_type(await past.context(), Context)
    assert_type(await thread.replay.diff(1, 2), Diff)
    assert_type(await thread.replay.why("1.0"), Why)
    assert_type(await thread.replay.bisect(lambda then: then.seq > 1), Bisection)
    assert_type(await thread.replay.what_if(Change()), WhatIfReport)
    assert_type(await thread.replay.ledger(), CacheLedger)
    assert_type(await thread.replay.export("t.jsonl"), ExportReport)
    assert_type(await thread.replay.verify(), VerifyReport)
    assert_type(await thread.replay.rebuild(), ThreadInfo)
    assert_type(await thread.replay.to_pytest(1), str)


def without_await(path: Path) -> None:
    """The same, for code that does not await."""
    with sync.open(path) as engine:
        assert_type(engine, sync.Engine)
        thread = engine.create_thread(user_id="u1")
        assert_type(thread, sync.Thread)
        assert_type(thread.dispatch(UserMessage(content="Hello"), event_id="x"), Receipt)
        assert_type(thread.context(max_tokens=8_000), Context)
        assert_type(list(thread.events()), list[RecordedEvent])
        assert_type(next(thread.follow()), RecordedEvent)
        assert_type(thread.at(1), sync.Past)
        assert_type(thread.at(1).seq, int)
        assert_type(thread.replay.bisect(lambda then: then.info().events > 1), Bisection)
        assert_type(thread.scratchpad, sync.Scratchpad)
        assert_type(engine.user("u1").preferences, sync.Preferences)
        assert_type(engine.tenant("acme").documents.search("revenue"), Found)
        assert_type(thread.tool_cache.cached_call("tool", {}, lambda: "result", duration=2).result, str)
        assert_type(engine.call(lambda awaiting: awaiting.thread("t").info()), ThreadInfo)
        with thread.recording() as turn:
            assert_type(turn.receipts, tuple[Receipt, ...])
        with sync.AgentLifecycle(engine, thread, agent_id="a").run("a task") as run:
            run.result = "done"


async def opened(path: Path) -> None:
    """Both ways to open an engine."""
    engine = await memory_engine.open(path)
    assert_type(engine, Engine)
    await engine.close()
