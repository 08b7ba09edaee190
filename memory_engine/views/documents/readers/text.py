"""Texts from files: plain text, and transcripts of calls (WebVTT, SubRip).

Bytes are decoded by their byte order mark, else as UTF-8, else as Windows-1252. A transcript gives who spoke when, cue
by cue, joined to turns.
"""

import codecs
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from html import unescape
from pathlib import PurePath

from attrs import frozen

from memory_engine.core.clock import checked_us, to_us
from memory_engine.core.lazy import regex
from memory_engine.views.documents.readers.document import DocumentSection, Loaded, Unreadable

BYTE_ORDER_MARKS = (
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
    text = _decode_text(content)
    if not text.strip():
        raise Unreadable("it holds no text")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _decode_text(content: bytes) -> str:
    for mark, encoding in BYTE_ORDER_MARKS:
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
    sections = (DocumentSection(text=text),)
    return Loaded(id=document_id, title=title, format="text", sections=sections, source=document_id)


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
        DocumentSection(text=" ".join(cue.text for cue in turn), about=clock(turn[0].start), speaker=turn[0].speaker)
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
        yield from _voice_cues(_milliseconds(timing["start"]), " ".join(said))


def _voice_cues(start: int, text: str) -> Iterator[Cue]:
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
