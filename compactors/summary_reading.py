"""Reading a model's summary back: from Markdown, as models write it, to lines with their sources."""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache

import msgspec

from memory_engine.compactors.history_prompt import FORM, WORK_FORM
from memory_engine.context.headings import sections_by_heading
from memory_engine.core.events.base import SummaryLine
from memory_engine.core.lazy import regex
from memory_engine.core.origins import Speaker, origin_of_section

_WORK = {"files": "files", "changes": "changes", "tests": "tests", "version control": "version_control"}


class Claim(msgspec.Struct, frozen=True):
    """A line of an answer, and the places of the entries that it cites, from 0."""

    section: str
    text: str
    cites: tuple[int, ...] = ()


@cache
def _sections() -> Mapping[str, str]:
    """The section that a heading names. Sections that say whose words a line holds are not a model's to write."""
    known = sections_by_heading().items()
    return {name: section for name, section in known if origin_of_section(section) is Speaker.TOOL} | _WORK


_OTHER = "key_information"
"""The section for lines under a heading of the model's own."""
_NUMBERED = r"(?:\d{1,2}[.)]\s*)?"
_HASH_HEADING = regex(r" {0,3}(?P<level>#{1,6})\s+(?P<title>.*)")
_BULLET = regex(r"\s*(?:[-*+•‣–]|\d{1,3}[.)])\s+(?:\[[ xX~]\]\s+)?(?P<text>.*)")
_EMPTY_BULLET = regex(r"\s*(?:[-*+•‣–]|\d{1,3}[.)])\s*")
_RULE = regex(r"\s*(?:[-*_]\s*){3,}")
_FENCE = regex(r"\s*(?:```|~~~)\s*\w*\s*")
_THOUGHT = regex(r"(?<!\s)\s*<think(?:ing)?>.*?</think(?:ing)?>", re.DOTALL)
_CITATION = r"\[(?:entr(?:y|ies)\s+)?\d{1,6}(?:\s*[-–,;]\s*\d{1,6})*\]"
_CITATIONS = regex(rf"(?i)\s+(?P<all>{_CITATION}(?:,?\s*{_CITATION})*)(?P<stop>[.;]?)\s*$")
CITATIONS_CHARS_MAX = 4_000
"""So far before the end of a line its citations begin, at the most."""
_SPAN = regex(r"(\d+)(?:\s*[-–]\s*(\d+))?")
_NOTHING = regex(
    r"(?i)[(\[_*]*(?:none|n/?a|nothing|not applicable|-|…|\.\.\.)[)\]_*]*(?: (?:so far|yet|to report))?[.!]?"
)
_PLACEHOLDERS = frozenset(line[2:] for line in (FORM + WORK_FORM).splitlines() if line.startswith("- "))


def read_summary(answer: str, sources: Sequence[tuple[str, ...]]) -> tuple[SummaryLine, ...]:
    """The lines of the known sections, in the answer's order. `sources[i]` are those of entry i + 1.

    Every bullet and every paragraph is a line; one that runs over several lines of text is
    joined. Indexes at a line's end become its sources, if there are such entries; a line
    without any has none. Empty where the answer has no known section with content.
    """
    return tuple(as_line(claim, sources) for claim in read_claims(answer, len(sources)))


def read_claims(answer: str, entries: int) -> list[Claim]:
    """The lines of the known sections, as `read_summary` reads them, with their citations among a number of entries."""
    claims = []
    for section, item in _section_items(answer):
        text, cites = _cited(item, entries)
        if text and text not in _PLACEHOLDERS and not _NOTHING.fullmatch(text):
            claims.append(Claim(section, text, cites))
    return claims


def as_line(claim: Claim, sources: Sequence[tuple[str, ...]]) -> SummaryLine:
    """The line, with the sources of all that it cites. Where one of these has none, it may come from anywhere."""
    cited = [sources[n] for n in claim.cites]
    known = dict.fromkeys(source for each in cited for source in each) if all(cited) else ()
    return SummaryLine(section=claim.section, text=claim.text, sources=tuple(known))


def _section_items(answer: str) -> Iterator[tuple[str, str]]:
    """Each bullet or paragraph with its section; text before the first known section is left out."""
    section, level, fenced = "", 3, False
    parts: list[str] = []
    for line in [*_without_thought(answer).splitlines(), ""]:
        fenced ^= bool(_FENCE.fullmatch(line))
        heading = _heading(line)
        if fenced and heading and not heading[0]:
            heading = None  # a comment in a piece of code
        drops = bool(_RULE.fullmatch(line) or _FENCE.fullmatch(line) or _EMPTY_BULLET.fullmatch(line))
        bullet = None if heading or drops else _BULLET.fullmatch(line)
        ends = bool(heading or bullet or drops or not line.strip())
        if ends and parts:
            yield section, " ".join(parts)
            parts = []
        if heading is not None:
            name, depth, rest = heading
            if name:
                section, level = name, depth
                parts = [rest] if rest else []
            elif section and depth <= level:
                section = _OTHER
        elif section and bullet is not None:
            parts = [_clean_line(bullet["text"])]
        elif section and not ends:
            parts.append(_clean_line(line))


@cache
def _named_headings() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """The patterns of a section's name in bold, and of one alone on its line."""
    names = "|".join(re.escape(heading) for heading in sorted(_sections(), key=len, reverse=True))
    in_bold = (
        rf"(?i) {{0,3}}(?:[-*+]\s+)?{_NUMBERED}"
        rf"(?:\*\*|__)\s*(?P<title>{names})\s*:?\s*(?:\*\*|__)\s*:?(?P<rest>.*)"
    )
    return re.compile(in_bold), re.compile(rf"(?i) {{0,3}}{_NUMBERED}(?P<title>{names})\s*:?\s*")


def _heading(line: str) -> tuple[str, int, str] | None:
    """A heading: the known section's name (or `""`), its level, and text on the same line."""
    section_of, (in_bold, alone) = _sections(), _named_headings()
    if found := _HASH_HEADING.fullmatch(line):
        title = re.sub(r"[^\w\s]", " ", re.sub(rf"^\W*{_NUMBERED}", "", found["title"]))
        return section_of.get(" ".join(title.split()).casefold(), ""), len(found["level"]), ""
    if found := in_bold.fullmatch(line):
        return section_of[found["title"].casefold()], 3, _clean_line(found["rest"])
    if found := alone.fullmatch(line):
        return section_of[found["title"].casefold()], 3, ""
    return None


def _without_thought(answer: str) -> str:
    """An answer without what its model thought before it. A thought that never ends is looked through once."""
    closing = answer.rfind("</think")
    found = _THOUGHT.search(answer, 0, closing + len("</thinking>")) if closing >= 0 else None
    return answer if found is None else answer[: found.start()] + answer[found.end() :]


def _clean_line(text: str) -> str:
    return " ".join(text.replace("\x00", "\ufffd").split())


def _cited(text: str, entries: int) -> tuple[str, tuple[int, ...]]:
    """The text without its citations, and the places of the entries they cite. An unknown index is not a citation."""
    found = _CITATIONS.search(text, max(0, len(text) - CITATIONS_CHARS_MAX))
    if found is None:
        return text, ()
    spans = _SPAN.findall(found["all"])
    places = [n - 1 for a, b in spans for n in range(max(int(a), 1), min(int(b or a), entries) + 1)]
    if not places:
        return text, ()
    return text[: found.start()] + found["stop"], tuple(dict.fromkeys(places))
