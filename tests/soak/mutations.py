"""Files that people bring are spoilt: each is taken, or refused by a typed error, and what was taken verifies."""

import asyncio
import json
import random
import shutil
import time
import traceback
import zipfile
from collections.abc import Awaitable, Callable
from pathlib import Path

from attrs import define, field

import memory_engine
from memory_engine import CompactionPolicy, Engine, EngineConfig
from memory_engine.errors import MemoryEngineError
from memory_engine.ingest import Ingestion, IngestOptions
from memory_engine.replay.anchors import read_anchors

CORPUS = Path(__file__).resolve().parents[1] / "corpus"
CONFIG = EngineConfig(compaction=CompactionPolicy(enabled=False))
READ_S_MAX = 60.0
"""A file that takes longer never ends: nothing here takes a hundredth of that."""
TOKENS = (
    *(b"\x00", b"\xff\xfe", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\r", b"\n\n", b'"', b"\\u0000", b"\\ud800", b"{", b"]"),
    *(
        b"[" * 2_000,
        b"9" * 400,
        b"-1",
        b"1e999",
        b"NaN",
        b"null",
        b"true",
        b"0",
        b"--b1--",
        b"Content-Type: ",
        b"<" * 60,
    ),
)
VALUES: tuple[object, ...] = (
    *(
        None,
        True,
        0,
        -1,
        1 << 62,
        1 << 70,
        1e308,
        "",
        "\0",
        "x" * 3_000,
        "\N{BICYCLE}",
        [],
        {},
        [[]],
        {"": None},
        "1.0",
    ),
    *({"type": "text"}, {"type": []}, "user", "text", "tool_use"),
)


@define
class MutationReport:
    """What came of all files. `taken` and `refused`: as it should be; anything else is in `failures`."""

    seed: int
    mutations: int = 0
    taken: int = 0
    refused: int = 0
    by_folder: dict[str, int] = field(factory=dict)
    failures: list[str] = field(factory=list)
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether nothing but typed errors was raised, and everything that was taken verifies."""
        return not self.failures


Progress = Callable[[MutationReport], None]
Reading = Callable[[Engine, Path], Awaitable[bool]]


async def mutate(count: int, seed: int, folder: Path, progress: Progress) -> MutationReport:
    """Spoil a file of the corpus and read it, that many times. Mutation n of a seed is always the same."""
    report, began = MutationReport(seed), time.monotonic()
    files = [sorted(file for file in (CORPUS / kind).rglob("*") if file.is_file()) for kind in READINGS]
    for n in range(count):
        dice = random.Random(f"{seed}/{n}")
        file = dice.choice(files[n % len(files)])
        kind = file.relative_to(CORPUS).parts[0]
        await _one(report, f"seed {seed}, mutation {n}, {file.relative_to(CORPUS)}", kind, _spoilt(file, folder, dice))
        shutil.rmtree(folder / "spoilt")
        if n % 500 == 499:
            report.seconds = time.monotonic() - began
            progress(report)
    report.seconds = time.monotonic() - began
    return report


async def _one(report: MutationReport, name: str, kind: str, path: Path) -> None:
    report.mutations += 1
    report.by_folder[kind] = report.by_folder.get(kind, 0) + 1
    try:
        async with asyncio.timeout(READ_S_MAX), memory_engine.open(":memory:", config=CONFIG) as engine:
            taken = await _taken(engine, kind, path)
            bad = [report.divergence for report in await engine.verify() if not report.ok]
            for info in await engine.threads():
                await engine.thread(info.id).context()
        report.taken += taken
        report.refused += not taken
        if bad:
            report.failures.append(f"{name}: does not verify: {bad[0]}")
    except Exception as error:  # a finding: it is named with its seed
        where = traceback.extract_tb(error.__traceback__)[-1]
        report.failures.append(f"{name}: {error!r:.200} in {Path(where.filename).name}:{where.lineno}")


async def _taken(engine: Engine, kind: str, path: Path) -> bool:
    """Whether a file was taken. Raises only what nobody expects."""
    try:
        return await READINGS[kind](engine, path)
    except MemoryEngineError:
        return False


async def _log(engine: Engine, path: Path) -> bool:
    await engine.transfer.import_log(path, scopes="as exported")
    return True


async def _anchors(engine: Engine, path: Path) -> bool:
    await engine.admin.check_anchors(read_anchors(path))
    return True


async def _document(engine: Engine, path: Path) -> bool:
    documents = engine.tenant("acme").documents
    report = await documents.ingest(path)
    await documents.search("bike")
    return not report.failed


async def _transcript(engine: Engine, path: Path) -> bool:
    return await Ingestion(engine, IngestOptions()).file(path)


READINGS: dict[str, Reading] = {
    "logs": _log,
    "anchors": _anchors,
    "documents": _document,
    "transcripts": _transcript,
}


def _spoilt(file: Path, folder: Path, dice: random.Random) -> Path:
    """A spoilt copy; of a file of a Slack export, the export with that one spoilt, as a folder or packed."""
    place = folder / "spoilt"
    place.mkdir()
    content = spoil(file.read_bytes(), dice)
    if "slack" not in file.parts:
        copied = place / file.name
        copied.write_bytes(content)
        return copied
    slack = CORPUS / "documents" / "slack"
    export = Path(shutil.copytree(slack, place / "slack"))
    (export / file.relative_to(slack)).write_bytes(content)
    if dice.random() < 0.5:
        return export
    packed = place / "slack.zip"
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for one in sorted(export.rglob("*.json")):
            archive.write(one, one.relative_to(export).as_posix())
    if dice.random() < 0.5:
        packed.write_bytes(spoil(packed.read_bytes(), dice))
    return packed


def spoil(content: bytes, dice: random.Random) -> bytes:
    """Bytes after one to three changes, of a value in JSON or of bytes wherever they stand."""
    for _ in range(dice.randint(1, 3)):
        change = dice.choice((_flip, _cut, _double, _insert, _end, _revalue, _revalue, _revalue))
        content = change(content, dice)
    return content


def _span(content: bytes, dice: random.Random) -> tuple[int, int]:
    first = dice.randrange(len(content) + 1)
    return first, min(len(content), first + int(dice.expovariate(1 / 20)) + 1)


def _flip(content: bytes, dice: random.Random) -> bytes:
    changed = bytearray(content)
    for _ in range(dice.randint(1, 4) if changed else 0):
        changed[dice.randrange(len(changed))] ^= 1 << dice.randrange(8)
    return bytes(changed)


def _cut(content: bytes, dice: random.Random) -> bytes:
    first, end = _span(content, dice)
    return content[:first] + content[end:]


def _double(content: bytes, dice: random.Random) -> bytes:
    first, end = _span(content, dice)
    return content[:end] + content[first:]


def _insert(content: bytes, dice: random.Random) -> bytes:
    first, _ = _span(content, dice)
    return content[:first] + dice.choice(TOKENS) + content[first:]


def _end(content: bytes, dice: random.Random) -> bytes:
    return content[: _span(content, dice)[0]]


def _revalue(content: bytes, dice: random.Random) -> bytes:
    """Another value in a line of JSON, or in the whole of it; other bytes are flipped."""
    lines = content.splitlines(keepends=True)
    n = dice.randrange(len(lines)) if lines else 0
    for first, end in ((n, n + 1), (0, len(lines))):
        try:
            value = json.loads(b"".join(lines[first:end]))
        except (ValueError, RecursionError):
            continue
        changed = json.dumps(_changed(value, dice), separators=(",", ":"), ensure_ascii=dice.random() < 0.5)
        return b"".join((*lines[:first], changed.encode("utf-8", "surrogatepass"), b"\n", *lines[end:]))
    return _flip(content, dice)


def _changed(value: object, dice: random.Random) -> object:
    """A value with another one in some place of it, or a key that is gone, or one more element."""
    if isinstance(value, dict) and value and dice.random() < 0.85:
        key = dice.choice(sorted(value))
        if dice.random() < 0.15:
            return {name: one for name, one in value.items() if name != key}
        return {**value, key: _changed(value[key], dice)}
    if isinstance(value, list) and value and dice.random() < 0.85:
        n = dice.randrange(len(value))
        if dice.random() < 0.2:
            return [*value[:n], value[n], *value[n:]] if dice.random() < 0.5 else [*value[:n], *value[n + 1 :]]
        return [*value[:n], _changed(value[n], dice), *value[n + 1 :]]
    return dice.choice(VALUES)
