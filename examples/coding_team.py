"""A coding agent that hands over to sub-agents: what each may know, and what the team knows the next time.

No model and no key: rules replace a model, so that you can watch the memory.

    python examples/coding_team.py
"""

import asyncio
from collections.abc import Mapping

import memory_engine
from memory_engine import AgentLifecycle, Engine, SubagentResult, ToolCall

REPOSITORY = {
    "export.py": "for row in rows:\n    total = sum(prices(row))  # reads the list each time",
    "tests/test_export.py": "def test_export(): assert export(ROWS) == EXPECTED",
}


class Workshop:
    """The tools of all agents. The run that calls them records their work."""

    def __init__(self) -> None:
        self.calls = 0
        self.is_fixed = False

    async def use(self, agent: AgentLifecycle, tool: str, arguments: Mapping[str, object]) -> str:
        """Run a tool for an agent; a failure is recorded as the call's answer."""
        self.calls += 1
        call = ToolCall.create(f"call-{self.calls}", tool, arguments)
        error = self.fails(tool)
        result = None if error else self.answer(tool, arguments)
        await agent.tool_used(call, result, error=error)
        print(f"      {agent.agent_id:<9}{tool}({', '.join(map(str, arguments.values()))}): {error or result}")
        return result or ""

    def fails(self, tool: str) -> str | None:
        """The failures."""
        return "JAVA_HOME is not set" if tool == "build" else None

    def answer(self, tool: str, arguments: Mapping[str, object]) -> str:
        """The successes."""
        if tool == "read":
            return REPOSITORY[str(arguments["path"])].splitlines()[-1].strip()
        if tool == "profile":
            return "0.2 s" if self.is_fixed else "8.1 s, 97 % of it in prices()"
        if tool == "edit":
            self.is_fixed = True
        return "done" if tool == "edit" else "1 passed"


async def first_task(engine: Engine, workshop: Workshop) -> None:
    """The lead has a slow export looked at and mended by two others."""
    thread = await engine.create_thread("export-is-slow", user_id="ana", tenant_id="acme", agent_id="lead")
    lead = AgentLifecycle(engine, thread, agent_id="lead")
    await lead.start("Make the invoice export faster")
    print(f"lead: {lead.preparation.task}")

    profiler = await lead.subagent("profiler", "Find out why the invoice export is slow", layers=("semantic",))
    print("  profiler begins; it knows:", profiler.preparation.prompt or "nothing")
    await workshop.use(profiler, "profile", {"command": "export"})
    await workshop.use(profiler, "read", {"path": "export.py"})
    facts = await profiler.end("Remember that the slow function is prices(). It reads the price list for each row.")
    print("  profiler learned:", "; ".join(f"{fact.key} = {fact.value}" for fact in facts))

    await engine.agent("lead", tenant_id="acme").memory.learn("slow-function", "prices()")
    coder = await lead.subagent("coder", "Change the export so that prices() is called once")
    print("  coder begins; it knows:")
    print(indented(coder.preparation.prompt))
    await workshop.use(coder, "edit", {"path": "export.py"})
    await workshop.use(coder, "test", {"path": "tests/test_export.py"})
    await workshop.use(coder, "profile", {"command": "export"})
    await coder.end("Remember that the price list is cached. The export takes 0.2 s.")

    rule = "profile before and after, and compare with 0.2 s"
    memory = engine.agent("lead", tenant_id="acme").memory
    await memory.append("procedural", rule, condition="you check the invoice export")
    await lead.end("The export takes 0.2 s instead of 8.1 s.")
    print("lead got:")
    async for event in thread.events():
        if isinstance(event.event, SubagentResult):
            print(f"  {event.event.agent_id}: {event.event.content}")


async def second_task(engine: Engine, workshop: Workshop) -> None:
    """Another day, another conversation: a failed build, and what the team remembers."""
    thread = await engine.create_thread("nightly", user_id="ana", tenant_id="acme", agent_id="lead")
    lead = AgentLifecycle(engine, thread, agent_id="lead")
    try:
        async with lead.run("Check that the invoice export is still fast") as run:
            print("lead knows at the start:")
            print(indented(run.preparation.prompt))
            await workshop.use(lead, "build", {"target": "nightly"})
            raise RuntimeError("the nightly build does not start")
    except RuntimeError as error:
        print(f"lead failed: {error}")


async def remembered(engine: Engine) -> None:
    """Each agent's memory, its origin, and its readers."""
    for name in ("lead", "profiler", "coder"):
        memory = engine.agent(name, tenant_id="acme").memory
        print(f"{name} remembers:")
        for entry in [*await memory.entries("episodic"), *await memory.entries("semantic")]:
            key = f"{entry.key} = " if entry.key else ""
            print(f"  [{entry.layer}] {key}{entry.content}")
    await engine.agent("lead", tenant_id="acme").revoke("profiler")
    shared = engine.agent("profiler", tenant_id="acme").shared("lead")
    print("may the profiler still read the lead's memory?", await shared.granted() is not None)
    print("every log verifies:", all(report.ok for report in await engine.verify()))


def indented(text: str) -> str:
    """A text, two levels in."""
    return "\n".join(f"    {line}" for line in text.splitlines())


async def main() -> None:
    """Two tasks, then what is left of them."""
    async with memory_engine.open(":memory:") as engine:
        workshop = Workshop()
        await first_task(engine, workshop)
        print()
        await second_task(engine, workshop)
        print()
        await remembered(engine)


if __name__ == "__main__":
    asyncio.run(main())
