"""The handle to one thread: the object that users hold."""

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Literal, TypeVar

from memory_engine.administration.handle import Grouped
from memory_engine.compaction.base import chunk_ids_of
from memory_engine.compaction.service import CompactionService
from memory_engine.context.budget import DEFAULT_POLICY, ContextPolicy, Splitter
from memory_engine.core.arguments import checked_call, checked_text
from memory_engine.core.aside import imported
from memory_engine.core.chunks import Chunk
from memory_engine.core.events.memory import ExecutionResume, MemoryMarkCritical, SessionEnded, ThreadCleared
from memory_engine.core.lazy import lazy_module, lazy_modules
from memory_engine.core.records import Receipt
from memory_engine.core.threads import CompactionPolicy, as_metadata
from memory_engine.errors import UnknownChunk
from memory_engine.recall.service import Recall, search_thread
from memory_engine.runtime.delivery import Relay
from memory_engine.runtime.handle import PastHandle
from memory_engine.runtime.queue import BlockingReason
from memory_engine.store.reader import MomentLike, seq_of

if TYPE_CHECKING:
    from memory_engine.administration import of_thread
    from memory_engine.compaction import listing, undo
    from memory_engine.compaction.base import Compactor
    from memory_engine.compaction.protocol import CompactionReport
    from memory_engine.context import thread_context
    from memory_engine.context.context import Context
    from memory_engine.formats.detection import Format
    from memory_engine.recall.hits import Found
    from memory_engine.recall.index import IndexProgress
    from memory_engine.runtime import life
    from memory_engine.runtime import messages as provider_messages
    from memory_engine.runtime import recording as recordings
    from memory_engine.views import report as reports
    from memory_engine.views.brief import view as briefs
    from memory_engine.views.conversation import view as conversation
    from memory_engine.views.layers import offloads
    from memory_engine.views.layers import view as layers
    from memory_engine.views.memory_files import view as memory_files
    from memory_engine.views.playbooks import flows
    from memory_engine.views.promotion import view as promotion
    from memory_engine.views.scratchpad import view as scratchpad
    from memory_engine.views.screen import view as screen
    from memory_engine.views.statements import view as statements
    from memory_engine.views.tool_cache import view as tool_cache
else:
    of_thread = lazy_module("memory_engine.administration.of_thread")
    thread_context = lazy_module("memory_engine.context.thread_context")
    briefs = lazy_module("memory_engine.views.brief.view")
    conversation = lazy_module("memory_engine.views.conversation.view")
    memory_files = lazy_module("memory_engine.views.memory_files.view")
    flows = lazy_module("memory_engine.views.playbooks.flows")
    promotion = lazy_module("memory_engine.views.promotion.view")
    reports = lazy_module("memory_engine.views.report")
    scratchpad = lazy_module("memory_engine.views.scratchpad.view")
    screen = lazy_module("memory_engine.views.screen.view")
    statements = lazy_module("memory_engine.views.statements.view")
    tool_cache = lazy_module("memory_engine.views.tool_cache.view")
    listing, undo = lazy_modules("memory_engine.compaction", "listing undo")
    life, provider_messages, recordings = lazy_modules("memory_engine.runtime", "life messages recording")
    offloads, layers = lazy_modules("memory_engine.views.layers", "offloads view")

V = TypeVar("V")


