"""The public face of the engine for code that does not await. Made by `python3 tasks.py sync`; do not edit."""

import os
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from typing import Any, Generic, Literal, Self, TypeVar, Unpack, overload

from memory_engine.administration.erasing import ErasureReport
from memory_engine.administration.holds import StandingHold
from memory_engine.administration.retention import RetentionReport, RetentionRule
from memory_engine.administration.store_copy import CopyProgress, CopyReport
from memory_engine.agents.extraction import Fact, FactExtractor
from memory_engine.agents.preparation import Preparation
from memory_engine.agents.tools import ToolAnswer
from memory_engine.compaction.base import Compactor
from memory_engine.compaction.listing import CompactionHistory
from memory_engine.compaction.protocol import CompactionReport
from memory_engine.context.budget import ContextPolicy, Splitter
from memory_engine.context.context import Context
from memory_engine.context.ownership import Viewer
from memory_engine.context.rendering import Message
from memory_engine.core.arguments import PathLike
from memory_engine.core.chunks import Chunk
from memory_engine.core.events.base import Content, ToolCall
from memory_engine.core.events.memory import InitialChunk
from memory_engine.core.events.registry import EventRegistry
from memory_engine.core.limits import ReadingLimits
from memory_engine.core.records import EventLike, Receipt, RecordedEvent
from memory_engine.core.state import State
from memory_engine.core.threads import CompactionPolicy, ThreadInfo
from memory_engine.engine import BeforeCompaction
from memory_engine.engine import Engine as AsyncEngine
from memory_engine.events import Layer
from memory_engine.formats.detection import Format
from memory_engine.interchange.exporting import ExportProgress, MemoriesExported
from memory_engine.interchange.importing import MemoriesImported, MemoriesProgress
from memory_engine.interchange.systems import System
from memory_engine.language.masking import Mask
from memory_engine.llm.base import LanguageModel
from memory_engine.options import Models, OlderOptions, Parts
from memory_engine.plugins import Plugin
from memory_engine.projections.base import Projection
from memory_engine.recall.hits import Found, Hit
from memory_engine.recall.index import IndexProgress
from memory_engine.replay.anchors import Anchor, Contradicted
from memory_engine.replay.bisect import Bisection
from memory_engine.replay.diff import Diff
from memory_engine.replay.divergence import VerifyReport
from memory_engine.replay.export.archive import FolderProgress, StoreExport, StoreImport
from memory_engine.replay.export.claims import ImportScopes
from memory_engine.replay.export.export import ExportReport
from memory_engine.replay.export.importer import ImportReport
from memory_engine.replay.export.redaction import Redaction
from memory_engine.replay.ledger import CacheLedger
from memory_engine.replay.quarantine import Quarantine, QuarantineReport
from memory_engine.replay.rereduce import RereduceReport
from memory_engine.replay.rewind import RewindReport
from memory_engine.replay.verify import VerifyProgress
from memory_engine.replay.what_if import Change, WhatIfReport
from memory_engine.replay.why import Why
from memory_engine.runtime.config import EngineConfig
from memory_engine.runtime.queue import BlockingReason
from memory_engine.runtime.threads import Observer
from memory_engine.storage.places import Durability
from memory_engine.store.acts import Act
from memory_engine.store.keys import KeySource
from memory_engine.store.protocol import Backup, Copied, Store, StoreStats
from memory_engine.store.reader import MomentLike
from memory_engine.views.brief.view import Brief, BriefStatement
from memory_engine.views.conversation.exchanges import Cycle, Exchange, Summary
from memory_engine.views.documents.events import DocumentPassage
from memory_engine.views.documents.fold import Described, Document, DocumentReport
from memory_engine.views.documents.readers.splitting import Splitting
from memory_engine.views.layers.entries import (
    CompactReport,
    KnowledgeEntry,
    MemoryEntry,
    MemoryHit,
    MemoryStats,
    ProceduralRule,
    SearchMode,
)
from memory_engine.views.layers.offloads import Opened
from memory_engine.views.layers.shared_memory import Grant
from memory_engine.views.memory_files.view import FileVersion, MemoryFile
from memory_engine.views.patterns.fold import Pattern, PatternHit, Proposal, Trace
from memory_engine.views.playbooks.events import PlaybookCall, PlaybookPromoted
from memory_engine.views.playbooks.flow import FlowRecord
from memory_engine.views.playbooks.playbook import Playbook
from memory_engine.views.playbooks.view import PlaybookMatch
from memory_engine.views.preferences.domain import Domain
from memory_engine.views.preferences.events import PreferenceOrigin, RuleReference
from memory_engine.views.preferences.fold import Preference
from memory_engine.views.preferences.preference import Applicable, Applied
from memory_engine.views.promotion.agent_md import AgentMdChange, OwnText, PromotedLine
from memory_engine.views.promotion.events import PromotionTarget
from memory_engine.views.promotion.fold import Verdict
from memory_engine.views.promotion.view import PromotionReport
from memory_engine.views.report import Report
from memory_engine.views.scratchpad.view import Snippet
from memory_engine.views.screen.view import ProactiveTool, ScreenRow
from memory_engine.views.statements.view import ComparedStatements, Decision
from memory_engine.views.tool_cache.view import CachedCall, CacheEntry

MYPY = False
P = TypeVar("P")
T = TypeVar("T")
V = TypeVar("V")

