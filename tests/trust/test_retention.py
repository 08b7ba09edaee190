"""Retention: what is old enough goes by rules, through the acts that a person would ask for, and never what is held."""

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import memory_engine
from memory_engine import Engine, RetentionRule
from memory_engine import events as e
from memory_engine.administration.retention import read_rules
from memory_engine.engine import kernel_of
from memory_engine.errors import InvalidRetention, LegalHold
from memory_engine.store.acts import Act
from memory_engine.testing.fakes import ManualClock
from tests.command_line import Run
from tests.trust.test_erasing import SAID, held

DAY = 86_400
OLD = timedelta(days=30)


@pytest.fixture
def clock() -> ManualClock:
    """A clock that a test sets."""
    return ManualClock()


@pytest.fixture
async def engine(tmp_path: Path, clock: ManualClock) -> AsyncIterator[Engine]:
    """Over a file: an old thread, one that is old and was used lately, and a new one."""
    async with memory_engine.open(str(tmp_path / "m.db"), clock=clock) as opened:
        for name in ("old", "used"):
            thread = await opened.create_thread(name, user_id="u1", tenant_id="acme")
            await thread.dispatch_all([e.SessionStarted(content="Be brief"), e.UserMessage(content=f"{SAID} {name}")])
        clock.advance(40 * DAY)
        await opened.thread("used").dispatch(e.UserMessage(content="Still here"))
        await (await opened.create_thread("new")).dispatch(e.UserMessage(content=SAID))
        yield opened


async def done_by(engine: Engine) -> dict[str, Any]:
    """What the one retention of a test did, by its first rule."""
    (act,) = [one for one in await engine.admin.acts() if one.kind == "retention"]
    done: dict[str, Any] = json.loads(act.outcome)[0]
    return done


async def test_threads_that_nobody_used_are_deleted(engine: Engine) -> None:
    """A dry run says so first; the act says what was done, and by which other act."""
    rule = RetentionRule(act="delete", older_than=OLD, name="old chats")
    looked = await engine.admin.retain([rule], dry_run=True)
    assert ({"old": 0}, "", ()) == (looked.rules[0].threads, looked.act, tuple(await engine.admin.acts()))
    report = await engine.admin.retain([rule], by="nightly")
    assert {"used", "new"} == {info.id for info in await engine.threads()}
    deletion, act = sorted(await engine.admin.acts(), key=lambda one: one.kind)
    assert (report.rules[0].acts, report.act) == ((deletion.id,), act.id)
    assert ("delete", "nightly", "retention: old chats") == (deletion.kind, deletion.by, deletion.reason)
    assert ("retention", "nightly", ["old"]) == (act.kind, act.by, list(json.loads(act.outcome)[0]["threads"]))
    assert "" == (await engine.admin.retain([rule])).act
    assert 2 == len(await engine.admin.acts())


async def test_old_events_are_erased_once(engine: Engine, tmp_path: Path) -> None:
    """What was said, not the instructions; of both threads in one act; the second run finds nothing."""
    rule = RetentionRule(act="erase", older_than=OLD, tenant_id="acme")
    report = await engine.admin.retain([rule])
    assert ({"old": 1, "used": 1}, 1) == (report.rules[0].threads, len(report.rules[0].acts))
    assert not held(tmp_path / "m.db", f"{SAID} old")
    texts = [chunk.text for chunk in (await engine.thread("used").state()).chunks()]
    assert ["Be brief", "Still here"] == texts
    assert {} == (await engine.admin.retain([rule])).rules[0].threads
    assert [] == [one for one in await engine.verify() if not one.ok]


async def test_an_erasing_is_not_a_use(engine: Engine) -> None:
    """A thread whose events were erased is as old as before."""
    erase = RetentionRule(act="erase", older_than=OLD)
    delete = RetentionRule(act="delete", older_than=OLD)
    report = await engine.admin.retain([erase, delete])
    assert {"old": 0} == report.rules[1].threads


async def test_events_of_given_types_are_forgotten(engine: Engine) -> None:
    """Forgetting hides them; a second run finds nothing, archived threads are passed over."""
    await engine.thread("used").admin.archive()
    rule = RetentionRule(act="forget", older_than=OLD, types=("user_message",))
    assert {"old": 1} == (await engine.admin.retain([rule])).rules[0].threads
    assert ["Be brief"] == [chunk.text for chunk in (await engine.thread("old").state()).chunks()]
    assert {} == (await engine.admin.retain([rule])).rules[0].threads


async def test_rows_of_a_view_are_erased_by_their_events(engine: Engine, clock: ManualClock, tmp_path: Path) -> None:
    """Of the user's own thread, where the rule names its kind."""
    user = engine.user("u1", tenant_id="acme")
    await user.preferences.update("name", "Osterfeldt-oldest")
    clock.advance(40 * DAY)
    await user.preferences.update("tone", "brief")
    rule = RetentionRule(act="erase", older_than=OLD, kind="user", view="preferences")
    assert {user.id: 1} == (await engine.admin.retain([rule])).rules[0].threads
    assert not held(tmp_path / "m.db", "Osterfeldt-oldest")
    assert ["tone"] == list(await user.preferences.all())


async def test_threads_are_archived(engine: Engine) -> None:
    """Once."""
    rule = RetentionRule(act="archive", older_than=OLD)
    assert {"old": 0} == (await engine.admin.retain([rule])).rules[0].threads
    assert "archived" == (await engine.thread("old").info()).status
    assert {} == (await engine.admin.retain([rule])).rules[0].threads


