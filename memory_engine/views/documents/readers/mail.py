"""E-mail: its writer's own text, without quotes and signature, with writer, time, recipients and thread.

A mailbox in one file (mbox) is read a message at a time.
"""

import re
from collections.abc import Iterator, Sequence
from email.utils import getaddresses
from hashlib import sha256
from typing import BinaryIO

from memory_engine.core.lazy import regex
from memory_engine.core.limits import DEFAULT_LIMITS, ReadingLimits
from memory_engine.views.documents.readers.document import DocumentSection, Loaded, Unreadable, stumbled
from memory_engine.views.documents.readers.html import html_text
from memory_engine.views.documents.readers.mime import MailPart, decoded_header, read_parts
from memory_engine.views.documents.readers.text import as_mail_date

_SIGNATURE = regex(r"--[ \t]*$|_{20,}$")
_ORIGINAL = regex(
    r"-{2,} ?(?:Original Message|Original-Nachricht|Ursprüngliche Nachricht|Message d'origine) ?-{2,}", re.IGNORECASE
)
_ATTRIBUTION_LINES_MAX = 3
_ID = regex(r"<[^<>\s]+>")
ADDRESSES_CHARS_MAX = 500


def read_mail(content: bytes, path: str, limits: ReadingLimits = DEFAULT_LIMITS) -> Loaded:
    """An `.eml` file. Raises `Unreadable` for bytes that are not a message, and for one that passes a limit."""
    if not content.strip():
        raise Unreadable("it is empty")
    return _mail_document(*read_parts(content, limits), path, path)


def _mail_document(message: MailPart, parts: Sequence[MailPart], document_id: str, source: str) -> Loaded:
    """A message; its thread is the message that began it."""
    subject, sender = message.header("Subject"), message.headers.get("from", "")
    if not (subject or sender.strip() or message.header("Date") or message.header("Message-ID")):
        raise Unreadable("it has no header of an e-mail: neither From, Date, Subject nor Message-ID", "line 1")
    body = _body(parts)
    own = written(body) or body.strip()
    name, address = _first_address(sender)
    to = ", ".join(filter(None, (message.header("To"), message.header("Cc"))))
    described = {
        "from": address,
        "to": to[:ADDRESSES_CHARS_MAX],
        "message_id": _message_id(message),
        "attachments": ", ".join(part.file_name or "(unnamed)" for part in parts if part.is_attached),
    }
    return Loaded(
        id=document_id,
        title=subject or "(no subject)",
        format="mail",
        sections=(DocumentSection(text=own or subject),),
        source=source,
        author=name or address,
        date=as_mail_date(message.header("Date")),
        channel=message.header("List-Id"),
        thread=_thread(message),
        metadata={key: value for key, value in described.items() if value},
    )


def _message_id(message: MailPart) -> str:
    """The message's own id, if it has one."""
    found = _ID.search(message.header("Message-ID"))
    return found[0] if found else ""


def written(body: str) -> str:
    """The writer's own text of a message: without quotes, the lines that introduce them, and the signature."""
    kept: list[str] = []
    for line in body.split("\n"):
        bare = line.strip()
        if _SIGNATURE.match(line) or _ORIGINAL.match(bare):
            break
        if bare.startswith(">"):
            if kept and not kept[-1].startswith(">"):
                _drop_attribution(kept)
                kept.append(">")
            continue
        kept.append(line)
    text = "\n".join("" if line == ">" else line for line in kept)
    return re.sub(r"\n{3,}", "\n\n", text).strip()


def _drop_attribution(kept: list[str]) -> None:
    """Take away `On Monday, Ann wrote:` before a quote: the last lines, if they end so and say when or who."""
    end = len(kept)
    while end and not kept[end - 1].strip():
        end -= 1
    if not end or not kept[end - 1].rstrip().endswith(":"):
        return
    start = end - 1
    while start and kept[start - 1].strip() and end - start < _ATTRIBUTION_LINES_MAX:
        start -= 1
    said = " ".join(kept[start:end])
    if re.search(r"\d|@", said):
        del kept[start:]