class Engine:
    """Dispatches events to threads and derives what people and models see. Open one with `memory_engine.open`."""
    @property
    def admin(self) -> StoreAdmin:
        """Acts on the whole store: `backup`, `rekey`, `retain`, `holds`, `acts`, `anchors` and so on."""
    def agent(self, agent_id: str, *, tenant_id: str = "") -> Agent:
        """An agent's own thread: its memory, and its grants to other agents. Raises `InvalidIdentifier`."""
    def before_compaction(self, hook: BeforeCompaction) -> Callable[[], None]:
        """Call `hook(thread, upcoming)` before each compaction and each redo; returns a function that stops it."""
    def blocking_reason(self, thread_id: str) -> BlockingReason | None:
        """Why events of a thread are waiting, or `None`. See `Admin.blocking_reason`."""
    @property
    def config(self) -> EngineConfig:
        """The configuration that the engine was opened with."""
    def copy_to(self, target: Engine, progress: CopyProgress | None = None) -> CopyReport:
        """Copy every thread of this store to another engine's store, on any back end, with the same ids and hashes."""
    def correlated(self, correlation_id: str, *, tenant_id: str = "", limit: int | None = None) -> list[RecordedEvent]:
        """The events with a correlation id, from one tenant's threads, in the order they were recorded."""
    def create_thread(
        self,
        thread_id: str = "",
        *,
        kind: str = "conversation",
        user_id: str = "",
        tenant_id: str = "",
        agent_id: str = "",
        parent_id: str = "",
        metadata: Mapping[str, str] | None = None,
        initial_chunks: Sequence[InitialChunk] = ...,
        policy: CompactionPolicy | None = None,
    ) -> Thread:
        """Create a thread. Without a `thread_id`, its id is a UUIDv7."""
    def dispatch(
        self,
        thread_id: str,
        event: EventLike,
        *,
        event_id: str = "",
        occurred_at: datetime | None = None,
        causation_id: str = "",
        correlation_id: str = "",
        expected_seq: int | None = None,
    ) -> Receipt:
        """Append one event and return its receipt once it is durable."""
    def dispatch_all(
        self, thread_id: str, events: Sequence[EventLike], *, expected_seq: int | None = None
    ) -> tuple[Receipt, ...]:
        """Append events in order, all or none (events already recorded, by id, count as appended). See `dispatch`."""
    @property
    def events(self) -> EventRegistry:
        """The event types that the engine knows."""
    def flush(self) -> None:
        """Make all acknowledged events survive a power failure, under any `durability`."""
    def industry(self, name: str) -> Industry:
        """An industry's own thread: the patterns that its tenants share. Raises `InvalidIdentifier`."""
    def is_blocked(self, thread_id: str) -> bool:
        """Whether events of a thread are waiting. See `Admin.is_blocked`."""
    def observe(self, observer: Observer) -> Callable[[], None]:
        """Call `observer` after each commit of this engine; returns a function that stops it. Its errors are logged."""
    def open_thread(
        self,
        thread_id: str,
        *,
        kind: str = "conversation",
        user_id: str = "",
        tenant_id: str = "",
        agent_id: str = "",
        parent_id: str = "",
        metadata: Mapping[str, str] | None = None,
        initial_chunks: Sequence[InitialChunk] = ...,
        policy: CompactionPolicy | None = None,
    ) -> Thread:
        """The thread with this id, created if it does not exist; tasks and processes that race all get the same thread."""
    @property
    def reducers(self) -> tuple[str, ...]:
        """The names of the reducers that the engine runs; a plug-in may replace each (`Plugin.replaces_reducer`)."""
    def register_compactor(self, compactor: Compactor) -> None:
        """Ask this compactor before all others."""
    def search(
        self,
        query: str,
        *,
        thread_ids: Collection[str] | None = None,
        kind: str | None = None,
        user_id: str | None = None,
        agent_id: str | None = None,
        tenant_id: str = "",
        limit: int = 10,
        kinds: Sequence[str] = ...,
        as_of: datetime | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        explain: bool = False,
        min_trust: str | None = None,
    ) -> Found:
        """The best passages across several threads: the given ones, or all that match every given value exactly."""
    def settle(self) -> None:
        """Wait until no compaction is running and asynchronous projections and vectors are up to date."""
    def stats(self) -> StoreStats:
        """Totals over the store."""
    def tenant(self, tenant_id: str) -> Tenant:
        """A tenant's own thread: `agent.md`, memory. Raises `InvalidIdentifier`."""
    def thread(self, thread_id: str) -> Thread:
        """A handle to a thread, whoever's it is. The first call on it raises `ThreadNotFound` if there is none."""
    def threads(
        self,
        *,
        kind: str | None = None,
        user_id: str | None = None,
        tenant_id: str | None = None,
        agent_id: str | None = None,
        parent_id: str | None = None,
        status: str | None = None,
        metadata: Mapping[str, str] | None = None,
        order: Literal["created", "updated"] = "created",
        limit: int | None = None,
        after: ThreadInfo | str | None = None,
    ) -> list[ThreadInfo]:
        """The threads that match every given value exactly, in order of creation."""
    @property
    def transfer(self) -> Transfer:
        """Logs and memories that come from files and go to files: `import_log`, `import_memories` and so on."""
    def user(self, user_id: str, *, tenant_id: str = "") -> User:
        """A user's own thread: preferences, playbooks, memory. Its first event creates it."""
    def verify(
        self, thread_ids: Collection[str] | None = None, progress: VerifyProgress | None = None
    ) -> list[VerifyReport]:
        """Verify the given threads, or all of them, but those that are deleted meanwhile (see `Replay.verify`)."""
    if MYPY:
        if os.name == "mypy":
            acts: Callable[..., Sequence[Act]]
            anchors: Callable[..., list[Anchor]]
            backup: Callable[..., Backup]
            check_anchors: Callable[..., list[Contradicted]]
            export_all: Callable[..., StoreExport]
            export_memories: Callable[..., MemoriesExported]
            finish_acts: Callable[..., list[ErasureReport]]
            holds: Callable[..., list[StandingHold]]
            import_all: Callable[..., StoreImport]
            import_log: Callable[..., ImportReport]
            import_memories: Callable[..., MemoriesImported]
            rekey: Callable[..., Backup]
            retain: Callable[..., RetentionReport]
            retain_every: Callable[..., Callable[[], None]]
    else:
        @overload
        def __getattr__(self, name: Literal["acts"]) -> Callable[..., Sequence[Act]]: ...
        @overload
        def __getattr__(self, name: Literal["anchors"]) -> Callable[..., list[Anchor]]: ...
        @overload
        def __getattr__(self, name: Literal["backup", "rekey"]) -> Callable[..., Backup]: ...
        @overload
        def __getattr__(self, name: Literal["check_anchors"]) -> Callable[..., list[Contradicted]]: ...
        @overload
        def __getattr__(self, name: Literal["export_all"]) -> Callable[..., StoreExport]: ...
        @overload
        def __getattr__(self, name: Literal["export_memories"]) -> Callable[..., MemoriesExported]: ...
        @overload
        def __getattr__(self, name: Literal["finish_acts"]) -> Callable[..., list[ErasureReport]]: ...
        @overload
        def __getattr__(self, name: Literal["holds"]) -> Callable[..., list[StandingHold]]: ...
        @overload
        def __getattr__(self, name: Literal["import_all"]) -> Callable[..., StoreImport]: ...
        @overload
        def __getattr__(self, name: Literal["import_log"]) -> Callable[..., ImportReport]: ...
        @overload
        def __getattr__(self, name: Literal["import_memories"]) -> Callable[..., MemoriesImported]: ...
        @overload
        def __getattr__(self, name: Literal["retain"]) -> Callable[..., RetentionReport]: ...
        @overload
        def __getattr__(self, name: Literal["retain_every"]) -> Callable[..., Callable[[], None]]: ...

    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...
    def close(self) -> None:
        """Close the store, when all that is under way has ended. Python's end does it too."""

    def call(self, work: Callable[[AsyncEngine], Awaitable[T]]) -> T:
        """What a coroutine function gives that takes the engine which awaits: for what the face here lacks."""

