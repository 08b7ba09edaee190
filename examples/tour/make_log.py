"""Make the log of the guided tour (docs/tools/tour.md): an agent of a bicycle shop that ships to the wrong door.

    python examples/tour/make_log.py FILE.jsonl

The summary comes from `terse`, a compactor that keeps the first sentence of what a customer says and no more. Times and
ids are counted, so the same file comes out every time.
"""

import asyncio
import sys
from collections.abc import Sequence

import memory_engine
from memory_engine import (
    CompactionPolicy,
    EngineConfig,
    LlmTextResponse,
    LlmToolCall,
    ToolCall,
    ToolResult,
    UserMessage,
)
from memory_engine.compaction.base import CompactionContext, CompactionResult
from memory_engine.core.chunks import Chunk
from memory_engine.core.events.base import SummaryLine
from memory_engine.errors.effects import Usage
from memory_engine.events import Event, InitialChunk, TaskStarted
from memory_engine.testing import ManualClock, SequentialIds

INSTRUCTIONS = "You serve the customers of Nordlicht Bicycles. Ship only to an address that the customer has named."
POLICY = CompactionPolicy(threshold=18, tokens_min=0, keep_recent=4)


class TerseCompactor:
    """A small model's summary of a conversation: first sentences, and the file's address."""

    name = "terse"

    def can_compact(self, _chunks: Sequence[Chunk]) -> bool:
        """Anything."""
        return True

    async def compact(self, chunks: Sequence[Chunk], _context: CompactionContext) -> CompactionResult:
        """A line for each message of the customer, and one for the account that was looked up."""
        lines = [
            SummaryLine("key_information", f"Customer: {chunk.text.split('. ')[0].rstrip('.')}.", (chunk.id,))
            for chunk in chunks
            if chunk.type == "user_message"
        ]
        account = next(chunk for chunk in chunks if "Lindenweg" in chunk.text)
        lines.append(SummaryLine("current_state", "Address on file: Lindenweg 3, 24103 Kiel.", (account.id,)))
        usage = Usage(input_tokens=sum(chunk.tokens for chunk in chunks), output_tokens=64, cost_usd=0.0004)
        return CompactionResult(lines=tuple(lines), model="small-model", usage=usage)


def conversation() -> list[Event]:
    """The conversation, in order."""
    turns: list[Event] = [
        TaskStarted(goal="Sell and ship a touring bicycle"),
        UserMessage(content="Hello, I am looking for a touring bicycle for long distances. I am 1.84 m tall."),
    ]
    turns += _call("c1", "find_account", '{"email": "m.petersen@example.org"}', ACCOUNT)
    turns += [
        LlmTextResponse(content="Hello Ms Petersen. For 1.84 m I would look at the Fjord 60 and the Skagen 58."),
        UserMessage(content="Which of them takes wider tyres? I ride on gravel a lot."),
    ]
    turns += _call("c2", "product", '{"name": "Fjord 60"}', '{"tyres_mm_max": 50, "price_eur": 2190, "stock": 3}')
    turns += _call("c3", "product", '{"name": "Skagen 58"}', '{"tyres_mm_max": 42, "price_eur": 1840, "stock": 0}')
    turns += [
        LlmTextResponse(content="The Fjord 60 takes 50 mm, the Skagen 58 only 42 mm and is out of stock. 2,190 euros."),
        UserMessage(
            content="Then the Fjord 60. Please deliver it to my office, Hafenstraße 12, and not to my home. "
            "The gate code is 4482, and nobody is there before 10."
        ),
        LlmTextResponse(content="Noted: the Fjord 60, to Hafenstraße 12, gate code 4482, after 10 o'clock."),
        UserMessage(content="Can you fit the wide tyres before shipping? I have none at home."),
    ]
    turns += _call("c4", "workshop_slots", '{"job": "tyres 50 mm"}', '{"free": ["Thu 9:00", "Fri 14:00"]}')
    turns += [
        LlmTextResponse(content="Yes: on Thursday at 9. It costs 35 euros with the tyres."),
        UserMessage(content="Good, do that. And add a repair kit for tubeless tyres."),
    ]
    turns += _call("c5", "add_item", '{"sku": "RK-20"}', '{"ok": true, "total_eur": 2244}')
    turns += [
        LlmTextResponse(content="Added. The total is 2,244 euros."),
        UserMessage(content="I have paid. Please ship it as soon as the tyres are on."),
    ]
    turns += _call(
        "c6",
        "ship",
        '{"order": "N-7731", "address": "Lindenweg 3, 24103 Kiel"}',
        '{"ok": true, "tracking": "NL-5520-1187"}',
    )
    return [
        *turns,
        LlmTextResponse(content="It goes out on Thursday to Lindenweg 3, tracking number NL-5520-1187."),
        UserMessage(content="To Lindenweg? I told you not to send it to my home!"),
    ]


ACCOUNT = '{"name": "Maren Petersen", "address": "Lindenweg 3, 24103 Kiel", "orders": 2}'


def _call(call_id: str, name: str, arguments: str, result: str) -> list[Event]:
    call = ToolCall(id=call_id, name=name, arguments=arguments)
    return [LlmToolCall(calls=(call,)), ToolResult(call_id=call_id, name=name, content=result)]


async def make(path: str) -> None:
    """Dispatch the conversation and write its log."""
    clock = ManualClock(1_790_000_000_000_000)
    async with memory_engine.open(
        ":memory:",
        config=EngineConfig(compaction=POLICY),
        compactor=TerseCompactor(),
        clock=clock,
        ids=SequentialIds("tour"),
    ) as engine:
        thread = await engine.create_thread(
            "order-7731", user_id="petersen", tenant_id="nordlicht", initial_chunks=[InitialChunk(content=INSTRUCTIONS)]
        )
        with memory_engine.correlated("order N-7731"):
            for event in conversation():
                clock.advance(20)
                await thread.dispatch(event)
                await thread.compaction.settle()
        await thread.replay.export(path)


if __name__ == "__main__":
    asyncio.run(make(sys.argv[1]))
