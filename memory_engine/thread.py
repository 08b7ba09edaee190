"""The public face of one thread: the object that users hold."""

from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar, cast, overload

from memory_engine.compaction.base import chunk_ids_of
from memory_engine.compaction.service import CompactionService
from memory_engine.context.budget import DEFAULT_POLICY, ContextPolicy, Splitter
from memory_engine.core.arguments import checked_text
from memory_engine.core.aside import imported
from memory_engine.core.chunks import Chunk
from memory_engine.core.lazy import lazy_module, lazy_modules
from memory_engine.core.records import EventLike, Receipt, RecordedEvent
from memory_engine.core.state import State
from memory_engine.core.threads import ThreadInfo, as_metadata
from memory_engine.errors import UnknownChunk
from memory_engine.moved import OldThreadNames
from memory_engine.recall.service import search_thread
from memory_engine.runtime.config import POLL_S
from memory_engine.runtime.handle import PastHandle, ThreadHandle
from memory_engine.runtime.threads import OpenThreads
from memory_engine.store.reader import MomentLike

if TYPE_CHECKING:
    from memory_engine.administration import compactions, of_thread
    from memory_engine.compaction.protocol import CompactionReport
    from memory_engine.context import thread_context
    from memory_engine.context.context import Context
    from memory_engine.formats.detection import Format
    from memory_engine.recall.hits import Found
    from memory_engine.replay import rewind as rewinding
    from memory_engine.runtime import life
    from memory_engine.runtime import messages as provider_messages
    from memory_engine.runtime import recording as recordings
    from memory_engine.views import of_thread as views
    from memory_engine.views.brief import view as briefs
    from memory_engine.views.conversation import view as conversation
    from memory_engine.views.layers import view as layers
    from memory_engine.views.memory_files import view as memory_files
    from memory_engine.views.promotion import view as promotion
    from memory_engine.views.scratchpad import view as scratchpad
    from memory_engine.views.screen import view as screen
    from memory_engine.views.tool_cache import view as tool_cache
else:
    compactions, of_thread = lazy_modules("memory_engine.administration", "compactions of_thread")
    thread_context = lazy_module("memory_engine.context.thread_context")
    views = lazy_module("memory_engine.views.of_thread")
    briefs = lazy_module("memory_engine.views.brief.view")
    conversation = lazy_module("memory_engine.views.conversation.view")
    layers = lazy_module("memory_engine.views.layers.view")
    memory_files = lazy_module("memory_engine.views.memory_files.view")
    promotion = lazy_module("memory_engine.views.promotion.view")
    scratchpad = lazy_module("memory_engine.views.scratchpad.view")
    rewinding = lazy_module("memory_engine.replay.rewind")
    screen = lazy_module("memory_engine.views.screen.view")
    tool_cache = lazy_module("memory_engine.views.tool_cache.view")
    life, provider_messages, recordings = lazy_modules("memory_engine.runtime", "life messages recording")

V = TypeVar("V")


