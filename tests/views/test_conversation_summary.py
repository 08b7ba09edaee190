"""Answers and summaries made shorter: by a model, without one, and when it fails; the scratchpad's insights."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import memory_engine
from memory_engine import Engine, EngineConfig, Thread, errors
from memory_engine import events as e
from memory_engine.errors.effects import Usage
from memory_engine.llm import Completion, LiteLLM, LiteLLMOptions
from memory_engine.llm.base import Message
from memory_engine.runtime.config import ConversationLimits
from memory_engine.storage.memory import MemoryStore
from memory_engine.testing import FaultyStore
from memory_engine.testing.openai_server import OpenAIServer, Reply, answer, empty, failing, invalid_json, refusal

LONG = "The delivery of order A-17 was confirmed for Monday. " * 20
USAGE = Usage(input_tokens=30, output_tokens=7)


class Scripted:
    """A model that gives its replies in order, the last one for ever; a gate holds it up."""

    name = "scripted"

    def __init__(self, *replies: str | Exception, gate: asyncio.Event | None = None) -> None:
        self._replies = replies
        self._gate = gate
        self.called = asyncio.Semaphore(0)
        self.prompts: list[str] = []

    async def complete(
        self, messages: Sequence[Message], *, temperature: float, max_tokens: int, timeout_s: float
    ) -> Completion:
        """The next reply."""
        del temperature, max_tokens, timeout_s
        self.prompts.append(str(messages[-1]["content"]))
        self.called.release()
        if self._gate is not None:
            await self._gate.wait()
        reply = self._replies[min(len(self.prompts), len(self._replies)) - 1]
        if isinstance(reply, Exception):
            raise reply
        return Completion(text=reply, model="scripted-1", usage=USAGE)

    async def aclose(self) -> None:
        """Nothing is open."""


def config(
    *, exchanges: int = 10, timeout_s: float = 30.0, summary_bytes: int = 4000, snippets: int = 48
) -> EngineConfig:
    """Limits that differ from the defaults where a test says so."""
    return EngineConfig(
        conversation=ConversationLimits(
            exchanges=exchanges,
            exchanges_kept=min(5, exchanges),
            summary_bytes_max=summary_bytes,
            summary_bytes_target=summary_bytes * 3 // 4,
            scratchpad_snippets_max=snippets,
            model_timeout_s=timeout_s,
        )
    )


async def turns(thread: Thread, count: int, text: str = "", *, first: int = 0) -> None:
    """Whole turns, numbered; `text` makes them longer."""
    for n in range(first, first + count):
        await thread.conversation.finalize_cycle(f"q{n}{text}", f"a{n}{text}")


async def rolled(thread: Thread) -> list[e.SummaryRolled]:
    """The summaries in the log, oldest first."""
    return [event.event async for event in thread.events() if isinstance(event.event, e.SummaryRolled)]


def size(text: str) -> int:
    """Bytes of UTF-8."""
    return len(text.encode())


# answers


@pytest.mark.parametrize(("bytes_", "shortened"), [(750, False), (751, True)])
async def test_C2_an_answer_over_750_bytes_gets_a_short_form(thread: Thread, bytes_: int, shortened: bool) -> None:
    """Of at most 500 bytes; the answer itself stays in the log, and in the agent's words."""
    said = ("word " * 200)[:bytes_]
    exchange = await thread.conversation.finalize_cycle("q", said)
    assert (shortened, bytes_, said) == (
        exchange.is_shortened, exchange.answer_bytes, await thread.conversation.whole_answer(exchange)
    )  # fmt: skip
    assert size(exchange.answer) <= (500 if shortened else 750)
    assert ("cut" if shortened else "") == exchange.method
    messages = await thread.conversation.messages()
    assert exchange.answer == messages[-1]["content"]
    assert said == (await thread.context()).messages[-1]["content"]


async def test_C2_bytes_count_and_not_characters(thread: Thread) -> None:
    """300 characters of three bytes each are 900 bytes."""
    exchange = await thread.conversation.finalize_cycle("q", "語" * 300)
    assert ("語" * 165 + "…", 900) == (exchange.answer, exchange.answer_bytes)


