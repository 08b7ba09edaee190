"""Cancellation of what handles do, at every await: views whole, locks and flights let go of, a retry that completes."""

import asyncio
import gc
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

import memory_engine
from memory_engine import Engine, EngineConfig, Thread
from memory_engine.agents import AgentLifecycle
from memory_engine.engine import kernel_of
from memory_engine.errors import TaskNotRunning
from memory_engine.events import PlaybookCall
from memory_engine.projections.outbox import OUTBOX
from memory_engine.projections.rebuild import Refolding
from memory_engine.runtime.config import ConversationLimits
from memory_engine.runtime.delivery import Relay
from memory_engine.runtime.threads import OpenThreads
from memory_engine.thread import handle_of
from memory_engine.views.screen.view import ProactiveTool
from memory_engine.views.tool_cache.view import CachedCall, Flights
from tests.cancelling import WAYS, Cancelled, assert_nobody_writes, by_task, moments
from tests.conversations import log
from tests.processes.test_view_crash import check_facts, views

CONFIG = EngineConfig(
    conversation=ConversationLimits(exchanges=1, exchanges_kept=1, summary_bytes_max=300, summary_bytes_target=200),
    scratchpad_snippets_max=2,
)


class Case:
    """A call, what must stand before it, and what must hold after it was made again."""

    def __init__(self, thread: Thread) -> None:
        self.thread = thread
        self.engine = Engine(handle_of(thread).kernel)
        self.others: list[asyncio.Future[CachedCall]] = []

    async def before(self) -> None:
        """Nothing."""

    async def call(self) -> object:
        """What is cancelled, and then made again."""
        raise NotImplementedError

    async def done(self) -> object:
        """What a retry leaves, to be compared with `expected`."""
        raise NotImplementedError

    expected: object = None


class Write(Case):
    """A snippet by the caller's id."""

    expected = ("two", "three")

    async def before(self) -> None:
        """The scratchpad is full, and one of it was read."""
        for text in ("one", "two"):
            await self.thread.scratchpad.write(text, flow=text)
        await self.thread.scratchpad.read(flow="two")

    async def call(self) -> object:
        """Write."""
        return await self.thread.scratchpad.write("three", event_id="mine")

    async def done(self) -> object:
        """The texts."""
        return tuple(snippet.text for snippet in await self.thread.scratchpad.read())


class Update(Case):
    """A preference of a user whose thread is made by it."""

    expected = ("dry", 1)

    async def call(self) -> object:
        """Set it."""
        return await self.engine.user(self.thread.id).preferences.update("tone", "dry", event_id="mine")

    async def done(self) -> object:
        """The value, and how many events the user has."""
        user = self.engine.user(self.thread.id)
        return await user.preferences.get("tone"), (await user.info()).events


class Seed(Case):
    """Onboarding."""

    expected = ({"tone": "dry", "length": "short"}, 2)

    async def call(self) -> object:
        """Seed."""
        return await self.engine.user(self.thread.id).preferences.seed({"tone": "dry", "length": "short"})

    async def done(self) -> object:
        """The values, and how many events the user has."""
        user = self.engine.user(self.thread.id)
        return {key: p.value for key, p in (await user.preferences.all()).items()}, (await user.info()).events


class Report(Case):
    """A report that makes a snippet rise."""

    expected = (1, 1)

    async def before(self) -> None:
        """A snippet worth it."""
        await self.thread.scratchpad.write("Please always remember: I prefer weekly totals in euros.")

    async def call(self) -> object:
        """Save it."""
        return await self.thread.promotion.report_saved("Totals", event_id="mine")

    async def done(self) -> object:
        """Verdicts, and saved reports."""
        saved = [event for event in await log(self.thread) if event.type == "report_saved"]
        return len(await self.thread.promotion.verdicts()), len(saved)