class Thread:
    """One ordered log with its own queue and state. It costs nothing; create one at any time."""

    id: str
    @property
    def admin(self) -> Admin:
        """Acts on the thread as a whole: `pause`, `clear`, `update`, `archive`, `erase`, `delete`, `hold` and so on."""
    def at(self, moment: MomentLike) -> Past:
        """The thread as it was: state, context and every view, read-only."""
    @property
    def brief(self) -> BriefView:
        """What people said and still holds, word for word, and what is pinned."""
    def compact(self, chunk_ids: Collection[str | Chunk] | None = None, *, focus: str = "") -> CompactionReport:
        """Compact all compactable chunks, or the given ones, or of the given ids, with those that must stay with them."""
    @property
    def compaction(self) -> ThreadCompactions:
        """What became of compactions: `history`, `undo`, `redo`, `originals`; and what is kept from them."""
    def context(
        self,
        max_tokens: int | None = None,
        *,
        at: MomentLike | None = None,
        query: str | None = None,
        policy: ContextPolicy | Splitter = ...,
        recall_from: Sequence[Thread] = ...,
        tools: Sequence[Mapping[str, object]] = ...,
        reserve: int = 0,
    ) -> Context:
        """The context for the next model call, within `max_tokens` (default: everything in the state)."""
    @property
    def conversation(self) -> Conversation:
        """Exchanges, the summary, and the current cycle."""
    def dispatch(
        self,
        event: EventLike,
        *,
        event_id: str = "",
        occurred_at: datetime | None = None,
        causation_id: str = "",
        correlation_id: str = "",
        expected_seq: int | None = None,
    ) -> Receipt:
        """Append one event; returns when it is durable. A mapping with a `type` is one: `{"type": "user_message", …}`."""
    def dispatch_all(self, events: Sequence[EventLike], *, expected_seq: int | None = None) -> tuple[Receipt, ...]:
        """Append events in order, all or none (events already recorded, by id, count as appended)."""
    def events(self, *, after: int = 0, upto: int | None = None) -> Iterator[RecordedEvent]:
        """The log: events with `after` < seq <= `upto` (default: the last), in order."""
    def follow(self, *, after: MomentLike | None = 0, poll_s: tuple[float, float] = ...) -> Iterator[RecordedEvent]:
        """The log and every new event, from other processes too: each event once, in order, without end."""
    def forget(
        self,
        *,
        chunk_ids: Sequence[str] = ...,
        event_ids: Sequence[str] = ...,
        seqs: Sequence[int] = ...,
        reason: str = "",
    ) -> Receipt:
        """Hide chunks, and everything derived from events (by id or seq), from every view; the log keeps them."""
    def fork(self, at: int | None = None, *, thread_id: str = "", metadata: Mapping[str, str] | None = None) -> Thread:
        """A thread that shares this one's past up to `at` (default: the head) and continues separately from there."""
    def info(self) -> ThreadInfo:
        """The thread's record and head, or its head as of then. Record and status are always today's."""
    @property
    def memory(self) -> Memory:
        """Working, episodic, semantic and procedural memory."""
    @property
    def memory_files(self) -> MemoryFiles:
        """Named texts that an agent keeps, each with its history."""
    def pin(self, text: str | Chunk, *, by_agent: bool = False, agent_id: str = "") -> Receipt:
        """Keep a text, or that of a chunk, in every context until it is unpinned (see `BriefView.pin`)."""
    @property
    def promotion(self) -> Promotion:
        """Promotes snippets of the scratchpad to preferences and `agent.md`."""
    def record(self, messages: object, *, format: Format | None = None, new_only: bool = False) -> tuple[Receipt, ...]:
        """Record a provider's message, a list of them, or a response, as its SDK returns it: all of it or nothing."""
    def recording(self, format: Format | None = None) -> Recording:
        """Record a response while it streams in: `async with thread.recording() as turn: turn.feed(chunk)`."""
    @property
    def replay(self) -> Replay[Past]:
        """Looks back: `verify`, `diff`, `why`, `bisect`, `ledger`, `what_if`, `export`, `rebuild`, `rereduce`."""
    def rewind(
        self, moment: MomentLike | None = None, *, redo: bool = False, dry_run: bool = False, reason: str = ""
    ) -> RewindReport:
        """Go back to a moment and continue from there: what came after it is taken back, by one recorded event."""
    @property
    def scratchpad(self) -> Scratchpad:
        """The scratchpad: snippets found by flows."""
    @property
    def screen(self) -> Screen:
        """The screen that the person is looking at."""
    def search(
        self,
        query: str,
        *,
        limit: int = 10,
        kinds: Sequence[str] = ...,
        at: int | None = None,
        as_of: datetime | int | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        explain: bool = False,
        min_trust: str | None = None,
    ) -> Found:
        """The passages of this thread most relevant to a question, best first, including compacted ones."""
    def state(self, *, at: MomentLike | None = None) -> State:
        """The state after the last event, or as of an earlier moment, without what was forgotten since."""
    @property
    def tool_cache(self) -> ToolCache:
        """Tool results that later exchanges may use."""
    def unpin(self, pin: int | Receipt | BriefStatement, *, reason: str = "") -> Receipt:
        """Take a pin out of the brief (see `BriefView.unpin`)."""
    @property
    def views(self) -> Views:
        """Your own views (`of`, `rows`), the rows of any by its name (`read`), `flows`, and a `report`."""
    if MYPY:
        if os.name == "mypy":
            anchor: Callable[..., Anchor]
            archive: Callable[..., None]
            as_of: int | None
            bisect: Callable[..., Bisection]
            blocking_reason: Callable[..., BlockingReason | None]
            cache_ledger: Callable[..., CacheLedger]
            chunk: Callable[..., Chunk]
            clear: Callable[..., Receipt]
            compactions: Callable[..., CompactionHistory]
            delete: Callable[..., ErasureReport]
            delivered: Callable[..., None]
            diff: Callable[..., Diff]
            end_session: Callable[..., Receipt]
            erase: Callable[..., ErasureReport]
            exists: Callable[..., bool]
            export: Callable[..., ExportReport]
            flows: Flows
            hold: Callable[..., StandingHold]
            is_blocked: Callable[..., bool]
            kind: str
            last_seq: Callable[..., int]
            latest: Callable[..., list[RecordedEvent]]
            mark_critical: Callable[..., Receipt]
            measure: Callable[..., tuple[int, int]]
            offload: Callable[..., Receipt | None]
            open: Callable[..., Opened]
            originals: Callable[..., list[Chunk]]
            pause: Callable[..., Receipt]
            prepare_search: Callable[..., None]
            quarantine: Callable[..., QuarantineReport]
            quarantines: Callable[..., tuple[Quarantine, ...]]
            rebuild: Callable[..., ThreadInfo]
            redo_compaction: Callable[..., CompactionReport]
            release: Callable[..., Sequence[StandingHold]]
            report: Callable[..., Report]
            rereduce: Callable[..., RereduceReport]
            resume: Callable[..., Receipt]
            row: Callable[..., Any]
            rows_between: Callable[..., Any]
            settle: Callable[..., None]
            to_pytest: Callable[..., str]
            unarchive: Callable[..., None]
            undo_compaction: Callable[..., Receipt]
            undo_rereduce: Callable[..., Receipt]
            update: Callable[..., Receipt]
            verify: Callable[..., VerifyReport]
            view: Callable[..., dict[str, object]]
            what_if: Callable[..., WhatIfReport]
            why: Callable[..., Why]
    else:
        @overload
        def __getattr__(self, name: Literal["anchor"]) -> Callable[..., Anchor]: ...
        @overload
        def __getattr__(
            self, name: Literal["archive", "delivered", "prepare_search", "settle", "unarchive"]
        ) -> Callable[..., None]: ...
        @overload
        def __getattr__(self, name: Literal["as_of"]) -> int | None: ...
        @overload
        def __getattr__(self, name: Literal["bisect"]) -> Callable[..., Bisection]: ...
        @overload
        def __getattr__(self, name: Literal["blocking_reason"]) -> Callable[..., BlockingReason | None]: ...
        @overload
        def __getattr__(self, name: Literal["cache_ledger"]) -> Callable[..., CacheLedger]: ...
        @overload
        def __getattr__(self, name: Literal["chunk"]) -> Callable[..., Chunk]: ...
        @overload
        def __getattr__(
            self,
            name: Literal[
                "clear", "end_session", "mark_critical", "pause", "resume", "undo_compaction", "undo_rereduce", "update"
            ],
        ) -> Callable[..., Receipt]: ...
        @overload
        def __getattr__(self, name: Literal["compactions"]) -> Callable[..., CompactionHistory]: ...
        @overload
        def __getattr__(self, name: Literal["delete", "erase"]) -> Callable[..., ErasureReport]: ...
        @overload
        def __getattr__(self, name: Literal["diff"]) -> Callable[..., Diff]: ...
        @overload
        def __getattr__(self, name: Literal["exists", "is_blocked"]) -> Callable[..., bool]: ...
        @overload
        def __getattr__(self, name: Literal["export"]) -> Callable[..., ExportReport]: ...
        @overload
        def __getattr__(self, name: Literal["flows"]) -> Flows: ...
        @overload
        def __getattr__(self, name: Literal["hold"]) -> Callable[..., StandingHold]: ...
        @overload
        def __getattr__(self, name: Literal["kind"]) -> str: ...
        @overload
        def __getattr__(self, name: Literal["last_seq"]) -> Callable[..., int]: ...
        @overload
        def __getattr__(self, name: Literal["latest"]) -> Callable[..., list[RecordedEvent]]: ...
        @overload
        def __getattr__(self, name: Literal["measure"]) -> Callable[..., tuple[int, int]]: ...
        @overload
        def __getattr__(self, name: Literal["offload"]) -> Callable[..., Receipt | None]: ...
        @overload
        def __getattr__(self, name: Literal["open"]) -> Callable[..., Opened]: ...
        @overload
        def __getattr__(self, name: Literal["originals"]) -> Callable[..., list[Chunk]]: ...
        @overload
        def __getattr__(self, name: Literal["quarantine"]) -> Callable[..., QuarantineReport]: ...
        @overload
        def __getattr__(self, name: Literal["quarantines"]) -> Callable[..., tuple[Quarantine, ...]]: ...
        @overload
        def __getattr__(self, name: Literal["rebuild"]) -> Callable[..., ThreadInfo]: ...
        @overload
        def __getattr__(self, name: Literal["redo_compaction"]) -> Callable[..., CompactionReport]: ...
        @overload
        def __getattr__(self, name: Literal["release"]) -> Callable[..., Sequence[StandingHold]]: ...
        @overload
        def __getattr__(self, name: Literal["report"]) -> Callable[..., Report]: ...
        @overload
        def __getattr__(self, name: Literal["rereduce"]) -> Callable[..., RereduceReport]: ...
        @overload
        def __getattr__(self, name: Literal["row", "rows_between"]) -> Callable[..., Any]: ...
        @overload
        def __getattr__(self, name: Literal["to_pytest"]) -> Callable[..., str]: ...
        @overload
        def __getattr__(self, name: Literal["verify"]) -> Callable[..., VerifyReport]: ...
        @overload
        def __getattr__(self, name: Literal["view"]) -> Callable[..., dict[str, object]]: ...
        @overload
        def __getattr__(self, name: Literal["what_if"]) -> Callable[..., WhatIfReport]: ...
        @overload
        def __getattr__(self, name: Literal["why"]) -> Callable[..., Why]: ...