async def test_C2_a_model_shortens_an_answer() -> None:
    """Its words, its name and what it took are in the log; it was shown question and answer as data."""
    model = Scripted("A-17 comes on Monday.")
    async with memory_engine.open(":memory:", memory_model=model) as engine:
        thread = await engine.create_thread("t")
        exchange = await thread.conversation.finalize_cycle("Where is <A-17>?", LONG)
        assert ("A-17 comes on Monday.", "model", "scripted-1", True) == (
            exchange.answer, exchange.method, exchange.model, exchange.is_shortened
        )  # fmt: skip
        event = (await thread.replay.latest(1))[0].event
        assert isinstance(event, e.ExchangeFinished)
        assert (LONG, USAGE, "") == (event.answer, event.usage, event.failure)
        assert "<question>\nWhere is &lt;A-17&gt;?\n</question>\n<answer>" in model.prompts[0]
        assert (await thread.replay.verify()).ok
        assert 1 == len(model.prompts)


async def test_C2_a_model_that_writes_too_much_is_cut() -> None:
    """The limit holds whatever it answers."""
    async with memory_engine.open(":memory:", memory_model=Scripted("語" * 400)) as engine:
        thread = await engine.create_thread("t")
        exchange = await thread.conversation.finalize_cycle("q", LONG)
        assert ("model", "語" * 165 + "…") == (exchange.method, exchange.answer)


@pytest.mark.parametrize(
    ("reply", "failure", "usage"),
    [
        (errors.ModelError("m", "refused", "no", usage=USAGE), "refused", USAGE),
        (errors.ModelError("m", "timeout", "late"), "timeout", None),
        (" \n", "invalid_response", USAGE),
        ("\ud800", "invalid_response", USAGE),
        (RuntimeError("a bug"), "RuntimeError", None),
    ],
)
async def test_C2_a_model_that_fails_is_replaced_by_a_cut(
    reply: str | Exception, failure: str, usage: Usage | None
) -> None:
    """The exchange is recorded all the same, with the reason and what the failure took."""
    async with memory_engine.open(":memory:", memory_model=Scripted(reply)) as engine:
        thread = await engine.create_thread("t")
        exchange = await thread.conversation.finalize_cycle("q", LONG)
        assert ("cut", LONG[:400]) == (exchange.method, exchange.answer[:400])
        event = (await thread.replay.latest(1))[0].event
        assert isinstance(event, e.ExchangeFinished)
        assert (failure, usage, "") == (event.failure, event.usage, event.model)


async def test_C2_a_model_that_hangs_is_left(tmp_path: Path) -> None:
    """Also one that does not keep its own time."""
    model = Scripted("never", gate=asyncio.Event())
    async with memory_engine.open(
        str(tmp_path / "log.db"), memory_model=model, config=config(timeout_s=0.02)
    ) as engine:
        thread = await engine.create_thread("t")
        assert "cut" == (await thread.conversation.finalize_cycle("q", LONG)).method


async def test_C2_writes_during_the_model_call_are_kept() -> None:
    """Another question that overtakes the answer stays open; the answer takes its own place."""
    gate = asyncio.Event()
    model = Scripted("short", gate=gate)
    async with memory_engine.open(":memory:", memory_model=model) as engine:
        thread = await engine.create_thread("t")
        await thread.conversation.prepare_messages("first")
        finalizing = asyncio.create_task(thread.conversation.finalize_cycle("first", LONG))
        await model.called.acquire()
        await thread.conversation.prepare_messages("second")
        gate.set()
        assert "short" == (await finalizing).answer
        cycle = await thread.conversation.current()
        assert cycle is not None
        assert (["first"], "second") == ([x.question for x in await thread.conversation.exchanges()], cycle.question)


async def test_C2_cancelled_during_the_model_call_the_cycle_stays_open() -> None:
    """Nothing half is recorded, and the same answer can be given again."""
    gate = asyncio.Event()
    model = Scripted("short", gate=gate)
    async with memory_engine.open(":memory:", memory_model=model) as engine:
        thread = await engine.create_thread("t")
        await thread.conversation.prepare_messages("q")
        finalizing = asyncio.create_task(thread.conversation.finalize_cycle("q", LONG))
        await model.called.acquire()
        finalizing.cancel()
        await asyncio.wait([finalizing])
        assert 2 == (await thread.info()).events
        gate.set()
        assert "short" == (await thread.conversation.finalize_cycle("q", LONG)).answer


