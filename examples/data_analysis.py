"""A data-analysis assistant across two conversations: scratchpad, promotion, playbook, preferences.

No model and no key: rules replace a model, so that you can watch the memory.
On Monday the assistant works something out; on Tuesday, in a new conversation, it knows how.

    python examples/data_analysis.py
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import memory_engine
from memory_engine import LlmTextResponse, LlmToolCall, PlaybookCall, Thread, ToolCall, ToolResult, UserMessage
from memory_engine.views.preferences.domain import Domain

DOMAIN = """
[kinds.chart]
description = "Which chart shows a comparison"
type = "choice"
allowed = ["bar", "line"]
default = "line"
flows = ["compare_periods"]

[kinds.rounding]
description = "Decimals of figures in tables and charts"
type = "number"
default = 2
"""
SALES = {"2026-Q2": {"north": 410, "south": 388}, "2026-Q3": {"north": 402, "south": 251}}


class Tools:
    """The warehouse. Every call is in the log, with its result."""

    def __init__(self, thread: Thread) -> None:
        self.thread = thread
        self.calls: list[PlaybookCall] = []

    async def run(self, tool: str, **parameters: str) -> object:
        """Run one tool, and note it for the playbook."""
        result: object
        if tool == "list_tables":
            result = ["sales", "sales_old", "regions"]
        elif tool == "describe":
            result = {"quarter": "text", "region": "text", "units": "integer"}
        else:
            result = SALES[parameters["quarter"]]
        call = ToolCall.create(f"c{len(self.calls) + 1}", tool, parameters)
        await self.thread.dispatch(LlmToolCall(calls=(call,)))
        await self.thread.dispatch(ToolResult(call_id=call.id, content=str(result), name=tool))
        self.calls.append(PlaybookCall(tool, dict(parameters)))
        print(f"    tool   {tool} {' '.join(parameters.values())}".rstrip())
        return result


async def say(thread: Thread, text: str) -> None:
    """The assistant's word."""
    await thread.dispatch(LlmTextResponse(content=text))
    print(f"AGENT  {text}")


async def ask(thread: Thread, text: str) -> None:
    """The user's word, and what it says about the flow before it."""
    print(f"USER   {text}")
    for promoted in await thread.views.flows.review(text):
        print(f"    memory a playbook was made of {promoted.flow_dact!r} ({promoted.reason})")
    await thread.dispatch(UserMessage(content=text))


async def monday(engine: memory_engine.Engine) -> None:
    """Find the way, write down what was found, keep what is worth keeping."""
    thread = await engine.create_thread("monday", user_id="ana", tenant_id="acme")
    await ask(thread, "Compare units sold in Q3 with Q2 by region.")
    tools = Tools(thread)
    await tools.run("list_tables")
    await tools.run("describe", table="sales")
    for quarter in ("2026-Q2", "2026-Q3"):
        await tools.run("query", table="sales", quarter=quarter)
    await say(thread, "North is flat (410, 402); south fell from 388 to 251.")
    await thread.scratchpad.write("Always use the table sales: sales_old misses returns.", flow="compare_periods")
    await thread.scratchpad.write("Surprisingly, only the south fell, by a third.", flow="compare_periods")
    await thread.scratchpad.write("The user prefers bar charts for comparisons.", flow="compare_periods")
    await thread.views.flows.completed(
        "compare_periods",
        user_query="Compare units sold in Q3 with Q2 by region.",
        slots={"measure": "units", "by": "region"},
        tool_calls=tools.calls[2:],  # the detours are not part of the recipe
        outcome="south fell by 35 %",
    )
    await ask(thread, "Perfect, thank you! Save this as a report.")
    report = await thread.promotion.report_saved("Units by region, Q3 against Q2")
    for verdict in report.verdicts:
        print(f"    memory {verdict.target or 'stays':<11} {verdict.content}")
    await engine.user("ana", tenant_id="acme").preferences.update("chart", "bar", reason="prefers bar charts")


async def tuesday(engine: memory_engine.Engine) -> None:
    """A new conversation of the same user: what was learned is at hand."""
    thread = await engine.create_thread("tuesday", user_id="ana", tenant_id="acme")
    await ask(thread, "Compare units sold in Q2 and Q3 by region, please.")
    playbook = await thread.views.flows.prepare("compare_periods", "Compare units sold in Q2 and Q3 by region, please.")
    tools = Tools(thread)
    for call in playbook.tool_calls if playbook is not None else ():
        await tools.run(call.tool_id, **{name: str(value) for name, value in call.parameters.items()})
    applied = await engine.user("ana", tenant_id="acme").preferences.applicable("compare_periods", "comparison chart")
    for one in applied:
        print(f"    prefers {one.preference.key} = {one.preference.value} because {'; '.join(one.why)}")
    await say(thread, f"Here is the {applied.values['chart']} chart: north 410 and 402, south 388 and 251.")
    print()
    await show(thread, engine)


async def show(thread: Thread, engine: memory_engine.Engine) -> None:
    """The input for a model, and its origin."""
    print("--- the scratchpad on Tuesday, as a model sees it")
    context = await thread.context(max_tokens=800)
    print(context.messages[-1]["content"])
    print("--- acme's agent.md")
    print(await engine.tenant("acme").agent_md.read())
    print("--- where a line is from")
    for line in await engine.tenant("acme").agent_md.lines():
        for source in line.promotions:
            (event,) = [e async for e in engine.thread(source.source_thread).events() if e.id in source.sources]
            print(f"{line.text}\n    {source.reason}\n    from seq {event.seq} of thread {source.source_thread!r}")


async def main(days: Sequence[str] = ("monday", "tuesday")) -> None:
    """Two days, two processes' worth of engines over one file."""
    with TemporaryDirectory() as folder:
        for day in days:
            print(f"=== {day}")
            domain = Domain.from_toml(DOMAIN)
            async with memory_engine.open(str(Path(folder) / "analysis.db"), domain=domain) as engine:
                await {"monday": monday, "tuesday": tuesday}[day](engine)


if __name__ == "__main__":
    asyncio.run(main())
