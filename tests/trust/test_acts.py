"""An act that fails is tried a few times, says why, and never reads as done."""

import asyncio
import json
from pathlib import Path

import pytest

import memory_engine
from memory_engine import Engine, EngineConfig, NewEvent, UserMessage
from memory_engine.engine import kernel_of
from memory_engine.errors import ActFailed
from memory_engine.store.acts import Act
from tests.command_line import Run
from tests.trust.files import tamper

KEPT = "a lamp for the hall"


@pytest.fixture
def path(tmp_path: Path) -> str:
    """Of a file."""
    return str(tmp_path / "m.db")


async def told(engine: Engine) -> list[tuple[str, int, str]]:
    """The state, failures and kind of each act."""
    return [(act.state, act.failures, act.kind) for act in await engine.admin.acts()]


async def opened_again(path: str) -> list[tuple[str, int, str]]:
    """The same, once an engine was open, which goes on with what is not done."""
    async with memory_engine.open(path) as engine:
        await kernel_of(engine).tasks.wait()
        return await told(engine)


async def broken(path: str) -> None:
    """A store whose process died while it erased an event of a thread, whose log was damaged then."""
    async with memory_engine.open(path) as engine:
        await kernel_of(engine).tasks.wait()
        thread = await engine.create_thread("broken")
        await thread.dispatch_all([NewEvent(UserMessage(content=f"{KEPT} {n}"), id=f"e{n}") for n in range(3)])
        await kernel_of(engine).store.put_act(
            Act(id="a", kind="erase", plan='{"events": {"broken": ["e2"]}}', asked_at_us=1)
        )
    tamper(
        path,
        "CREATE TABLE kept AS SELECT pos, payload FROM events WHERE pos & 4294967295 = 2 ORDER BY pos LIMIT 1",
        'UPDATE events SET payload = CAST(\'{"content":"x"}\' AS BLOB) WHERE pos = (SELECT pos FROM kept)',
    )


async def test_an_act_that_fails_three_times_is_given_up_and_never_done(path: str) -> None:
    """Those after it are done all the same. Once its cause is mended, it is done when it is asked to be tried again."""
    await broken(path)
    assert [("pending", 1, "erase")] == await opened_again(path)
    assert [("pending", 2, "erase")] == await opened_again(path)
    async with memory_engine.open(path) as engine:
        await kernel_of(engine).store.put_act(
            Act(id="~", kind="delete", plan='{"threads": {"nobody": 1}}', asked_at_us=1 << 60)
        )
        await kernel_of(engine).tasks.wait()
        with pytest.raises(ActFailed, match="retry_failed") as raised:
            await engine.admin.finish_acts()
        assert [("failed", 3, "erase"), ("done", 0, "delete")] == await told(engine)
        assert "IntegrityError" in raised.value.why
    assert ("failed", 3, "erase") == (await opened_again(path))[0]
    tamper(path, "UPDATE events SET payload = (SELECT payload FROM kept) WHERE pos = (SELECT pos FROM kept)")
    async with memory_engine.open(path) as engine:
        await engine.verify()
        assert ("failed", 3, "erase") == (await told(engine))[0]
        [report] = await engine.admin.finish_acts(retry_failed=True)
        assert ({"broken": 1}, ("done", 0, "erase")) == (report.erased, (await told(engine))[0])
        assert [] == await engine.admin.finish_acts()


@pytest.mark.parametrize("place", ["memory", "file"])
async def test_a_plan_that_cannot_be_read_keeps_no_other_waiting(path: str, place: str) -> None:
    """It fails as any other does: with an error of this package."""
    async with memory_engine.open(path if place == "file" else ":memory:") as engine:
        thread = await engine.create_thread("t")
        receipt = await thread.dispatch(UserMessage(content=KEPT))
        plan = f'{{"events": {{"t": ["{receipt.event_id}"]}}}}'
        for act, text in (("a", "no plan"), ("b", '{"events": [1]}'), ("c", plan)):
            await kernel_of(engine).store.put_act(Act(id=act, kind="erase", plan=text, asked_at_us=1))
        for failures in (1, 2, 3, 3):
            with pytest.raises(ActFailed):
                await engine.admin.finish_acts()
            assert [failures, failures, 0] == [act.failures for act in await engine.admin.acts()]
        assert ["failed", "failed", "done"] == [act.state for act in await engine.admin.acts()]


async def test_an_engine_that_reads_only_counts_no_failure(path: str) -> None:
    """It tries nothing."""
    async with memory_engine.open(path) as engine:
        await kernel_of(engine).tasks.wait()
        await kernel_of(engine).store.put_act(Act(id="a", kind="erase", plan="-"))
    async with memory_engine.open(path, config=EngineConfig(read_only=True)) as engine:
        assert [("pending", 0, "erase")] == await told(engine)


def test_the_command_says_which_failed(run: Run, path: str) -> None:
    """By its state and its error, for people and as JSON; a plan that is no JSON is shown as it is."""

    async def planned() -> None:
        async with memory_engine.open(path) as engine:
            await engine.create_thread("t")
            await kernel_of(engine).store.put_act(Act(id="a", kind="erase", plan="no plan"))

    asyncio.run(planned())
    for _ in range(4):
        code, out, err = run("--db", path, "acts", "--finish")
        assert (2, "", True) == (code, out, "act a (erase) is not done" in err)
    code, out, err = run("--db", path, "acts")
    assert (1, True, True) == (code, "failed" in out, "act a has failed 3 times: DecodeError" in out)
    [act] = json.loads(run("--db", path, "acts", "--json")[1])
    assert ("failed", None, "no plan") == (act["state"], act["done_at"], act["plan"])
    assert act["error"].startswith("DecodeError")
    assert "failed 4 times" in run("--db", path, "acts", "--finish", "--retry-failed")[2]