async def test_C5_two_different_answers_at_once_are_a_conflict() -> None:
    """One is recorded; the other's sender is told, and nobody gets an answer that is not the log's."""
    gate = asyncio.Event()
    model = Scripted("short", gate=gate)
    async with memory_engine.open(":memory:", memory_model=model) as engine:
        thread = await engine.create_thread("t")
        await thread.conversation.prepare_messages("q")
        both = [asyncio.create_task(thread.conversation.finalize_cycle("q", LONG + end)) for end in ("yes", "no")]
        for _ in both:
            await model.called.acquire()
        gate.set()
        outcomes = await asyncio.gather(*both, return_exceptions=True)
        assert 1 == sum(isinstance(outcome, errors.IdempotencyConflict) for outcome in outcomes)
        assert 1 == len(await thread.conversation.exchanges())


async def test_C5_one_answer_shortened_twice_is_one_exchange() -> None:
    """A model says it otherwise each time; who comes second gets what the first recorded."""
    gate = asyncio.Event()
    model = Scripted("one", "two", gate=gate)
    async with memory_engine.open(":memory:", memory_model=model) as engine:
        thread = await engine.create_thread("t")
        await thread.conversation.prepare_messages("q")
        both = [asyncio.create_task(thread.conversation.finalize_cycle("q", LONG)) for _ in range(2)]
        for _ in both:
            await model.called.acquire()
        gate.set()
        first, second = await asyncio.gather(*both)
        assert (first, 1) == (second, len(await thread.conversation.exchanges()))


# summaries


async def test_C2_older_exchanges_fold_into_the_summary(thread: Thread) -> None:
    """Two lines each, in order, until the summary passes 4,000 bytes; then 3,000 are left at most."""
    await turns(thread, 40, " and so on" * 12)
    sizes = [(event.compressed, size(event.content)) for event in await rolled(thread)]
    assert sizes == [(compressed, bytes_) for compressed, bytes_ in sizes if bytes_ <= (3000, 4000)[not compressed]]
    assert {True, False} == {compressed for compressed, _ in sizes}
    summary = await thread.conversation.summary()
    assert summary is not None
    assert summary.text.endswith("and so on")
    assert (30, "cut") == (summary.exchanges, summary.method)


async def test_C2_without_a_model_the_newest_lines_stay_whole() -> None:
    """Older ones are shortened first, and only then left out, which the first line says."""
    async with memory_engine.open(":memory:", config=config(exchanges=1, summary_bytes=1000)) as engine:
        thread = await engine.create_thread("t")
        await turns(thread, 60, " was asked on a rainy day in November")
        lines = (await rolled(thread))[-1].content.splitlines()
        assert lines[0].endswith("earlier lines left out]")
        assert "Agent: a58 was asked on a rainy day in November" == lines[-1]


async def test_C2_a_model_compresses_the_summary() -> None:
    """It gets the old summary with what joins it; its words replace both, with its name and usage."""
    model = Scripted("They talked about orders.")
    async with memory_engine.open(":memory:", memory_model=model, config=config(exchanges=2)) as engine:
        thread = await engine.create_thread("t")
        await turns(thread, 12, " order" * 50)
        event = next(event for event in await rolled(thread) if event.compressed)
        assert ("They talked about orders.", "model", "scripted-1", USAGE) == (
            event.content, event.method, event.model, event.usage
        )  # fmt: skip
        assert "User: q0 order" in model.prompts[0]
        summary = await thread.conversation.summary()
        assert summary is not None
        assert summary.text.startswith("They talked about orders.\nUser: ")
        assert "LLM compressions: 1" in (await thread.views.report()).text


async def test_C2_a_model_that_fails_on_a_summary_is_replaced() -> None:
    """The summary is cut, and the event says why."""
    model = Scripted(errors.ModelError("m", "context_window", "too long"))
    async with memory_engine.open(":memory:", memory_model=model, config=config(exchanges=1)) as engine:
        thread = await engine.create_thread("t")
        await turns(thread, 12, " order" * 60)
        event = next(event for event in await rolled(thread) if event.compressed)
        assert ("cut", "context_window", True) == (event.method, event.failure, size(event.content) <= 3000)