class Thread(OldThreadNames):
    """One ordered log with its own queue and state. It costs nothing; create one at any time.

    The verbs of an agent's loop are here; the others are in groups: `compaction`, `views`, `replay`, `admin`. The first
    call raises `ThreadNotFound` if the thread does not exist. A method with `at`, a moment (see `at`), reads the thread
    as of then.
    """

    def __init__(self, handle: ThreadHandle) -> None:
        self.id: str = handle.id
        self._handle = handle

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.id!r})"

    def _repr_html_(self) -> str:
        """Its chunks, for a notebook, if it is in memory; nothing is read for it."""
        from memory_engine.core.notebook import table

        held = self._handle.kernel[OpenThreads].held(self.id)
        if held is None:
            return table(f"Thread {self.id}, not read yet: see `await thread.info()`", (), ())
        return held.state.as_html(f"Thread {self.id}")

    # events

    async def dispatch(  # noqa: PLR0913 - what an envelope holds, by keyword
        self,
        event: EventLike,
        *,
        event_id: str = "",
        occurred_at: datetime | None = None,
        causation_id: str = "",
        correlation_id: str = "",
        expected_seq: int | None = None,
    ) -> Receipt:
        """Append one event; returns when it is durable. A mapping with a `type` is one: `{"type": "user_message", …}`.

        With your own `event_id`, dispatching again returns the first receipt. With `expected_seq` the event is appended
        only if the thread holds nothing after it, else `Conflict` names the head: read again what you changed, then
        dispatch again. Pass the seq of the head, or of any event after which you have read the thread; 0 means no
        events. The engine's own events (a compaction, a pause, delivered facts) change nothing that you hold
        and never conflict; everything else does, whoever dispatched it.

        Raises `InvalidEvent`, `EventTooLarge`, `UnknownEventClass`, `ThreadNotFound`, `ThreadClosed`, `EventRefused`
        for an event that does not fit the state, `ReducerError`, `IdempotencyConflict`, `QueueFull`, `PastIsReadOnly`,
        `WrongEventLoop`, or a `StorageError`; then nothing was written.
        """
        return await self._handle.dispatch(
            event,
            event_id=event_id,
            occurred_at=occurred_at,
            causation_id=causation_id,
            correlation_id=correlation_id,
            expected_seq=expected_seq,
        )

    async def dispatch_all(
        self, events: Sequence[EventLike], *, expected_seq: int | None = None
    ) -> tuple[Receipt, ...]:
        """Append events in order, all or none (events already recorded, by id, count as appended).

        `expected_seq` works as in `dispatch`. Raises what `dispatch` raises.
        """
        return await self._handle.dispatch_all(events, expected_seq=expected_seq)

    async def record(
        self, messages: object, *, format: "Format | None" = None, new_only: bool = False
    ) -> tuple[Receipt, ...]:
        """Record a provider's message, a list of them, or a response, as its SDK returns it: all of it or nothing.

        Takes chat-completions messages, Responses items, and messages of Anthropic, Gemini and LangChain, as dicts or
        SDK objects; where they fit several formats, `format` decides. A response that comes again, by its provider's
        id, gives its first receipts; one that comes in several messages goes on. With `new_only`, the list is the
        conversation so far, or its end: messages that the thread holds are skipped. Raises as `dispatch_all`, and
        `InvalidMessage` for what is no message, `NotContinued` for a list that does not clearly continue the thread.
        """
        return await provider_messages.record(self._handle, messages, format=format, new_only=new_only)

    def recording(self, format: "Format | None" = None) -> "recordings.Recording":
        """Record a response while it streams in: `async with thread.recording() as turn: turn.feed(chunk)`.

        At the end the response is recorded as if it had come whole. If the stream breaks off, what arrived is recorded
        with `interrupted` set in its text; its calls wait for no result. `turn.text` is the text so far;
        `turn.receipts` and `turn.calls` are there at the end.
        """
        return recordings.Recording(self._handle, format)

    async def events(self, *, after: int = 0, upto: int | None = None) -> AsyncIterator[RecordedEvent]:
        """The log: events with `after` < seq <= `upto` (default: the last), in order."""
        async for event in self._handle.events(after=after, upto=upto):
            yield event

    def follow(
        self, *, after: MomentLike | None = 0, poll_s: tuple[float, float] = POLL_S
    ) -> AsyncIterator[RecordedEvent]:
        """The log and every new event, from other processes too: each event once, in order, without end.

        `after` is a moment (see `Thread.at`; `None`: the last event, so you get only new ones). Events from this engine
        come at once; for others the store is polled after `poll_s[0]` seconds, then less and less often, down to every
        `poll_s[1]`. Waits for a scope's thread that does not exist yet.

        You can stop or cancel at any time, also with a timeout around `anext`: it continues where it was, and holds
        nothing between two events. To continue in another process, keep the `seq` of the last event you took, and
        follow after it. It ends only with an error: `EngineClosed` when the engine closes, `ThreadNotFound` when the
        thread is deleted, `IntegrityError` if the log is broken. Raises `InvalidArgument` and `PastIsReadOnly` at once,
        `SeqNotInLog` and `EventNotFound` with the first event.
        """
        return self._handle.follow(after=after, poll_s=poll_s)

    # state, context and search

    async def info(self) -> ThreadInfo:
        """The thread's record and head, or its head as of then. Record and status are always today's."""
        return await self._handle.info()

    async def state(self, *, at: MomentLike | None = None) -> State:
        """The state after the last event, or as of an earlier moment, without what was forgotten since.

        Shows commits of other processes within `EngineConfig.follow_s`. Raises `SeqNotInLog`, `EventNotFound`.
        """
        return await self._handle.state(at=at)

    async def context(  # noqa: PLR0913 - what it is asked for with, by keyword
        self,
        max_tokens: int | None = None,
        *,
        at: MomentLike | None = None,
        query: str | None = None,
        policy: ContextPolicy | Splitter = DEFAULT_POLICY,
        recall_from: "Sequence[Thread]" = (),
        tools: Sequence[Mapping[str, object]] = (),
        reserve: int = 0,
    ) -> "Context":
        """The context for the next model call, within `max_tokens` (default: everything in the state).

        Over the hard limit it waits for a compaction first. Raises `ContextBudgetError`, with the budget that works, if
        the chunks that must be included do not fit. `at` gives the context as of an earlier moment. The tokens of
        `tools` (in the provider's form; else `InvalidTool`) and `reserve` for the answer are subtracted from the
        budget.

        What applies to every call (the user's preferences, the tenant's `agent.md`, the agent's memory, …) comes in
        separate blocks, which `policy` chooses. With a `query`, relevant passages of the log are recalled too, in one
        block before the newest turn; `policy` then also divides the budget. Raises `InvalidSearch` for `recall_from`
        without a query, or with threads that do not share this one's tenant, user or agent.
        """
        await imported(thread_context)
        return await thread_context.thread_context(
            self._handle,
            max_tokens,
            at=at,
            query=query,
            policy=policy,
            recall_from=_handles_of(recall_from),
            tools=tools,
            reserve=reserve,
        )

    async def search(  # noqa: PLR0913 - what narrows a search, by keyword
        self,
        query: str,
        *,
        limit: int = 10,
        kinds: Sequence[str] = (),
        at: int | None = None,
        as_of: "datetime | int | None" = None,
        since: datetime | None = None,
        until: datetime | None = None,
        explain: bool = False,
        min_trust: str | None = None,
    ) -> "Found":
        """The passages of this thread most relevant to a question, best first, including compacted ones.

        Searches everything in the log except summaries of it, or only the given `kinds` (see `Hit.kind`). `at`: as of
        an earlier seq; `since` and `until` bound when it was said, ends included. Of two statements on the matter you
        ask about, the one that is true now comes first; `as_of` asks what was true then: at a moment (nothing said
        later counts), or after the event at a seq. `explain` gives each hit the signals behind its score. `min_trust`
        leaves out what has a lower origin ("operator", "person", "agent", "imported" or "tool"), and `Found.untrusted`
        counts it. A thread's first search builds its index.

        Raises `ThreadNotFound`, `InvalidSearch` for arguments without meaning, and `ValueError` if the thread has no
        event at `at`.
        """
        return await search_thread(
            self._handle,
            query,
            limit=limit,
            kinds=kinds,
            at=at,
            as_of=as_of,
            since=since,
            until=until,
            explain=explain,
            min_trust=min_trust,
        )

    # views

    @property
    def brief(self) -> "briefs.BriefView":
        """What people said and still holds, word for word, and what is pinned."""
        return briefs.BriefView(self._handle)

    @property
    def scratchpad(self) -> "scratchpad.Scratchpad":
        """The scratchpad: snippets found by flows."""
        return scratchpad.Scratchpad(self._handle)

    @property
    def promotion(self) -> "promotion.Promotion":
        """Promotes snippets of the scratchpad to preferences and `agent.md`."""
        return promotion.Promotion(self._handle)

    @property
    def conversation(self) -> "conversation.Conversation":
        """Exchanges, the summary, and the current cycle."""
        return conversation.Conversation(self._handle)

    @property
    def tool_cache(self) -> "tool_cache.ToolCache":
        """Tool results that later exchanges may use."""
        return tool_cache.ToolCache(self._handle)

    @property
    def memory_files(self) -> "memory_files.MemoryFiles":
        """Named texts that an agent keeps, each with its history."""
        return memory_files.MemoryFiles(self._handle)

    @property
    def screen(self) -> "screen.Screen":
        """The screen that the person is looking at."""
        return screen.Screen(self._handle)

    @property
    def memory(self) -> "layers.Memory":
        """Working, episodic, semantic and procedural memory."""
        return layers.Memory(self._handle)

    # memory
    async def pin(self, text: str | Chunk, *, by_agent: bool = False, agent_id: str = "") -> Receipt:
        """Keep a text, or that of a chunk, in every context until it is unpinned (see `BriefView.pin`)."""
        return await briefs.BriefView(self._handle).pin(text, by_agent=by_agent, agent_id=agent_id)

    async def unpin(self, pin: "int | Receipt | briefs.BriefStatement", *, reason: str = "") -> Receipt:
        """Take a pin out of the brief (see `BriefView.unpin`)."""
        return await briefs.BriefView(self._handle).unpin(pin, reason=reason)

    async def forget(
        self,
        *,
        chunk_ids: Sequence[str] = (),
        event_ids: Sequence[str] = (),
        seqs: Sequence[int] = (),
        reason: str = "",
    ) -> Receipt:
        """Hide chunks, and everything derived from events (by id or seq), from every view; the log keeps them.

        Facts drawn from them for a user, a tenant or an agent are forgotten there too. Raises `EventNotFound`,
        `SeqNotInLog`, `UnknownChunk` for what the log does not hold. An error from one of those threads (such as
        `ThreadClosed` for an archived one) is raised at the end, when all is forgotten here and in the others.
        """
        return await life.forget(self._handle, chunk_ids=chunk_ids, event_ids=event_ids, seqs=seqs, reason=reason)

    # compaction

    async def compact(self, chunk_ids: Collection[str | Chunk] | None = None, *, focus: str = "") -> "CompactionReport":
        """Compact all compactable chunks, or the given ones, or of the given ids, with those that must stay with them.

        `focus` says in words what this summary should keep in detail; it takes nothing away from what a summary must
        hold, and gives it no more room. Raises `NothingToCompact`, or `CompactorFailed` with the originals in place.
        """
        handle = self._handle
        handle.check_present("compaction")
        handle.kernel.check_writable("a compaction")  # before a model is asked
        runtime = await handle.runtime()
        wanted = None if chunk_ids is None else chunk_ids_of(chunk_ids)
        for chunk_id in wanted or ():
            if runtime.state.get(chunk_id) is None:
                raise UnknownChunk("compact", chunk_id)
        return await handle.kernel[CompactionService].compact(runtime, wanted, focus=checked_text("focus", focus))

    # life

    async def rewind(
        self, moment: MomentLike | None = None, *, redo: bool = False, dry_run: bool = False, reason: str = ""
    ) -> "rewinding.RewindReport":
        """Go back to a moment and continue from there: what came after it is taken back, by one recorded event.

        It leaves the context, search, brief and every view, and so do the facts that other threads have from it. The
        log keeps it, and `at` still shows it. What was forgotten stays forgotten; metadata and policy stay as they
        are. `redo` brings back what the latest rewind in force took back, and takes back what came since; so does a
        rewind to the moment before that. `dry_run` only reports what would change. Waits for a running compaction.

        Raises `CannotRewind` if nothing would change, `SeqNotInLog`, `EventNotFound`, `EventTooLarge` if the chunks
        that come back exceed the maximum size of an event, `InvalidArgument` for a moment with `redo`, and what
        `dispatch` raises. An error from a thread that facts went to is raised at the end, when all is recorded here.
        """
        self._handle.check_present("a rewind")
        await imported(rewinding)
        return await rewinding.rewind(self._handle, moment, redo=redo, dry_run=dry_run, reason=reason)

    async def fork(
        self, at: int | None = None, *, thread_id: str = "", metadata: Mapping[str, str] | None = None
    ) -> "Thread":
        """A thread that shares this one's past up to `at` (default: the head) and continues separately from there."""
        handle = self._handle
        seq = await handle.upto(at)
        seq = await handle.last_seq() if seq is None else seq
        forked = await life.fork(handle, seq, thread_id=thread_id, metadata=as_metadata(metadata))
        return Thread(ThreadHandle(handle.kernel, forked))

    async def at(self, moment: MomentLike) -> "Past":
        """The thread as it was: state, context and every view, read-only.

        A moment is a seq (0: before the first event), an event's id, or a time with a zone, which means after the last
        event recorded at or before it. Raises `SeqNotInLog`, `EventNotFound`.
        """
        return Past(await self._handle.at(moment))

    def _view_of_thread(self, view: "Callable[[Thread], V]") -> V:
        return view(self)  # as `of` made them, before there were handles to give

    # groups

    @property
    def compaction(self) -> "compactions.ThreadCompactions":
        """What became of compactions: `history`, `undo`, `redo`, `originals`; and what is kept from them."""
        return compactions.ThreadCompactions(self._handle)

    @property
    def views(self) -> "views.Views":
        """Your own views (`of`, `rows`), the rows of any by its name (`read`), `flows`, and a `report`."""
        return views.Views(self._handle)

    @property
    def replay(self) -> "of_thread.Replay[Past]":
        """Looks back: `verify`, `diff`, `why`, `bisect`, `ledger`, `what_if`, `export`, `rebuild`, `rereduce`."""
        return of_thread.Replay(self._handle, Past)

    @property
    def admin(self) -> "of_thread.Admin":
        """Acts on the thread as a whole: `pause`, `clear`, `update`, `archive`, `erase`, `delete`, `hold` and so on."""
        return of_thread.Admin(self._handle)


