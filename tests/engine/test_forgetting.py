"""Forgetting: a text that is forgotten by the event that brought it is found nowhere afterwards."""

from collections.abc import Awaitable, Callable, Sequence

import pytest

import memory_engine
from memory_engine import (
    Add,
    Chunk,
    CompactionPolicy,
    Engine,
    EngineConfig,
    Event,
    LlmToolCall,
    Plugin,
    ReduceContext,
    Reduction,
    StateView,
    Thread,
    ToolCall,
    ToolResult,
    UserMessage,
)
from memory_engine import events as e
from memory_engine.agents import AgentLifecycle
from memory_engine.core.records import StoredEvent
from memory_engine.engine import kernel_of
from memory_engine.errors import StorageBusy, ThreadClosed
from memory_engine.events import Destination, PlaybookCall
from memory_engine.projections.base import event_types
from memory_engine.projections.outbox import folds_of
from memory_engine.runtime.delivery import Relay
from memory_engine.storage.memory import MemoryStore
from memory_engine.testing import FaultyStore
from memory_engine.thread import handle_of
from memory_engine.views.screen.view import ProactiveTool
from memory_engine.wiring import builtin_projections
from tests.conversations import turns

SECRET = "zyzzyva"
SAID = f"Always show the {SECRET} totals of every account."
CONFIG = EngineConfig(compaction=CompactionPolicy(enabled=False, keep_recent=0))

Path = Callable[[Thread], Awaitable[str]]
"""Brings the secret into a conversation, copies it, and gives the id of the event that brought it."""


async def said(thread: Thread) -> str:
    """A message."""
    return (await thread.dispatch(UserMessage(content=SAID))).event_id


async def compacted_twice(thread: Thread) -> str:
    """A message in a summary of a summary."""
    receipt = await thread.dispatch(UserMessage(content=SAID * 20))
    for start in (1, 7):
        await thread.dispatch_all(turns(6, start=start))
        await thread.compact()
    return receipt.event_id


async def marked(thread: Thread) -> str:
    """A message marked critical."""
    receipt = await thread.dispatch(UserMessage(content=SAID))
    await thread.compaction.mark_critical(receipt.chunks[0].id)
    return receipt.event_id


async def offloaded_then_compacted(thread: Thread) -> str:
    """A large result, shortened, the rest of it in a summary."""
    await thread.dispatch(LlmToolCall(calls=(ToolCall(id="c1", name="look"),)))
    receipt = await thread.dispatch(ToolResult(call_id="c1", content=f"{SAID}\n" + " and so on" * 5_000))
    await thread.compaction.offload()
    await thread.compact()
    return receipt.event_id


async def goal(thread: Thread) -> str:
    """The goal of a task that is over."""
    receipt = await thread.dispatch(e.TaskStarted(goal=SAID))
    await thread.dispatch(e.TaskCompleted(content="done"))
    return receipt.event_id


async def todo(thread: Thread) -> str:
    """An item that was changed twice."""
    receipt = await thread.dispatch(e.TodoSet(items=(e.TodoItem(id="1", text=SAID),)))
    await thread.dispatch_all([e.TodoUpdated(id="1", status="in_progress"), e.TodoCompleted(id="1")])
    return receipt.event_id


async def promoted(thread: Thread) -> str:
    """A snippet that rose to the user's preferences, and another to the tenant's `agent.md`."""
    receipt = await thread.dispatch(e.ScratchpadWritten(content=SAID))
    chunk_id = receipt.chunks[-1].id
    await thread.promotion.request(chunk_id, target="preferences")
    await thread.promotion.request(chunk_id, target="agent_md")
    return receipt.event_id


async def marked_and_promoted(thread: Thread) -> str:
    """A snippet marked critical before it rose."""
    receipt = await thread.dispatch(e.ScratchpadWritten(content=SAID))
    marking = await thread.compaction.mark_critical(receipt.chunks[-1].id)
    await thread.promotion.request(marking.chunks[-1].id, target="preferences")
    return receipt.event_id


async def promoted_in_a_fork(thread: Thread) -> str:
    """A snippet that rose on the branch where it is forgotten then, and on the one before."""
    event_id = await promoted(thread)
    fork = await thread.fork()
    await fork.forget(event_ids=[event_id])
    return event_id


async def rolled(thread: Thread) -> str:
    """A snippet in the summary of the conversation."""
    receipt = await thread.dispatch(e.ScratchpadWritten(content=SAID))
    for n in range(12):
        await thread.conversation.prepare_messages(f"question {n}?")
        await thread.conversation.finalize_cycle(f"question {n}?", "yes")
    return receipt.event_id


async def asked(thread: Thread) -> str:
    """The question of the cycle under way."""
    await thread.conversation.prepare_messages(SAID)
    return next(event.id for event in await thread.replay.latest(9) if isinstance(event.event, UserMessage))


