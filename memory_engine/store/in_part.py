"""The seam to stores whose files are too large to be read whole by each act on a few events."""

from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import AbstractContextManager
from typing import Protocol, runtime_checkable

from memory_engine.store.protocol import StoredText, Traces


@runtime_checkable
class ReadInPart(Protocol):
    """A store that can destroy the bytes of a few rows, and look for them, without reading all its files."""

    @property
    def is_large(self) -> bool:
        """Whether to read everything takes longer than a moment, and a part of it can be told apart."""
        ...

    def noting(self, pages: set[int]) -> AbstractContextManager[None]:
        """A block in which the pages that acts write here are added to a set."""
        ...

    async def wipe_part(self, pages: Collection[int]) -> bool:
        """As `Store.wipe`, in these pages and in free ones."""
        ...

    async def traces_in_part(self, pieces: Sequence[bytes], unique: Sequence[bytes], pages: Collection[int]) -> Traces:
        """As `Store.traces`: in these pages, free ones and the write-ahead log; `unique` pieces also in a sample."""
        ...

    async def left_in_index(self, thread_ids: Collection[str], texts: Sequence[Sequence[str]]) -> Sequence[str]:
        """The entries of the index for search of these threads that hold all words of a text and have no passage."""
        ...

    def texts_of(self, thread_ids: Collection[str]) -> AsyncIterator[Sequence[StoredText]]:
        """As `Store.texts`, of these threads and of the acts."""
        ...
