"""One walk of a log: its rows in order, a page at a time, for whoever reads them.

`LogReader.walk` begins one, anywhere in a log. Take its rows with `async for`, and stop when you have seen enough; ask
for its `last` row; or `feed` it to readers, functions of a row, of which several share one pass. Pages, work off the
event loop, progress and stopping early are done here. Readers that need the state come after one that folds each row
into a draft (see `apply_rows`).
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import TypeVar

from memory_engine.core.aside import aside
from memory_engine.core.records import StoredEvent

R = TypeVar("R")

SPAN = 512
"""Rows that `spans_back` looks at first."""
_FURTHER = 4


class LogWalk:
    """The rows of a thread from one seq to another, all or those of some types. It can be walked once."""

    def __init__(self, pages: AsyncIterator[Sequence[StoredEvent]]) -> None:
        self._pages = pages

    async def __aiter__(self) -> AsyncIterator[StoredEvent]:
        """Yield the rows in order. Leave the loop to stop."""
        async for page in self._pages:
            for stored in page:
                yield stored

    async def all(self) -> list[StoredEvent]:
        """Return the rows."""
        return [stored async for page in self._pages for stored in page]

    async def last(self) -> StoredEvent | None:
        """Return the last row; `None` if there is none."""
        found = None
        async for page in self._pages:
            found = page[-1]
        return found

    async def feed(
        self,
        *readers: Callable[[StoredEvent], R | None],
        items: Callable[[Sequence[StoredEvent]], int] = len,
        progress: Callable[[int], None] | None = None,
        then: Callable[[Sequence[StoredEvent]], Awaitable[R | None]] | None = None,
    ) -> R | None:
        """Give each row to each reader in turn, and return the first answer that is not `None`: it ends the walk.

        A page whose work is that of many `items` is read on another thread. After each page, `then` is awaited with it,
        and may answer too; `progress` gets the page's last seq.
        """
        async for page in self._pages:
            answer = await aside(partial(_first_answer, readers, page), items=items(page))
            if answer is None and then is not None:
                answer = await then(page)
            if answer is not None:
                return answer
            if progress is not None:
                progress(page[-1].seq)
        return None


def _first_answer(readers: Sequence[Callable[[StoredEvent], R | None]], page: Sequence[StoredEvent]) -> R | None:
    for stored in page:
        for read in readers:
            answer = read(stored)
            if answer is not None:
                return answer
    return None


def spans_back(upto: int, span: int = SPAN) -> Iterator[int]:
    """Yield the seqs to begin after in order to look for the latest of something: each further back, the last is 0."""
    while True:
        after = max(0, upto - span)
        yield after
        if not after:
            return
        span *= _FURTHER