async def test_a_fork_in_use_keeps_its_origin(engine: Engine) -> None:
    """It is named; once the fork is old too, both go."""
    fork = await engine.thread("old").fork(thread_id="fork")
    await fork.dispatch(e.UserMessage(content="I go on"))
    rule = RetentionRule(act="delete", older_than=OLD)
    outcome = (await engine.admin.retain([rule])).rules[0]
    assert ({}, {"old": "shares its past with fork"}) == (outcome.threads, outcome.kept)


@pytest.mark.parametrize("act", ["delete", "erase", "forget"])
async def test_a_hold_wins(engine: Engine, act: str) -> None:
    """All that is not held is done; then the error names the hold."""
    other = await engine.thread("old").fork(at=0, thread_id="free")
    await other.dispatch(e.UserMessage(content="Free to go"), event_id="free-1")
    hold = await engine.thread("old").admin.hold(reason="case 12")
    rule = RetentionRule(act=act, older_than=timedelta(seconds=1))  # type: ignore[arg-type]
    engine.kernel.clock.advance(10)  # type: ignore[attr-defined]
    assert ["old"] == list((await engine.admin.retain([rule], dry_run=True)).rules[0].kept)
    with pytest.raises(LegalHold) as raised:
        await engine.admin.retain([rule])
    assert ("old", hold.id) == (raised.value.thread_id, raised.value.hold)
    assert SAID in [chunk.text.removesuffix(" old") for chunk in (await engine.thread("old").state()).chunks()]
    done = await done_by(engine)
    assert {"used", "new", "free"} == set(done["threads"])


async def test_a_held_thread_that_an_act_would_reach_keeps_its_reason_alone(engine: Engine) -> None:
    """A held fork shares the event: that thread is left, the others go on."""
    fork = await engine.thread("old").fork(thread_id="fork")
    await fork.admin.hold()
    with pytest.raises(LegalHold):
        await engine.admin.retain([RetentionRule(act="erase", older_than=OLD)])
    done = await done_by(engine)
    assert (["used"], ["old"]) == (list(done["threads"]), list(done["kept"]))


async def test_an_open_engine_retains_by_itself(engine: Engine) -> None:
    """Now, and again after each interval, until it is ended or the engine closes."""
    done = asyncio.Event()
    put = kernel_of(engine).store.put_act

    async def seen(act: Act) -> None:
        await put(act)
        if act.kind == "retention":
            done.set()

    kernel_of(engine).store.put_act = seen  # type: ignore[method-assign]
    end = engine.admin.retain_every(timedelta(hours=1), [RetentionRule(act="delete", older_than=OLD)])
    await done.wait()
    end()
    assert {"used", "new"} == {info.id for info in await engine.threads()}


RULES = """
[[rule]]
name = "old chats"
act = "delete"
kind = "conversation"
tenant_id = "acme"
older_than = "30 days"

[[rule]]
act = "erase"
older_than = "52 weeks"
types = ["tool_result"]
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "nothing else"),
        ("rules = 1", "Expected"),
        ("[[rule]]\nact = 'delete'", "not an age"),
        ("[[rule]]\nact = 'burn'\nolder_than = '3 days'", "burn"),
        ("[[rule]]\nact = 'delete'\nolder_than = '0 days'", "above zero"),
        ("[[rule]]\nact = 'delete'\nolder_than = '3 days'\ntypes = ['user_message']", "whole threads"),
        ("[[rule]]\nact = 'erase'\nolder_than = '3 days'\ntypes = ['a']\nview = 'b'", "not both"),
        ("[[rule]]\nact = 'erase'\nolder_than = '3 days'\nolder = 1", "older"),
        ("\xff", "utf-8"),
    ],
)
def test_a_file_that_holds_no_rules_is_refused(tmp_path: Path, text: str, expected: str) -> None:
    """With what is wrong, and in which rule."""
    (tmp_path / "rules.toml").write_bytes(text.encode("latin-1"))
    with pytest.raises(InvalidRetention, match=expected):
        read_rules(tmp_path / "rules.toml")


@pytest.mark.parametrize("rule", [{"types": ("nope",)}, {"view": "nope"}])
async def test_what_is_not_there_is_said_before_anything_happens(engine: Engine, rule: dict[str, object]) -> None:
    """A misspelt type or view would keep what was meant to go."""
    rules = [RetentionRule(act="delete", older_than=OLD), RetentionRule(act="erase", older_than=OLD, **rule)]  # type: ignore[arg-type]
    with pytest.raises(InvalidRetention):
        await engine.admin.retain(rules)
    assert 3 == len(await engine.threads())


def test_the_command(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dry run, the refusal to destroy unasked, the act."""
    monkeypatch.setenv("MEMORY_ENGINE_DB", str(tmp_path / "m.db"))
    rules = tmp_path / "rules.toml"
    rules.write_text(RULES)
    assert 2 == len(read_rules(rules))

    async def write() -> None:
        async with memory_engine.open(str(tmp_path / "m.db"), clock=ManualClock()) as engine:  # long ago
            await (await engine.create_thread("t", tenant_id="acme")).dispatch(e.UserMessage(content=SAID))

    asyncio.run(write())
    code, out, err = run("retain", str(rules), "--dry-run")
    assert (0, "") == (code, err)
    assert ["old chats: delete 1 thread", "  t", "erase conversation: erase 0 threads"] == out.splitlines()[:3]
    assert (2, True) == ((refused := run("retain", str(rules)))[0], "--yes" in refused[2])
    code, out, _ = run("retain", str(rules), "--by", "nightly", "--yes", "--json")
    assert (0, {"t": 0}) == (code, json.loads(out)["rules"][0]["threads"])
    assert not held(tmp_path / "m.db")
    assert 0 == run("retain", str(rules))[0]
    rules.write_text("")
    assert 2 == run("retain", str(rules), "--yes")[0]
