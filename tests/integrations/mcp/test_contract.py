"""The contract of adapters, with the MCP server: it has none of its notions."""

from pathlib import Path

import pytest

from tests.integrations.contract import ASPECTS, Contract, Driver

DRIVER = Driver(
    lacks=dict.fromkeys(
        ASPECTS, "the server's client holds its conversation, and stores what it chooses to: see the tests beside this"
    )
)


@pytest.mark.parametrize("aspect", ASPECTS)
async def test_the_memory_follows_the_framework(aspect: str, tmp_path: Path) -> None:
    """What all adapters have in common."""
    await Contract(DRIVER, tmp_path).check(aspect)