class Past(Thread):
    """A thread after the event at `seq`, with the state, context, search and views of that moment."""
    def event(self) -> RecordedEvent | None:
        """The event at `seq`, the last one by then; `None` before the first."""
    @property
    def seq(self) -> int:
        """The seq that the thread is as of."""
    def then(self, seq: int) -> Past:
        """The same thread at another seq."""

class Replay(Generic[P]):
    """Looks back at a thread: checks its log, explains it, runs it again, writes it out, derives its rows again."""
    def anchor(self, at: MomentLike | None = None) -> Anchor:
        """The hash of the log at a moment (default: the head), to keep elsewhere and compare later."""
    def bisect(
        self,
        predicate: Callable[[P], bool],
        *,
        after: MomentLike = 0,
        upto: MomentLike | None = None,
        progress: VerifyProgress | None = None,
    ) -> Bisection:
        """The first event after which `predicate` holds, by bisection: it must be false at `after`, true at `upto`."""
    def chunk(self, chunk_id: str) -> Chunk:
        """A chunk by id, even one that a compaction covers. Raises `UnknownChunk`, `ForgottenChunk`."""
    def diff(self, a: MomentLike, b: MomentLike | None = None) -> Diff:
        """What changed from one moment to another (default: the head): chunks, fields, context, views."""
    def export(
        self,
        path: PathLike,
        *,
        upto: MomentLike | None = None,
        redaction: Redaction | None = None,
        progress: VerifyProgress | None = None,
    ) -> ExportReport:
        """Write the log to one file of JSON lines (gzip if the name ends in `.gz`): events, operations, hashes."""
    def latest(self, limit: int) -> list[RecordedEvent]:
        """The latest `limit` events, oldest first."""
    def ledger(
        self,
        *,
        after: MomentLike = 0,
        upto: MomentLike | None = None,
        max_tokens: int | None = None,
        progress: VerifyProgress | None = None,
    ) -> CacheLedger:
        """Which events changed what a provider's prompt cache held: at which byte, for how many tokens."""
    def rebuild(
        self,
        views: Collection[str] | None = None,
        *,
        search: bool | None = None,
        progress: VerifyProgress | None = None,
    ) -> ThreadInfo:
        """Derive all rows from the log again, next to the old ones, and replace those in one commit."""
    def rereduce(self, from_seq: int, *, dry_run: bool = False, reason: str = "") -> RereduceReport:
        """Repair a thread whose reducers were missing or wrong: reduce its events from `from_seq` on with today's."""
    def to_pytest(self, first: MomentLike, last: MomentLike | None = None, *, name: str = "") -> str:
        """The source of a test that runs the events `first` to `last` on the state before them, and compares."""
    def undo_rereduce(self, *, reason: str = "") -> Receipt:
        """Take back the latest `rereduce` in force: what it added is removed, what it removed comes back."""
    def verify(self, progress: VerifyProgress | None = None) -> VerifyReport:
        """Replay the log: hashes, operations, state and projections must come out the same. Writes nothing."""
    def what_if(self, change: Change, *, fork_id: str = "", progress: VerifyProgress | None = None) -> WhatIfReport:
        """Replay the log into a fork with other reducers, compactors, thresholds or edits; this thread stays unchanged."""
    def why(self, what: str | Context, *, chunks_max: int | None = None) -> Why:
        """Explain a chunk (by id) or each block of a context: a tree that ends at events."""

class Admin:
    """Acts on a thread as a whole: pausing, changing, archiving, erasing, holding. Each but `unarchive` is recorded."""
    def archive(self) -> None:
        """Take no more events, waiting ones included. The log stays readable, and `unarchive` opens it again."""
    def blocking_reason(self) -> BlockingReason | None:
        """Why events are waiting, or `None`."""
    def clear(self, reason: str = "") -> Receipt:
        """Start over: from now on state, context, search and every view are those of a new thread."""
    def delete(self, *, by: str = "", reason: str = "") -> ErasureReport:
        """Destroy the log, the state, and what its facts became in other threads: an act like `erase`."""
    def end_session(self, reason: str = "") -> Receipt:
        """End the session: EPHEMERAL chunks are removed."""
    def erase(
        self,
        event_ids: Sequence[str] = ...,
        *,
        seqs: Sequence[int] = ...,
        by: str = "",
        reason: str = "",
        dry_run: bool = False,
        prove: bool = False,
    ) -> ErasureReport:
        """Destroy the bytes of events, by id or seq, and all derived from them: see docs/how-to/forget-and-erase.md."""
    def hold(self, *, reason: str = "", by: str = "") -> StandingHold:
        """Protect this thread from destruction until `release`: attempts raise `LegalHold`."""
    def is_blocked(self) -> bool:
        """Whether events are waiting."""
    def pause(self, reason: str = "") -> Receipt:
        """Make events wait from now on, across processes and restarts, until `resume`."""
    def prepare_search(self, progress: IndexProgress | None = None) -> None:
        """Bring the index and, if there is an embedder, all vectors up to date before a first search."""
    def quarantine(
        self, source: str, *, release: bool = False, dry_run: bool = False, by: str = "", reason: str = ""
    ) -> QuarantineReport:
        """Hide what rests on a source, here and in other threads, by a recorded act; with `release` it comes back."""
    def quarantines(self) -> tuple[Quarantine, ...]:
        """The quarantines in force, in the order in which they began."""
    def release(self, *, reason: str = "", by: str = "") -> Sequence[StandingHold]:
        """End the holds set here, and return them; one on the thread's user or tenant ends there."""
    def resume(self, reason: str = "") -> Receipt:
        """Continue after `pause`: take the events that waited, in order."""
    def unarchive(self) -> None:
        """Take events again, paused if it was paused before. Does nothing for a thread that is not archived."""
    def update(
        self,
        *,
        metadata: Mapping[str, str | None] | None = None,
        policy: CompactionPolicy | Literal["default"] | None = None,
    ) -> Receipt:
        """Change the thread's metadata or its compaction policy, by a recorded event."""

class ThreadCompactions:
    """A thread's compactions: their history, undoing and redoing them, and what they may not take."""
    def history(self) -> CompactionHistory:
        """The compactions of this thread in the order in which they began, and the one that is due, if any."""
    def mark_critical(self, *chunk_ids: str) -> Receipt:
        """Protect these chunks from compaction from now on. Raises `EventRefused` for one not in the state."""
    def offload(self, *, min_chars: int = 20000, keep_chars: int = 400) -> Receipt | None:
        """Shorten chunks of `min_chars` characters or more to their beginning and a reference."""
    def open(self, reference: str, *, start: int = 0, chars: int = 4000) -> Opened:
        """A piece of the text of an off-loaded chunk (or any chunk), by id. Raises `UnknownChunk`."""
    def originals(self, chunk_id: str) -> list[Chunk]:
        """The originals behind a summary, through any number of compactions, in order."""
    def redo(self, compaction: str = "", *, compactor: Compactor | None = None) -> CompactionReport:
        """Compact the originals of a compaction again, never its summary, whether it was undone or not."""
    def settle(self) -> None:
        """Wait for a running compaction."""
    def undo(self, compaction: str = "", *, reason: str = "") -> Receipt:
        """Put the originals back in place of a compaction's summaries: by its id, a summary's id, or the latest."""

