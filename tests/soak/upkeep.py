"""What must be true after a death amid erasing, deleting, importing, indexing and checkpoints."""

import json
import sys
from asyncio import create_subprocess_exec
from asyncio.subprocess import PIPE
from pathlib import Path

from attrs import define, field

import memory_engine
from memory_engine import Engine
from tests.processes.sound import VERIFIED_EVERY, assert_verified, sound_log
from tests.processes.test_crash import ROOT
from tests.soak.upkeep_child import CONFIG, export_of, secret_of


@define
class Upkeep:
    """What the children of one file said that they began, and that they were told is done."""

    path: str
    said: dict[str, set[str]] = field(factory=dict)
    durable: dict[str, int] = field(factory=dict)
    deaths: int = 0

    def hear(self, line: bytes) -> None:
        """Take in what a child said before it died."""
        self.deaths += 1
        for word, *about in json.loads(line):
            self.said.setdefault(word, set()).update(about)
            if word == "durable":
                self.durable.update((id_, int(seq)) for id_, _, seq in (each.rpartition("=") for each in about))

    def of(self, word: str) -> set[str]:
        """What a word was said about."""
        return self.said.get(word, set())

    @property
    def destroyed(self) -> set[str]:
        """The names of what is promised to be gone."""
        return self.of("erased") | self.of("deleted")

    @property
    def acknowledged(self) -> int:
        """How many events and acts are promised."""
        return len(self.durable) + sum(len(self.of(word)) for word in ("erased", "deleted", "imported", "flushed"))


async def check(told: Upkeep, *, verify: bool) -> None:
    """After a death: what was promised is there, what was destroyed is nowhere, what was half done is finished."""
    async with memory_engine.open(told.path, config=CONFIG) as engine:
        await engine.admin.finish_acts()
        assert [] == [act for act in await engine.admin.acts() if not act.done_at_us]
        logs = {info.id: await sound_log(engine, info.id) for info in await engine.threads()}
        recorded = {stored.id: stored.seq for stored in logs.get("sought", [])}
        assert told.durable == {event_id: recorded.get(event_id) for event_id in told.durable}
        assert told.of("flushed") <= {stored.id for stored in logs.get("flushed", [])}
        assert told.of("imported") <= set(logs)
        assert set() == told.of("deleted") & set(logs)
        for name in told.of("importing"):
            await _check_import(engine, told, name)
        if verify:
            await assert_verified(engine)
        payloads = b"".join(stored.payload for rows in logs.values() for stored in rows)
    files = [file for file in Path(told.path).parent.glob(f"{Path(told.path).name}*") if file != export_of(told.path)]
    content = b"".join(file.read_bytes() for file in files if file.is_file())
    for name in told.of("erasing") | told.of("deleting"):
        # an act that was not yet recorded when its process died leaves all as it was; any other has left no byte
        secret = secret_of(name).encode()
        standing = secret in payloads
        assert (standing, standing) == (secret in content, standing and name not in told.destroyed)


async def _check_import(engine: Engine, told: Upkeep, name: str) -> None:
    """Importing again changes nothing, or finishes what was begun; a log that contradicts the file would be refused."""
    report = await engine.transfer.import_log(export_of(told.path), thread_id=name, scopes="as exported")
    assert report.added == 0 or name not in told.of("imported")


async def die_amid_upkeep(told: Upkeep, seed: str, *, lives: int) -> None:
    """Kill a child over and over on one file."""
    arguments = ("-m", "tests.soak.upkeep_child", told.path, seed, str(lives))
    server = await create_subprocess_exec(sys.executable, *arguments, stdin=PIPE, stdout=PIPE, cwd=ROOT)
    assert server.stdout is not None
    assert server.stdin is not None
    try:
        for life in range(lives):
            told.hear(await server.stdout.readline())
            await check(told, verify=life == lives - 1 or life % VERIFIED_EVERY == 0)
            server.stdin.write(b"\n")
    finally:
        await server.communicate()  # the end of its input is the server's end