async def exchanged(thread: Thread) -> str:
    """The question of a live exchange."""
    event_id = await asked(thread)
    await thread.conversation.finalize_cycle(SAID, "yes")
    return event_id


async def answered(thread: Thread) -> str:
    """An answer, in short form and folded into the summary."""
    await thread.conversation.prepare_messages("what?")
    await thread.conversation.finalize_cycle("what?", SAID * 30)
    answer = next(event.id for event in await thread.replay.latest(9) if isinstance(event.event, e.LlmTextResponse))
    for n in range(12):
        await thread.conversation.prepare_messages(f"question {n}?")
        await thread.conversation.finalize_cycle(f"question {n}?", "yes")
    return answer


async def cached(thread: Thread) -> str:
    """A tool's result in context and cache."""
    await thread.dispatch(LlmToolCall(calls=(ToolCall(id="c1", name="look"),)))
    receipt = await thread.dispatch(ToolResult(call_id="c1", content=SAID, name="look"))
    await thread.tool_cache.add("look", {"at": 1}, SAID, 5, call_id="c1")
    return receipt.event_id


async def on_screen(thread: Thread) -> str:
    """The screen, and what a tool said of it ahead of the question."""
    await thread.screen.inject(SAID, [ProactiveTool(tool="look", parameters={"q": SECRET}, result=SAID, duration=9)])
    return next(event.id for event in await thread.replay.latest(1))


async def flow(thread: Thread) -> str:
    """A flow that became a playbook."""
    run = await thread.views.flows.completed(
        "report", user_query=SAID, tool_calls=[PlaybookCall("look", {"q": SECRET})], outcome=SAID
    )
    await thread.views.flows.feedback(True)
    return run.event_id


async def feedback(thread: Thread) -> str:
    """What a person said of a flow, which gave the reason for a playbook."""
    await thread.views.flows.completed("report", user_query="a report, please")
    await thread.views.flows.feedback(True, content=SAID)
    return next(event.id for event in await thread.replay.latest(9) if isinstance(event.event, e.FeedbackGiven))


async def remembered(thread: Thread) -> str:
    """An entry of working memory, compacted."""
    receipt = await thread.dispatch(e.MemoryAppended(layer="working", content=SAID))
    for n in range(4):
        await thread.memory.append("working", f"step {n}")
    await thread.memory.compact("working", keep_last=1)
    return receipt.event_id


async def shared(thread: Thread) -> str:
    """An entry for an agent's memory, compacted there."""
    destination = Destination("agent", "coder", "acme")
    receipt = await thread.dispatch(e.MemoryShared(destination=destination, layer="episodic", content=SAID))
    await thread.views.delivered()
    agent = Engine(handle_of(thread).kernel).agent("coder", tenant_id="acme")
    await agent.memory.append("episodic", "something else")
    await agent.memory.compact("episodic", keep_last=1)
    return receipt.event_id


async def task_of_an_agent(thread: Thread) -> str:
    """The task of a run that was ended."""
    run = AgentLifecycle(Engine(handle_of(thread).kernel), thread, agent_id="coder")
    await run.start(SAID)
    await run.end("done")
    return next(event.id for event in await thread.replay.latest(9) if isinstance(event.event, e.TaskStarted))


async def task_that_failed(thread: Thread) -> str:
    """The task of a run that failed."""
    run = AgentLifecycle(Engine(handle_of(thread).kernel), thread, agent_id="coder")
    await run.start(SAID)
    await run.fail("no such file")
    return next(event.id for event in await thread.replay.latest(9) if isinstance(event.event, e.TaskStarted))


async def result_of_an_agent(thread: Thread) -> str:
    """What a run found out, and its agent keeps."""
    run = AgentLifecycle(Engine(handle_of(thread).kernel), thread, agent_id="coder")
    await run.start("find the totals")
    await run.end(f"The dataset format is: {SECRET}.")
    return next(event.id for event in await thread.replay.latest(9) if isinstance(event.event, e.TaskCompleted))


async def tool_of_an_agent(thread: Thread) -> str:
    """A tool's result in a run's working memory."""
    run = AgentLifecycle(Engine(handle_of(thread).kernel), thread, agent_id="coder")
    await run.start("find the totals")
    await run.tool_used(ToolCall(id="c1", name="look"), SAID)
    return next(event.id for event in await thread.replay.latest(9) if isinstance(event.event, ToolResult))


PATHS: list[Path] = [
    said, compacted_twice, marked, offloaded_then_compacted, goal, todo, promoted, marked_and_promoted,
    promoted_in_a_fork, rolled, asked, exchanged, answered, cached, on_screen, flow, feedback, remembered, shared,
    task_of_an_agent, task_that_failed, result_of_an_agent, tool_of_an_agent,
]  # fmt: skip

