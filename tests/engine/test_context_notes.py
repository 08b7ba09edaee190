"""What a context leaves to be recorded: it waits in memory, and is in the log before the thread's next event."""

import asyncio
from pathlib import Path

import pytest

import memory_engine
from memory_engine import Engine, EngineConfig, NewEvent, Thread, UserMessage, errors
from memory_engine import events as e
from memory_engine.context.asked import EVENTS_BETWEEN, LESS_MAX, asked_at, asked_window
from memory_engine.engine import kernel_of
from memory_engine.plugins import Plugin
from memory_engine.thread import handle_of
from tests.cancelling import WAYS, Cancelled, moments
from tests.conversations import log, types


def response(n: int, tokens: int = 30) -> dict[str, object]:
    """An answer as a chat-completions SDK returns it, with the usage that the provider reports."""
    message = {"role": "assistant", "content": f"answer {n}"}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    usage = {"prompt_tokens": tokens, "completion_tokens": 3, "total_tokens": tokens + 3}
    return {"id": f"r{n}", "object": "chat.completion", "model": "m", "choices": [choice], "usage": usage}


def say(text: str) -> UserMessage:
    """A message."""
    return UserMessage(content=text)


async def kinds(thread: Thread) -> list[str]:
    """The types of all events."""
    return await types(thread, "")


async def asked(thread: Thread) -> list[e.ContextAsked]:
    """The budgets that the log holds."""
    return [one.event for one in await log(thread) if isinstance(one.event, e.ContextAsked)]


async def window(thread: Thread) -> int | None:
    """The window that compactions of the thread go by."""
    return asked_window(await handle_of(thread).runtime())


async def test_a_context_writes_nothing_and_the_next_dispatch_records_its_budget(thread: Thread) -> None:
    """The sender gets a receipt for its own event only."""
    await thread.dispatch(say("one"))
    await thread.context(max_tokens=8_000)
    assert 1 == (await thread.info()).events
    receipt = await thread.dispatch(say("two"))
    assert ["user_message", "context_asked", "user_message"] == await kinds(thread)
    assert (3, 8_000) == (receipt.seq, await window(thread))
    assert None is (await thread.replay.verify()).divergence


async def test_the_same_budget_is_recorded_once(thread: Thread) -> None:
    """A loop does not pay an event a turn."""
    for n in range(30):
        await thread.dispatch(say(f"message {n}"))
        await thread.context(max_tokens=8_000)
    assert 1 == len(await asked(thread))


async def test_a_larger_budget_widens_the_window_at_once(thread: Thread) -> None:
    """And a smaller one in between does not narrow it."""
    for budget in (8_000, 32_000, 8_000, 32_000, 8_000):
        await thread.context(max_tokens=budget)
        await thread.dispatch(say("go on"))
    assert [8_000, 32_000] == [one.window for one in await asked(thread)]
    assert 32_000 == await window(thread)


async def test_twenty_smaller_budgets_in_a_row_narrow_the_window(thread: Thread) -> None:
    """The loop has moved to a smaller model."""
    await thread.context(max_tokens=128_000)
    for _ in range(LESS_MAX):
        assert 0 < (await thread.dispatch(say("go on"))).seq
        assert 128_000 == await window(thread)
        await thread.context(max_tokens=16_000)
    await thread.dispatch(say("go on"))
    assert (16_000, 2) == (await window(thread), len(await asked(thread)))


async def test_processes_of_one_call_each_narrow_the_window_too(tmp_path: Path) -> None:
    """The row of smaller budgets goes on where the process before left it."""
    path = str(tmp_path / "memory.db")
    for n in range(LESS_MAX + 1):
        async with memory_engine.open(path) as engine:
            thread = await engine.open_thread("t")
            assert (None if n == 0 else 64_000) == asked_window(await handle_of(thread).runtime())
            await thread.context(max_tokens=64_000 if n == 0 else 4_000)
            await thread.dispatch(say("go on"))
    async with memory_engine.open(path) as engine:
        assert 4_000 == await window(await engine.open_thread("t"))


async def test_only_the_loops_own_handle_leaves_a_note(tmp_path: Path) -> None:
    """A past moment, a fork, a context without a budget and an engine that reads only leave the thread alone."""
    path = str(tmp_path / "memory.db")
    async with memory_engine.open(path) as engine:
        thread = await engine.create_thread("t")
        await thread.dispatch(say("one"))
        await thread.context()
        await thread.context(max_tokens=8_000, at=1)
        await (await thread.at(1)).context(max_tokens=8_000)
        await (await thread.fork()).context(max_tokens=8_000)
        async with memory_engine.open(path, config=EngineConfig(read_only=True)) as reader:
            await reader.thread("t").context(max_tokens=8_000)
        await thread.dispatch(say("two"))
        assert [] == await asked(thread)


async def test_a_reported_usage_has_our_count_before_it_three_times_and_then_now_and_then(thread: Thread) -> None:
    """So that the count can be corrected by it, and the log does not grow by an event a call."""
    for n in range(3 + EVENTS_BETWEEN):
        await thread.record({"role": "user", "content": f"question {n}"})
        context = await thread.context(max_tokens=8_000)
        await thread.record(response(n))
        if n == 0:
            (first,) = await asked(thread)
            assert (context.tokens, context.seq, 1) == (first.counted, first.upto, first.reports)
    found = await kinds(thread)
    places = [n for n, kind in enumerate(found) if kind == "context_asked"]
    assert {"llm_text_response"} == {found[n + 1] for n in places}
    assert 3 + 2 == len(places)


