"""Totals over a store, which reads all of it for them: taken again where that is not too dear."""

import time

from memory_engine.persistence import Store, StoreStats

SHARE = 20
"""Totals are taken anew after so many times as long as it took to take them."""


class Totals:
    """The totals over one store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._taken: StoreStats | None = None
        self._again_at = 0.0

    async def now(self) -> StoreStats:
        """The totals; of a large store, those of a moment ago."""
        began = time.monotonic()
        if self._taken is None or began >= self._again_at:
            self._taken = await self._store.stats()
            now = time.monotonic()
            self._again_at = now + SHARE * (now - began)
        return self._taken
