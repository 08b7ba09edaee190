"""Transcripts of calls (WebVTT, SubRip): who spoke when, cue by cue, joined to turns of speech."""

from collections.abc import Iterator, Sequence
from html import unescape
from pathlib import PurePath

from attrs import frozen

from memory_engine.ingest.documents.decoding import decoded
from memory_engine.ingest.documents.values import Loaded, Section, Unreadable
from memory_engine.regex import regex

_TIME = r"(?:\d+:)?\d{1,2}:\d{2}[.,]\d{1,3}"
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
    """What one person said from `start` (in milliseconds)."""

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
        Section(" ".join(cue.text for cue in turn), clock(turn[0].start), turn[0].speaker) for turn in turns(cues)
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
    """The cues with words, in order. Headers, notes, styles and numbers are no cues."""
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
    """A cue, for each voice that speaks in it. A name stands in a voice tag or before a colon."""
    pieces = _VOICE.split(text)
    voiced = [("", pieces[0]), *zip(pieces[1::2], pieces[2::2], strict=True)]
    for speaker, piece in voiced:
        words = " ".join(unescape(_TAG.sub("", piece)).split())
        named = None if speaker else _NAMED.match(words)
        if named:
            yield Cue(start, named["name"].strip(), words[named.end() :])
        elif words:
            yield Cue(start, unescape(speaker).strip(), words)


def _milliseconds(time: str) -> int:
    clock_part, _, fraction = time.replace(",", ".").partition(".")
    seconds = 0
    for part in clock_part.split(":"):
        seconds = seconds * 60 + int(part)
    return seconds * 1000 + int(fraction.ljust(3, "0"))
