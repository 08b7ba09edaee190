"""The parts of a mail, found in one pass over its lines, within limits.

The standard library's parser asks for each line every boundary that is open, calls itself for each level, and its
parser of headers takes time with the square of their length. This one looks a boundary up, and takes of each part the
few headers that documents have a use for.
"""

import binascii
import codecs
import quopri
import re
from collections.abc import Callable, Iterator
from email.message import Message
from io import BytesIO

from attrs import define, field

from memory_engine.core.lazy import regex
from memory_engine.core.limits import ReadingLimits
from memory_engine.views.documents.readers.document import Unreadable
from memory_engine.views.documents.readers.text import latin

_CUT = frozenset({"to", "cc", "references", "in-reply-to"})
_READ = _CUT | frozenset(
    "from subject date message-id list-id content-type content-disposition content-transfer-encoding".split()
)
_BOUNDARY_BYTES_MAX = 1_000
_NAME_CHARS_MAX = 40


@define
class MailPart:
    """A message, or a part of one that holds no others. `headers`: of those that are read the first, by lower name."""

    headers: dict[str, str] = field(factory=dict)
    described: Message = field(factory=Message)
    raw: bytes = b""

    def header(self, name: str) -> str:
        """A header's text on one line."""
        return decoded_header(self.headers.get(name.lower(), ""))

    @property
    def kind(self) -> str:
        """Such as `text/plain`."""
        return self.described.get_content_type()

    @property
    def file_name(self) -> str:
        """The name that an attachment has, if any."""
        return decoded_header(_parameter(self.described.get_filename, "(unnamed)") or "")

    @property
    def is_attached(self) -> bool:
        """Whether it is a file rather than what the writer wrote."""
        return self.described.get_content_disposition() == "attachment" or bool(self.file_name)

    def text(self) -> str:
        """Its content as text."""
        self.described.set_payload(self.raw.decode("ascii", "surrogateescape"))
        content = self.described.get_payload(decode=True)
        raw = content if isinstance(content, bytes) else b""
        charset = _parameter(self.described.get_content_charset, None) or "utf-8"
        return as_text(raw, charset).replace("\r\n", "\n").replace("\r", "\n")


def read_parts(content: bytes, limits: ReadingLimits) -> tuple[MailPart, list[MailPart]]:
    """The message itself, for its headers, and the parts that hold no others, in order.

    Raises `Unreadable` for one that passes `mail_parts`, `mail_depth` or `header_chars`.
    """
    walk = _PartWalk(content, limits)
    for line in BytesIO(content if b"\n" in content else content.replace(b"\r", b"\n")):
        walk.take(line)
    walk.end()
    return walk.first, walk.leaves


@define
class _PartWalk:
    """The progress of reading a message.

    `open` are the boundaries around, innermost last, each with what its bytes meant further out; `marks` says at which
    depth a boundary is open.
    """

    content: bytes
    limits: ReadingLimits
    leaves: list[MailPart] = field(factory=list)
    first: MailPart = field(factory=MailPart)
    _open: list[tuple[bytes, int | None, bool]] = field(factory=list)
    _marks: dict[bytes, int] = field(factory=dict)
    _inside: int = 0
    _count: int = 0
    _headers: dict[str, bytearray] = field(factory=dict)
    _named: str | None = None
    _part: MailPart | None = None
    _body: bytearray | None = None
    _in_headers: bool = True

    def take(self, line: bytes) -> None:
        if self._open and line.startswith(b"--") and len(line) <= _BOUNDARY_BYTES_MAX and self._boundary(line):
            return
        if not self._in_headers:
            if self._body is not None:
                self._body += line
        elif line.strip(b"\r\n"):
            self._header_line(line)
        else:
            self._begin()

    def end(self) -> None:
        """The content ends: a part that is open ends too."""
        if self._in_headers:
            self._begin()
        self._close()

    def _header_line(self, line: bytes) -> None:
        name, colon, value = line.partition(b":")
        if line[:1] in b" \t" and self._named is not None:
            self._keep(self._named, line)
        elif colon and not line[:1].isspace() and len(name) <= _NAME_CHARS_MAX:
            named = name.decode("latin-1").strip().lower()
            self._named = named if named in _READ and named not in self._headers else ""
            self._keep(self._named, value)
        elif not (line.startswith((b"From ", b">From ")) and self._named is None):
            self._begin()  # no blank line between headers and text
            self.take(line)

    def _keep(self, name: str, value: bytes) -> None:
        """Add to a header (`""`: of no use); what of it is too long is cut or, in `_header_texts`, refused."""
        if name:
            kept = self._headers.setdefault(name, bytearray())
            kept += value[: max(0, self.limits.header_chars + 1 - len(kept))]

    def _begin(self) -> None:
        """The headers of a part are over: see what it is."""
        self._count += 1
        if self._count > self.limits.mail_parts:
            raise Unreadable(f"it has over {self.limits.mail_parts:,} parts", limit="mail_parts")
        part = MailPart(_header_texts(self._headers, self.limits))
        self._headers, self._named, self._in_headers = {}, None, False
        if self._count == 1:
            self.first = part
        for name, value in part.headers.items():
            if name.startswith("content-"):
                part.described[name] = " ".join(value.encode("ascii", "replace").decode().split())
        is_digest = bool(self._open) and self._open[-1][2] and "content-type" not in part.headers
        kind = "message/rfc822" if is_digest else part.kind
        boundary = _boundary_of(part.described) if kind.startswith("multipart/") else b""
        if boundary:
            self._deeper()
            self._open.append((boundary, self._marks.get(boundary), kind == "multipart/digest"))
            self._marks[boundary] = len(self._open)
            self._body = None
        elif kind.startswith("message/") and kind != "message/delivery-status":
            self._deeper()
            self._in_headers = True
        else:
            self._part, self._body = part, bytearray()

    def _deeper(self) -> None:
        self._inside += 1
        if self._inside > self.limits.mail_depth:
            raise Unreadable(f"its parts stand over {self.limits.mail_depth} deep in one another", limit="mail_depth")

    def _boundary(self, line: bytes) -> bool:
        """Whether the line ends a part; then begin the next, or the text around."""
        mark = line[2:].rstrip()
        depth, ends = self._marks.get(mark), False
        if depth is None and mark.endswith(b"--"):
            depth, ends = self._marks.get(mark[:-2]), True
        if depth is None:
            return False
        if self._in_headers and self._named is not None:
            self._begin()
        self._close()
        keep = depth - ends
        while len(self._open) > keep:
            boundary, outer, _ = self._open.pop()
            if outer is None:
                del self._marks[boundary]
            else:
                self._marks[boundary] = outer
        self._inside = len(self._open)
        self._headers, self._named, self._in_headers = {}, None, not ends
        return True

    def _close(self) -> None:
        if self._part is not None and self._body is not None:
            self._part.raw = bytes(self._body)
            if self._open:  # the line feed before a boundary is the boundary's
                self._part.raw = self._part.raw.removesuffix(b"\n").removesuffix(b"\r")
            self.leaves.append(self._part)
        self._part = self._body = None


