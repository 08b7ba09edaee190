"""Texts from files: plain text, HTML, and transcripts of calls (WebVTT, SubRip).

Bytes are decoded by their byte order mark, else as UTF-8, else as Windows-1252. HTML gives the text that a reader
would see, a line for each block; a transcript who spoke when, cue by cue, joined to turns.
"""

import codecs
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from html import unescape
from pathlib import PurePath

from attrs import frozen

from memory_engine.core.clock import checked_us, to_us
from memory_engine.core.lazy import regex
from memory_engine.views.documents.readers.document import DocumentSection, Loaded, Unreadable

_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
"""In this order: the mark of UTF-16 begins that of UTF-32."""


def decoded(content: bytes) -> str:
    """The text, with line feeds between its lines. Without a mark it is UTF-8 or, if that fails, Windows' Latin.

    Raises `Unreadable` for content that is empty, binary, or not what its mark says.
    """
    if not content.strip():
        raise Unreadable("it is empty")
    text = _decoded(content)
    if not text.strip():
        raise Unreadable("it holds no text")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _decoded(content: bytes) -> str:
    for mark, encoding in _MARKS:
        if content.startswith(mark):
            try:
                return content.decode(encoding).removeprefix("\ufeff")
            except UnicodeDecodeError as error:
                raise Unreadable(f"it is not the {encoding} that its first bytes say", f"byte {error.start}") from None
    nul = content.find(b"\0")
    if nul >= 0:
        raise Unreadable("it is binary: a NUL byte stands in it", f"byte {nul}")
    try:
        return content.decode()
    except UnicodeDecodeError:
        return latin(content)


def latin(content: bytes) -> str:
    """Windows-1252, its five unused bytes as in Latin-1: every byte is a character."""
    try:
        return content.decode("cp1252")
    except UnicodeDecodeError:
        return content.decode("latin-1")


def read_text(content: bytes, path: str) -> Loaded:
    """A text file, named as its file is. Raises `Unreadable`."""
    return text_document(decoded(content), path, PurePath(path).stem)


def text_document(text: str, document_id: str, title: str) -> Loaded:
    """A text that is at hand."""
    return Loaded(id=document_id, title=title, format="text", sections=(DocumentSection(text),), source=document_id)


def as_date(text: str) -> datetime | None:
    """A day or a moment in ISO 8601, in UTC where it has no time zone; `None` for anything else."""
    try:
        found = datetime.fromisoformat(text.strip())
        return in_utc(found)
    except (ValueError, OverflowError):
        return None


def as_mail_date(text: str) -> datetime | None:
    """The moment of a `Date:` line; `None` for an unreadable one."""
    try:
        return in_utc(parsedate_to_datetime(text))
    except (ValueError, OverflowError, TypeError):
        return None


def from_seconds(seconds: float) -> datetime | None:
    """The moment a number of seconds after the beginning of 1970; `None` for one that no calendar holds."""
    try:
        return in_utc(datetime.fromtimestamp(seconds, UTC))
    except (ValueError, OverflowError, OSError):
        return None


def in_utc(moment: datetime) -> datetime:
    """The moment in UTC, which one without a time zone is taken for.

    Raises `ValueError` for one that could not be read back everywhere, `OverflowError` for one that UTC cannot hold.
    """
    found = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    checked_us(to_us(found))
    return found


_HIDDEN = frozenset({"head", "script", "style", "template", "title"})
_BLOCKS = frozenset(
    "address article aside blockquote br dd div dl dt figure footer form h1 h2 h3 h4 h5 h6 header hr li main nav ol p "
    "pre section table td th tr ul".split()
)
_QUOTES = frozenset({"blockquote"})


def html_text(html: str) -> str:
    """The visible text; quoted blocks are marked with `> `, as in a mail of plain text.

    The standard library's parser looks for the end of a broken tag once for each of them, to the end of the text.
    """
    parts: list[str] = []
    hidden: list[str] = []
    quoted = 0
    for text, tag, ends in _tags(html):
        if not hidden and text:
            parts.append(unescaped(" ".join(text.split("\n"))))
        if tag in _HIDDEN:
            hidden = _hidden_after(hidden, tag, ends=ends)
        if tag in _QUOTES:
            quoted = max(0, quoted - 1) if ends else quoted + 1
        if tag in _BLOCKS and not hidden:
            parts.append("\n" + "> " * bool(quoted))
    lines = (re.sub(r"[^\S\n]+", " ", line).strip() for line in "".join(parts).split("\n"))
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


