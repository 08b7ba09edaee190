"""A support agent with a tool cache: what it looked up once it does not look up again, and what that saved.

No model and no key: a few rules choose the tools and word the answers, so that the memory is what can be watched.

    python examples/support_agent.py
"""

import asyncio
import json
import re
from collections.abc import Mapping

import memory_engine
from memory_engine import LlmToolCall, Thread, ToolCall, ToolError, ToolResult

ORDERS = {
    "1007": {"customer": "c-41", "item": "oak desk", "carrier": "DHL", "tracking": "JD-5512"},
    "1008": {"customer": "c-41", "item": "desk lamp", "carrier": "UPS", "tracking": "1Z-77"},
}
CUSTOMERS = {"c-41": {"name": "Ms Rivera", "plan": "gold", "since": 2019}}
PARCELS = {"JD-5512": "out for delivery, expected today before 18:00", "1Z-77": "delayed at the hub in Leipzig"}
COST_MS = {"get_order": 180, "get_customer": 240, "track_parcel": 900}
KEPT_FOR = 6  # exchanges

QUESTIONS = (
    "Where is order 1007?",
    "Which carrier has order 1007?",
    "And order 1008?",
    "Is the customer of order 1007 on the gold plan?",
    "Thanks! And what was in order 1007 again?",
    "Where is order 9999?",
    "Is order 1008 still delayed?",
)


class Backend:
    """The systems behind the tools. `ran` counts what really ran."""

    def __init__(self) -> None:
        self.ran: list[str] = []

    async def run(self, tool: str, parameters: Mapping[str, object]) -> str:
        """Answer as JSON. Raises `LookupError` for what is not there."""
        self.ran.append(tool)
        tables: Mapping[str, Mapping[str, object]] = {
            "get_order": ORDERS,
            "get_customer": CUSTOMERS,
            "track_parcel": PARCELS,
        }
        (key,) = parameters.values()
        if key not in tables[tool]:
            raise LookupError(f"{tool} knows no {key}")
        return json.dumps(tables[tool][str(key)])


class Agent:
    """One conversation: rules in place of a model, the engine as its memory."""

    def __init__(self, thread: Thread, backend: Backend) -> None:
        self.thread = thread
        self.backend = backend
        self.asked: list[str] = []

    async def turn(self, question: str) -> str:
        """Answer one question."""
        await self.thread.conversation.prepare_messages(question)
        found = re.search(r"\d{4}", question)
        number = found.group() if found else ""
        try:
            order = await self.call("get_order", {"order": number})
            answer = await self.answer(question, number, order)
        except LookupError:
            answer = f"I cannot find order {number}. Could you check the number?"
        await self.thread.conversation.finalize_cycle(question, answer)
        return answer

    async def answer(self, question: str, number: str, order: Mapping[str, str]) -> str:
        """The requested item, from the order on."""
        if "plan" in question:
            customer = await self.call("get_customer", {"customer": order["customer"]})
            return f"{customer['name']} is on the {customer['plan']} plan."
        if "carrier" in question:
            return f"Order {number} travels with {order['carrier']}."
        if "what was in" in question:
            return f"Order {number}: one {order['item']}."
        parcel = await self.call("track_parcel", {"tracking": order["tracking"]})
        return f"Order {number} ({order['item']}) is {parcel}."

    async def call(self, tool: str, parameters: Mapping[str, object]) -> dict[str, str]:
        """Call a tool through the cache; the log holds the call and its result, whoever gave it."""
        self.asked.append(tool)
        call_id = f"call-{len(self.asked)}"
        await self.thread.dispatch(LlmToolCall(calls=(ToolCall.create(call_id, tool, parameters),)))
        try:
            called = await self.thread.tool_cache.cached_call(
                tool, parameters, lambda: self.backend.run(tool, parameters), duration=KEPT_FOR, call_id=call_id
            )
        except LookupError as error:  # a failed result is not cached
            await self.thread.dispatch(ToolError(call_id=call_id, content=str(error), name=tool))
            print(f"    {tool}: failed")
            raise
        await self.thread.dispatch(ToolResult(call_id=call_id, content=called.result, name=tool))
        print(f"    {tool}: {'from the cache' if called.hit else 'ran'}")
        result: dict[str, str] = json.loads(called.result)
        return result


async def main() -> None:
    """Seven questions, then what the memory holds and what the cache saved."""
    async with memory_engine.open(":memory:") as engine:
        thread = await engine.create_thread("support", user_id="c-41", tenant_id="furniture")
        agent = Agent(thread, Backend())
        for question in QUESTIONS:
            print(f"USER   {question}")
            print(f"AGENT  {await agent.turn(question)}")
        print()
        report = await thread.views.report()
        print(report.text.partition("=== AGENT RECEIVES")[0].strip())
        print()
        asked, ran = sum(COST_MS[tool] for tool in agent.asked), sum(COST_MS[tool] for tool in agent.backend.ran)
        print(f"{len(agent.asked)} tool calls asked for, {len(agent.backend.ran)} ran;", end=" ")
        print(f"{asked - ran} of {asked} ms of waiting saved ({1 - ran / asked:.0%})")
        print(f"the log verifies: {(await thread.replay.verify()).ok}")


if __name__ == "__main__":
    asyncio.run(main())