class Past(Thread):
    """A thread after the event at `seq`, with the state, context, search and views of that moment.

    In thread methods that take `at`, this seq is the default and the upper limit. Every call that would write raises
    `PastIsReadOnly`; `fork` starts here. Reading it writes at most caches, and nothing if the engine is read-only.
    """

    def __init__(self, handle: PastHandle) -> None:
        super().__init__(handle)
        self._past = handle

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.id!r}, seq={self.seq})"

    @property
    def seq(self) -> int:
        """The seq that the thread is as of."""
        return self._past.seq

    def then(self, seq: int) -> "Past":
        """The same thread at another seq."""
        return Past(self._past.then(seq))

    async def event(self) -> RecordedEvent | None:
        """The event at `seq`, the last one by then; `None` before the first."""
        return await self._past.event()


@overload
def handle_of(thread: Past | PastHandle) -> PastHandle: ...
@overload
def handle_of(thread: Thread | ThreadHandle) -> ThreadHandle: ...
def handle_of(thread: Thread | ThreadHandle) -> ThreadHandle:
    """The handle that a thread holds: what views and adapters are made of."""
    return thread._handle if isinstance(thread, Thread) else thread


def _handles_of(threads: Sequence[Thread]) -> Sequence[ThreadHandle]:
    """Return the handles of threads. Pass on anything that is not a sequence: its reader refuses it by name."""
    if not isinstance(cast("object", threads), Sequence):
        return cast("Sequence[ThreadHandle]", threads)
    return [handle_of(one) for one in threads]
