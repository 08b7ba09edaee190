"""Places of a store that several engines can open: a file, and a schema on a server."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.postgres_server import new_url

PLACES: dict[str, Callable[[Path], str]] = {
    "sqlite": lambda folder: str(folder / "log.db"),
    "postgres": lambda _folder: new_url(),
}
on_both_back_ends = pytest.mark.parametrize("back_end", PLACES)
"""Runs a test on each, with its name as `back_end`."""


def place_of(back_end: str, folder: Path) -> str:
    """A place that nobody has used. Skips where there is no server."""
    return PLACES[back_end](folder)
