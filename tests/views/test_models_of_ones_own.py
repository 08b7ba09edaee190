"""Models that break the protocol: every view that asks one does without it, and loses nothing."""

from collections.abc import Callable, Mapping, Sequence
from typing import cast

import pytest

import memory_engine
from memory_engine import AgentLifecycle
from memory_engine import events as e
from memory_engine.llm import Completion
from memory_engine.views.promotion.scorers import ModelScorer

REPLIES: list[Callable[[], object]] = [
    lambda: None,
    lambda: "a text alone",
    lambda: Completion(text=cast("str", None), model="m"),
    lambda: Completion(text="\ud800", model="m"),
    lambda: 1 / 0,
]


class Misbehaving:
    """Answers with anything, or raises anything."""

    name = "misbehaving"

    def __init__(self, reply: Callable[[], object]) -> None:
        self.reply = reply

    async def complete(
        self, _messages: Sequence[Mapping[str, object]], *, temperature: float, max_tokens: int, timeout_s: float
    ) -> Completion:
        """Break the protocol."""
        return cast("Completion", self.reply())

    async def aclose(self) -> None:
        """Nothing is held."""


@pytest.fixture(params=REPLIES)
def model(request: pytest.FixtureRequest) -> Misbehaving:
    """A model that breaks the protocol in one way."""
    return Misbehaving(cast("Callable[[], object]", request.param))


async def test_C2_an_exchange_is_recorded_whatever_a_model_does(model: Misbehaving) -> None:
    """The answer is cut, and the event says that the model failed."""
    async with memory_engine.open(":memory:", memory_model=model) as engine:
        thread = await engine.create_thread()
        exchange = await thread.conversation.finalize_cycle("q", "Hello! " * 200)
        event = (await thread.replay.latest(1))[0].event
        assert isinstance(event, e.ExchangeFinished)
        assert ("cut", True, 1_400) == (exchange.method, bool(event.failure), exchange.answer_bytes)


async def test_L3_a_layer_is_compacted_whatever_a_model_does(model: Misbehaving) -> None:
    """The local summary is recorded, and the report says why."""
    async with memory_engine.open(":memory:", memory_model=model) as engine:
        memory = (await engine.create_thread()).memory
        for n in range(12):
            await memory.append("episodic", f"Agent analyzed file{n}.csv")
        report = await memory.compact("episodic")
        assert (2, "local", True) == (report.covered, report.method, "misbehaving" in report.failure)


async def test_L6_a_task_ends_whatever_a_model_does(model: Misbehaving) -> None:
    """What was learned is read off the answer's form, and the result is recorded."""
    async with memory_engine.open(":memory:", memory_model=model) as engine:
        thread = await engine.create_thread()
        lifecycle = AgentLifecycle(engine, thread, agent_id="a")
        await lifecycle.start("Find the cause")
        facts = await lifecycle.end("Our import bottleneck is date parsing.")
        assert ["import-bottleneck"] == [fact.key for fact in facts]
        assert "task_completed" in [event.type async for event in thread.events()]


async def test_S5_a_snippet_is_judged_whatever_a_model_does(model: Misbehaving) -> None:
    """The embedded scorer judges in its place, and the reason says so."""
    async with memory_engine.open(":memory:", scorers=[ModelScorer(model)]) as engine:
        thread = await engine.create_thread(user_id="u", tenant_id="acme")
        await thread.scratchpad.write("Revenue dips every Sunday")
        report = await thread.promotion.report_saved("Weekly revenue")
        assert ("agent_md", True) == (report.verdicts[0].target, "the model failed" in report.verdicts[0].reason)
