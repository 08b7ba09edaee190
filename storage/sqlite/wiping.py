"""Zero the bytes that deleted rows left in a database, page by page; other processes write between two steps.

A separate process looks for pages whose unused bytes are not zero (see `pages`), and no call waits for it. They are
zeroed some at a time, each time in the lock and with an empty write-ahead log: then the file holds the only copy of a
page. A commit at the end of each step makes every connection read the pages again, so none writes an old copy again.
Other processes may carry remains from a page that is still to be zeroed to another one. So the last step zeroes the
pages that the last look found and all that were written since that look began (`Watch`).

An act that destroys little looks at some pages only: those that its own transactions wrote (`Written`), and free ones.
"""

import sqlite3
import struct
import sys
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from memory_engine.core.lazy import lazy_module
from memory_engine.storage.driver import plain_path

if TYPE_CHECKING:
    import subprocess
else:
    subprocess = lazy_module("subprocess")

_LOG_HEADER = struct.Struct(">8xI4x4s4s8x")
"""Of a write-ahead log: the size of a page, and the salts that its frames repeat."""
_FRAME = struct.Struct(">I4x4s4s8x")
PAGES = Path(__file__).with_name("pages.py")
STEP = 256
"""Pages that are zeroed in one step: some milliseconds, in which no one else writes."""
ROUNDS = 4
"""The most looks at the whole file. Pages that others write meanwhile are looked at again, until they are few."""


class UnknownPages(Exception):
    """The pages of the file cannot be examined, or not by a separate process."""


def dirty_pages(path: str, some: Collection[int] | None = None) -> list[int]:
    """The pages with unused bytes that are not zero: one reading of the file, or of `some` pages and the free ones.

    Raises `UnknownPages`.
    """
    if sys.platform == "win32":  # there a lock cannot be shared
        raise UnknownPages
    try:
        asked = b"" if some is None else msgspec.json.encode(sorted(some))
        return msgspec.json.decode(answer("dirty", path, told=asked), type=list[int])
    except msgspec.MsgspecError as error:
        raise UnknownPages from error


def answer(act: str, *paths: str, told: bytes = b"") -> bytes:
    """The answer of the separate process for these files. Raises `UnknownPages` if it cannot run."""
    try:
        done = subprocess.run(_wipe_command(act, *paths), input=told, capture_output=True, check=False)
    except OSError as error:
        raise UnknownPages(f"{sys.executable}: {error.strerror or error}") from error
    if done.returncode:
        raise UnknownPages(f"{sys.executable} ended with {done.returncode}")
    return done.stdout


def _wipe_command(act: str, *paths: str) -> list[str]:
    if not sys.executable:
        raise UnknownPages("this process knows no Python to start (`sys.executable`)")
    return [sys.executable, "-I", "-S", str(PAGES), act, *paths]


class PageWiper:
    """The program that zeroes pages.

    It shares the lock with the process that started it. If that process is killed, no one writes until the step ends.
    """

    def __init__(self, path: str, lock: int) -> None:
        try:
            self._process = subprocess.Popen(
                _wipe_command("zero", path),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                pass_fds=(lock,),
            )
        except OSError as error:
            raise UnknownPages from error

    def close(self) -> None:
        """End the program."""
        self._process.kill()
        self._process.communicate()

    def zero(self, pages: Sequence[int]) -> None:
        """Zero the unused bytes that these pages know of. Raises `UnknownPages`."""
        sent, answers = self._process.stdin, self._process.stdout
        assert sent is not None
        assert answers is not None
        try:
            sent.write(msgspec.json.encode(pages) + b"\n")
            sent.flush()
            msgspec.json.decode(answers.readline(), type=int)
        except (OSError, ValueError, msgspec.MsgspecError) as error:
            raise UnknownPages from error


class Written:
    """The pages that were written to a database, added to `pages`: read from its write-ahead log, and on from there.

    Read in the lock, after a transaction and before anyone can begin the log again.
    """

    def __init__(self, path: str, pages: set[int]) -> None:
        self._log = Path(f"{path}-wal")
        self._pages = pages
        self._salts: tuple[object, ...] = ()
        self._at = 0

    def read(self) -> None:
        """Add the pages that the log names since the last reading; all of a log that has begun again."""
        # SQLite holds its locks on other files: this one may be opened and closed
        with suppress(FileNotFoundError), self._log.open("rb") as file:
            header = file.read(_LOG_HEADER.size)
            if len(header) < _LOG_HEADER.size:
                return
            (size, *salts) = _LOG_HEADER.unpack(header)
            if tuple(salts) != self._salts:
                self._salts, self._at = tuple(salts), _LOG_HEADER.size
            file.seek(self._at)
            while len(frame := file.read(_FRAME.size)) == _FRAME.size:
                (page, *salted) = _FRAME.unpack(frame)
                if salted != salts:  # of an older log, at the same place
                    break
                self._pages.add(page)
                self._at = file.seek(size, 1)


class Watch:
    """The pages written to a database from now on. Begins in the lock, with an empty write-ahead log.

    A reader that needs no frame of the log keeps it from being emptied: every page that anybody writes is in it. One
    that is never closed keeps it so, and every later act waits for it in vain.
    """

    def __init__(self, path: str) -> None:
        self._pages: set[int] = set()
        self._written = Written(path, self._pages)
        self._reader = sqlite3.connect(plain_path(path), isolation_level=None, check_same_thread=False)
        self._reader.execute("BEGIN")
        self._reader.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchone()

    def written(self) -> set[int]:
        """The pages that were written. Asked in the lock, which ends it."""
        self._written.read()
        self.close()
        return self._pages

    def close(self) -> None:
        """Let go of the log."""
        self._reader.close()


def emptied(raw: sqlite3.Connection) -> bool:
    """Bring the whole write-ahead log into the file, and empty it; whether no reader was in the way."""
    (busy, _, _) = raw.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    return not busy


def zeroed(raw: sqlite3.Connection, wiper: PageWiper, pages: Sequence[int]) -> bool:
    """Zero some pages, in the lock; whether no reader of old pages was in the way. Raises `UnknownPages`."""
    (busy, logged, done) = raw.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    if busy or logged != done:
        return False
    try:
        raw.execute("BEGIN IMMEDIATE")
        wiper.zero(pages)
        raw.execute("PRAGMA shrink_memory")
        # a commit, so that no other connection writes an old copy of a page that it still holds in memory
        (version,) = raw.execute("PRAGMA user_version").fetchone()
        raw.execute(f"PRAGMA user_version = {version}")
        raw.execute("COMMIT")
    except BaseException:  # after any error nothing may stay open; it goes on to the caller
        if raw.in_transaction:
            raw.execute("ROLLBACK")
        raise
    return True


def rewrite(raw: sqlite3.Connection) -> None:
    """Rewrite the whole file, if its pages cannot be examined."""
    raw.execute("VACUUM")
