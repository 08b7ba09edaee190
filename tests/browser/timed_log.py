"""A log whose events say when they occurred and what models used: a person plans a trip with an agent, in two days."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from memory_engine import Engine, Event, LlmTextResponse, UserMessage
from memory_engine.core.events.base import ToolCall
from memory_engine.core.records import NewEvent
from memory_engine.errors.effects import Usage
from memory_engine.events import ExchangeFinished, LlmThinking, LlmToolCall, ScratchpadWritten, ToolError, ToolResult

BEGUN = datetime(2026, 3, 14, 9, 26, 53, tzinfo=UTC)
MODEL = "gpt-5-mini"


def answered(input_tokens: int, cached: int, output_tokens: int) -> str:
    """What came around a provider's message, as adapters keep it."""
    usage = {
        "prompt_tokens": input_tokens,
        "completion_tokens": output_tokens,
        "prompt_tokens_details": {"cached_tokens": cached},
    }
    return json.dumps({"openai.chat": {"response": {"id": f"r{input_tokens}", "model": MODEL, "usage": usage}}})


def calls(*names: str, first: int) -> tuple[ToolCall, ...]:
    """Calls of these tools, with ids from a number on."""
    return tuple(ToolCall(f"c{first + n}", name, '{"city": "Lisbon", "days": 3}') for n, name in enumerate(names))


def steps() -> Iterator[tuple[float, Event]]:
    """Events, each with the seconds that passed before it."""
    yield 0, UserMessage(content="Plan three days in Lisbon for two people who like trains and old bookshops.")
    yield 2.4, LlmThinking(content="Flights, trains and the weather can be asked for at once.")
    yield (
        0.9,
        LlmToolCall(
            content="I look up trains, the weather and bookshops.",
            calls=calls("find_trains", "weather", "search_places", first=1),
            native=answered(1_850, 0, 132),
        ),
    )
    yield 0.7, ToolResult(call_id="c2", name="weather", content="18 to 22 degrees, one shower on Sunday.")
    yield 2.6, ToolResult(call_id="c1", name="find_trains", content="Sud Express to Lisboa Oriente, 2 seats. " * 6)
    yield 5.2, ToolError(call_id="c3", name="search_places", content="timed out after 8 s")
    yield 1.8, LlmToolCall(calls=calls("search_places", first=4), native=answered(2_420, 1_792, 41))
    yield 1.9, ToolResult(call_id="c4", name="search_places", content="Bertrand (since 1732), Ler Devagar, Ferin. " * 8)
    yield (
        4.3,
        LlmTextResponse(
            content="Day 1: Alfama on foot, tram 28, then Bertrand. Day 2: the railway museum. Day 3: Ler Devagar.",
            native=answered(2_960, 2_304, 388),
        ),
    )
    yield (
        0.2,
        ExchangeFinished(
            question="Plan three days in Lisbon.",
            answer="Alfama, the railway museum, Ler Devagar.",
            short="Alfama, museum, bookshops.",
            method="model",
            model="claude-haiku-4-5",
            usage=Usage(input_tokens=610, output_tokens=38, cost_usd=0.0008),
        ),
    )
    yield 94, UserMessage(content="Swap day 2 and 3, and find a table for dinner near Chiado.")
    yield 1.6, LlmToolCall(calls=calls("book_table", first=5), native=answered(3_180, 2_944, 57))
    yield (
        11.5,
        ToolResult(call_id="c5", name="book_table", content="Table for two at 20:30, Taberna da Rua das Flores."),
    )
    yield 2.2, LlmTextResponse(content="Swapped, and a table is booked for 20:30.", native=answered(3_410, 3_072, 64))
    yield 71_000, UserMessage(content="We have a dog. Does that change anything?")
    yield (
        3.1,
        LlmTextResponse(
            content="The railway museum takes no dogs; I put the Tagus walk there.", native=answered(3_590, 0, 118)
        ),
    )
    yield 0.4, ScratchpadWritten(content="They travel with a dog.")


async def make_timed(engine: Engine, thread_id: str = "trip") -> None:
    """The thread."""
    thread = await engine.create_thread(thread_id, user_id="ann", tenant_id="acme")
    at = BEGUN
    for passed, event in steps():
        at += timedelta(seconds=passed)
        await thread.dispatch(NewEvent(event, occurred_at=at))
