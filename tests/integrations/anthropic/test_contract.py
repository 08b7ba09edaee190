"""The contract of adapters, with Claude's memory tool: it has none of its notions."""

from pathlib import Path

import pytest

from tests.integrations.contract import ASPECTS, Contract, Driver

DRIVER = Driver(
    lacks=dict.fromkeys(
        ASPECTS, "the memory tool keeps files, and no conversations: see test_memory_tool.py and test_scopes.py"
    )
)


@pytest.mark.parametrize("aspect", ASPECTS)
async def test_the_memory_follows_the_framework(aspect: str, tmp_path: Path) -> None:
    """What all adapters have in common."""
    await Contract(DRIVER, tmp_path).check(aspect)