async def test_C2_a_summary_drawn_from_what_is_no_more_changes_nothing() -> None:
    """What is forgotten during the model's call is not in the summary that follows."""
    gate = asyncio.Event()
    model = Scripted("It holds the secret.", "It holds nothing of it.", gate=gate)
    async with memory_engine.open(
        ":memory:", memory_model=model, config=config(exchanges=2, summary_bytes=400)
    ) as engine:
        thread = await engine.create_thread("t")
        await turns(thread, 2, " secret " * 40)
        finalizing = asyncio.create_task(thread.conversation.finalize_cycle("q2", "a2"))
        await model.called.acquire()
        (first, _) = [event async for event in thread.events() if isinstance(event.event, e.CycleStarted)][:2]
        await thread.forget(event_ids=[first.id])
        gate.set()
        await finalizing
        summary = await thread.conversation.summary()
        exchanges = await thread.conversation.exchanges()
        assert (None, 2) == (summary, len(exchanges))


async def test_C2_concurrent_turns_fold_once() -> None:
    """Two tasks that find too much at once draw one summary; every exchange is in it or live, none twice."""
    async with memory_engine.open(":memory:", config=config(exchanges=2)) as engine:
        thread = await engine.create_thread("t")
        events = [e.ExchangeFinished(question=f"q{n}", answer=f"a{n}") for n in range(8)]
        await thread.dispatch_all(events)
        await asyncio.gather(*(thread.conversation.prepare_messages("now") for _ in range(4)))
        summary = await thread.conversation.summary()
        assert summary is not None
        assert ([f"User: q{n}" for n in range(6)], 1) == (summary.text.splitlines()[::2], len(await rolled(thread)))


async def test_C2_a_crash_before_the_summary_is_made_good_by_the_next_turn() -> None:
    """The exchange is durable, its folding failed: the next question folds it, and nothing is lost."""
    store = FaultyStore(MemoryStore())
    async with memory_engine.open(store) as engine:
        thread = await engine.create_thread("t")
        await turns(thread, 10)
        await thread.conversation.prepare_messages("q10")
        store.fail(errors.StorageBusy("disk", 1.0), commit=2)
        with pytest.raises(errors.StorageBusy):
            await thread.conversation.finalize_cycle("q10", "a10")
        assert (11, None) == (len(await thread.conversation.exchanges()), await thread.conversation.summary())
        await thread.conversation.prepare_messages("q11")
        summary = await thread.conversation.summary()
        assert summary is not None
        assert (10, "User: q0\nAgent: a0") == (len(await thread.conversation.exchanges()), summary.text)


async def test_C2_two_processes_fold_once(tmp_path: Path) -> None:
    """The summary of the one that comes second changes nothing; it draws another."""
    path = str(tmp_path / "log.db")
    async with memory_engine.open(path) as one, memory_engine.open(path) as two:
        await one.create_thread("t")
        for n in range(24):
            await (one, two)[n % 2].thread("t").conversation.finalize_cycle(f"q{n}", f"a{n}")
        summary = await two.thread("t").conversation.summary()
        assert summary is not None
        assert [f"User: q{n}" for n in range(14)] == summary.text.splitlines()[::2]
        assert (await one.thread("t").replay.verify()).ok


# the scratchpad


async def test_S9_the_summary_takes_up_the_scratchpads_insights(thread: Thread) -> None:
    """What flows found out joins the turns, once, and the event names the snippets."""
    found = await thread.scratchpad.write("Revenue dips every Sunday.", flow="analysis")
    await thread.scratchpad.write("Out of a playbook.", recalled=True)
    await turns(thread, 12)
    summary = await thread.conversation.summary()
    assert summary is not None
    assert (
        "User: q0\nAgent: a0\nFound out: Revenue dips every Sunday.\nUser: q1\nAgent: a1",
        [(found.id,), ()],
    ) == (summary.text, [event.insights for event in await rolled(thread)])


async def test_S9_the_model_is_given_the_insights() -> None:
    """As findings beside the turns, to be guided by."""
    model = Scripted("A summary.")
    async with memory_engine.open(
        ":memory:", memory_model=model, config=config(exchanges=1, summary_bytes=400)
    ) as engine:
        thread = await engine.create_thread("t")
        found = await thread.scratchpad.write("Revenue dips every Sunday.")
        await turns(thread, 2, " word" * 60)
        assert "<findings>\nRevenue dips every Sunday.\n</findings>" in model.prompts[0]
        assert [(found.id,)] == [event.insights for event in await rolled(thread)]


