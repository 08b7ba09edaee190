"""Patterns of files that a workspace does not record."""

import pytest

from memory_engine import errors
from memory_engine.workspace.ignoring import Ignored


def test_patterns_fit_as_in_gitignore() -> None:
    """The last one that fits decides, a folder takes its files along, letters of the defaults have no case."""
    ignored = Ignored(["/build", "docs/**/*.tmp", "*.log", "!keep.log", "a?.[ch]", "logs/"])
    hits = ["build/x", "docs/a/b/x.tmp", "docs/x.tmp", "x/y.log", "a1.c", "logs/x", ".ENV", "x/Node_Modules/y", "b.PEM"]
    assert [] == [path for path in hits if not ignored.ignores(path)]
    misses = ["x/build", "x.tmp", "keep.log", "x/keep.log", "ab1.c", "a1.o", "logs", "environment", "env"]
    assert [] == [path for path in misses if ignored.ignores(path)]
    with pytest.raises(errors.InvalidArgument, match="gitignore"):
        Ignored(["[z-a]"])
