"""Laws of origins: whatever happens to a statement, its origin is never raised."""

import tempfile
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from memory_engine import Engine, RecordedEvent, Thread, ToolCall
from memory_engine import events as e
from memory_engine.core.origins import Speaker, at_least
from memory_engine.recall.trust import origins_of
from memory_engine.thread import handle_of
from tests.engine.test_laws import EVENTS
from tests.replay.test_rewind_laws import opened

RULES = ("Revenue dips every Sunday", "Stock is counted every Monday", "Returns rise after a sale")
STEPS = st.lists(
    st.tuples(st.sampled_from(("person", "tool", "note", "write", "learn")), st.integers(0, 2)), max_size=10
)


async def origins(thread: Thread, upto: int = 0) -> Mapping[int, Speaker]:
    """The origin of each of a thread's events, by seq."""
    handle = handle_of(thread)
    last = upto or await handle.last_seq()
    return await origins_of(handle.kernel, thread.id, range(1, last + 1))


def none_is_raised(before: Mapping[int, Speaker], after: Mapping[int, Speaker]) -> bool:
    """Whether each origin is as low as it was, or lower."""
    return before.keys() == after.keys() and all(at_least(before[seq], after[seq]) for seq in before)


async def told(thread: Thread, steps: list[tuple[str, int]]) -> None:
    """People, tools and notes speak; the agent writes down what it has read."""
    for n, (what, rule) in enumerate(steps):
        match what:
            case "person":
                await thread.dispatch(e.UserMessage(content=RULES[rule]))
            case "tool":
                await thread.dispatch(e.LlmToolCall(calls=(ToolCall(f"c{n}", "mail", "{}"),)))
                await thread.dispatch(e.ToolResult(call_id=f"c{n}", name="mail", content=RULES[rule]))
            case "note":
                await thread.dispatch(e.ExternalInject(content=RULES[rule], source="feed"))
            case "write":
                await thread.scratchpad.write(RULES[rule], flow=f"flow {n}")
            case _:
                await thread.memory.append("episodic", RULES[rule])


@settings(max_examples=25)
@given(st.lists(EVENTS, max_size=8), STEPS)
async def test_an_export_a_fork_and_a_continued_import_raise_no_origin(
    log: list[e.Event], steps: list[tuple[str, int]]
) -> None:
    """Each event has the origin that it had, or a lower one; also where an import goes on with a log it holds."""
    with tempfile.TemporaryDirectory() as folder:
        async with opened() as engine, opened() as other:
            thread = await engine.create_thread("t")
            await thread.dispatch_all([e.UserMessage(content="begin"), *log])
            await imported(other, thread, Path(folder) / "first.jsonl")
            await told(thread, steps)
            before = await origins(thread)
            assert none_is_raised(before, await origins(await imported(other, thread, Path(folder) / "whole.jsonl")))
            assert none_is_raised(before, await origins(await thread.fork()))


async def imported(engine: Engine, thread: Thread, path: Path) -> Thread:
    """A thread in another store, from an export."""
    await thread.replay.export(path)
    await engine.transfer.import_log(path, scopes="as exported")
    return engine.thread(thread.id)


@settings(max_examples=25)
@given(STEPS)
async def test_a_promotion_raises_no_origin(steps: list[tuple[str, int]]) -> None:
    """A line that rises has no higher origin than the snippets that it came from, in the tenant and in the user."""
    async with opened() as engine:
        thread = await engine.create_thread("t", user_id="u", tenant_id="acme")
        await told(thread, steps)
        here = {row.id: origin async for row, origin in _with_origins(thread)}
        await thread.promotion.evaluate(trigger="report_saved")
        await thread.views.delivered()
        for target in (engine.tenant("acme"), engine.user("u", tenant_id="acme")):
            async for row, origin in _with_origins(target):
                sources = [here[one] for one in getattr(row.event, "sources", ()) if one in here]
                assert all(at_least(one, origin) for one in sources)


async def _with_origins(thread: Thread) -> AsyncIterator[tuple[RecordedEvent, Speaker]]:
    found = await origins(thread) if await handle_of(thread).exists() else {}
    if found:
        async for row in thread.events():
            yield row, found[row.seq]