def _body(parts: Sequence[MailPart]) -> str:
    """The text parts, else the HTML parts, as text."""
    shown = [part for part in parts if not part.is_attached]
    plain = [part.text() for part in shown if part.kind == "text/plain"]
    if any(text.strip() for text in plain):
        return "\n\n".join(text.strip("\n") for text in plain)
    return "\n\n".join(html_text(part.text()) for part in shown if part.kind == "text/html")


def _first_address(sender: str) -> tuple[str, str]:
    """The name and the address of who sent it. The name is decoded last: a comma in it would part two addresses."""
    try:
        found = getaddresses([" ".join(sender.split())]) if sender.strip() else []
    except (ValueError, IndexError, RecursionError):  # of nested comments
        found = []
    name, address = next(((name, address) for name, address in found if name or address), (sender, ""))
    return decoded_header(name), decoded_header(address)


def _thread(message: MailPart) -> str:
    """The id of the message that began the conversation: the first it refers to, else what it answers, else its own."""
    for name in ("References", "In-Reply-To", "Message-ID"):
        found = _ID.search(message.header(name))
        if found:
            return found[0]
    return ""


_LINE_BYTES_MAX = 1 << 20
_ESCAPED = regex(rb"^>(>*From )", re.MULTILINE)


def read_mbox(file: BinaryIO, path: str, limits: ReadingLimits = DEFAULT_LIMITS) -> Iterator[Loaded | Unreadable]:
    """Every message, in order; a broken one as its error. Raises `Unreadable` for a file that is not a mailbox.

    A message's id is the file's and its own, else a digest; the same message twice is one.
    """
    taken: dict[str, str] = {}
    for n, raw in enumerate(_raw_messages(file, limits), 1):
        try:
            found = _of_mailbox(raw, path, limits, taken)
        except Unreadable as error:
            yield Unreadable(error.why, f"message {n}", error.limit)
        except Exception as error:  # an odd message must not end the reading of the others
            yield stumbled(error, f"message {n}")
        else:
            if found is not None:
                yield found


def _of_mailbox(raw: bytes | None, path: str, limits: ReadingLimits, taken: dict[str, str]) -> Loaded | None:
    """A message's document; `None` for one that came before. `taken` are digests by the ids that were used."""
    if raw is None:
        raise Unreadable(f"it has over {limits.file_bytes:,} bytes", limit="file_bytes")
    if not raw.strip():
        raise Unreadable("it is empty")
    digest = sha256(raw.rstrip()).hexdigest()[:24]
    message, parts = read_parts(raw, limits)
    own = _message_id(message) or digest
    if taken.get(own, digest) != digest:  # another message, under an id that was used before
        own = f"{own}~{digest}"
    if own in taken:
        return None
    taken[own] = digest
    return _mail_document(message, parts, f"{path}#{own}", path)


def _raw_messages(file: BinaryIO, limits: ReadingLimits) -> Iterator[bytes | None]:
    """The bytes of each message; `None` for one that is too large.

    The standard library's `mailbox` begins a message at every line `From …`, also at a sentence that begins so, leaves
    `>From` escaped, takes a file that is not a mailbox for an empty one, and holds a message whole however large it is.
    """
    held = bytearray()
    is_after_blank, is_begun = True, False
    while line := file.readline(_LINE_BYTES_MAX):
        if is_after_blank and line.startswith(b"From "):
            if is_begun:
                yield _unescaped(held, limits)
            is_begun, held = True, bytearray()
        elif is_begun:
            if len(held) <= limits.file_bytes:
                held += line
        elif line.strip():
            raise Unreadable("it is not a mailbox: it does not begin with a line `From …`", "line 1")
        is_after_blank = not line.strip()
    if not is_begun:
        raise Unreadable("it is empty")
    yield _unescaped(held, limits)


def _unescaped(held: bytearray, limits: ReadingLimits) -> bytes | None:
    return _ESCAPED.sub(rb"\1", bytes(held)) if len(held) <= limits.file_bytes else None
