"""The errors of SQLite's drivers: Python's own, and SQLCipher's, which a store with a key has.

They are classes of their own for each driver, by the same names and with the same codes; SQLCipher's driver tells
primary codes only.
"""

import sqlite3
import sys
from typing import TypeVar

E = TypeVar("E", bound=sqlite3.Error)

CIPHER = "sqlcipher3.dbapi2"


def errors(kind: type[E] = sqlite3.Error) -> tuple[type[E], ...]:  # type: ignore[assignment]  # mypy: the default of E
    """A class of the standard driver's errors, and SQLCipher's of the same name where that is loaded: for `except`."""
    cipher = sys.modules.get(CIPHER)
    return (kind,) if cipher is None else (kind, getattr(cipher, kind.__name__))