class Views:
    """The views of a thread: your own, the rows of any by its name, flows, decisions on statements, a report."""
    def delivered(self) -> None:
        """Wait until the facts that this thread has for others (a promotion, a playbook) have arrived there."""
    @property
    def flows(self) -> Flows:
        """The flows that ran, and the playbooks made from them."""
    def read(self, projection: str, *, at: MomentLike | None = None) -> dict[str, object]:
        """The rows of a registered projection by its name, up to date with the head or as of a moment."""
    def report(self, *, at: int | None = None) -> Report:
        """A report for people: memory, cached results, and the agent's messages. `at`: as of an earlier seq."""
    def row(self, projection: Projection[V], key: str) -> V | None:
        """One row of a projection, straight from the store; no other row is read."""
    def rows_between(
        self,
        projection: Projection[V],
        first: str = "",
        last: str | None = None,
        limit: int | None = None,
        *,
        latest: bool = False,
    ) -> list[tuple[str, V]]:
        """The rows with `first` <= key < `last` (`None`: to the end), in key order, straight from the store."""
    @property
    def statements(self) -> Statements:
        """Decides which statements later ones replace; searches use what is decided."""

class StoreAdmin:
    """Acts on the whole store: keys, copies, holds, retention, and the record of all of them."""
    def acts(self) -> Sequence[Act]:
        """Erasures, deletions, holds, retentions: who asked for them, why, when, and whether they are complete."""
    def anchors(self) -> list[Anchor]:
        """An anchor of each thread's head, in order of creation."""
    def backup(
        self, path: PathLike, progress: Copied | None = None, *, key: KeySource | None = None, plain: bool = False
    ) -> Backup:
        """Copy the whole store of this moment to one new file, while others keep writing; open it like any other."""
    def check_anchors(self, anchored: Sequence[Anchor]) -> list[Contradicted]:
        """The anchors that the logs here contradict: a different hash at that seq, or no such thread."""
    def finish_acts(self, *, retry_failed: bool = False) -> list[ErasureReport]:
        """Continue acts left unfinished by a process that died, or by a reader in the way."""
    def holds(self) -> list[StandingHold]:
        """The current legal holds on threads, users and tenants (see `Admin.hold`), oldest first."""
    def rekey(self, new_key: KeySource | None = None, progress: Copied | None = None, *, plain: bool = False) -> Backup:
        """Encrypt the store with a new key, or with its first; `plain=True` in place of a key decrypts it."""
    def retain(self, rules: Sequence[RetentionRule], *, by: str = "", dry_run: bool = False) -> RetentionReport:
        """Apply retention rules in order: delete, erase, forget or archive what is old enough."""
    def retain_every(self, every: timedelta, rules: Sequence[RetentionRule], *, by: str = "") -> Callable[[], None]:
        """Apply rules now and again after each `every`, while the engine is open; returns a function that stops it."""

class Transfer:
    """Logs and memories that come from files, and go to files."""
    def export_all(
        self, folder: PathLike, *, redaction: Redaction | None = None, progress: FolderProgress | None = None
    ) -> StoreExport:
        """Write every thread's log to a new folder: one file each (see `Replay.export`), and a list with digests."""
    def export_memories(
        self,
        folder: PathLike,
        *,
        user_id: str,
        tenant_id: str = "",
        logs: bool = True,
        dry_run: bool = False,
        progress: ExportProgress | None = None,
    ) -> MemoriesExported:
        """Write a user's memory to a new folder, as a Portable Memory bundle (`.mem`) with proof."""
    def import_all(
        self, folder: PathLike, *, scopes: ImportScopes = "as given", progress: FolderProgress | None = None
    ) -> StoreImport:
        """Create the threads in a folder that `export_all` wrote, each as `import_log` does."""
    def import_log(
        self,
        path: PathLike,
        *,
        thread_id: str = "",
        kinds: Collection[str] = ...,
        tenant_id: str = "",
        user_id: str = "",
        agent_id: str = "",
        parent_id: str = "",
        scopes: ImportScopes = "as given",
        progress: VerifyProgress | None = None,
    ) -> ImportReport:
        """Create a thread from a file that `Replay.export` wrote, with the same events, operations and hashes."""
    def import_memories(
        self,
        path: PathLike,
        *,
        user_id: str,
        tenant_id: str = "",
        system: System = "auto",
        source_user: str = "",
        dry_run: bool = False,
        limits: ReadingLimits | None = None,
        progress: MemoriesProgress | None = None,
    ) -> MemoriesImported:
        """Take memories that another system exported (mem0, Letta, Zep, MIF, a `.mem` bundle) as a user's."""

class Scope(Thread):
    """A thread that its first event creates; until then its views are empty."""

    scope_id: str
    tenant_id: str
    def exists(self) -> bool:
        """Whether anything was dispatched here, including facts on their way from other threads."""

class User(Scope):
    """A user's thread, which outlives conversations: preferences, playbooks, memory."""
    def erase_all(self, *, by: str = "", reason: str = "", dry_run: bool = False) -> ErasureReport:
        """Destroy everything of this user: this thread, all conversations, and what they became in other threads."""
    @property
    def playbooks(self) -> Playbooks:
        """The flows that went well, for reuse."""
    @property
    def preferences(self) -> Preferences:
        """Values and rules that change how agents behave towards this user."""

class Tenant(Scope):
    """A tenant's thread: the memory that an organisation's agents share."""
    @property
    def agent_md(self) -> AgentMd:
        """The tenant's `agent.md`."""
    @property
    def documents(self) -> Documents:
        """The organisation's documents: papers, mails, chats, transcripts of calls."""
    def erase_all(self, *, by: str = "", reason: str = "", dry_run: bool = False) -> ErasureReport:
        """Destroy everything of this tenant: all its threads, its users', and what it shared with industries."""
    @property
    def patterns(self) -> Patterns:
        """The patterns that this tenant shares with others in its industries, and those that they share."""

class Agent(Scope):
    """An agent's thread: the memory that it keeps across runs, and its grants to other agents."""
    def grants(self, *, at: int | None = None) -> list[Grant]:
        """This agent's grants of its memory to others."""
    def revoke(self, agent_id: str, *, reason: str = "") -> Receipt:
        """End the grant to an agent immediately."""
    def share_with(self, agent_id: str, *, layers: Layer | Sequence[Layer], write: bool = False) -> Receipt:
        """Let another agent of this tenant read layers of this agent's memory and, with `write`, append to them."""
    def shared(self, agent_id: str) -> SharedMemory:
        """The memory of another agent of this tenant, as far as it grants access to this one."""

class Industry(Scope):
    """An industry's thread: patterns from all its tenants, redacted, approved, without tenants' names."""

class BriefView:
    """People's statements in one thread, and which of them still apply."""
    def pin(self, text: str | Chunk, *, by_agent: bool = False, agent_id: str = "") -> Receipt:
        """Keep a text, or the text of a chunk, in the brief of every context until it is unpinned."""
    def read(self, *, at: MomentLike | None = None) -> Brief:
        """Return the brief, now or as of a moment, without what was forgotten since."""
    def unpin(self, pin: int | Receipt | BriefStatement, *, reason: str = "") -> Receipt:
        """Remove a pin, given its receipt, its statement or its seq. Raises `UnknownPin` if it is not in the thread."""

class Scratchpad:
    """Reads come from memory. The snippets live in the thread's state, in the order of their last use."""
    def clear(self) -> None:
        """Remove all snippets."""
    def get(self, snippet_id: str) -> Snippet | None:
        """One snippet by id; this counts as using it."""
    def read(self, *, flow: str | None = None, at: int | None = None) -> tuple[Snippet, ...]:
        """The snippets, oldest first: all, or those of a flow. Reading some but not others counts as using them."""
    def remove(self, *snippet_ids: str) -> None:
        """Remove snippets."""
    def write(self, text: str, *, flow: str = "", recalled: bool = False, event_id: str = "") -> Snippet:
        """Add a snippet: one or a few sentences that a flow found out. Raises `InvalidEvent` for an empty one."""