def _hidden_after(hidden: list[str], tag: str, *, ends: bool) -> list[str]:
    """The hidden elements that are open, each once: an end tag closes all inside it."""
    if ends:
        return hidden[: hidden.index(tag)] if tag in hidden else hidden
    return hidden if tag in hidden else [*hidden, tag]


_TAG_BEGINS = regex(r"<(?:/?[a-zA-Z]|[!?])")
_TAG_NAME = regex(r"/?([a-zA-Z][^\s/>]{0,40})")
_TAG_GOES_ON = regex(r"[^>\"']*")
_RAW = frozenset({"script", "style"})


def _tags(html: str) -> Iterator[tuple[str, str, bool]]:
    """The text before each tag, the tag's lower name, and whether it ends an element; last the text after them all."""
    ahead = _Ahead(html)
    at = 0
    while found := _TAG_BEGINS.search(html, at):
        named = _TAG_NAME.match(html, found.start() + 1)
        end = _end_of_tag(html, found.end(), ahead) if named else _end_of_comment(html, found.start(), ahead)
        if end < 0:  # it never ends: what looks like a tag is text
            break
        text, tag, ends = html[at : found.start()], (named[1].lower() if named else ""), html[found.start() + 1] == "/"
        yield text, tag, ends
        at = end
        if tag in _RAW and not ends:
            closing = ahead.find(f"</{tag}", at)
            at = closing if closing >= 0 else len(html)
    yield html[at:], "", False


def _end_of_tag(html: str, at: int, ahead: "_Ahead") -> int:
    """After the `>` that ends a tag: one in quotes does not, unless the quote never ends. -1 without one."""
    while found := _TAG_GOES_ON.match(html, at):
        at = found.end()
        if at == len(html):
            return -1
        if html[at] == ">":
            return at + 1
        closing = ahead.find(html[at], at + 1)
        at = (closing if closing >= 0 else at) + 1
    return -1


def _end_of_comment(html: str, at: int, ahead: "_Ahead") -> int:
    """After a comment, a declaration or an instruction. -1 where it never ends."""
    mark = "-->" if html.startswith("<!--", at) else "]]>" if html.startswith("<![", at) else ">"
    end = ahead.find(mark, at + 2)
    return end + len(mark) if end >= 0 else -1


class _Ahead:
    """Looks for texts further on. One that was not found before is not looked for again, nor is one passed over."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._low = ""
        self._next: dict[str, int] = {}

    def find(self, wanted: str, at: int) -> int:
        known = self._next.get(wanted, 0)
        if known < 0 or known >= at > 0:
            return known
        self._low = self._low or _lower_tags(self._text)
        self._next[wanted] = self._low.find(wanted, at)
        return self._next[wanted]


def _lower_tags(text: str) -> str:
    """The text with small Latin letters, each character in its place."""
    return text.translate(_SMALL)


_SMALL = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}
_LONG_NUMBER = regex(r"&#[xX]?[0-9a-fA-F]{8,}")


def unescaped(text: str) -> str:
    """HTML's references to characters as these characters. One of many digits names none, and takes long to count."""
    return unescape(_LONG_NUMBER.sub("\ufffd", text)) if "&" in text else text


_TIME = r"(?:\d{1,6}:)?\d{1,2}:\d{2}[.,]\d{1,3}"
_TIMING = regex(rf"\s*(?P<start>{_TIME})\s*-->\s*(?P<end>{_TIME})(?:\s.*)?$")
_VOICE = regex(r"<v(?:\.[^\s<>]*)?\s+(?P<name>[^<>\s][^<>]*)>")
_NAMED = regex(r"(?:>>\s*)?(?P<name>[^\W\d_][\w .'’-]{0,39}):\s+(?=\S)")
_TAG = regex(r"</?[a-zA-Z0-9][^<>]*>|\{\\[^{}]*\}")
TURN_CHARS_MAX = 700
"""A turn of speech is cut between cues once it is as long as this."""
OVERLAP_CHARS_MAX = 100
"""The last cue before such a cut is said again after it, unless it is longer."""


