"""Without its peer an adapter says which extra brings it."""

import importlib
import sys

import pytest

from memory_engine import Engine
from memory_engine.errors import MissingExtra


async def test_the_mcp_server_names_its_extra(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """When it is to be made: the adapter itself imports without the SDK."""
    from memory_engine.integrations.mcp import Served, create_server

    monkeypatch.setitem(sys.modules, "mcp", None)
    monkeypatch.delitem(sys.modules, "mcp.server.lowlevel", raising=False)
    monkeypatch.delitem(sys.modules, "mcp.server", raising=False)
    with pytest.raises(MissingExtra, match=r"'\.\[mcp\]"):
        await create_server(engine, Served())


def test_the_memory_tool_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """When it is imported: it subclasses what the SDK has."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "anthropic"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "anthropic", None)
    monkeypatch.delitem(sys.modules, "memory_engine.integrations.anthropic", raising=False)
    with pytest.raises(MissingExtra, match=r"'\.\[anthropic\]"):
        importlib.import_module("memory_engine.integrations.anthropic")