class Promotion:
    """Promotes snippets of one conversation. `route` chooses where to."""
    def accept(self, proposal_id: str, *, key: str = "", by: str = "") -> Verdict:
        """Make a proposal (by its `event_id`) the user's preference, under `key` or one made from the text."""
    def evaluate(self, *, trigger: str = "", min_trust: str | None = None) -> PromotionReport:
        """Judge every snippet. `trigger` names what asks for it, such as the id of an event; `min_trust` is as above."""
    def proposals(self, *, at: int | None = None) -> tuple[Verdict, ...]:
        """Return the proposals without an answer, oldest first."""
    def propose(self, seq: int | None = None, text: str = "") -> tuple[Verdict, ...]:
        """Propose what the user wants from now on ("always answer in French") as their preference."""
    def reject(self, proposal_id: str, *, by: str = "", reason: str = "") -> Verdict:
        """Turn a proposal down. Raises `EventNotFound` for one that does not wait."""
    def report_saved(self, title: str, content: Content = "", *, flow: str = "", event_id: str = "") -> PromotionReport:
        """Record that a report was saved, and judge every snippet."""
    def request(
        self, *snippet_ids: str, target: PromotionTarget | None = None, key: str = "", min_trust: str | None = None
    ) -> PromotionReport:
        """Promote snippets on request: by id, or `"all"`. Recalled and promoted ones stay."""
    def verdicts(self, *, at: int | None = None) -> tuple[Verdict, ...]:
        """Return every verdict, oldest first."""

class Flows:
    """The flows of one conversation. `judge` reads what a message says about the flow before it."""
    def all(self, *, at: int | None = None) -> tuple[FlowRecord, ...]:
        """Every run, oldest first."""
    def completed(
        self,
        flow_dact: str,
        *,
        user_query: str,
        slots: Mapping[str, object] | None = None,
        tool_calls: Sequence[PlaybookCall] = ...,
        outcome: str = "",
        flow_id: str = "",
    ) -> FlowRecord:
        """Record that a flow completed. Without a `flow_id` the run gets one."""
    def feedback(self, satisfied: bool, *, flow_id: str = "", content: str = "") -> FlowRecord:
        """Record a person's feedback on a flow (default: the last one). A satisfied one makes it a playbook at once."""
    def get(self, flow_id: str, *, at: int | None = None) -> FlowRecord:
        """One run. Raises `UnknownFlow`."""
    def prepare(self, flow_dact: str, user_query: str, *, threshold: float | None = None) -> Playbook | None:
        """Before a skill is invoked: put the best-fitting playbook of this conversation's user on the scratchpad."""
    def review(self, user_message: str) -> tuple[PlaybookPromoted, ...]:
        """Judge flows not judged yet by the user's next message; returns the playbooks promoted."""

class Conversation:
    """Exchanges, the summary of older ones, and the current cycle, of one thread."""
    def context(self, max_tokens: int | None = None, *, at: int | None = None, policy: ContextPolicy = ...) -> Context:
        """The context of `prepare_messages`: like `Thread.context`, with exchanges in place of turns."""
    def current(self, *, at: int | None = None) -> Cycle | None:
        """The current cycle; `None` while no question waits."""
    def exchanges(self, *, at: int | None = None) -> list[Exchange]:
        """The live exchanges, oldest first, including messages from outside a cycle."""
    def finalize_cycle(self, question: Content, answer: str) -> Exchange:
        """Close the open cycle with its final answer, then fold exchanges over the limits into the summary."""
    def memory(self, *, at: int | None = None) -> dict[str, object]:
        """The whole memory as plain JSON values, under the field's usual names."""
    def messages(self, *, at: int | None = None) -> list[Message]:
        """The agent's messages now (or, with `at`, at an earlier seq). Changes nothing."""
    def prepare_messages(
        self, user_message: Content, max_tokens: int | None = None, *, policy: ContextPolicy = ...
    ) -> list[Message]:
        """Open a cycle with a person's question, and return the messages for the next model call."""
    def summary(self, *, at: int | None = None) -> Summary | None:
        """The summary of older exchanges; `None` before the first one."""
    def whole_answer(self, exchange: Exchange) -> str:
        """The full answer, from the log; empty if the exchange was forgotten after you read it."""

class ToolCache:
    """The cache of one thread. Every change is an event, so it outlives the process and forks with the thread."""
    def add(
        self,
        tool: str,
        parameters: Mapping[str, object],
        result: str,
        duration: int | None = None,
        *,
        llm_cache_duration: int | None = None,
        call_id: str = "",
        failed: bool = False,
    ) -> CacheEntry | None:
        """Keep a result for `duration` finished exchanges, replacing an older one of the same call."""
    def cached_call(
        self, tool: str, parameters: Mapping[str, object], call: Callable[[], str], *, duration: int, call_id: str = ""
    ) -> CachedCall:
        """The cached result, else the result of `call`, which is then cached. `call` may be a function without `async`."""
    def clear(self) -> None:
        """Remove all results."""
    def drop(self, tool: str, parameters: Mapping[str, object]) -> bool:
        """Remove one result. Returns whether it was cached."""
    def entries(self, *, at: int | None = None) -> list[CacheEntry]:
        """Everything cached (now, or at an earlier seq `at`), in the order it was cached."""
    def lookup(self, tool: str, parameters: Mapping[str, object]) -> CacheEntry | None:
        """The result of exactly this call, if cached. It counts as a hit: the duration starts over."""
    def peek(self, tool: str, parameters: Mapping[str, object], *, at: int | None = None) -> CacheEntry | None:
        """The result of exactly this call, if cached (or if it was, with `at` an earlier seq). Changes nothing."""

class Screen:
    """The screen of one thread's session."""
    def current(self, *, at: int | None = None) -> ScreenRow | None:
        """The screen that the agent has in this session, if any and not forgotten since."""
    def inject(self, content: str, results: Sequence[ProactiveTool] = ..., *, session_id: str = "") -> list[Message]:
        """Tell the agent about the screen: an assistant message, then a call and its result for each tool."""
    def is_injected(self, *, at: int | None = None) -> bool:
        """Whether the agent has the screen in this session (or that of an earlier seq)."""

class Statements:
    """Decides which of a thread's statements later ones replace. Searches use what is decided."""
    def compare(self, *questions: str, pairs_max: int = ..., model: LanguageModel | None = None) -> ComparedStatements:
        """Ask a model about pairs of statements that questions raise, each pair once, and record each answer."""
    def decisions(self, *, at: int | None = None) -> tuple[Decision, ...]:
        """Return what is decided of each pair, oldest decision first. `at`: as of an earlier seq."""
    def still_holds(self, decision: Decision | Hit | str, *, by: str = "") -> Receipt:
        """Overrule a decision: the earlier statement still holds. No model decides about this pair again."""