@frozen
class Cue:
    """The words of one person from `start` (in milliseconds)."""

    start: int
    speaker: str
    text: str


def read_transcript(content: bytes, path: str) -> Loaded:
    """A `.vtt` or `.srt` file. Raises `Unreadable`, naming the line of a broken time."""
    text = decoded(content)
    is_vtt = text.startswith("WEBVTT")
    cues = list(_cues(text.split("\n")))
    if not cues:
        raise Unreadable("no cue stands in it: no line like `00:00:01.000 --> 00:00:02.000` with words below it")
    sections = tuple(
        DocumentSection(" ".join(cue.text for cue in turn), clock(turn[0].start), turn[0].speaker)
        for turn in turns(cues)
    )
    return Loaded(
        id=path,
        title=PurePath(path).stem,
        format="vtt" if is_vtt else "srt",
        sections=sections,
        source=path,
    )


def clock(milliseconds: int) -> str:
    """A time within a recording: `1:02:03`."""
    minutes, seconds = divmod(milliseconds // 1000, 60)
    return f"{minutes // 60}:{minutes % 60:02}:{seconds:02}"


def turns(cues: Sequence[Cue]) -> Iterator[Sequence[Cue]]:
    """Consecutive cues of one speaker; a long turn in parts, each beginning with the end of the one before."""
    turn: list[Cue] = []
    size = 0
    for cue in cues:
        is_same = bool(turn) and turn[-1].speaker == cue.speaker
        if turn and (not is_same or size + len(cue.text) > TURN_CHARS_MAX):
            yield turn
            again = turn[-1:] if is_same and len(turn) > 1 and len(turn[-1].text) <= OVERLAP_CHARS_MAX else []
            turn, size = list(again), sum(len(one.text) + 1 for one in again)
        turn.append(cue)
        size += len(cue.text) + 1
    if turn:
        yield turn


def _cues(lines: Sequence[str]) -> Iterator[Cue]:
    """The cues with words, in order. Headers, notes, styles and numbers are not cues.

    Line by line, because files come broken: webvtt-py passes over a cue whose times it cannot read instead of naming
    its line, takes the next cue's number for words if no blank line is before it, and refuses SubRip without
    numbers.
    """
    at = 0
    while at < len(lines):
        timing = _TIMING.match(lines[at])
        at += 1
        if timing is None:
            if "-->" in lines[at - 1]:
                raise Unreadable(f"no times can be read from {lines[at - 1].strip()[:60]!r}", f"line {at}")
            continue
        said: list[str] = []
        while at < len(lines) and lines[at].strip() and "-->" not in lines[at]:
            said.append(lines[at])
            at += 1
        if at < len(lines) and "-->" in lines[at] and said and said[-1].strip().isdecimal():
            said.pop()  # the number of the next cue, no blank line before it
        yield from _said(_milliseconds(timing["start"]), " ".join(said))


def _said(start: int, text: str) -> Iterator[Cue]:
    """A cue, for each voice that speaks in it. A name is in a voice tag or before a colon."""
    pieces = _VOICE.split(text)
    voiced = [("", pieces[0]), *zip(pieces[1::2], pieces[2::2], strict=True)]
    for speaker, piece in voiced:
        words = " ".join(unescaped(_TAG.sub("", piece)).split())
        named = None if speaker else _NAMED.match(words)
        if named:
            yield Cue(start, named["name"].strip(), words[named.end() :])
        elif words:
            yield Cue(start, unescaped(speaker).strip(), words)


def _milliseconds(time: str) -> int:
    clock_part, _, fraction = time.replace(",", ".").partition(".")
    seconds = 0
    for part in clock_part.split(":"):
        seconds = seconds * 60 + int(part)
    return seconds * 1000 + int(fraction.ljust(3, "0"))