async def test_an_expected_seq_fits_though_a_note_goes_before_the_event(thread: Thread) -> None:
    """The note changes nothing that the sender has seen."""
    seen = await thread.dispatch(say("one"))
    await thread.context(max_tokens=8_000)
    receipt = await thread.dispatch(say("two"), expected_seq=seen.seq)
    assert 3 == receipt.seq
    await thread.context(max_tokens=9_000)
    with pytest.raises(errors.Conflict):
        await thread.dispatch(say("three"), expected_seq=seen.seq)
    assert 3 == (await thread.info()).events


async def test_a_retry_by_id_gets_its_receipt_and_the_note_stays_for_the_next(thread: Thread) -> None:
    """The note is in the log once, whichever event takes it along."""
    first = await thread.dispatch(say("one"), event_id="a")
    await thread.context(max_tokens=8_000)
    assert first == await thread.dispatch(say("one"), event_id="a")
    assert [] == await asked(thread)
    second = await thread.dispatch(say("two"), event_id="b")
    assert second == await thread.dispatch(say("two"), event_id="b")
    assert ["user_message", "context_asked", "user_message"] == await kinds(thread)


async def test_a_dispatch_that_fails_writes_nothing_and_keeps_the_note(thread: Thread) -> None:
    """It goes with the next one."""
    await thread.dispatch(say("one"))
    await thread.context(max_tokens=8_000)
    with pytest.raises(errors.EventRefused):
        await thread.dispatch(e.MemoryMarkCritical(chunk_ids=("7.0",)))
    assert 1 == (await thread.info()).events
    await thread.dispatch(say("two"))
    assert ["user_message", "context_asked", "user_message"] == await kinds(thread)


async def test_a_note_that_cannot_be_reduced_is_dropped_and_the_event_goes_alone() -> None:
    """A plug-in that fails on it does not stop the loop."""
    plugin = Plugin("broken")

    @plugin.reducer(e.ContextAsked)
    def fails(_view: object, _event: object, _ctx: object) -> memory_engine.Reduction:
        raise RuntimeError

    async with memory_engine.open(":memory:", plugins=[plugin]) as engine:
        thread = await engine.create_thread("t")
        await thread.context(max_tokens=8_000)
        assert 1 == (await thread.dispatch(say("one"))).seq
        assert {} == (await handle_of(thread).runtime()).notes.waiting


async def test_a_note_waits_while_the_thread_is_paused(thread: Thread) -> None:
    """The resumption does not take it: it is in the log before the event that waited."""
    await thread.dispatch(say("one"))
    await thread.admin.pause()
    await thread.context(max_tokens=8_000)
    waiting = asyncio.ensure_future(thread.dispatch(say("two")))
    await thread.admin.resume()
    await waiting
    expected = ["user_message", "execution_pause", "execution_resume", "context_asked", "user_message"]
    assert expected == await kinds(thread)


async def test_a_process_that_has_not_read_of_another_window_does_not_overwrite_it(tmp_path: Path) -> None:
    """Its events are all there; its note waits until a context has read what the other has recorded."""
    path = str(tmp_path / "memory.db")
    async with memory_engine.open(path) as one, memory_engine.open(path) as other:
        thread = await one.create_thread("t")
        there = other.thread("t")
        await thread.context(max_tokens=16_000)
        await there.context(max_tokens=8_000)
        await thread.dispatch(say("here"))
        await there.dispatch(say("there"))
        assert ["context_asked", "user_message", "user_message"] == await kinds(thread)
        await there.context(max_tokens=32_000)
        await there.dispatch(say("there again"))
        assert [16_000, 32_000] == [one.window for one in await asked(thread)]
        assert None is (await thread.replay.verify()).divergence


@WAYS
async def test_a_cancelled_dispatch_records_note_and_event_or_neither(tmp_path: Path, cancelled: Cancelled) -> None:
    """And a retry by id settles which: never two notes of a kind."""
    path = str(tmp_path / "memory.db")
    async with memory_engine.open(path) as engine:
        for moment in moments():
            thread = await engine.create_thread()
            await thread.context(max_tokens=8_000)
            event = NewEvent(UserMessage(content="one"), "a")
            await cancelled(lambda t=thread, new=event: t.dispatch(new), moment)  # type: ignore[misc]
            assert await kinds(thread) in ([], ["context_asked", "user_message"])
            await thread.dispatch(event)
            assert ["context_asked", "user_message"] == await kinds(thread)


async def test_the_window_of_an_earlier_moment_is_read_off_the_log(engine: Engine, thread: Thread) -> None:
    """For reruns and explanations of a past compaction."""
    for budget in (8_000, 32_000):
        await thread.context(max_tokens=budget)
        await thread.dispatch(say("go on"))
    found = [await asked_at(kernel_of(engine).reader, "t", seq) for seq in range(5)]
    assert [None, 8_000, 8_000, 32_000, 32_000] == [one and one.window for one in found]
