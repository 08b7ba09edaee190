"""What a reader makes of a file: documents of sections, whatever the format."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from attrs import frozen


@frozen
class Section:
    """A part of a document that no passage reaches beyond: what stands under a heading, a message, a turn of speech.

    `about` are the headings above it, or the time within a recording. `at_us` is when it was said, in microseconds
    since 1970.
    """

    text: str
    about: str = ""
    speaker: str = ""
    at_us: int | None = None
    is_markdown: bool = False


@frozen(kw_only=True)
class Loaded:
    """A document as it was read. `id` is its own in its tenant; dates have a time zone.

    One that `may_be_empty` and is says that what an earlier version held is gone.
    """

    id: str
    title: str
    format: str
    sections: Sequence[Section]
    source: str = ""
    author: str = ""
    date: datetime | None = None
    channel: str = ""
    thread: str = ""
    metadata: Mapping[str, str] = {}
    may_be_empty: bool = False


class Unreadable(Exception):
    """A reader cannot go on. `place` is where in the file, `why` what stands there."""

    def __init__(self, why: str, place: str = "") -> None:
        super().__init__(why)
        self.why = why
        self.place = place
