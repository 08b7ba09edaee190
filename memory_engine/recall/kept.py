"""The vectors of views' texts, kept beside the rows they are of: a cache that outlives its process.

They stand in the store as rows of a projection that folds nothing: a thread's go with it, and all of them in the
transaction of a forgetting, since a vector may tell of its text. What is missing is embedded again.
"""

from collections.abc import Mapping

from memory_engine.persistence import ProjectionChange, Store
from memory_engine.recall.base import Packed
from memory_engine.recall.similarity import DIGEST_BYTES
from memory_engine.snapshots import VIEW_VECTORS, forgotten_at, vectors_dropped


class KeptVectors:
    """The vectors of one view of a thread, by key, each behind the digest of what it is of."""

    def __init__(self, store: Store, thread_id: str, view: str, *, forgotten_at: int) -> None:
        self._store = store
        self._thread_id = thread_id
        self._prefix = f"{view}/"
        self._forgotten_at = forgotten_at

    async def read(self) -> dict[str, tuple[bytes, Packed]]:
        """Digest and vector of each key. Raises `ThreadNotFound`."""
        _, rows = await self._store.rows(*VIEW_VECTORS, self._thread_id)
        prefix = self._prefix
        return {
            key[len(prefix) :]: (row[:DIGEST_BYTES], row[DIGEST_BYTES:])
            for key, row in rows.items()
            if key.startswith(prefix)
        }

    async def write(self, vectors: Mapping[str, tuple[bytes, Packed] | None]) -> None:
        """Keep vectors, and let go of those of the keys with `None`. Raises `ThreadNotFound`.

        If the thread forgot something since the texts were read, none are kept: one of them may be of that.
        """
        rows = {self._prefix + key: b"".join(one) if one is not None else None for key, one in vectors.items()}
        await self._store.write_projection(self._thread_id, ProjectionChange(*VIEW_VECTORS, rows, 0))
        if forgotten_at(await self._store.head(self._thread_id)) > self._forgotten_at:
            await self._store.write_projection(self._thread_id, vectors_dropped(0))