def _header_texts(headers: dict[str, bytearray], limits: ReadingLimits) -> dict[str, str]:
    """The headers as text. Raises `Unreadable` for one that is too long, and is not a list."""
    for name, raw in headers.items():
        if len(raw) > limits.header_chars and name not in _CUT:
            why = f"its header {name.title()} has over {limits.header_chars:,} characters"
            raise Unreadable(why, limit="header_chars")
    return {name: as_text(bytes(raw[: limits.header_chars]), "utf-8") for name, raw in headers.items()}


def _boundary_of(described: Message) -> bytes:
    boundary = _parameter(described.get_boundary, None) or ""
    return boundary.encode("ascii", "replace")[:_BOUNDARY_BYTES_MAX].rstrip()


def _parameter(read: Callable[[], str | None], broken: str | None) -> str | None:
    """A parameter of a header as the standard library reads it; `broken` where it cannot."""
    try:
        return read()
    except Exception:  # the boundary to a library: it stumbles over broken parameters in a dozen ways
        return broken


_ENCODED = regex(r"=\?([^?\s*]{1,40})(?:\*[^?\s]{0,40})?\?([bBqQ])\?([^?\s]*)\?=")


def decoded_header(raw: str) -> str:
    """A header on one line, its encoded words (RFC 2047) as text; those next to each other are one text."""
    return " ".join("".join(_decoded_words(raw)).encode("utf-8", "replace").decode().split())


def _decoded_words(raw: str) -> Iterator[str]:
    at, held, charset = 0, bytearray(), ""
    for found in _ENCODED.finditer(raw):
        between = raw[at : found.start()]
        if held and (between.strip() or found[1].lower() != charset):
            yield as_text(bytes(held), charset)
            held.clear()
        if between.strip() or not charset:
            yield between
        held += _bytes_of(found[2], found[3])
        at, charset = found.end(), found[1].lower()
    if held:
        yield as_text(bytes(held), charset)
    yield raw[at:]


def _bytes_of(kind: str, text: str) -> bytes:
    raw = text.encode("ascii", "replace")
    if kind in "qQ":
        return quopri.decodestring(raw, header=True)
    try:
        return binascii.a2b_base64(raw + b"=" * (-len(raw) % 4))
    except binascii.Error:
        return raw


_ODD = re.compile(r"(?i)(?:punycode|idna|undefined|(?:raw.)?unicode.escape|unicode.internal|utf.?7)")
"""Encodings of Python that no text comes in: some always fail, or take time with the square of the length."""


def as_text(raw: bytes, charset: str) -> str:
    """Bytes as text: in the encoding that they are said to have, else as UTF-8, else as Windows' Latin."""
    try:
        if len(charset) <= _NAME_CHARS_MAX and not _ODD.match(charset):
            return raw.decode(codecs.lookup(charset).name)
    except (LookupError, ValueError):
        pass
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return latin(raw)