class Thread(Grouped):
    """One ordered log with its own queue and state. A handle costs nothing; create one at any time."""

    # messages of model providers

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
        return await provider_messages.record(self, messages, format=format, new_only=new_only)

    def recording(self, format: "Format | None" = None) -> "recordings.Recording":
        """Record a response while it streams in: `async with thread.recording() as turn: turn.feed(chunk)`.

        At the end the response is recorded as if it had come whole. If the stream breaks off, what arrived is recorded
        with `interrupted` set in its text; its calls wait for no result. `turn.text` is the text so far;
        `turn.receipts` and `turn.calls` are there at the end.
        """
        return recordings.Recording(self, format)

    # context and search

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
            self, max_tokens, at=at, query=query, policy=policy, recall_from=recall_from, tools=tools, reserve=reserve
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
    ) -> "Found":
        """The passages of this thread most relevant to a question, best first, including compacted ones.

        Searches everything in the log except summaries of it, or only the given `kinds` (see `Hit.kind`). `at`: as of
        an earlier seq; `since` and `until` bound when it was said, ends included. Of two statements on the matter you
        ask about, the one that is true now comes first; `as_of` asks what was true then: at a moment (nothing said
        later counts), or after the event at a seq. `explain` gives each hit the signals behind its score. A thread's
        first search builds its index.

        Raises `ThreadNotFound`, `InvalidSearch` for arguments without meaning, and `ValueError` if the thread has no
        event at `at`.
        """
        return await search_thread(
            self, query, limit=limit, kinds=kinds, at=at, as_of=as_of, since=since, until=until, explain=explain
        )

    async def prepare_search(self, progress: "IndexProgress | None" = None) -> None:
        """Bring the index and, if there is an embedder, all vectors up to date before a first search.

        `progress` is called with how much is done and the total. Raises `ModelError`.
        """
        checked_call("progress", progress)
        if await self.exists():
            await self.kernel[Recall].prepare(self.id, progress)

    # views

    def of(self, view: "Callable[[Thread], V]") -> V:
        """Your own view, a class that takes a handle: `thread.of(Highlights)` is `Highlights(thread)`."""
        return view(self)

    @property
    def brief(self) -> "briefs.BriefView":
        """What people said and still holds, word for word, and what is pinned."""
        return briefs.BriefView(self)

    @property
    def scratchpad(self) -> "scratchpad.Scratchpad":
        """The scratchpad: snippets found by flows."""
        return scratchpad.Scratchpad(self)

    @property
    def promotion(self) -> "promotion.Promotion":
        """Promotes snippets of the scratchpad to preferences and `agent.md`."""
        return promotion.Promotion(self)

    @property
    def flows(self) -> "flows.Flows":
        """The flows that ran, and the playbooks made from them."""
        return flows.Flows(self)

    @property
    def conversation(self) -> "conversation.Conversation":
        """Exchanges, the summary, and the current cycle."""
        return conversation.Conversation(self)

    @property
    def tool_cache(self) -> "tool_cache.ToolCache":
        """Tool results that later exchanges may use."""
        return tool_cache.ToolCache(self)

    @property
    def memory_files(self) -> "memory_files.MemoryFiles":
        """Named texts that an agent keeps, each with its history."""
        return memory_files.MemoryFiles(self)

    @property
    def screen(self) -> "screen.Screen":
        """The screen that the person is looking at."""
        return screen.Screen(self)

    @property
    def statements(self) -> "statements.Statements":
        """Decides which statements later ones replace; searches use what is decided."""
        return statements.Statements(self)

    @property
    def memory(self) -> "layers.Memory":
        """Working, episodic, semantic and procedural memory."""
        return layers.Memory(self)

    async def report(self, *, at: int | None = None) -> "reports.Report":
        """A report for people: memory, cached results, and the agent's messages. `at`: as of an earlier seq."""
        await imported(reports)
        return await reports.memory_report(self, at=await self.upto(at))

    # memory
    async def pin(self, text: str | Chunk, *, by_agent: bool = False, agent_id: str = "") -> Receipt:
        """Keep a text, or that of a chunk, in every context until it is unpinned (see `BriefView.pin`)."""
        return await briefs.BriefView(self).pin(text, by_agent=by_agent, agent_id=agent_id)

    async def unpin(self, pin: "int | Receipt | briefs.BriefStatement", *, reason: str = "") -> Receipt:
        """Take a pin out of the brief (see `BriefView.unpin`)."""
        return await briefs.BriefView(self).unpin(pin, reason=reason)

    async def mark_critical(self, *chunk_ids: str) -> Receipt:
        """Protect these chunks from compaction from now on. Raises `EventRefused` for one not in the state."""
        return await self.dispatch(MemoryMarkCritical(chunk_ids=chunk_ids))

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
        return await life.forget(self, chunk_ids=chunk_ids, event_ids=event_ids, seqs=seqs, reason=reason)

    async def clear(self, reason: str = "") -> Receipt:
        """Start over: from now on state, context, search and every view are those of a new thread.

        The log keeps what came before: read it with `at`, which also shows what a context was made of then; `why` says
        what cleared a chunk. Initial chunks and the session's instructions go too; give them again. What this thread
        gave to others (promoted facts, shared memory) stays there: use `forget` for that. Metadata, scopes and policy
        stay. A running compaction ends first, as for every event. Raises what `dispatch` raises.
        """
        return await self.dispatch(ThreadCleared(reason=reason))

    async def delivered(self) -> None:
        """Wait until the facts that this thread has for others (a promotion, a playbook) have arrived there."""
        if self.as_of is None:
            await self.kernel[Relay].deliver(self.id)

    async def offload(self, *, min_chars: int = 20_000, keep_chars: int = 400) -> Receipt | None:
        """Shorten chunks of `min_chars` characters or more to their beginning and a reference.

        The log keeps them whole; read on with `open`. Returns `None` if there are no such chunks.
        """
        return await offloads.offload(self, min_chars=min_chars, keep_chars=keep_chars)

    async def open(self, reference: str, *, start: int = 0, chars: int = 4_000) -> "offloads.Opened":
        """A piece of the text of an off-loaded chunk (or any chunk), by id. Raises `UnknownChunk`."""
        return await offloads.open_reference(self, reference, start=start, chars=chars)

    # queue
    async def is_blocked(self) -> bool:
        """Whether events are waiting."""
        return await self.blocking_reason() is not None

    async def blocking_reason(self) -> BlockingReason | None:
        """Why events are waiting, or `None`."""
        return (await self.runtime()).queue.blocking_reason if self.as_of is None else None

    async def pause(self, reason: str = "") -> Receipt:
        """Make events wait from now on, across processes and restarts, until `resume`."""
        return await life.pause(self, reason)

    async def resume(self, reason: str = "") -> Receipt:
        """Continue after `pause`: take the events that waited, in order."""
        return await self.dispatch(ExecutionResume(content=reason))

    # compaction

    async def compact(self, chunk_ids: Collection[str | Chunk] | None = None, *, focus: str = "") -> "CompactionReport":
        """Compact all compactable chunks, or the given ones, or of the given ids, with those that must stay with them.

        `focus` says in words what this summary should keep in detail; it takes nothing away from what a summary must
        hold, and gives it no more room. Raises `NothingToCompact`, or `CompactorFailed` with the originals in place.
        """
        self.check_present("compaction")
        self.kernel.check_writable("a compaction")  # before a model is asked
        runtime = await self.runtime()
        wanted = None if chunk_ids is None else chunk_ids_of(chunk_ids)
        for chunk_id in wanted or ():
            if runtime.state.get(chunk_id) is None:
                raise UnknownChunk("compact", chunk_id)
        return await self.kernel[CompactionService].compact(runtime, wanted, focus=checked_text("focus", focus))

    async def settle(self) -> None:
        """Wait for a running compaction."""
        if self.as_of is None:
            await self.kernel[CompactionService].settle(await self.runtime())

    async def originals(self, chunk_id: str) -> list[Chunk]:
        """The originals behind a summary, through any number of compactions, in order.

        Leaves out forgotten ones. Raises `UnknownChunk`, `ForgottenChunk`.
        """
        reader = self.kernel.reader
        found = await reader.originals(self.id, await self.chunk(chunk_id))
        shown = await reader.shown(self.id, [chunk.id for chunk in found])
        return list(shown.values())

    async def compactions(self) -> "listing.CompactionHistory":
        """The compactions of this thread in the order in which they began, and the one that is due, if any.

        Tries that failed or were abandoned are among them, with the reason; of the others, whether their summaries
        still stand, and which event took them. Reads the log from the first compaction on.
        """
        return await listing.compactions(self)

    async def undo_compaction(self, compaction: str = "", *, reason: str = "") -> Receipt:
        """Put the originals back in place of a compaction's summaries: by its id, a summary's id, or the latest.

        Chunks forgotten since stay forgotten. Raises `CompactionNotLive` if later compactions cover it.
        """
        self.check_present("undoing")
        await imported(undo)
        return await undo.undo_compaction(self, compaction, reason=reason)

    async def redo_compaction(
        self, compaction: str = "", *, compactor: "Compactor | None" = None
    ) -> "CompactionReport":
        """Compact the originals of a compaction again, never its summary, whether it was undone or not.

        With `compactor`, only that one does it. Raises `CompactionNotLive`, and what `compact` raises.
        """
        self.check_present("compaction")
        await imported(undo)
        return await undo.redo_compaction(self, compaction, compactor=compactor)

    # life
    async def fork(
        self, at: int | None = None, *, thread_id: str = "", metadata: Mapping[str, str] | None = None
    ) -> "Thread":
        """A thread that shares this one's past up to `at` (default: the head) and continues separately from there."""
        seq = await self.upto(at)
        seq = await self.last_seq() if seq is None else seq
        return Thread(self.kernel, await life.fork(self, seq, thread_id=thread_id, metadata=as_metadata(metadata)))

    async def end_session(self, reason: str = "") -> Receipt:
        """End the session: EPHEMERAL chunks are removed."""
        return await self.dispatch(SessionEnded(content=reason))

    async def update(
        self,
        *,
        metadata: Mapping[str, str | None] | None = None,
        policy: "CompactionPolicy | Literal['default'] | None" = None,
    ) -> Receipt:
        """Change the thread's metadata or its compaction policy, by a recorded event.

        Metadata keys that you give are set, those with `None` are removed, and all others stay, so concurrent changes
        to different keys all apply. A policy is replaced whole; `"default"` restores the engine's. Raises
        `InvalidIdentifier`, `InvalidArgument`, `InvalidPolicy`, and what `dispatch` raises.
        """
        return await life.update(self, as_metadata(metadata), policy)

    # looking back, and administration

    @property
    def replay(self) -> "of_thread.Replay[Past]":
        """Looks back: `verify`, `diff`, `why`, `bisect`, `ledger`, `what_if`, `export`, `rebuild`, `rereduce`."""
        return of_thread.Replay(self)

    @property
    def admin(self) -> "of_thread.Admin":
        """Acts on the thread as a whole: `archive`, `erase`, `delete`, `hold`, `release`."""
        return of_thread.Admin(self)

    async def at(self, moment: MomentLike) -> "Past":
        """The thread as it was: state, context and every view, read-only.

        A moment is a seq (0: before the first event), an event's id, or a time with a zone, which means after the last
        event recorded at or before it. Raises `SeqNotInLog`, `EventNotFound`.
        """
        return Past(self.kernel, self.id, await seq_of(self.kernel.store, self.id, moment))


class Past(PastHandle, Thread):
    """A thread after the event at `seq`: state, context, search and every view, as they were.

    In thread methods that take `at`, this seq is the default and the upper limit. Every call that would write raises
    `PastIsReadOnly`; `fork` starts here. Reading it writes at most caches, and nothing if the engine is read-only.
    """