class Memory:
    """Working, episodic, semantic and procedural memory of one thread. Everything in it comes from the log."""
    def append(
        self,
        layer: Layer,
        entry: str | MemoryEntry | Mapping[str, object],
        *,
        metadata: Mapping[str, object] | None = None,
        key: str = "",
        condition: str = "",
        id: str = "",
        timestamp: datetime | float | None = None,
        recalled: bool = False,
    ) -> MemoryEntry:
        """Add an entry: its content, or the whole entry as an object or a mapping. Id and time are filled in."""
    def clear(self, layer: Layer | None = None, *, reason: str = "") -> None:
        """Empty a layer, or all of them. The log keeps their entries."""
    def compact(
        self, layer: Layer, *, keep_last: int = ..., summarize_older: bool = True, model: LanguageModel | None = None
    ) -> CompactReport:
        """Replace all but the last entries with a summary; with `summarize_older=False` they are just removed."""
    def entries(self, layer: Layer, *, at: int | None = None) -> list[MemoryEntry]:
        """All entries of a layer, oldest first, after a summary of older ones."""
    def get_stats(self) -> MemoryStats:
        """Counts, working memory's tokens, and the bytes that all layers take. Always current: there is no `at`."""
    def learn(
        self, key: str | KnowledgeEntry | Mapping[str, object], value: str | None = None, *, recalled: bool = False
    ) -> KnowledgeEntry:
        """Store a fact under its key, replacing the previous one. Raises `InvalidMemory`, `InvalidEvent`."""
    def open(self, entry_id: str) -> list[MemoryEntry]:
        """An entry by id, even one that a summary covers; for a summary, the entries it covers, in order."""
    def originals(self, summary: MemoryEntry | MemoryHit) -> list[MemoryEntry]:
        """The entries that a summary covers, in order. Raises `UnknownMemory` if it no longer exists."""
    def recall(self, key: str, *, at: int | None = None) -> KnowledgeEntry | None:
        """The fact under a key; `None` without one."""
    def remove(self, entry_id: str, layer: Layer, *, reason: str = "") -> int:
        """Remove the entries with this id from a layer, and from its summary; returns how many there were."""
    def rules(self, *, at: int | None = None) -> list[ProceduralRule]:
        """The rules of procedural memory, oldest first."""
    def search(
        self,
        layer: Layer | Sequence[Layer] | None,
        query: str = "",
        limit: int = 10,
        *,
        last: int | None = None,
        mode: SearchMode = "hybrid",
        at: int | None = None,
    ) -> list[MemoryHit]:
        """The entries of one layer, several or all (`None`) that best match a query, best first."""
    def seen_in(self, thread_id: str) -> Memory:
        """The same memory without what people said in conversations other than this, but for those of its user."""

class SharedMemory:
    """Another agent's memory, within its grants to this one. Every call checks the grant again."""
    def append(
        self,
        layer: Layer,
        entry: str | MemoryEntry | Mapping[str, object],
        *,
        metadata: Mapping[str, object] | None = None,
        key: str = "",
        condition: str = "",
        timestamp: datetime | float | None = None,
        recalled: bool = False,
    ) -> Receipt:
        """Add an entry to the owner's memory: recorded here, and delivered there when this returns."""
    def granted(self) -> Grant | None:
        """The current grant."""
    def learn(self, key: str, value: str) -> Receipt:
        """Add a fact to the owner's memory. Raises `NotGranted`, and the errors of `Memory.learn`."""
    def recall(self, key: str) -> KnowledgeEntry | None:
        """The owner's knowledge under a key. Raises `NotGranted`."""
    def rules(self) -> list[ProceduralRule]:
        """The owner's rules. Raises `NotGranted`."""
    def search(
        self, layer: Layer | Sequence[Layer] | None, query: str, limit: int = 10, *, mode: SearchMode = "hybrid"
    ) -> list[MemoryHit]:
        """Like `Memory.search`; `None` searches all granted layers. Raises `NotGranted` for any other layer."""

class Preferences:
    """Values and rules that change how agents behave towards one user, in all conversations. Reads come from memory."""
    def all(self, *, at: int | None = None) -> dict[str, Preference]:
        """Every current preference by key, in order of keys."""
    def applicable(
        self,
        flow: str | None = None,
        query: str | None = None,
        *,
        hops: int = ...,
        limit: int = ...,
        threshold: float | None = None,
        at: int | None = None,
    ) -> Applicable:
        """The preferences that apply, each with a score and the reason; includes the persona's and defaults."""
    def apply(self, situation: Mapping[str, object], *, flow: str | None = None, query: str | None = None) -> Applied:
        """Apply the rules whose conditions the situation meets: slots by name, a template's text under `"template"`."""
    def find(self, key: str, *, at: int | None = None) -> Preference | None:
        """The current preference under a key, with its origin. `at`: as of an earlier seq."""
    def get(self, key: str, default: object = None, *, at: int | None = None) -> object:
        """The current value: the stored one, else the persona's, else the domain's default, else `default`."""
    def remove(self, key: str, *, reason: str = "") -> bool:
        """Restore the persona's value or the default; returns whether anything was stored. If not, records no event."""
    def seed(self, answers: Mapping[str, object] = ..., *, persona: str | None = None) -> tuple[Preference, ...]:
        """Onboarding: store answers, the persona, and the domain's seeds for open questions; all or nothing."""
    def update(
        self,
        key: str,
        value: object = ...,
        *,
        rule: RuleReference | None = None,
        reason: str = "",
        origin: PreferenceOrigin = "explicit",
        event_id: str = "",
    ) -> Preference:
        """Set a preference: a value, a rule, or a rule with a value; returns the preference under the key."""

class Playbooks:
    """A user's playbooks."""
    def all(self, *, at: int | None = None) -> tuple[Playbook, ...]:
        """Every playbook, most recently successful first."""
    def find(
        self,
        query: str | None = None,
        *,
        flow: str | None = None,
        limit: int = 3,
        threshold: float | None = None,
        at: int | None = None,
    ) -> tuple[PlaybookMatch, ...]:
        """At most `limit` playbooks, best first."""
    def get(self, playbook_id: str, *, at: int | None = None) -> Playbook | None:
        """One playbook by id."""
    def remove(self, playbook_id: str, *, reason: str = "") -> bool:
        """Remove a playbook; returns whether it existed. The same recipe may come back when it works again."""
    def save(
        self,
        flow_dact: str,
        *,
        user_query: str,
        slots: Mapping[str, object] | None = None,
        tool_calls: Sequence[PlaybookCall] = ...,
        outcome: str = "",
        reason: str = "",
    ) -> Playbook:
        """Keep a recipe by hand; for a known one, counts one more success."""

class Documents:
    """A tenant's documents. They enter a model's context only when someone searches."""
    def add(
        self,
        source: PathLike,
        *,
        title: str = "",
        id: str = "",
        splitting: Splitting = ...,
        limits: ReadingLimits = ...,
    ) -> tuple[Document, ...]:
        """Add a file (a `Path`; a folder, a mailbox or an export is many documents) or a text (a `str`)."""
    def add_text(
        self, text: str, *, title: str, id: str = "", described: Described = ..., splitting: Splitting = ...
    ) -> Document:
        """Add a text, plain or Markdown. Under an existing `id` it becomes that document's new version."""
    def get(self, id: PathLike, *, at: int | None = None) -> Document | None:
        """One document by id; a path means that file's document."""
    def ingest(
        self,
        paths: PathLike | Iterable[PathLike],
        *,
        splitting: Splitting = ...,
        limits: ReadingLimits = ...,
        progress: Callable[[DocumentReport], None] | None = None,
    ) -> DocumentReport:
        """Add files, and everything in folders: one path, or several."""
    def list(self, *, at: int | None = None) -> tuple[Document, ...]:
        """All documents, in order of id."""
    def passages(self, id: PathLike) -> tuple[DocumentPassage, ...]:
        """The passages of a document now, in reading order; empty if there is no such document."""
    def remove(self, id: PathLike, *, reason: str = "") -> int:
        """Remove a document with all its versions: no search finds it again, as of any seq. Returns how many went."""
    def search(self, query: str, *, limit: int = 10, at: int | None = None) -> Found:
        """The passages that best answer a question, best first; `document_id_of(hit.key)` gives their document."""

