"""A mailbox in one file (mbox): its messages, each a document of its own, one at a time in memory."""

import re
from collections.abc import Iterator
from email import message_from_bytes
from email.policy import default
from hashlib import sha256
from typing import BinaryIO

from memory_engine.ingest.documents.mail import mail_document, message_id
from memory_engine.ingest.documents.values import Loaded, Unreadable
from memory_engine.regex import regex

MESSAGE_BYTES_MAX = 50 * 1024 * 1024
_LINE_BYTES_MAX = 1 << 20
_ESCAPED = regex(rb"^>(>*From )", re.MULTILINE)


def read_mbox(file: BinaryIO, path: str) -> Iterator[Loaded | Unreadable]:
    """Every message, in order; a broken one as what is wrong with it. Raises `Unreadable` for a file that is none.

    A message's id is the file's and its own, else a digest; the same message twice is one.
    """
    taken: dict[str, str] = {}
    for n, raw in enumerate(_messages(file), 1):
        if raw is None:
            yield Unreadable(f"it has over {MESSAGE_BYTES_MAX:,} bytes", f"message {n}")
            continue
        digest = sha256(raw.rstrip()).hexdigest()[:24]
        own = message_id(message_from_bytes(raw, policy=default)) or digest
        if taken.get(own, digest) != digest:  # another message, under an id that was used before
            own = f"{own}~{digest}"
        if own in taken:
            continue
        taken[own] = digest
        try:
            yield mail_document(raw, f"{path}#{own}", path)
        except Unreadable as error:
            yield Unreadable(error.why, f"message {n}")


def _messages(file: BinaryIO) -> Iterator[bytes | None]:
    """The bytes of each message; `None` for one that is too large."""
    lines: list[bytes] = []
    size = 0
    is_after_blank, is_begun = True, False
    while line := file.readline(_LINE_BYTES_MAX):
        if is_after_blank and line.startswith(b"From "):
            if is_begun:
                yield _joined(lines, size)
            is_begun, lines, size = True, [], 0
        elif is_begun:
            size += len(line)
            if size <= MESSAGE_BYTES_MAX:
                lines.append(line)
        elif line.strip():
            raise Unreadable("it is no mailbox: it does not begin with a line `From …`", "line 1")
        is_after_blank = not line.strip()
    if not is_begun:
        raise Unreadable("it is empty")
    yield _joined(lines, size)


def _joined(lines: list[bytes], size: int) -> bytes | None:
    return _ESCAPED.sub(rb"\1", b"".join(lines)) if size <= MESSAGE_BYTES_MAX else None
