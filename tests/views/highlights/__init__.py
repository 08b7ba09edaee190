"""A view of one's own, as a package would bring it: what a reader marked, and what was said of it."""

import msgspec

from memory_engine import Event, Plugin, RecordedEvent, Rows
from memory_engine.events import Id, MemoryForget
from memory_engine.projections import ProjectionMode, seq_key
from memory_engine.recall.extractors import found
from memory_engine.runtime.handle import ThreadHandle
from memory_engine.store.passages import Extracted

PLUGIN = Plugin("highlights")


@PLUGIN.event("text_highlighted", tracked=True, chunks="none")
class TextHighlighted(Event):
    """A passage that a reader marked on a page."""

    page: Id
    quote: str


class Highlight(msgspec.Struct, frozen=True):
    """A marked passage."""

    page: str
    quote: str


class HighlightsFold:
    """Marked passages by the seq of their event."""

    name = "highlights"
    version = 1
    mode: ProjectionMode = "inline"
    row: type[Highlight] = Highlight
    events = (TextHighlighted, MemoryForget)
    lazy = False

    def apply(self, rows: Rows[Highlight], event: RecordedEvent) -> None:
        """Take what an event brings, or what it forgets."""
        match event.event:
            case TextHighlighted(page=page, quote=quote):
                rows.put(seq_key(event.seq), Highlight(page, quote))
            case MemoryForget() as forget:
                for seq in forget.origins():
                    rows.drop(seq_key(seq))


HIGHLIGHTS = HighlightsFold()
PLUGIN.projection(HIGHLIGHTS)


@PLUGIN.passages(TextHighlighted)
def _passages(event: TextHighlighted, _seq: int) -> Extracted:
    return found(event.quote, "highlight", key=f"highlight:{event.page}")


class Highlights:
    """`thread.views.of(Highlights)`: what was marked."""

    def __init__(self, thread: ThreadHandle) -> None:
        self._thread = thread

    async def quotes(self, *, at: int | None = None) -> list[str]:
        """The passages, oldest first."""
        return [row.quote for _, row in (await self._thread.rows(HIGHLIGHTS, at=at)).items()]
