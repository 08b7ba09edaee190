"""LangGraph's own conformance suite, over each back end."""

from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from uuid import uuid4

import pytest
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.conformance import checkpointer_test, validate

import memory_engine
from memory_engine.integrations.langgraph import MemoryEngineSaver
from tests.postgres_server import new_url

BACK_ENDS: dict[str, Callable[[Path], str]] = {
    "memory": lambda _: ":memory:",
    "sqlite": lambda folder: str(folder / f"{uuid4().hex}.db"),
    "postgres": lambda _: new_url(),
}


@pytest.mark.parametrize("back_end", BACK_ENDS)
async def test_all_of_it_passes(back_end: str, tmp_path: Path) -> None:
    """Every capability, the optional ones included: 81 tests."""

    async def savers() -> AsyncGenerator[BaseCheckpointSaver[str], None]:
        async with memory_engine.open(BACK_ENDS[back_end](tmp_path)) as engine:
            yield MemoryEngineSaver(engine)

    report = await validate(checkpointer_test(name=back_end)(savers))
    failures = [failure for one in report.results.values() for failure in one.failures or ()]
    assert [] == failures
    assert ("FULL", 81) == (report.conformance_level(), sum(one.tests_passed for one in report.results.values()))