class Feedback(Case):
    """A flow becomes a playbook."""

    expected = (["promoted"], [1])

    async def before(self) -> None:
        """A flow."""
        await self.thread.views.flows.completed(
            "report", user_query="totals", tool_calls=[PlaybookCall("look")], flow_id="f"
        )

    async def call(self) -> object:
        """Like it."""
        return await self.thread.views.flows.feedback(True, flow_id="f")

    async def done(self) -> object:
        """The flow's status, and how often its recipe worked."""
        user = self.engine.user(f"user of {self.thread.id}", tenant_id="acme")
        return [flow.status for flow in await self.thread.views.flows.all()], [
            playbook.count for playbook in await user.playbooks.all()
        ]


class Finalize(Case):
    """A turn that pushes another into the summary."""

    expected = ([("q1?", "yes")], 1, 2)

    async def before(self) -> None:
        """One exchange, and an open question."""
        await self.thread.conversation.prepare_messages("q0?")
        await self.thread.conversation.finalize_cycle("q0?", "yes " * 100)
        await self.thread.conversation.prepare_messages("q1?")

    async def call(self) -> object:
        """Answer."""
        await self.thread.conversation.finalize_cycle("q1?", "yes")
        return await self.thread.conversation.prepare_messages("q2?")

    async def done(self) -> object:
        """Live exchanges, those in the summary, and the answers in the log."""
        exchanges = await self.thread.conversation.exchanges()
        summary = await self.thread.conversation.summary()
        finished = [event for event in await log(self.thread) if event.type == "exchange_finished"]
        return [(e.question, e.answer) for e in exchanges], summary.exchanges if summary else 0, len(finished)


class Own(Case):
    """A tool's result, run by the caller itself."""

    expected = ("result",)

    async def call(self) -> object:
        """Look."""
        return await self.thread.tool_cache.cached_call("look", {}, _look, duration=3)

    async def done(self) -> object:
        """What is cached."""
        return tuple(entry.result for entry in await self.thread.tool_cache.entries())


class Wait(Own):
    """A tool's result that another caller is about to have."""

    async def call(self) -> object:
        """Wait for it."""
        self.others.append(asyncio.ensure_future(self.thread.tool_cache.cached_call("look", {}, _look, duration=3)))
        await asyncio.sleep(0)
        return await self.thread.tool_cache.cached_call("look", {}, _look, duration=3)


class Inject(Case):
    """The screen."""

    expected = ("a chart", 1)

    async def call(self) -> object:
        """Tell of it."""
        return await self.thread.screen.inject("a chart", [ProactiveTool(tool="see", result="x", duration=2)])

    async def done(self) -> object:
        """What was told, how often."""
        screen = await self.thread.screen.current()
        told = [event for event in await log(self.thread) if event.type == "screen_injected"]
        return screen.content if screen is not None else "", len(told)


class Compact(Case):
    """A layer of memory."""

    expected = (3, 4)

    async def before(self) -> None:
        """Entries."""
        for n in range(5):
            await self.thread.memory.append("episodic", f"step {n}")

    async def call(self) -> object:
        """Compact it."""
        return await self.thread.memory.compact("episodic", keep_last=2)

    async def done(self) -> object:
        """Rows, and entries that can be opened behind the summary and after it."""
        entries = await self.thread.memory.entries("episodic")
        return len(entries), len(await self.thread.memory.open(entries[0].id)) + 1


class End(Case):
    """The end of an agent's run."""

    expected = (["started", "completed"], True)

    async def before(self) -> None:
        """A run."""
        self.run = AgentLifecycle(self.engine, self.thread, agent_id=self.thread.id)
        await self.run.start("find the totals")

    async def call(self) -> object:
        """End it; that it is over already is as good."""
        with suppress(TaskNotRunning):
            await self.run.end("Our dataset format is CSV")
        await self.thread.views.delivered()
        return None

    async def done(self) -> object:
        """What the agent remembers of it."""
        memory = self.engine.agent(self.thread.id, tenant_id="acme").memory
        kinds = [entry.metadata["event"] for entry in await memory.entries("episodic")]
        return kinds, await memory.recall("dataset-format") is not None


