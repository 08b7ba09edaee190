"""Deaths in the middle of work on views: nothing acknowledged is lost, each fact arrives once, views are the log's."""

import asyncio
import json
import random
import sys
from asyncio.subprocess import PIPE
from collections import Counter
from pathlib import Path

from attrs import define, field

import memory_engine
from memory_engine import Engine, RecordedEvent
from memory_engine import events as e
from memory_engine.engine import kernel_of
from memory_engine.projections.outbox import FACTS, OUTBOX, OutboxFact
from memory_engine.runtime.scoped import scope_of
from memory_engine.views.conversation.fold import CONVERSATION, tally_of
from memory_engine.wiring import builtin_projections
from tests.conversations import log
from tests.depth import DEEP
from tests.processes.sound import VERIFIED_EVERY, assert_verified, sound_log
from tests.processes.view_crash_child import CONFIG, STAGES

ROOT = Path(__file__).resolve().parents[2]
FILES, LIVES = 4 if DEEP else 2, len(STAGES)


@define
class Told:
    """What the children of one file have been told, and what was found of their deaths."""

    about: dict[str, set[str]] = field(factory=dict)
    deaths: int = 0
    left: int = 0

    def hear(self, line: bytes) -> None:
        """Take in what a child said before it died."""
        self.deaths += 1
        for kind, about in json.loads(line):
            self.about.setdefault(kind, set()).add(about)

    def of(self, kind: str) -> set[str]:
        """What was acknowledged of one kind."""
        return self.about.get(kind, set()) - {""}


async def check(path: str, told: Told, *, verify: bool) -> None:
    """After a death: the file as whoever opens it next finds it; with `verify` all that derives from it too."""
    async with memory_engine.open(path, config=CONFIG) as engine:
        told.left += len(await kernel_of(engine).store.holders(OUTBOX.name, OUTBOX.version))
        await engine.settle()
        logs = {info.id: await log(engine.thread(info.id)) for info in await engine.threads()}
        await check_facts(engine, logs)
        await check_told(engine, told, logs.get("t", []))
        for thread_id in logs:
            await sound_log(engine, thread_id)
        if not verify:
            return
        await assert_verified(engine)
        for thread_id in logs:
            assert await views(engine, thread_id) == await rebuilt(engine, thread_id)


async def views(engine: Engine, thread_id: str) -> dict[str, dict[str, object]]:
    """The rows of every view."""
    thread = engine.thread(thread_id)
    return {one.name: await thread.views.read(one.name) for one in builtin_projections()}


async def rebuilt(engine: Engine, thread_id: str) -> dict[str, dict[str, object]]:
    """The rows of every view, made again."""
    await engine.thread(thread_id).replay.rebuild()
    return await views(engine, thread_id)


async def check_facts(engine: Engine, logs: dict[str, list[RecordedEvent]]) -> None:
    """Every fact is where it belongs, once, and none waits."""
    sent: Counter[tuple[str, str]] = Counter()
    for thread_id in logs:
        assert 0 == len(await engine.thread(thread_id).views.rows(OUTBOX))
        for fact in (await engine.thread(thread_id).views.read(FACTS.name)).values():
            assert isinstance(fact, OutboxFact)
            sent[scope_of(kernel_of(engine), fact.destination).id, fact.arrival] += 1
    came = Counter((name, event.id) for name, events in logs.items() for event in events if event.id[:5] == "fact:")
    assert sent == came
    assert set(came.values()) <= {1}


async def check_told(engine: Engine, told: Told, events: list[RecordedEvent]) -> None:
    """All that was acknowledged is there, once."""
    user, tenant = engine.user("u1", tenant_id="acme"), engine.tenant("acme")
    assert told.of("written") <= {event.id for event in events}
    preferences = {f"{p.value}" for p in (await user.preferences.all()).values()}
    assert {f"Finding {name}." for name in told.of("preferences")} <= preferences
    assert {f"Finding {name}." for name in told.of("agent_md")} <= {line.text for line in await tenant.agent_md.lines()}
    times = Counter(time.user_query for playbook in await user.playbooks.all() for time in playbook.times)
    assert {f"query {name}" for name in told.of("playbook")} <= set(times)
    assert set(times.values()) <= {1}
    finished = Counter(event.event.question for event in events if isinstance(event.event, e.ExchangeFinished))
    assert {f"question {name}?" for name in told.of("exchange")} <= set(finished)
    assert set(finished.values()) <= {1}
    if events:
        assert len(finished) == tally_of(await engine.thread("t").views.rows(CONVERSATION)).finished
    screens = Counter(event.event.content for event in events if isinstance(event.event, e.ScreenInjected))
    assert {f"screen {name}" for name in told.of("screen")} <= set(screens)
    results = {event.event.result for event in events if isinstance(event.event, e.ToolResultCached)}
    assert {f"result {name}" for name in told.of("cached")} <= results
    if told.of("remembered"):
        kept = [event.event for event in await log(engine.agent("a", tenant_id="acme"))]
        entries = Counter(entry.content for entry in kept if isinstance(entry, e.MemoryAppended))
        assert told.of("remembered") | {f"shared {name}" for name in told.of("shared")} <= set(entries)
        assert set(entries.values()) <= {1}


async def die_again_and_again(path: str, seed: str, *, told: Told | None = None, lives: int = LIVES) -> Told:
    """Kill a child over and over on one file."""
    told = told or Told()
    arguments = ("-m", "tests.processes.view_crash_child", path, seed, str(lives))
    server = await asyncio.create_subprocess_exec(sys.executable, *arguments, stdin=PIPE, stdout=PIPE, cwd=ROOT)
    assert server.stdout is not None
    assert server.stdin is not None
    try:
        for life in range(lives):
            told.hear(await server.stdout.readline())
            await check(path, told, verify=life == lives - 1 or life % VERIFIED_EVERY == 0)
            server.stdin.write(b"\n")
    finally:
        await server.communicate()  # the end of its input is the server's end
    return told


async def test_deaths_amid_the_work_of_views_lose_nothing(tmp_path: Path) -> None:
    """Killed at every stage of promotion, feedback, turns, compaction and sharing, every view is whole."""
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")  # noqa: T201 - shown when the test fails
    every = await asyncio.gather(*(die_again_and_again(str(tmp_path / f"{n}.db"), f"{seed}/{n}") for n in range(FILES)))
    assert FILES * LIVES == sum(told.deaths for told in every)
    for kind in ("written", "preferences", "agent_md", "playbook", "exchange", "remembered", "shared", "screen"):
        assert 0 < sum(len(told.of(kind)) for told in every), kind
    assert 0 < sum(told.left for told in every)  # and some died between a decision and its arrival