async def test_S9_a_full_scratchpad_rolls_the_summary(thread: Thread) -> None:
    """48 snippets that no summary has used fold all but five exchanges, though none was too many."""
    await turns(thread, 7)
    for n in range(48):
        assert [] == await rolled(thread)
        await thread.scratchpad.write(f"Finding {n}.")
    await turns(thread, 1, first=7)
    summary = await thread.conversation.summary()
    assert summary is not None
    assert (5, 3) == (len(await thread.conversation.exchanges()), summary.exchanges)
    assert "Found out: Finding 47." in summary.text
    await turns(thread, 1, first=8)
    assert 1 == len(await rolled(thread))


async def test_S9_a_forgotten_insight_leaves_the_summary(thread: Thread) -> None:
    """It is withheld at once, and made again without the snippet."""
    await thread.scratchpad.write("Kept.")
    secret = await thread.scratchpad.write("Secret.")
    await turns(thread, 11)
    await thread.forget(chunk_ids=[secret.id])
    assert "Secret" not in str(await thread.conversation.messages())
    await thread.conversation.prepare_messages("now")
    summary = await thread.conversation.summary()
    assert summary is not None
    assert "User: q0\nAgent: a0\nFound out: Kept." == summary.text


# a real server


async def no_wait(_seconds: float) -> None:
    """Stands for sleeping."""


@pytest.fixture(autouse=True, scope="module")
async def first_call() -> None:
    """Make the first call of the process beforehand: it imports litellm, which takes seconds."""
    async with OpenAIServer() as server:
        model = LiteLLM("openai/test", api_base=server.base_url, api_key="x")
        await model.complete([{"role": "user", "content": "x"}], temperature=0, max_tokens=9, timeout_s=60)
        await model.aclose()


@asynccontextmanager
async def served(path: Path, *script: Reply, timeout_s: float = 30.0) -> AsyncIterator[tuple[Engine, OpenAIServer]]:
    """An engine on a file whose memory is shortened by a model that a real server plays."""
    async with OpenAIServer(*script) as server:
        options = LiteLLMOptions(sleep=no_wait)
        model = LiteLLM("openai/test", api_base=server.base_url, api_key="x", retries=0, options=options)
        opened = memory_engine.open(str(path / "log.db"), memory_model=model, config=config(timeout_s=timeout_s))
        async with opened as engine:
            yield engine, server


async def test_C2_over_http_an_answer_is_shortened(tmp_path: Path) -> None:
    """Through litellm, with the provider's usage in the log."""
    async with served(tmp_path, answer("A-17: Monday.", usage=(321, 45))) as (engine, server):
        thread = await engine.create_thread("t")
        exchange = await thread.conversation.finalize_cycle("When?", LONG)
        event = (await thread.replay.latest(1))[0].event
        assert isinstance(event, e.ExchangeFinished)
        assert ("A-17: Monday.", "model", Usage(input_tokens=321, output_tokens=45)) == (
            exchange.answer, exchange.method, event.usage
        )  # fmt: skip
        (request,) = server.requests
        assert (0.3, 512) == (request.temperature, request.max_tokens)
        assert "500 bytes" in request.messages[0].text


@pytest.mark.parametrize(
    ("reply", "failure"),
    [
        (refusal(), "refused"),
        (failing(500), "unavailable"),
        (invalid_json(), "invalid_response"),
        (empty(), "invalid_response"),
    ],
)
async def test_C2_over_http_a_failure_falls_back(tmp_path: Path, reply: Reply, failure: str) -> None:
    """Whatever the provider does, the exchange is kept within its limit."""
    async with served(tmp_path, reply) as (engine, _):
        thread = await engine.create_thread("t")
        exchange = await thread.conversation.finalize_cycle("When?", LONG)
        event = (await thread.replay.latest(1))[0].event
        assert isinstance(event, e.ExchangeFinished)
        assert ("cut", failure, True) == (exchange.method, event.failure, size(exchange.answer) <= 500)


async def test_C2_over_http_a_timeout_falls_back(tmp_path: Path) -> None:
    """A provider that does not answer holds nobody up for longer than the limit."""
    async with served(tmp_path, answer("late").held(asyncio.Event()), timeout_s=0.1) as (engine, _):
        thread = await engine.create_thread("t")
        await thread.conversation.finalize_cycle("When?", LONG)
        event = (await thread.replay.latest(1))[0].event
        assert isinstance(event, e.ExchangeFinished)
        assert ("cut", "timeout") == (event.method, event.failure)
