"""Workspace files: what changed in a folder since the record before, with the contents that the log does not hold."""

from base64 import b64encode
from collections.abc import Iterator
from functools import partial
from typing import Self

import msgspec

from memory_engine.core.bounded import of_base64
from memory_engine.core.events.base import Event, PackedText, TakenOut, event
from memory_engine.core.events.roles import Digest, Id, Name, Place
from memory_engine.core.spelling import Sought, found_in

QUOTED_BYTES_MIN = 24
"""Bytes from which on a file that contains a text counts as a copy of it; a shorter text has to be the whole file."""


class WorkspaceChange(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A file as it is from now on; without a `digest` it is not there any more.

    A new content is here: in `text`, or in `data` as base64 if it is not UTF-8. `held_at` is the seq of the earlier
    event that holds a known one; with 0 and neither, another change of this event does. `digest` is SHA-256.
    """

    path: Name
    digest: Digest = ""
    size: int = 0
    executable: bool = False
    text: str = ""
    data: str = ""
    held_at: Place = 0

    @property
    def holds_content(self) -> bool:
        """Whether the content is here."""
        return bool(self.text or self.data) or (bool(self.digest) and not self.size)

    def content(self) -> bytes:
        """The content that is here. Raises `UnreadableContent`."""
        return of_base64(self.data, what=f"the file {self.path!r}") if self.data else self.text.encode()


def changed_file(path: str, digest: str, content: bytes, *, executable: bool) -> WorkspaceChange:
    """A file with a content that the log does not hold yet."""
    try:
        text, data = content.decode(), ""
    except UnicodeDecodeError:
        text, data = "", b64encode(content).decode()
    return WorkspaceChange(path, digest, len(content), executable, text, data)


@event("workspace_recorded", tracked=True, role="tool", chunks="none")
class WorkspaceRecorded(Event):
    """What changed in a workspace's folder since the record before.

    A large record is `parts` events one after the other, of which this is number `part`. `claim` is drawn again by
    every writer: of two that record the same change at once, one is recorded.
    """

    changes: tuple[WorkspaceChange, ...] = ()
    part: int = 0
    parts: int = 1
    claim: Id = ""

    def in_few_words(self) -> str:
        """The paths that changed."""
        return ", ".join(f"{one.path} removed" if not one.digest else one.path for one in self.changes)

    def without(self, gone: TakenOut, seq: int) -> Self:
        """Less the files whose contents are gone or contain what is gone: these are not recorded any more."""
        sought = [Sought(text) for text in gone.texts if len(text.encode("utf-8", "replace")) >= QUOTED_BYTES_MIN]
        hits = [one for one in self.changes if _is_hit(one, gone, sought)]
        copies = {one.digest for one in hits if one.digest}
        changes = tuple(
            WorkspaceChange(one.path) if one in hits or (one.digest in copies and not one.held_at) else one
            for one in self.changes
        )
        return msgspec.structs.replace(self, changes=changes) if hits else self

    def packed_texts(self, seq: int) -> Iterator[PackedText]:
        """The contents that are not text."""
        for n, one in enumerate(self.changes):
            if one.data:
                yield PackedText(f"file {n}", partial(_unpacked, one.data), _texts_of)

    def digests(self) -> tuple[str, ...]:
        """The digests of the contents."""
        return tuple(one.digest for one in self.changes if one.digest)


def _is_hit(change: WorkspaceChange, gone: TakenOut, sought: list[Sought]) -> bool:
    if change.held_at and change.held_at in gone.seqs:
        return True
    if not (change.text or change.data):
        return False
    try:
        content = change.content()
    except ValueError:
        return gone.is_unread_gone
    if change.text in gone.texts and change.text:
        return True
    if gone.matches is not None and any(map(gone.matches, _texts_of(content))):
        return True
    return bool(found_in(content, sought))


def _unpacked(data: str, _content: str | None) -> bytes:
    return of_base64(data, what="a file")


def _texts_of(data: bytes) -> Iterator[str]:
    yield data.decode("utf-8", "replace")
