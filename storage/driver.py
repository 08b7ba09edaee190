"""The two drivers of SQLite: Python's own, and SQLCipher's for a store with a key; their connections and errors.

All connections of a store share one `StoreFile`: when it takes another key, they reopen the file with that key.
Before a file is opened, only SQLite examines it: a process that closes a descriptor of its
own of the file would lose the locks that SQLite holds on it.
"""

import os
import sqlite3
import sys
import time
from collections.abc import Callable
from contextlib import closing
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, cast
from weakref import WeakSet

from memory_engine.errors import KeyNeeded, MissingExtra, NotEncrypted, SchemaError, StorageError, WrongKey

if TYPE_CHECKING:
    from memory_engine.store.keys import Key

Factory = Callable[..., sqlite3.Connection]

CIPHER = "sqlcipher3.dbapi2"

SALT_BYTES = 16
LOOKS_S = (0.0, 0.01, 0.05)
"""Pauses before the looks at the beginning of a file with a key: another process may be writing just that page."""
_PAGE_BYTES = 4096
_VARIED = 200
"""An encrypted page has at least this number of different bytes: nearly all of the 256, as random bytes do."""


class StoreFile:
    """The file of a store, and its key if it has one. Its `repr` does not show the key."""

    def __init__(self, path: str, key: "Key | None" = None, salt: bytes = b"") -> None:
        self.path = path
        self._key = key
        self._salt = salt
        self._literal = key.literal(salt) if key is not None and salt else ""
        self._opened: tuple[int, int] | None = None

    @property
    def is_encrypted(self) -> bool:
        """Whether its connections have a key."""
        return self._key is not None

    @property
    def driver(self) -> ModuleType:
        """The module that opens its connections. Raises `MissingExtra`."""
        return cipher() if self.is_encrypted else sqlite3

    @property
    def kind(self) -> type[sqlite3.Connection]:
        """The class of its connections."""
        return cast("type[sqlite3.Connection]", self.driver.Connection)

    @property
    def literal(self) -> str:
        """The key as `ATTACH` takes it; an empty text for none."""
        return self._literal

    def connect(
        self, target: str = "", *, timeout_s: float = 5.0, factory: Factory | None = None, anywhere: bool = False
    ) -> sqlite3.Connection:
        """Open a connection; `target` may be the file's URI. With `anywhere` any thread may use it."""
        if self._key is not None and not self._literal:  # nothing was there, and nothing was made
            raise SchemaError(self.path, "the file is empty, so it is not a store")
        target = target or plain_path(self.path)
        return _connect(target, self._literal, timeout_s=timeout_s, factory=factory, anywhere=anywhere)

    def like(self, path: str) -> "StoreFile":
        """Another file with the same key: one salt for both, so that the key is made once."""
        return StoreFile(path, self._key, self._salt)

    def rekeyed(self, key: "Key | None", path: str = "") -> "StoreFile":
        """A new file with another key, or none. Makes the key, which may take some tenths of a second.

        Raises `MissingExtra`: also without a key, such a file is made by SQLCipher's driver.
        """
        cipher()
        return StoreFile(path or self.path, key, b"" if key is None else os.urandom(SALT_BYTES))

    def take(self, other: "StoreFile") -> None:
        """Open connections with the key of another one from now on."""
        self._key, self._salt, self._literal = other._key, other._salt, other._literal

    # before it is opened

    def check(self) -> None:
        """Raise unless this key reads the file, judged by its first page. Writes nothing, neither to it nor next to it.

        Raises `KeyNeeded`, `WrongKey`, `NotEncrypted`, `MissingExtra`, and `SchemaError` for another program's file.
        One that is not there yet, or empty, passes. Makes the key, which may take some tenths of a second.
        """
        if self._key is not None:
            cipher()
        if not size_of(self.path):
            return
        self._check_others()
        if self._key is None:
            # Of one that was closed as it should be, opening it finds out at once, and makes and changes no file.
            if not _is_closed(self.path) and (refused := _refused(self.path, "")) is not None:
                raise not_a_database(self.path, refused)
            return
        if _refused(self.path, None) is None:
            raise NotEncrypted(self.path)
        self._salt = _salt_of(self.path)
        self._literal = self._key.literal(self._salt)
        if not any(self._reads_after(pause) for pause in LOOKS_S):
            raise WrongKey(self.path)

    def _reads_after(self, pause: float) -> bool:
        time.sleep(pause)
        return _refused(self.path, self._literal) is None

    def make(self) -> None:
        """Make a new file with a salt of its own, in the lock between processes; check one that is there by now."""
        if self._key is None:
            return
        if size_of(self.path):
            self.check()
            return
        self._salt = os.urandom(SALT_BYTES)
        self._literal = self._key.literal(self._salt)
        with closing(self.connect()) as raw:
            raw.execute("PRAGMA journal_mode = WAL").fetchone()

    def _check_others(self) -> None:
        """Raise where this process has the file open with the other driver: of its locks this one knows nothing."""
        for other in tuple(_FILES):
            is_other_kind = other._opened is not None and other.is_encrypted != self.is_encrypted
            if is_other_kind and other._opened == _identity(self.path):
                raise KeyNeeded(self.path) if other.is_encrypted else NotEncrypted(self.path)

    # while it is open

    def opened(self) -> None:
        """Connections to it are open from now on."""
        self._opened = _identity(self.path)
        _FILES.add(self)

    def closed(self) -> None:
        """None is open any more."""
        self._opened = None


