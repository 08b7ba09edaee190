"""What tests of exports and imports share."""

from pathlib import Path

import pytest

import memory_engine
from tests.exports import talk


@pytest.fixture
async def file(tmp_path: Path) -> Path:
    """The export of a short conversation."""
    path = tmp_path / "t.jsonl"
    async with memory_engine.open(":memory:") as engine:
        await (await talk(engine)).replay.export(path)
    return path


@pytest.fixture(params=[":memory:", "sqlite"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where to import: into memory, or into a file."""
    return ":memory:" if request.param == ":memory:" else str(tmp_path / "other.db")
