"""The schema of a database that no store has open: its version, and bringing it up to date."""

from memory_engine.core.cancellation import finished
from memory_engine.errors import SchemaError, StorageFailed
from memory_engine.storage.postgres.address import parse
from memory_engine.storage.postgres.pool import Pool
from memory_engine.storage.postgres.schema import VERSION, brings, stored_version
from memory_engine.storage.postgres.store import PostgresStore
from memory_engine.store.protocol import Migrated, SchemaVersions


class PostgresSchema:
    """See `memory_engine.store.protocol.StoreSchema`. The schema has to be there: none is made."""

    def __init__(self, url: str, *, busy_timeout_s: float = 5.0) -> None:
        self._url = url
        self._busy_timeout_s = busy_timeout_s

    async def versions(self) -> SchemaVersions:
        """The schema's version and the package's."""
        address = parse(self._url)
        pool = Pool(address, self._busy_timeout_s)
        try:
            stored = await pool.read_all(lambda connection: stored_version(connection, address))
        finally:
            await finished(pool.close())
        if not stored:
            raise StorageFailed(address.shown, f"there is no memory in its schema {address.schema!r}")
        waiting = {number: brings(number) for number in range(stored + 1, VERSION + 1)}
        return SchemaVersions(stored=stored, newest=VERSION, waiting=waiting)

    async def migrate(self, migrated: Migrated) -> SchemaVersions:
        """Bring the schema up to date, in one transaction."""
        found = await self.versions()
        if found.stored > found.newest:
            why = f"its schema is version {found.stored}, this package knows up to {found.newest}; upgrade"
            raise SchemaError(parse(self._url).shown, why)
        if found.waiting:
            store = await PostgresStore.open(self._url, busy_timeout_s=self._busy_timeout_s, migrated=migrated)
            await store.close()
            found = await self.versions()
        return found
