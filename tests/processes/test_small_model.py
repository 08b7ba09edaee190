"""A real small model summarises: whatever it answers, and however late, nothing is lost and the log says why."""

import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import memory_engine
from memory_engine import (
    CompactionPolicy,
    EngineConfig,
    LlmTextResponse,
    LlmToolCall,
    Models,
    RecordedEvent,
    Thread,
    ToolCall,
    ToolResult,
    UserMessage,
)
from memory_engine.compactors import WorkingHistoryCompactor
from memory_engine.errors import CompactorFailed, ModelError
from memory_engine.events import StatementsCompared
from memory_engine.llm import LanguageModel, LiteLLM, OpenAIModel
from memory_engine.runtime.config import ConversationLimits

if sys.platform == "win32":
    pytest.skip("environments are made under a lock that this system does not have", allow_module_level=True)

from tests.integrations.environments import SMALL_MODEL, NotMade, locked_python

HERE = Path(__file__).parent
WINDOW = 3_072
"""Tokens of the model's window: about three times what the instructions take, so a long history must be split."""
RULE = "Never book anything without asking me first."
SECONDS = 4.0
"""Seconds that the model has for an answer. A busy machine may not be done by then, which is a case like others."""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """The server's address. Skips where its environment is not here; CI has to have it on Linux."""
    try:
        python = locked_python(SMALL_MODEL)
    except NotMade as error:
        end = pytest.fail if "CI" in os.environ and sys.platform == "linux" else pytest.skip
        end(str(error))
    child = subprocess.Popen(
        [str(python), str(HERE / "small_model_child.py"), str(WINDOW)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    with child:
        assert child.stdout is not None
        yield child.stdout.readline().strip()
        child.kill()


async def test_nothing_is_lost_to_a_small_model(address: str) -> None:
    """It compacts a thread twice its window: the rule stays, every message can be read, whoever made the summary."""
    memory_model = litellm_model(address)
    await refused(memory_model)
    compact_model = openai_model(address)
    await refused(compact_model)
    compactor = WorkingHistoryCompactor(compact_model, compact_max_tokens=80)
    policy = CompactionPolicy(enabled=False, keep_recent=0, deadline_s=SECONDS)
    limits = ConversationLimits(model_timeout_s=SECONDS)
    config = EngineConfig(compaction=policy, conversation=limits)
    async with memory_engine.open(":memory:", compactor=compactor, memory_model=memory_model, config=config) as engine:
        thread = await engine.create_thread("t", user_id="u")
        await thread.dispatch(UserMessage(content=RULE))
        await thread.dispatch(LlmTextResponse(content="I will ask you first."))
        for n in range(12):
            await thread.dispatch_all(step(n))
        said = [one.event for one in await events(thread)]
        await compacted_in_the_end(thread)
        assert said == [one.event for one in (await events(thread))[: len(said)]]
        assert RULE in str((await thread.context(max_tokens=1_000)).messages)
        assert await thread.search("customs form 7-C")
        assert (await thread.replay.verify()).ok
        exchange = await thread.conversation.finalize_cycle("How was it?", "It was fine in the valley. " * 80)
        assert exchange.answer


def openai_model(address: str) -> LanguageModel:
    """The model through OpenAI's client."""
    openai = pytest.importorskip("openai")
    return OpenAIModel(openai.AsyncOpenAI(base_url=f"{address}/v1", api_key="x"), "small", retries=0)


def litellm_model(address: str) -> LanguageModel:
    """The model through litellm, which its own first call imports, with what it does to a process undone."""
    if importlib.util.find_spec("litellm") is None:
        pytest.skip("litellm is not installed")
    return LiteLLM("openai/small", api_base=f"{address}/v1", api_key="x", retries=0)


async def refused(model: LanguageModel) -> None:
    """The server's refusal of a prompt over the window is understood, in its own words."""
    too_long = [{"role": "user", "content": "word " * 2 * WINDOW}]
    with pytest.raises(ModelError, match=f"available context size.*{WINDOW} tokens") as failed:
        await model.complete(too_long, temperature=0, max_tokens=16, timeout_s=120)
    assert "context_window" == failed.value.reason


def step(n: int) -> list[memory_engine.Event]:
    """A request, a call with a long result, and an answer."""
    call = ToolCall.create(f"c{n}", "find_parcel", {"parcel": f"PX-{4_000 + n}"})
    result = f"Parcel PX-{4_000 + n} lies at depot {n % 3}. It waits for customs form {n % 9}-C. " * 9
    return [
        UserMessage(content=f"Where is parcel PX-{4_000 + n}, please?"),
        LlmToolCall(calls=(call,)),
        ToolResult(call_id=call.id, content=result),
        LlmTextResponse(content=f"PX-{4_000 + n} waits at depot {n % 3} for a customs form."),
    ]


async def compacted_in_the_end(thread: Thread) -> None:
    """Ask the model; where that comes to nothing, the embedded compactor stands in. The log says who and why."""
    try:
        report = await thread.compact()
        assert report.compactor in ("working_history", "embedded")
    except CompactorFailed as error:
        reason, why = error.reason, error.error
        last = [one.event for one in await events(thread) if one.type == "compaction_failed"][-1]
        assert (reason, why) == (getattr(last, "reason", ""), getattr(last, "error", ""))
        await thread.admin.update(policy=CompactionPolicy(hard_tokens=300, keep_recent=0, deadline_s=SECONDS))
        await thread.context(max_tokens=1_000)
    await thread.compaction.settle()
    assert [one for one in await events(thread) if one.type == "compaction_completed"]


async def events(thread: Thread) -> list[RecordedEvent]:
    """The whole log."""
    return [one async for one in thread.events()]


async def test_a_small_model_decides_or_is_unclear(address: str) -> None:
    """Whatever it answers about two statements, or however late, the log says it and both are found."""
    openai = pytest.importorskip("openai")
    async with (
        openai.AsyncOpenAI(base_url=f"{address}/v1", api_key="x") as client,
        memory_engine.open(":memory:", models=Models(memory=OpenAIModel(client, "small", retries=0))) as engine,
    ):
        thread = await engine.create_thread("t", user_id="u")
        said = ("The spare key is under the mat.", "From today the spare key is with Mrs Ahn next door.")
        for text in said:
            await thread.dispatch(UserMessage(content=text))
        done = await thread.views.statements.compare("Where is the spare key?", pairs_max=1)
        recorded = [one.event for one in await events(thread) if isinstance(one.event, StatementsCompared)]
        assert [one.verdict for one in recorded] == [one.verdict for one in done.decisions]
        assert bool(recorded) != bool(done.failure)
        assert all((one.verdict == "unclear") == bool(one.failure) for one in recorded)
        assert set(said) == {hit.text for hit in await thread.search("Where is the spare key?")}
        assert (await thread.replay.verify()).ok
