"""The tests in a peer's folder run in that peer's environment alone."""

import os
from pathlib import Path

from tests.integrations.environments import HERE, PEER


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave out the folders of other peers: their packages are not here."""
    if collection_path.is_dir() and collection_path.parent == HERE:
        return collection_path.name != os.environ.get(PEER)
    return None