KEEPS = {
    "items": "its rows hold names and seqs, unread; whoever reads them passes over what was forgotten (test_items)"
}
"""The built-in folds that take no forgetting, each with the reason."""


async def shown(thread: Thread) -> str:
    """Everything that a thread shows as of now."""
    parts: list[object] = [await thread.views.read(projection.name) for projection in builtin_projections()]
    parts += [(await thread.context()).messages, await thread.scratchpad.read(), await thread.promotion.verdicts()]
    parts += [await thread.conversation.memory(), await thread.conversation.summary(), await thread.views.report()]
    parts += [(await thread.views.report()).data, await thread.tool_cache.entries(), await thread.screen.current()]
    parts += [[chunk.text for chunk in (await thread.state()).everything()], await thread.views.flows.all()]
    for mode in ("hybrid", "keyword"):
        parts += await thread.memory.search(None, SECRET, mode=mode)
    parts += await thread.memory.search(None, last=50)
    return repr(parts)


async def found(engine: Engine) -> list[str]:
    """The threads that show the secret, and the handles that find it."""
    where = [info.id for info in await engine.threads() if SECRET in await shown(engine.thread(info.id))]
    user, tenant = engine.user("u1", tenant_id="acme"), engine.tenant("acme")
    looked = {
        "preferences": (await user.preferences.all(), await user.preferences.applicable(query=SAID, threshold=0.0)),
        "playbooks": (await user.playbooks.all(), await user.playbooks.find(SAID, threshold=0.0)),
        "agent.md": await tenant.agent_md.read(),
    }
    return where + [name for name, given in looked.items() if SECRET in repr(given)]


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.__name__)
async def test_what_is_forgotten_is_found_nowhere(path: Path) -> None:
    """By each way that a text is copied, forgetting the event that brought it reaches every copy, and each index."""
    async with memory_engine.open(":memory:", config=CONFIG) as engine:
        thread = await engine.create_thread("t", user_id="u1", tenant_id="acme")
        event_id = await path(thread)
        await engine.settle()
        assert [] != await found(engine)
        await thread.forget(event_ids=[event_id])
        await engine.settle()
        assert [] == await found(engine)
        later = await thread.fork()
        assert SECRET not in await shown(later)
        await thread.replay.rebuild()
        assert [] == await found(engine)
        assert [] == [report for report in await engine.verify() if not report.ok]


def test_every_view_takes_a_forgetting() -> None:
    """`MemoryForget` is among the events of its fold, or the fold reads all; others need a reason in `KEEPS`."""
    outbox, facts = folds_of(e.builtin_registry())
    read = {fold.name: event_types(fold) for fold in builtin_projections()}
    read |= {outbox.name: event_types(outbox), facts.name: event_types(facts)}
    deaf = {name for name, types in read.items() if types is not None and e.MemoryForget.event_type not in types}
    assert KEEPS.keys() == deaf


async def test_what_is_forgotten_is_forgotten_in_every_fork() -> None:
    """In one made before, and in one made afterwards at a moment before; a fork forgets for itself alone."""
    async with memory_engine.open(":memory:", config=CONFIG) as engine:
        thread = await engine.create_thread("t", user_id="u1", tenant_id="acme")
        event_id = await promoted(thread)
        before, own = await thread.fork(), await thread.fork()
        await own.forget(event_ids=[event_id])
        assert {thread.id, before.id} == {*await found(engine)}
        of_fork = await before.fork()
        await thread.forget(event_ids=[event_id])
        assert [] == await found(engine)
        after = await thread.fork(at=(await of_fork.info()).events - 1)
        assert [] == await found(engine)
        for one in (before, of_fork, after):
            assert SECRET not in await shown(one)
            assert (await one.replay.verify()).ok


async def test_a_fact_that_could_not_leave_is_forgotten_with_its_source() -> None:
    """It is let go of: it does not arrive when its thread can take it again."""
    store = FaultyStore(MemoryStore())
    async with memory_engine.open(store, config=CONFIG) as engine:
        thread = await engine.create_thread("t", user_id="u1", tenant_id="acme")
        await engine.user("u1", tenant_id="acme").preferences.update("tone", "dry")
        receipt = await thread.dispatch(e.ScratchpadWritten(content=SAID))
        kernel_of(engine)[Relay].touched = lambda thread_id: None  # type: ignore[method-assign]  # only when it is asked to
        for commit in (2, 3):  # the delivery after the verdict, and the one before the forgetting
            store.fail(StorageBusy("busy", 0.0), commit=commit)
        with pytest.raises(StorageBusy):
            await thread.promotion.request(receipt.chunks[-1].id, target="preferences")
        await thread.forget(event_ids=[receipt.event_id])
        await thread.views.delivered()
        assert [] == await found(engine)


