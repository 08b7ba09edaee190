"""Items of a session, each an event right after that of its message."""

from memory_engine.core.events.base import Event, event
from memory_engine.core.events.roles import Id, Seq, SourceSeqBack


@event("session_item_added", tracked=True, chunks="none")
class SessionItemAdded(Event):
    """An item as JSON, byte for byte.

    With `back` (-1) it was recorded as the event right before this one, too. Where `is_cut`, the text of that event's
    `content` is between `head` and `tail`, as JSON writes it.
    """

    head: str
    tail: str = ""
    back: SourceSeqBack = 0
    is_cut: bool = False

    def in_few_words(self) -> str:
        """The item, with dots for the text of the event before."""
        return f"{self.head}{'…' if self.is_cut else ''}{self.tail}"


@event("session_item_removed", tracked=True, chunks="none")
class SessionItemRemoved(Event):
    """The item that the event at `seq` brought is shown no more; the log keeps it.

    `claim` is drawn again by every caller: of two that remove the same item, one is recorded.
    """

    seq: Seq
    claim: Id = ""