class Forget(Case):
    """A snippet that rose."""

    expected = (0, 0, 0)

    async def before(self) -> None:
        """A snippet, and its rise."""
        snippet = await self.thread.scratchpad.write("Totals in euros.", event_id="mine")
        await self.thread.promotion.request(snippet.id, target="preferences")

    async def call(self) -> object:
        """Forget it."""
        return await self.thread.forget(event_ids=["mine"])

    async def done(self) -> object:
        """What is left."""
        user = self.engine.user(f"user of {self.thread.id}", tenant_id="acme")
        verdicts = await self.thread.promotion.verdicts()
        return len(await self.thread.scratchpad.read()), len(await user.preferences.all()), len(verdicts)


CASES = pytest.mark.parametrize(
    "case", [Write, Update, Seed, Report, Feedback, Finalize, Own, Wait, Inject, Compact, End, Forget]
)


async def _look() -> str:
    await asyncio.sleep(0)
    return "result"


async def assert_at_rest(engine: Engine, thread: Thread) -> None:
    """Nothing is held, nothing waits, and every view is what the log gives."""
    await engine.settle()
    for runtime in kernel_of(engine)[OpenThreads].all():
        while runtime.busy or len(runtime.queue):
            await runtime.idle()
            await asyncio.sleep(0)
    await engine.settle()
    assert ({}, {}) == (kernel_of(engine).made(Flights), engine.kernel[Relay]._under_way)
    assert [] == [lock for lock in kernel_of(engine)[Relay]._locks.values() if lock.locked()]
    for runtime in kernel_of(engine)[OpenThreads].all():
        assert (False, 0) == (runtime.busy, len(runtime.queue))
    head = (await thread.info()).events
    given = Refolding(kernel_of(engine).projections, kernel_of(engine).reader, thread.id)
    async for page in kernel_of(engine).reader.pages(thread.id, after=0, upto=head):
        for stored in page:
            given.apply(stored)
    assert {name: dict(rows.items()) for name, rows in given.rows.items()} == await views(engine, thread.id)
    assert 0 == len(await thread.views.rows(OUTBOX))


async def cancel_at_every_await(
    path: str, case: type[Case], cancelled: Cancelled, *, check: Callable[[], None]
) -> None:
    """Cancel a call at each of its moments, each time in a thread of its own, and make it again."""
    async with memory_engine.open(path, config=CONFIG) as engine:
        for moment in moments():
            thread = await engine.create_thread(f"t{moment}", user_id=f"user of t{moment}", tenant_id="acme")
            one = case(thread)
            await one.before()
            await cancelled(one.call, moment)
            await asyncio.gather(*one.others)
            await assert_at_rest(engine, thread)
            check()
            await one.call()
            await asyncio.gather(*one.others)
            await assert_at_rest(engine, thread)
            assert case.expected == await one.done(), moment
        await check_facts(engine, {info.id: await log(engine.thread(info.id)) for info in await engine.threads()})
        assert [] == [report.divergence for report in await engine.verify() if not report.ok]
    gc.collect()  # a task that nobody waited for would complain here, and a warning is an error


@WAYS
@CASES
async def test_what_a_cancelled_handle_did_is_whole_or_absent(case: type[Case], cancelled: Cancelled) -> None:
    """Cancelled at any await, and made again, each call leaves what one call leaves."""
    await cancel_at_every_await(":memory:", case, cancelled, check=lambda: None)


@CASES
async def test_nor_does_it_hold_the_file(tmp_path: Path, case: type[Case]) -> None:
    """On a file, where a commit takes its time: no transaction stays open and no lock is held."""
    path = str(tmp_path / "m.db")
    await cancel_at_every_await(path, case, by_task, check=lambda: assert_nobody_writes(path))
