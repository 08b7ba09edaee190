"""E-mail: its writer's own text, without quotes and signature, with writer, time, recipients and thread.

A mailbox in one file (mbox) is read a message at a time.
"""

import re
from collections.abc import Iterator, Sequence
from email import message_from_bytes
from email.message import Message
from email.policy import default
from email.utils import getaddresses
from hashlib import sha256
from typing import BinaryIO

from memory_engine.core.lazy import regex
from memory_engine.views.documents.readers.document import DocumentSection, Loaded, Unreadable
from memory_engine.views.documents.readers.text import as_mail_date, html_text, latin

_SIGNATURE = regex(r"--[ \t]*$|_{20,}$")
_ORIGINAL = regex(
    r"-{2,} ?(?:Original Message|Original-Nachricht|Ursprüngliche Nachricht|Message d'origine) ?-{2,}", re.IGNORECASE
)
_ATTRIBUTION_LINES_MAX = 3
_ID = regex(r"<[^<>\s]+>")
ADDRESSES_CHARS_MAX = 500


def read_mail(content: bytes, path: str) -> Loaded:
    """An `.eml` file. Raises `Unreadable`."""
    return mail_document(content, path, path)


def mail_document(content: bytes, document_id: str, source: str) -> Loaded:
    """A message; its thread is the message that began it. Raises `Unreadable` for bytes that are not a message."""
    if not content.strip():
        raise Unreadable("it is empty")
    message = message_from_bytes(content, policy=default)
    subject, sender = _header(message, "Subject"), _header(message, "From")
    if not (subject or sender or _header(message, "Date") or _header(message, "Message-ID")):
        raise Unreadable("it has no header of an e-mail: neither From, Date, Subject nor Message-ID", "line 1")
    body = _body(message)
    own = written(body) or body.strip()
    name, address = _first_address(sender)
    to = ", ".join(filter(None, (_header(message, "To"), _header(message, "Cc"))))
    described = {
        "from": address,
        "to": to[:ADDRESSES_CHARS_MAX],
        "message_id": message_id(message),
        "attachments": ", ".join(_attachments(message)),
    }
    return Loaded(
        id=document_id,
        title=subject or "(no subject)",
        format="mail",
        sections=(DocumentSection(own),) if own else (DocumentSection(subject),),
        source=source,
        author=name or address,
        date=as_mail_date(_header(message, "Date")),
        channel=_header(message, "List-Id"),
        thread=_thread(message),
        metadata={key: value for key, value in described.items() if value},
    )


def message_id(message: Message) -> str:
    """The message's own id, if it has one."""
    found = _ID.search(_header(message, "Message-ID"))
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


def _body(message: Message) -> str:
    """The text parts, else the HTML parts, as text."""
    parts = [part for part in message.walk() if not part.is_multipart() and not _is_attached(part)]
    plain = [_text(part) for part in parts if part.get_content_type() == "text/plain"]
    if any(text.strip() for text in plain):
        return "\n\n".join(text.strip("\n") for text in plain)
    return "\n\n".join(html_text(_text(part)) for part in parts if part.get_content_type() == "text/html")


def _is_attached(part: Message) -> bool:
    return part.get_content_disposition() == "attachment" or bool(_file_name(part))


def _attachments(message: Message) -> Sequence[str]:
    return [
        _file_name(part) or "(unnamed)" for part in message.walk() if not part.is_multipart() and _is_attached(part)
    ]


def _text(part: Message) -> str:
    content = part.get_payload(decode=True)
    raw = content if isinstance(content, bytes) else b""
    try:
        text = raw.decode(part.get_content_charset() or "utf-8")
    except (LookupError, ValueError):  # no such charset, or one that cannot be: `undefined` raises whatever it reads
        text = _utf8_or_latin(raw)
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _utf8_or_latin(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return latin(raw)


def _file_name(part: Message) -> str:
    try:
        return _clean(part.get_filename() or "")
    except Exception:  # a header that the standard library's parser stumbles over
        return "(unnamed)"


def _header(message: Message, name: str) -> str:
    """A header's text on one line; one that cannot be parsed as it stands."""
    try:
        return _clean(str(message.get(name, "")))
    except Exception:  # the standard library's parser raises a dozen kinds of errors for broken headers
        raw = next((value for key, value in message.raw_items() if key.lower() == name.lower()), "")
        return _clean(str(raw))


def _clean(text: str) -> str:
    return " ".join(text.encode("utf-8", "replace").decode().split())


def _first_address(sender: str) -> tuple[str, str]:
    found = getaddresses([sender]) if sender else []
    name, address = next(((name, address) for name, address in found if name or address), (sender, ""))
    return name, address


def _thread(message: Message) -> str:
    """The id of the message that began the conversation: the first it refers to, else what it answers, else its own."""
    for name in ("References", "In-Reply-To", "Message-ID"):
        found = _ID.search(_header(message, name))
        if found:
            return found[0]
    return ""


MESSAGE_BYTES_MAX = 50 * 1024 * 1024
_LINE_BYTES_MAX = 1 << 20
_ESCAPED = regex(rb"^>(>*From )", re.MULTILINE)


def read_mbox(file: BinaryIO, path: str) -> Iterator[Loaded | Unreadable]:
    """Every message, in order; a broken one as its error. Raises `Unreadable` for a file that is not a mailbox.

    A message's id is the file's and its own, else a digest; the same message twice is one.
    """
    taken: dict[str, str] = {}
    for n, raw in enumerate(_messages(file), 1):
        if raw is None:
            yield Unreadable(f"it has over {MESSAGE_BYTES_MAX:,} bytes", f"message {n}")
            continue
        digest = sha256(raw.rstrip()).hexdigest()[:24]
        own = _own_id(raw) or digest
        if taken.get(own, digest) != digest:  # another message, under an id that was used before
            own = f"{own}~{digest}"
        if own in taken:
            continue
        taken[own] = digest
        yield _document_or_fault(raw, f"{path}#{own}", path, f"message {n}")


def _own_id(raw: bytes) -> str:
    """The id that a message gives itself; none where the standard library's parser stumbles over it."""
    try:
        return message_id(message_from_bytes(raw, policy=default))
    except Exception:  # its errors have no common class
        return ""


def _document_or_fault(raw: bytes, document_id: str, path: str, place: str) -> Loaded | Unreadable:
    """A message, or why it cannot be read: one odd message never stops the others."""
    try:
        return mail_document(raw, document_id, path)
    except Unreadable as error:
        return Unreadable(error.why, place)
    except Exception as error:  # the standard library's parser raises a dozen kinds of errors for broken messages
        return Unreadable(f"reading it failed: {type(error).__name__}: {error}", place)


def _messages(file: BinaryIO) -> Iterator[bytes | None]:
    """The bytes of each message; `None` for one that is too large.

    The standard library's `mailbox` begins a message at every line `From …`, also at a sentence that begins so, leaves
    `>From` escaped, takes a file that is not a mailbox for an empty one, and holds a message whole however large it is.
    """
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
            raise Unreadable("it is not a mailbox: it does not begin with a line `From …`", "line 1")
        is_after_blank = not line.strip()
    if not is_begun:
        raise Unreadable("it is empty")
    yield _joined(lines, size)


def _joined(lines: list[bytes], size: int) -> bytes | None:
    return _ESCAPED.sub(rb"\1", b"".join(lines)) if size <= MESSAGE_BYTES_MAX else None