_FILES: "WeakSet[StoreFile]" = WeakSet()


def cipher() -> ModuleType:
    """SQLCipher's driver. Raises `MissingExtra`."""
    try:
        return import_module(CIPHER)
    except ModuleNotFoundError as error:
        if error.name != CIPHER.partition(".")[0]:
            raise
        raise MissingExtra("an encrypted memory", "encrypted") from None


def _connect(
    target: str, literal: str | None, *, timeout_s: float, factory: Factory | None = None, anywhere: bool = False
) -> sqlite3.Connection:
    """Open a connection, to a URI or a `plain_path`; with a key, or with `None` as one, by SQLCipher's driver."""
    is_plain = literal == ""
    driver = sqlite3 if is_plain else cipher()
    raw: sqlite3.Connection = driver.connect(
        target,
        uri=target.startswith("file:"),
        isolation_level=None,
        timeout=timeout_s,
        cached_statements=256,
        factory=factory or driver.Connection,
        check_same_thread=not anywhere,
    )
    if not is_plain:
        raw.execute("PRAGMA cipher_log_level = NONE")  # it would write to the standard error
        raw.execute("PRAGMA temp_store = MEMORY")  # what does not fit into its cache must not go to a plain file
        if literal:
            raw.set_key(literal)  # type: ignore[attr-defined]  # not by SQL: no trace of statements shows the key
    return raw


def cipher_connection(file: StoreFile) -> sqlite3.Connection:
    """A connection by SQLCipher's driver, whether the file has a key or not."""
    return _connect(plain_path(file.path), file.literal or None, timeout_s=0.0)


def real_path(path: str) -> str:
    """The path with links resolved: SQLite keeps its logs next to the file, not next to a link to it."""
    return os.path.realpath(path)


def plain_path(path: str) -> str:
    """The path for SQLite, which may read a path that begins with `file:` as a URI even with URIs turned off."""
    return path if os.path.isabs(path) else os.path.join(os.curdir, path)  # noqa: PTH117, PTH118 - as text, unchanged


def needs_key(path: str) -> bool:
    """Whether a file is encrypted, judged by its first page. Writes and creates nothing."""
    refused = _refused(path, "") if size_of(path) else None
    return refused is not None and isinstance(not_a_database(path, refused), KeyNeeded)


def _refused(path: str, literal: str | None) -> sqlite3.Error | None:
    """The message of SQLite for a file whose first page is not that of a database; `literal` as in `_connect`."""
    with closing(_connect(_still(path), literal, timeout_s=0.0)) as raw:
        try:
            raw.execute("PRAGMA schema_version").fetchone()
        except errors() as error:
            return error if code_of(error) == sqlite3.SQLITE_NOTADB else None
    return None


def _is_closed(path: str) -> bool:
    """Whether a store was here that no process has open and that none left open when it died."""
    return _identity(path + ".lock") is not None and _identity(path + "-wal") is None


def _salt_of(path: str) -> bytes:
    """The salt at the beginning of an encrypted file. Any key will do to ask for it."""
    with closing(_connect(_still(path), f"x'{'00' * 32}'", timeout_s=0.0)) as raw:
        return bytes.fromhex(raw.execute("PRAGMA cipher_salt").fetchone()[0])


def _still(path: str) -> str:
    """The URI that reads the file alone and creates no other file."""
    return Path(path).resolve().as_uri() + "?mode=ro&immutable=1"


def not_a_database(path: str, error: sqlite3.Error) -> StorageError:
    """The error of the store for a file whose first page makes no sense to the driver that opened it."""
    if type(error).__module__.partition(".")[0] == CIPHER.partition(".")[0]:
        return WrongKey(path)
    if _looks_encrypted(path):
        return KeyNeeded(path)
    return SchemaError(path, "it is not an SQLite file; give a path of its own")


def _looks_encrypted(path: str) -> bool:
    """Whether a file may be encrypted, rather than another program's. Nobody has it open as a database."""
    try:
        with Path(path).open("rb") as file:
            first = file.read(_PAGE_BYTES)
            size = os.fstat(file.fileno()).st_size
    except OSError:
        return False
    return len(set(first)) >= _VARIED and not size % _PAGE_BYTES


def errors(kind: type[sqlite3.Error] = sqlite3.Error) -> tuple[type[sqlite3.Error], ...]:
    """A class of the standard driver's errors, and SQLCipher's of the same name where that is loaded: for `except`.

    They are classes of their own, with the same codes; SQLCipher's driver reports primary codes only.
    """
    cipher = sys.modules.get(CIPHER)
    return (kind,) if cipher is None else (kind, getattr(cipher, kind.__name__))


def code_of(error: BaseException) -> int:
    """SQLite's primary code of an error; 0 for none."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)  # noqa: PTH116 - as in `size_of`
    except OSError:
        return None
    return found.st_dev, found.st_ino


def size_of(path: str) -> int:
    """The bytes of a file; 0 where there is none."""
    try:
        return os.stat(path).st_size  # noqa: PTH116 - a third of the cost of a Path, and at every commit
    except OSError:
        return 0