class MemoryFiles:
    """The files of one thread: an agent's, a user's, or a conversation's. Paths are relative, such as `notes/jdk.md`."""
    def clear(self) -> Receipt | None:
        """Delete all files. `None` without any."""
    def create(self, path: str, content: str) -> Receipt:
        """Create a file."""
    def delete(self, path: str) -> Receipt:
        """Delete a file, or a folder with all its files. The log keeps them. Raises `UnknownMemoryFile`."""
    def edit(self, path: str, change: Callable[[str], str], *, how: str = "edit") -> Receipt:
        """Replace a file's text with what `change` returns for it; `how` names the edit in the history."""
    def get(self, path: str, *, at: MomentLike | None = None) -> MemoryFile | None:
        """The file at a path, or `None`."""
    def history(self, path: str = "") -> Sequence[FileVersion]:
        """The events of the file at a path, oldest first, also from before it moved there, and of deleted ones there."""
    def list(self, folder: str = "", *, at: MomentLike | None = None) -> list[MemoryFile]:
        """The files in a folder and below it (default: all), in order of path."""
    def move(self, path: str, to: str) -> Receipt:
        """Move a file, or a folder with all its files, to another path."""
    def read(self, path: str, *, at: MomentLike | None = None) -> str:
        """The text of a file. Raises `UnknownMemoryFile`."""

class Patterns:
    """A tenant's part in the patterns of industries. Nothing leaves before a named person approves it."""
    def approve(self, proposal_id: int, text: str | None = None, *, by: str) -> str:
        """Release a proposal, unchanged or as a person rewrote it (`text`, which is redacted too)."""
    def join(self, industry: str, *, by: str = "", min_tenants: int = 1) -> None:
        """Opt in: read an industry's patterns from now on, and be able to share some. Joining again changes nothing."""
    def joined(self) -> tuple[str, ...]:
        """The industries that the tenant is in, by name."""
    def leave(self, industry: str, *, by: str = "", reason: str = "") -> None:
        """Opt out: withdraws the tenant's shares there, drops proposals, ends reading. Raises `NotJoined`."""
    def list(self, industry: str = "") -> tuple[Pattern, ...]:
        """The patterns of an industry, or of all that the tenant is in, oldest first. Raises `NotJoined`."""
    def propose(self, line: int | str, *, industry: str = "", by: str = "") -> Proposal:
        """Redact a promoted line, by its id or its text, and submit it for review. Nothing leaves yet."""
    def reject(self, proposal_id: int, *, by: str, reason: str = "") -> None:
        """Reject a proposal. The line may be proposed again. Raises `UnknownPattern`."""
    def review(self, industry: str = "") -> tuple[Proposal, ...]:
        """The proposals that wait for review: each line with the text that would leave, oldest first."""
    def revoke(self, pattern: str, *, by: str, reason: str = "", industry: str = "") -> None:
        """Withdraw what this tenant shares under a pattern's id, in one industry or all. Raises `UnknownPattern`."""
    def search(self, query: str, *, limit: int = 10, industry: str = "") -> tuple[PatternHit, ...]:
        """The patterns most relevant to a question, best first, each once. Raises `NotJoined`, `InvalidSearch`."""
    def shared(self, industry: str = "") -> tuple[Pattern, ...]:
        """This tenant's shares, in one industry or all, also those that wait for others to say the same."""
    def trace(self, pattern: str) -> tuple[Trace, ...]:
        """Where a pattern comes from, per industry where it is visible: for other tenants, only their number."""

class AgentMd:
    """A tenant's `agent.md`. People write it and promotion adds lines; neither touches the other's part."""
    def export(self, path: PathLike) -> None:
        """Write the whole to a file, which you can edit and upload again. Raises `OSError`."""
    def lines(self, *, at: int | None = None) -> tuple[PromotedLine, ...]:
        """The promoted lines with their origin, oldest first."""
    def own_text(self, *, at: int | None = None) -> str:
        """People's own text."""
    def parts(self) -> tuple[OwnText | None, tuple[PromotedLine, ...]]:
        """People's own text with its origin, and the promoted lines, oldest first."""
    def read(self, *, at: int | None = None) -> str:
        """The whole file as Markdown: people's own text, byte for byte, then the promoted lines with their ids."""
    def remove(self, *line_ids: int, reason: str = "") -> None:
        """Remove promoted lines. Raises `UnknownLine`. The same text may be promoted again, as a new line."""
    def upload(self, markdown: PathLike) -> AgentMdChange:
        """Replace people's own text with a text, or the text of a file (a `Path`)."""

class Recording:
    """A response that streams in. `text` is what it has said so far; its receipts and calls are there at the end."""

    receipts: tuple[Receipt, ...]
    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The calls that were recorded, for you to run."""
    def feed(self, chunk: object) -> None:
        """Take the next chunk or event of the stream, as the SDK gives it (`{}`: nothing). Raises `InvalidMessage`."""
    @property
    def text(self) -> str:
        """The text so far."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *error: object) -> bool | None: ...

class AgentLifecycle:
    """Records the runs of one agent in one conversation, one after another."""

    agent_id: str
    @property
    def agent(self) -> Agent:
        """The agent's own thread: its memory."""
    def end(self, result: str = "", *, sources: Sequence[str] = ...) -> tuple[Fact, ...]:
        """End the task: its result goes to episodic memory, new facts, which are returned, to semantic memory."""
    def fail(self, error: BaseException | str) -> None:
        """Record in both places that the task failed or (for a cancellation) was stopped. Raises `TaskNotRunning`."""
    @property
    def preparation(self) -> Preparation:
        """The memory that the running task started with. Raises `TaskNotRunning`."""
    def run(self, task: str) -> AbstractContextManager[Run]:
        """Start a task, and end it with the block: with `run.result`, or as failed if the block raises."""
    def start(self, task: str) -> Preparation:
        """Start a task: records it in the conversation and in episodic memory, and adds memories to the context."""
    def subagent(
        self, agent_id: str, task: str, *, layers: Layer | Sequence[Layer] = ..., write: bool = False
    ) -> AgentLifecycle:
        """Start a sub-agent's task in its own conversation; its `end` or `fail` answers the call here."""
    @property
    def tenant_id(self) -> str:
        """The tenant of agent and conversation, known after the first start."""
    def tool_used(self, call: ToolCall, result: str | None = None, *, error: str | None = None) -> None:
        """Record a call with its result or its error, and note it in the run's working memory."""
    def __init__(
        self,
        engine: Engine,
        thread: Thread,
        *,
        agent_id: str,
        tenant_id: str = "",
        extractor: FactExtractor | None = None,
        memories_max: int = ...,
    ) -> None: ...

class Run:
    """A running task in `AgentLifecycle.run`. Set `result` before the block ends; then `learned` has the facts."""

    lifecycle: AgentLifecycle
    preparation: Preparation
    result: str
    learned: tuple[Fact, ...]
    def tool_used(self, call: ToolCall, result: str | None = None, *, error: str | None = None) -> None:
        """Same as `AgentLifecycle.tool_used`."""

class MemoryTools:
    """Runs a model's calls on a thread's memory. `scratchpad` is the conversation that the agent works in."""
    def call(self, name: str, arguments: str | bytes | Mapping[str, object] = "{}") -> ToolAnswer:
        """Run one call; its arguments are the model's JSON text, or a mapping."""
    def __init__(
        self,
        memory: Thread,
        scratchpad: Thread | None = None,
        *,
        viewer: Viewer | None = None,
        changes_shared: bool = False,
        min_trust: str | None = None,
    ) -> None: ...

def open(
    path: PathLike | Store = "memory.db",
    *,
    config: EngineConfig = ...,
    plugins: Sequence[Plugin] = ...,
    entry_points: bool = False,
    key: KeySource | None = None,
    durability: Durability = "normal",
    models: Models | None = None,
    compactor: Compactor | None = None,
    before_compaction: Sequence[BeforeCompaction] = ...,
    domain: Domain | PathLike | None = None,
    mask: Mask | None = ...,
    parts: Parts | None = None,
    **older: Unpack[OlderOptions],
) -> Engine:
    """Open a memory: an SQLite file's path, `":memory:"`, a server's URL, or your own store (closed with the engine)."""

def restore(
    backup: PathLike,
    path: PathLike,
    progress: Copied | None = None,
    *,
    key: KeySource | None = None,
    new_key: KeySource | None = None,
    plain: bool = False,
) -> Backup:
    """Create a new store from a backup: a copy, checked like it (see `StoreAdmin.backup`). The backup stays unchanged."""
