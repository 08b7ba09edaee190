"""Test files of peers, which stand beside the checkout, in ../shared/peers, and are read from there."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

SHARED = Path(__file__).resolve().parents[3] / "shared" / "peers"


def peer_tests(path: str) -> ModuleType:
    """The module of a peer's test file. Skips the module that asks for it, saying why, where the file is not there."""
    file = SHARED / path
    if not file.is_file():
        pytest.skip(f"the peer's own tests are not beside this checkout: {file}", allow_module_level=True)
    spec = importlib.util.spec_from_file_location(f"peer_{file.stem}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
