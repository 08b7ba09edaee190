"""An agent's run from start to end, recorded.

It works with any agent loop. The run's conversation is a thread; the agent's memory is the agent's own thread. All that
goes from the one to the other is recorded in the conversation first and arrives once, with its provenance: forgetting
an event of the conversation also forgets what the agent kept of it.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial

from attrs import evolve, frozen

from memory_engine.agents.extraction import (
    Fact,
    FactExtractor,
    Finished,
    ModelFacts,
    Said,
    StatedFacts,
)
from memory_engine.agents.people import People
from memory_engine.agents.preparation import (
    STARTED,
    TEXT_CHARS_MAX,
    Keeper,
    Known,
    Learned,
    Memories,
    Preparation,
    arrow_joined,
    known_for,
)
from memory_engine.context.ownership import Viewer
from memory_engine.core.arguments import checked_text, checked_type
from memory_engine.core.aside import aside
from memory_engine.core.cancellation import kept_time
from memory_engine.core.chunks import RECALLED, Chunk
from memory_engine.core.origins import PEOPLE
from memory_engine.core.records import NewEvent
from memory_engine.core.state import State
from memory_engine.engine import Engine, kernel_of
from memory_engine.errors import IdempotencyConflict, InvalidMemory, MemoryEngineError, TaskNotRunning
from memory_engine.events import (
    Destination,
    Event,
    Layer,
    LlmSubagentSpawn,
    LlmToolCall,
    MemoryAppended,
    MemoryRecalled,
    SubagentError,
    SubagentResult,
    SystemFailure,
    TaskAbandoned,
    TaskCompleted,
    TaskStarted,
    TaskTerminated,
    ToolCall,
    ToolError,
    ToolResult,
)
from memory_engine.language.secrets import tells_secret
from memory_engine.llm.base import MemoryModel
from memory_engine.projections.outbox import derived_id
from memory_engine.runtime.eras import era_of
from memory_engine.runtime.scoped import ScopeHandle
from memory_engine.scopes import Agent, User
from memory_engine.thread import Thread, handle_of
from memory_engine.views.layers.entries import RECALLED_MARK, check_layers
from memory_engine.views.layers.shared_memory import also_share


class Run:
    """A running task in `AgentLifecycle.run`. Set `result` before the block ends; then `learned` has the facts."""

    def __init__(self, lifecycle: "AgentLifecycle", preparation: Preparation) -> None:
        self.lifecycle = lifecycle
        self.preparation = preparation
        self.result = ""
        self.learned: tuple[Fact, ...] = ()

    async def tool_used(self, call: ToolCall, result: str | None = None, *, error: str | None = None) -> None:
        """Same as `AgentLifecycle.tool_used`."""
        await self.lifecycle.tool_used(call, result, error=error)


MEMORIES_MAX = 8
STEP_CHARS_MAX = 200


@frozen(kw_only=True)
class _ParentCall:
    """The parent's call that this run answers."""

    parent: "AgentLifecycle"
    call_id: str


