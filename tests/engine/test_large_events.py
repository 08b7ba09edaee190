"""Dispatching large events: encoded beside the loop, in the order of their senders."""

import asyncio
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest

import memory_engine
from memory_engine import EngineConfig, NewEvent, UserMessage
from memory_engine.core.codec import LARGE_CHARS
from memory_engine.core.tokens import recorded_tokens
from memory_engine.errors import EngineClosed, EventTooLarge, IdempotencyConflict, InvalidEvent
from memory_engine.events import TextPart

MAY = datetime(2024, 5, 1, tzinfo=UTC)
LARGE = "größe und länge " * (LARGE_CHARS // 8)


async def test_a_large_event_is_kept_as_any_other() -> None:
    """Its text, its tokens, its envelope; the log verifies."""
    async with memory_engine.open(":memory:") as engine:
        thread = await engine.create_thread()
        receipt = await thread.dispatch(
            UserMessage(content=LARGE), event_id="mine", occurred_at=datetime(2024, 5, 1, tzinfo=UTC)
        )
        again = await thread.dispatch(UserMessage(content=LARGE), event_id="mine")

        assert receipt.hash == again.hash
        assert recorded_tokens(LARGE) == receipt.chunks[0].tokens
        [recorded] = [event async for event in thread.events()]
        assert UserMessage(content=LARGE) == recorded.event
        assert MAY == recorded.occurred_at
        assert (await thread.replay.verify()).ok
        with pytest.raises(IdempotencyConflict):
            await thread.dispatch(UserMessage(content=LARGE + "!"), event_id="mine")


async def test_nobody_overtakes_a_large_event() -> None:
    """Senders that come while it is encoded stand behind it, alone and in groups."""
    async with memory_engine.open(":memory:") as engine:
        thread = await engine.create_thread()
        first, second, third, (fourth, fifth) = await asyncio.gather(
            thread.dispatch(UserMessage(content=LARGE)),
            thread.dispatch(UserMessage(content="small")),
            thread.dispatch(NewEvent(UserMessage(content=LARGE + "!"))),
            thread.dispatch_all([UserMessage(content="also small"), UserMessage(content=LARGE)]),
        )

        assert [1, 2, 3, 4, 5] == [one.seq for one in (first, second, third, fourth, fifth)]


async def test_a_cancelled_sender_of_a_large_event_leaves_the_others_in_their_order() -> None:
    """Its event is not taken."""
    async with memory_engine.open(":memory:") as engine:
        thread = await engine.create_thread()
        texts = (LARGE, "dropped", LARGE + "!", "last")
        sent = [asyncio.create_task(thread.dispatch(UserMessage(content=text))) for text in texts]
        await asyncio.sleep(0)
        sent[1].cancel()
        for task in sent:
            with suppress(asyncio.CancelledError):
                await task

        state = await thread.state()
        assert [LARGE, LARGE + "!", "last"] == [chunk.content for chunk in state.chunks()]


async def test_a_list_that_changes_while_it_waits_does_not_change_the_event() -> None:
    """A large event is what it was when it was handed over."""
    async with memory_engine.open(":memory:") as engine:
        thread = await engine.create_thread()
        parts = [TextPart(text=LARGE), TextPart(text="as it was")]
        sending = asyncio.create_task(thread.dispatch(UserMessage(content=parts)))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # a list that lives on
        await asyncio.sleep(0)
        parts[1] = TextPart(text="changed")
        receipt = await sending

        assert (TextPart(text=LARGE), TextPart(text="as it was")) == receipt.chunks[0].content


async def test_what_is_wrong_with_a_large_event_is_said() -> None:
    """Nothing is written, and the next sender goes on."""
    async with memory_engine.open(":memory:", config=EngineConfig(event_bytes_max=LARGE_CHARS * 2)) as engine:
        thread = await engine.create_thread()
        with pytest.raises(EventTooLarge):
            await thread.dispatch(UserMessage(content=LARGE))
        with pytest.raises(InvalidEvent, match="surrogate"):
            await thread.dispatch(UserMessage(content="x" * LARGE_CHARS + "\ud800"))

        assert 1 == (await thread.dispatch(UserMessage(content="small"))).seq


@pytest.mark.parametrize("rounds", [0, 1, 3, 10, 100, 1_000])
async def test_closing_amid_a_large_event_leaves_all_of_it_or_nothing(rounds: int, tmp_path: Path) -> None:
    """Every sender is answered: with the receipt of an event that is in the log, or with `EngineClosed`."""
    path = tmp_path / "a.db"
    engine = await memory_engine.open(path)
    thread = await engine.create_thread("t")
    await thread.dispatch(UserMessage(content="first"))
    texts = ["x" * (4 * LARGE_CHARS), "small", "y" * (2 * LARGE_CHARS)]
    sent = [asyncio.ensure_future(thread.dispatch(UserMessage(content=text))) for text in texts]
    for _ in range(rounds):
        await asyncio.sleep(0)
    await engine.close()
    told = await asyncio.gather(*sent, return_exceptions=True)
    kept = [text for text, answer in zip(texts, told, strict=True) if not isinstance(answer, EngineClosed)]
    async with memory_engine.open(path) as again:
        thread = await again.open_thread("t")
        events = [row.event for row in await thread.replay.latest(4)]
        assert ["first", *kept] == [event.content for event in events if isinstance(event, UserMessage)]
        assert (await thread.replay.verify()).ok
