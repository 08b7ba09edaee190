"""`agent.md` as a file: a person's own text, byte for byte, then the promoted lines, told apart by comments.

    …the text that people wrote…

    ## Promoted
    <!-- promoted lines up to 57 of 3f9a01c2: … -->
    - Revenue dips every Sunday. <!-- promoted 12 9ac31e07 -->

A line's comment holds its id and a digest of its text, so that a file which comes back shows by itself what a
person changed in it.
"""

import re
from collections.abc import Iterable, Sequence
from hashlib import sha256

import msgspec

from memory_engine.regex import regex

HEADING = "## Promoted"
DIGEST_CHARS = 8
SECTION = regex(
    r"(?:\r\n\r\n|\n\n|\r?\n|\A)(?:## Promoted[ \t]*\r?\n(?:[ \t]*\r?\n)*)?"
    r"<!-- promoted lines up to (?P<upto>\d{1,15}) of (?P<origin>[0-9a-f]{8}):[^\n]*-->[ \t]*(?=\r?\n|\Z)"
)
"""Where promoted lines begin: the comment says so, with or without what an editor left of the heading above it."""
BULLET = regex(r"[-*+] (?P<text>.*?) ?<!-- promoted (?P<id>\d{1,15}) (?P<digest>[0-9a-f]{8}) -->\s*\Z", re.DOTALL)


class PromotedText(msgspec.Struct, frozen=True):
    """A promoted line as it is shown: its id and its text."""

    id: int
    text: str


class ReadBack(msgspec.Struct, frozen=True, kw_only=True):
    """What a file says: its own text, with what people wrote among the promoted lines moved to its end.

    `removed` are the ids of promoted lines that are gone from it, or were changed. `moved` is how many
    lines went from the section to the text.
    """

    own: str
    removed: tuple[int, ...]
    moved: int


def render(own: str, lines: Sequence[PromotedText], *, thread_id: str) -> str:
    """The file. Without promoted lines it is the text alone, unless that looks as if it had a section itself."""
    if not lines and SECTION.search(own) is None:
        return own
    upto = max((line.id for line in lines), default=0)
    note = "an unchanged line stays promoted, a changed or new one becomes part of the text above"
    opening = f"{HEADING}\n<!-- promoted lines up to {upto} of {_digest(thread_id)}: {note} -->\n"
    bullets = "".join(f"{_bullet(line)}\n" for line in lines)
    return f"{own}\n\n{opening}{bullets}" if own else opening + bullets


def one_line(text: str) -> str:
    """A text as it stands in a line: without line breaks, and unable to open a comment."""
    return " ".join(text.split()).replace("<!--", "&lt;!--")


def _bullet(line: PromotedText) -> str:
    text = one_line(line.text)
    return f"- {text} <!-- promoted {line.id} {_digest(text)} -->"


def read_back(file: str, current: Iterable[int], *, thread_id: str) -> ReadBack:
    """What a file that may have been exported and edited says, where `current` are the ids that stand now.

    Without a section, all of it is a person's own text and every promoted line stays. With one: an unchanged
    line stays; one that is missing goes, if it stood when the file was made; a changed or new one is the
    person's own from now on. A line that went meanwhile stays away, unless it is another tenant's.
    """
    section = _last(file)
    if section is None:
        return ReadBack(own=file, removed=(), moved=0)
    is_ours = section["origin"] == _digest(thread_id)
    kept: set[int] = set()
    moved: list[str] = []
    for line in file[section.end() :].split("\n"):
        bullet = BULLET.match(line)
        if bullet is None:
            moved.append(line.removesuffix("\r"))
        elif is_ours and _digest(bullet["text"]) == bullet["digest"]:
            kept.add(int(bullet["id"]))
        else:
            moved.append(f"- {bullet['text']}")
    upto = int(section["upto"])
    removed = tuple(line for line in sorted(current) if is_ours and line <= upto and line not in kept)
    own = file[: section.start()]
    added = "\n".join(moved).strip("\n")
    if added.strip():
        gap = "" if not own else "\n" if own.endswith("\n") else "\n\n"
        own = f"{own}{gap}{added}\n"
    return ReadBack(own=own, removed=removed, moved=sum(bool(line.strip()) for line in moved))


def _last(file: str) -> "re.Match[str] | None":
    """The last section of a file: an own text may quote one, ours comes after it."""
    return max(SECTION.finditer(file), key=lambda section: section.start(), default=None)


def _digest(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:DIGEST_CHARS]
