"""Another key for a store that this process has open, the first one, or none: a whole new file, put in place at once.

SQLCipher can write each page of the file again in place, but it cannot encrypt a plain file in place. A new file,
checked and then renamed, serves all three, and a killed process leaves the old file or the new one. No one else may
have the file open: they would go on with one that has no name any more.
"""

import os
import sqlite3
import stat
from contextlib import closing, suppress
from pathlib import Path

import msgspec

from memory_engine.errors import BackupFailed, StorageRefused, StoreInUse
from memory_engine.storage.driver import StoreFile, cipher_connection, errors
from memory_engine.storage.sqlite.backup import checked, copy, export, remove
from memory_engine.storage.sqlite.connection import is_busy
from memory_engine.store.new_file import remove_left, sync
from memory_engine.store.protocol import Backup, Copied


def change_key(raw: sqlite3.Connection, file: StoreFile, made: StoreFile, copied: Copied) -> Backup:
    """Replace the file by a copy with the key of `made`, written as its `.part`; `raw` is closed in any case.

    In the lock between processes. Raises `StoreInUse`, and `StorageRefused` if no copy can be made: then nothing has
    changed. A process that is killed before the renaming leaves the part, which the next one removes.
    """
    part, target = Path(made.path), Path(file.path).resolve()
    try:
        with closing(raw):  # first by its own driver: the two know nothing of each other's locks within a process
            _take_alone(raw, file.path)
        remove_left(target)
        part.touch(stat.S_IMODE(target.stat().st_mode), exist_ok=False)
        part.chmod(stat.S_IMODE(target.stat().st_mode))
        with closing(cipher_connection(file)) as old:
            _take_alone(old, file.path)
            report = _copied(old, file, made, copied)
            with part.open("rb+") as written:
                sync(written)
            part.replace(target)
            _sync_folder(target.parent)
    except (BackupFailed, OSError) as error:
        raise StorageRefused(file.path, error.why if isinstance(error, BackupFailed) else str(error)) from error
    except errors() as error:
        raise StorageRefused(file.path, str(error)) from error
    finally:
        remove(part)
    return msgspec.structs.replace(report, path=file.path, bytes=target.stat().st_size)


def _take_alone(raw: sqlite3.Connection, path: str) -> None:
    """Keep all others from the file until the connection is closed. Raises `StoreInUse`.

    Without a write-ahead log the file is complete; SQLite removes the log only if no one else has the file open.
    """
    try:
        raw.execute("PRAGMA busy_timeout = 0")
        (mode,) = raw.execute("PRAGMA journal_mode = DELETE").fetchone()
        raw.execute("PRAGMA locking_mode = EXCLUSIVE").fetchone()
        raw.execute("BEGIN EXCLUSIVE")
        raw.execute("COMMIT")
    except errors() as error:
        if not is_busy(error):
            raise
        raise StoreInUse(path) from error
    if mode != "delete":
        raise StoreInUse(path)


def _copied(old: sqlite3.Connection, file: StoreFile, made: StoreFile, copied: Copied) -> Backup:
    if file.is_encrypted and made.is_encrypted:
        with closing(made.connect()) as new:
            copy(old, new, copied)
    else:
        old.execute("ATTACH ? AS part KEY ?", (made.path, made.literal))
        export(old, "main", "part")
        old.execute("DETACH part")
    with closing(made.connect()) as new:
        return checked(new, made.path)


def _sync_folder(folder: Path) -> None:
    """Make the renaming survive a power failure, where a folder can be synced."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
