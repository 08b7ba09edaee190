"""The schema of a file that no store has open: its version, and bringing it up to date."""

import asyncio
from pathlib import Path

from memory_engine.errors import SchemaError, StorageFailed
from memory_engine.storage.sqlite.file import checked_file
from memory_engine.storage.sqlite.reading import version_of
from memory_engine.storage.sqlite.schema import MIGRATIONS, brings, stored_version
from memory_engine.storage.sqlite.store import SQLiteStore
from memory_engine.store.keys import Key
from memory_engine.store.protocol import Migrated, SchemaVersions


class SQLiteSchema:
    """See `memory_engine.store.protocol.StoreSchema`. The file has to be there: none is made."""

    def __init__(self, path: str, *, busy_timeout_s: float = 5.0, key: Key | None = None) -> None:
        self._path = path
        self._key = key
        self._busy_timeout_s = busy_timeout_s

    async def versions(self) -> SchemaVersions:
        """The file's version and the package's. It leaves no other file."""
        path = self._path
        if not await asyncio.to_thread(Path(path).is_file):
            raise StorageFailed(path, "there is no such file")
        file = await checked_file(path, self._key)
        stored = await version_of(file, self._busy_timeout_s, stored_version)
        waiting = {number: brings(number) for number in range(stored + 1, len(MIGRATIONS) + 1)}
        return SchemaVersions(stored=stored, newest=len(MIGRATIONS), waiting=waiting)

    async def migrate(self, migrated: Migrated) -> SchemaVersions:
        """Bring the file up to date, in one transaction."""
        if (await self.versions()).waiting:
            store = await SQLiteStore.open(
                self._path, busy_timeout_s=self._busy_timeout_s, key=self._key, migrated=migrated
            )
            await store.close()
        found = await self.versions()
        if found.stored > found.newest:
            why = f"its schema is version {found.stored}, this package knows up to {found.newest}; upgrade"
            raise SchemaError(self._path, why)
        return found