@pytest.mark.parametrize("name", ["", "log.db"])
async def test_a_thread_that_is_archived_is_named_when_it_cannot_forget(
    name: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """All else is forgotten; that its copy stays is no secret."""
    async with memory_engine.open(
        str(tmp_path_factory.mktemp("x") / name) if name else ":memory:", config=CONFIG
    ) as engine:
        thread = await engine.create_thread("t", user_id="u1", tenant_id="acme")
        event_id = await promoted(thread)
        user = engine.user("u1", tenant_id="acme")
        await user.admin.archive()
        with pytest.raises(ThreadClosed, match="user:acme/u1"):
            await thread.forget(event_ids=[event_id])
        assert ["t", user.id, "preferences"] == await found(engine)  # the conversation of that user shows it


async def test_what_was_recalled_from_a_forgotten_event_goes_with_it() -> None:
    """A recollection that names its sources leaves the context when one of them is forgotten; others stay."""
    async with memory_engine.open(":memory:") as engine:
        thread = await engine.create_thread()
        said = await thread.dispatch(e.UserMessage(content="The code is zebra."))
        await thread.dispatch(e.MemoryRecalled(content="They told you: zebra.", sources=(said.event_id,)))
        await thread.dispatch(e.MemoryRecalled(content="They like tea.", sources=("another",)))
        await thread.forget(event_ids=[said.event_id])
        shown = str((await thread.context()).messages)
        assert ("zebra" in shown, "tea" in shown) == (False, True)


class CountingStore(MemoryStore):
    """Counts the reads of events by seq."""

    reads = 0

    async def read_at(self, thread_id: str, seqs: Sequence[int]) -> Sequence[StoredEvent]:
        """Count, and read."""
        self.reads += 1
        return await super().read_at(thread_id, seqs)


async def test_a_forgetting_reads_the_sources_of_all_lines_at_once() -> None:
    """Each line of each version of a summary had its sources read by itself: the more was forgotten, the slower."""
    policy = CompactionPolicy(threshold=20, tokens_min=0, keep_recent=0)
    store = CountingStore()
    async with memory_engine.open(store, config=EngineConfig(compaction=policy)) as engine:
        thread = await engine.create_thread("t")
        orders = [UserMessage(content=f"Order A-{n:03} of {n} chairs goes to hall {n % 7} at noon.") for n in range(60)]
        receipts = [await thread.dispatch(event) for event in orders]
        await thread.compaction.settle()
        for receipt in receipts[:9]:
            await thread.forget(chunk_ids=[receipt.chunks[0].id])
        store.reads = 0
        await thread.forget(chunk_ids=[receipts[9].chunks[0].id])
        assert store.reads < 20


QUOTING = Plugin("quoting")


@QUOTING.event("forget_quoted", chunks="versions")
class Quoted(Event):
    """A chunk that repeats others, by whatever names its tool has for them."""

    content: str
    parents: tuple[str, ...]


@QUOTING.event("forget_copied", chunks="copies")
class Copied(Event):
    """The same, for a chunk that says what another says and no more."""

    content: str
    parents: tuple[str, ...]


@QUOTING.reducer(Quoted)
def reduce_quoted(_view: StateView, event: Quoted, ctx: ReduceContext) -> Reduction:
    """The chunk."""
    return _quoting(event.content, event.parents, ctx)


@QUOTING.reducer(Copied)
def reduce_copied(_view: StateView, event: Copied, ctx: ReduceContext) -> Reduction:
    """The chunk."""
    return _quoting(event.content, event.parents, ctx)


def _quoting(content: str, parents: tuple[str, ...], ctx: ReduceContext) -> Reduction:
    chunk = Chunk(id=ctx.new_id(), type="quoted", content=content, parent_ids=parents)
    return Reduction(operations=(Add(chunk.id),), chunks=(chunk,))


@pytest.mark.parametrize("kind", [Quoted, Copied])
@pytest.mark.parametrize("by", ["the first", "the copy"])
async def test_a_parent_that_is_no_chunks_id_stops_no_forgetting(kind: type[Quoted | Copied], by: str) -> None:
    """A reducer may name any parent: those that are ids are followed, all others are passed over."""
    async with memory_engine.open(":memory:", plugins=[QUOTING]) as engine:
        thread = await engine.create_thread()
        said_at = (await thread.dispatch(UserMessage(content=SAID))).chunks[0].id
        await thread.dispatch(kind(content="of nobody", parents=("https://example.org/1", "\u00a7 5")))
        copy = (await thread.dispatch(kind(content=SAID, parents=("note 3", said_at)))).chunks[0].id
        await thread.forget(chunk_ids=[said_at if by == "the first" else copy])
        left = [chunk.text for chunk in (await thread.state()).chunks()]
        assert (["of nobody"] if kind is Copied or by == "the first" else [SAID, "of nobody"]) == left