class AgentLifecycle:
    """Records the runs of one agent in one conversation, one after another.

    `extractor` says what was learned (default: the engine's `memory_model`, else by form). Agent and conversation must
    belong to one tenant: the conversation's, or `tenant_id` if the conversation has none.
    """

    def __init__(  # noqa: PLR0913 - who, where and how, by keyword
        self,
        engine: Engine,
        thread: Thread,
        *,
        agent_id: str,
        tenant_id: str = "",
        extractor: FactExtractor | None = None,
        memories_max: int = MEMORIES_MAX,
    ) -> None:
        self._engine = checked_type("engine", engine, Engine, give="the engine that has the thread")
        self.thread = checked_type("thread", thread, Thread, give="the conversation, such as engine.thread(id)")
        self.agent_id = agent_id
        self._tenant_id = tenant_id
        model, timeout_s = kernel_of(engine)[MemoryModel].model, engine.config.memory_model_timeout_s
        self._extractor = extractor or (ModelFacts(model, timeout_s=timeout_s) if model is not None else StatedFacts())
        self._memories_max = memories_max
        self._task: Preparation | None = None
        self._call: _ParentCall | None = None

    @property
    def tenant_id(self) -> str:
        """The tenant of agent and conversation, known after the first start."""
        return self._tenant_id

    @property
    def agent(self) -> Agent:
        """The agent's own thread: its memory."""
        return self._engine.agent(self.agent_id, tenant_id=self._tenant_id)

    # a run

    async def start(self, task: str) -> Preparation:
        """Start a task: records it in the conversation and in episodic memory, and adds memories to the context.

        Raises `TaskNotRunning` if one is already running, `InvalidMemory` for a conversation of another tenant.
        """
        checked_text("task", task)
        if self._task is not None:
            raise TaskNotRunning(self.thread.id, "start", is_running=True)
        known = await self._known(task)
        task_id, started = kernel_of(self._engine).new_id(), kernel_of(self._engine).new_id()
        events: list[Event | NewEvent] = [
            NewEvent(TaskStarted(goal=task, task_id=task_id), id=started),
            (await self._keeper()).episode(STARTED, [f"Started: {task}"], task_id, (started,)),
        ]
        if known.note:
            events.append(
                MemoryRecalled(content=known.note, query=arrow_joined([task], TEXT_CHARS_MAX), sources=known.sources)
            )
        receipts = await self.thread.dispatch_all(events)
        await self.thread.views.delivered()
        self._task = Preparation(
            task=task,
            task_id=task_id,
            seq=receipts[0].seq,
            prompt=known.note,
            memories=known.memories,
            rules=known.rules,
            playbook=known.playbook,
            messages=(await self.thread.context()).messages,
        )
        return self._task

    async def tool_used(self, call: ToolCall, result: str | None = None, *, error: str | None = None) -> None:
        """Record a call with its result or its error, and note it in the run's working memory.

        Raises `TaskNotRunning`, and `InvalidMemory` unless you give exactly one of the two.
        """
        self._running("tool_used")
        checked_type("call", call, ToolCall, give="a ToolCall")
        if (result is None) == (error is None):
            raise InvalidMemory("result", result, "a call has either a result or an error")
        outcome: Event = (
            ToolError(call_id=call.id, content=error, name=call.name)
            if error is not None
            else ToolResult(call_id=call.id, content=result or "", name=call.name)
        )
        receipts = await self.thread.dispatch_all([LlmToolCall(calls=(call,)), outcome])
        came = [] if result is None else [result]
        if error is not None:
            came = [f"failed: {error}"]
        await self.thread.dispatch(
            MemoryAppended(
                layer="working",
                content=arrow_joined(
                    [f"{call.name}({arrow_joined([call.arguments], STEP_CHARS_MAX)})", *came], STEP_CHARS_MAX
                ),
                metadata={"tool": call.name, "call_id": call.id},
                capacity=self._engine.config.working_entries_max,
                drawn_from=tuple(receipt.seq for receipt in receipts),
            )
        )

    async def end(self, result: str = "", *, sources: Sequence[str] = ()) -> tuple[Fact, ...]:
        """End the task: its result goes to episodic memory, new facts, which are returned, to semantic memory.

        `sources` are ids of events behind the result: forgetting one also forgets what was drawn from it. After a
        cancellation, call it again: it is idempotent. Raises `TaskNotRunning`, and `IdempotencyConflict` if the task
        was ended with another result.
        """
        task = self._running("end")
        checked_text("result", result)
        done = _end_id(task, 0) + await era_of(handle_of(self.thread))
        drawn_from = (done, *sources)
        learned = await self._learned(task, Said(text=result, sources=drawn_from))
        keeper = await self._keeper()
        events: list[Event] = [
            TaskCompleted(content=result, task_id=task.task_id, lenient=True),
            keeper.episode(
                "completed", [f"Completed: {task.task}", result], task.task_id, (*drawn_from, *await self._asked(task))
            ),
            *(keeper.knowledge(one, task.task_id) for one in learned),
        ]
        call_id = self._call.call_id if self._call is not None else ""
        await self._finish(task, events, SubagentResult(call_id=call_id, content=result, agent_id=self.agent_id))
        return tuple(one.fact for one in learned)

    async def fail(self, error: BaseException | str) -> None:
        """Record in both places that the task failed or (for a cancellation) was stopped. Raises `TaskNotRunning`."""
        task = self._running("fail")
        checked_type("error", error, (str, BaseException), give="an exception, or a text")
        what = error if isinstance(error, str) else f"{type(error).__name__}: {error}".rstrip(": ")
        failed = _end_id(task, 0) + await era_of(handle_of(self.thread))
        ended: list[Event]
        if isinstance(error, asyncio.CancelledError):
            what = "stopped"
            ended = [TaskTerminated(content=what, task_id=task.task_id, lenient=True)]
        else:
            code = "" if isinstance(error, str) else type(error).__name__
            ended = [
                SystemFailure(content=what, code=code),
                TaskAbandoned(content=what, task_id=task.task_id, lenient=True),
            ]
        sources = (failed, *await self._asked(task))
        episode = (await self._keeper()).episode("failed", [f"Failed: {task.task}", what], task.task_id, sources)
        call_id = self._call.call_id if self._call is not None else ""
        await self._finish(
            task, [*ended, episode], SubagentError(call_id=call_id, content=what, agent_id=self.agent_id)
        )

    @asynccontextmanager
    async def run(self, task: str) -> AsyncIterator[Run]:
        """Start a task, and end it with the block: with `run.result`, or as failed if the block raises.

        The block's exception reaches the caller.
        """
        run = Run(self, await self.start(task))
        try:
            yield run
        except BaseException as error:  # any error is the task's failure; it goes on to the caller
            try:
                if self._task is not None:
                    await self.fail(error)
            except MemoryEngineError as unrecorded:
                error.add_note(f"that the task failed could not be recorded: {unrecorded}")
                self._task = None
            raise
        if self._task is not None:
            run.learned = await self.end(run.result)

    # sub-agents

    async def subagent(
        self,
        agent_id: str,
        task: str,
        *,
        layers: "Layer | Sequence[Layer]" = ("semantic", "procedural"),
        write: bool = False,
    ) -> "AgentLifecycle":
        """Start a sub-agent's task in its own conversation; its `end` or `fail` answers the call here.

        Memories and rules of this agent that fit the task are put into the sub-agent's context. It may read `layers` of
        this agent's memory (and with `write` append to them) through `engine.agent(id).shared(…)` until `revoke`.
        """
        self._running("subagent")
        checked_text("task", task)
        info = await self.thread.info()
        call_id = kernel_of(self._engine).new_id()
        await self.thread.dispatch(LlmSubagentSpawn(call_id=call_id, agent_id=agent_id, task=task))
        own = ScopeHandle(kernel_of(self._engine), "agent", self.agent_id, self._tenant_id)
        await also_share(own, agent_id, check_layers(layers), write=write)
        try:
            thread = await self._engine.create_thread(
                agent_id=agent_id, tenant_id=self._tenant_id, user_id=info.user_id, parent_id=self.thread.id
            )
            child = AgentLifecycle(
                self._engine,
                thread,
                agent_id=agent_id,
                tenant_id=self._tenant_id,
                extractor=self._extractor,
                memories_max=self._memories_max,
            )
            child._call = _ParentCall(parent=self, call_id=call_id)
            await child.start(task)
        except MemoryEngineError as error:
            answer = SubagentError(call_id=call_id, content=f"it could not be started: {error}", agent_id=agent_id)
            await self.thread.dispatch(answer)
            raise
        return child

    @property
    def preparation(self) -> Preparation:
        """The memory that the running task started with. Raises `TaskNotRunning`."""
        return self._running("preparation")

    # its parts

    def _running(self, what: str) -> Preparation:
        if self._task is None:
            raise TaskNotRunning(self.thread.id, what)
        return self._task

    async def _known(self, task: str) -> Known:
        info = await self.thread.info()
        if self._tenant_id and info.tenant_id not in ("", self._tenant_id):
            raise InvalidMemory("tenant_id", self._tenant_id, f"the conversation is of tenant {info.tenant_id!r}")
        self._tenant_id = self._tenant_id or info.tenant_id
        lead = self._call.parent.agent if self._call is not None else None
        user = await self._user()
        viewer = Viewer(info.user_id, self.thread.id)
        memories = Memories(agent=self.agent, lead=lead, user=user, viewer=viewer)
        known = await known_for(memories, task, self._memories_max)
        found = await user.playbooks.find(task, limit=1) if user is not None else ()
        return evolve(known, playbook=found[0].playbook.text) if found else known

    async def _user(self) -> User | None:
        """The conversation's user; `None` if unknown."""
        user_id = (await self.thread.info()).user_id
        return self._engine.user(user_id, tenant_id=self._tenant_id) if user_id else None

    async def _keeper(self) -> Keeper:
        """Makes the events that carry entries into the memories of agent and user."""
        agent = Destination(kind="agent", id=self.agent_id, tenant_id=self._tenant_id)
        known = await self._user()
        user = Destination(kind="user", id=known.scope_id, tenant_id=self._tenant_id) if known is not None else None
        return Keeper(agent, user, self.thread.id, kernel_of(self._engine).now_us())

    async def _learned(self, task: Preparation, result: Said) -> tuple[Learned, ...]:
        """The facts that the extractor found and no memory holds yet, without those that contain a secret.

        What a person said goes to that person's memory, what the agent found out to the agent's.
        """
        snippets = [s for s in await self.thread.scratchpad.read() if s.seq > task.seq and not s.recalled]
        state = await self.thread.state()
        heard, recalled = await aside(partial(_heard_and_recalled, state, task.seq), items=len(state))
        texts = sorted([(c.said_at, c.text) for c in heard] + [(s.seq, s.text) for s in snippets])
        seqs = sorted({seq for seq, _ in texts})
        ids = dict(zip(seqs, await kernel_of(self._engine).reader.ids_at(self.thread.id, seqs), strict=True))
        said = [Said(text=task.task, sources=tuple(await self._asked(task)))]
        said += [*(Said(text=text, sources=(ids[seq],)) for seq, text in texts), result]
        finished = Finished(task=task.task, said=tuple(said), recalled=(task.prompt, *recalled))
        extracting = self._extractor.extract(finished)
        facts = await kept_time("the extractor of facts", extracting, self._engine.config.call_timeout_s)
        found = {fact.key: fact for fact in facts if fact.key}
        people = People.of([(task.task, said[0].sources), *((c.text, (ids[c.said_at],)) for c in heard)])
        seq_of = {id_: seq for seq, id_ in ids.items()} | dict.fromkeys(said[0].sources, task.seq)
        user = await self._user()
        new = []
        for fact in found.values():
            is_said = not fact.sources or people.said(fact.key, fact.value, fact.sources)
            memory = (user or self.thread).memory if is_said else self.agent.memory
            known = await memory.recall(fact.key)
            if (known is None or known.value != fact.value) and not tells_secret(fact.key, fact.value):
                drawn_from = tuple(seq_of[id_] for id_ in fact.sources if id_ in seq_of)
                new.append(Learned(fact=fact, is_said=is_said, seqs=drawn_from))
        return tuple(new)

    async def _asked(self, task: Preparation) -> list[str]:
        """The id of the event that began the task: a fact that repeats the task's words was drawn from it too."""
        return await kernel_of(self._engine).reader.ids_at(self.thread.id, {task.seq})

    async def _finish(self, task: Preparation, events: Sequence[Event], answer: SubagentResult | SubagentError) -> None:
        """Record how the task ended, answer the parent's call, and deliver what is kept. Idempotent."""
        era = await era_of(handle_of(self.thread))
        ids = [_end_id(task, n) + era for n in range(len(events))]
        try:
            await self.thread.dispatch_all([NewEvent(event, id=id_) for event, id_ in zip(events, ids, strict=True)])
        except IdempotencyConflict as conflict:
            # a cancelled attempt recorded the end already: entries bear its time, so that they stay the same
            if conflict.event_id == ids[0]:
                raise
        if self._call is not None:
            await self._call.parent.thread.dispatch(answer, event_id=f"answer:{self._call.call_id}")
        self._task = None
        await self.thread.views.delivered()


def _heard_and_recalled(state: State, after: int) -> tuple[list[Chunk], list[str]]:
    """Users' messages after a seq, and the texts that came out of memory."""
    heard: list[Chunk] = []
    recalled: list[str] = []
    for chunk in state.everything():
        if chunk.type in PEOPLE and chunk.said_at > after:
            heard.append(chunk)
        if chunk.status == RECALLED or chunk.text.startswith(RECALLED_MARK):
            recalled.append(chunk.text)
    return heard, recalled


def _end_id(task: Preparation, n: int) -> str:
    """The id of an event that ends a task."""
    return derived_id("task end", task.task_id, str(n))
