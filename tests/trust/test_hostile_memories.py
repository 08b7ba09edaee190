"""Files that say they hold memories: what is none is refused, what is bad is counted, and no file outside is read."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import pytest

from memory_engine import Engine
from memory_engine.core.limits import ReadingLimits
from memory_engine.errors import FileRefused, ImportRefused, InvalidArgument
from memory_engine.interchange.systems import PAGE, System
from tests.foreign_memories import MEM0, held, written

DEEP = "[" * 100_000 + "]" * 100_000
REFUSED = {
    "nothing": "",
    "not JSON": "results: 3",
    "cut off": '{"results": [{"id": "1", "memory": "x"}',
    "deep": DEEP,
    "deep within": '{"results": [{"id": "1", "memory": "x", "metadata": ' + DEEP + "}]}",
    "a number": "7",
    "not a number": '[{"id": "1", "memory": "x", "score": NaN}]',
    "of nobody": '{"shipping": {"street": "x"}, "total": 3}',
    "an empty list": "[]",
    "wrong types": '{"results": {"id": "1"}, "edges": 3, "blocks": "x"}',
}


@pytest.mark.parametrize("what", REFUSED)
async def test_what_is_no_export_is_refused_and_leaves_nothing(engine: Engine, tmp_path: Path, what: str) -> None:
    """The message says what is wrong."""
    path = tmp_path / "memories.json"
    path.write_text(REFUSED[what])
    with pytest.raises(ImportRefused, match="nothing was imported"):
        await engine.transfer.import_memories(path, user_id="ines")
    assert not await engine.user("ines").exists()


async def test_a_refusal_names_the_keys_and_the_page(engine: Engine, tmp_path: Path) -> None:
    """And the system whose keys are nearest."""
    path = written(tmp_path, {"total": 2, "results": [], "street": "x"})
    with pytest.raises(ImportRefused) as refused:
        await engine.transfer.import_memories(path, user_id="ines")
    said = str(refused.value)
    assert all(word in said for word in ("total, results, street", "nearest is mem0", PAGE))
    with pytest.raises(ImportRefused, match="not a file of zep"):
        await engine.transfer.import_memories(written(tmp_path, MEM0), user_id="ines", system="zep")
    with pytest.raises(InvalidArgument):
        await engine.transfer.import_memories(path, user_id="ines", system=cast("System", "zap"))


HOSTILE: Sequence[object] = [
    {"id": "s", "memory": "\ud800 alone"},
    {"id": "\ud800", "memory": "an id"},
    {"id": "n\0", "memory": "a NUL in its id"},
    {"id": "i" * 5000, "memory": "a long id"},
    {"id": "big", "memory": "b" * 1_000_001},
    {"id": "t", "memory": ["a list"]},
    {"id": "u", "memory": {"text": "x"}},
    {"id": "good", "memory": "again, another"},
    {"id": "blank", "memory": " \n"},
    17,
    None,
]


async def test_bad_memories_are_counted_and_the_others_taken(engine: Engine, tmp_path: Path) -> None:
    """Wrong types, long texts, lone surrogates, ids twice; metadata that no log can hold is dropped."""
    odd: list[dict[str, object]] = [
        {"id": "m1", "memory": "with infinity", "metadata": {"n": "INFINITY"}},
        {"id": "m2", "memory": "with a surrogate", "metadata": {"n": "\udfff"}},
        {"id": "m3", "memory": "with much", "metadata": {"n": "x" * 70_000}},
        {"id": "m4", "memory": "a strange date", "created_at": "yesterday", "updated_at": [3], "user_id": {"a": 1}},
        {"id": "m5", "memory": "a far date", "created_at": "9999-12-31T23:59:59Z"},
        {"memory": "without an id"},
        {"id": 12, "memory": "a number"},
    ]
    text = json.dumps([{"id": "good", "memory": "good"}, *HOSTILE, *odd]).replace('"INFINITY"', "1e999")
    path = tmp_path / "memories.json"
    path.write_text(text)
    report = await engine.transfer.import_memories(path, user_id="ines")
    expected = {"good", *(str(one["memory"]) for one in odd)}
    assert expected == {content for _, content in await held(engine, "ines")}
    assert {
        "memories with a lone surrogate": 1,
        "memories with an id that no store can hold": 3,
        "memories of over 1,000,000 characters": 1,
        "memories without a text": 3,
        "memories with an id that came before": 1,
        "values that are not objects": 2,
        "metadata that cannot be stored": 3,
    } == dict(report.left_out)
    assert (await engine.user("ines").replay.verify()).ok
    assert 0 == (await engine.transfer.import_memories(path, user_id="ines")).added


async def test_a_huge_file_is_refused_before_it_is_read(engine: Engine, tmp_path: Path) -> None:
    """By its size, and by its number of values."""
    path = written(tmp_path, MEM0)
    for few in (ReadingLimits(file_bytes=100), ReadingLimits(json_values=5)):
        with pytest.raises((ImportRefused, FileRefused), match=r"limit|bytes"):
            await engine.transfer.import_memories(path, user_id="ines", limits=few)
    assert not await engine.user("ines").exists()


async def test_a_bundle_reaches_no_file_outside(engine: Engine, tmp_path: Path) -> None:
    """By no name, and by no link."""
    await engine.transfer.import_memories(written(tmp_path, MEM0), user_id="ines")
    for n, place in enumerate(("../secret.jsonl", "/etc/passwd", "items/../../secret.jsonl", "items/link.jsonl")):
        folder = tmp_path / f"{n}.mem"
        await engine.transfer.export_memories(folder, user_id="ines")
        (tmp_path / "secret.jsonl").write_text('{"id": "x", "details": "outside"}\n')
        (folder / "items/link.jsonl").symlink_to(tmp_path / "secret.jsonl")
        manifest: dict[str, list[object]] = json.loads((folder / "manifest.json").read_text())
        manifest["files"].append({"path": place, "sha256": "0" * 64, "bytes": 1})
        (folder / "manifest.json").write_text(json.dumps(manifest))
        with pytest.raises(ImportRefused):
            await engine.transfer.import_memories(folder, user_id="bo")
    assert not await engine.user("bo").exists()
