"""A model's progress summary, read back: Markdown into lines, each in its section and with its sources."""

import re
from collections.abc import Iterator, Sequence

from memory_engine.compaction.base import SECTIONS
from memory_engine.compactors.prompts import FORM
from memory_engine.events.base import SummaryLine
from memory_engine.regex import regex

_SECTION_OF = {heading.casefold(): name for name, heading in SECTIONS}
_NAMES = "|".join(re.escape(heading) for _, heading in SECTIONS)
_OTHER = "key_information"
"""Where lines go that stand under a heading of the model's own."""
_NUMBERED = r"(?:\d{1,2}[.)]\s*)?"
_HASH_HEADING = regex(r" {0,3}(?P<level>#{1,6})\s+(?P<title>.*)")
_BOLD_HEADING = regex(
    rf"(?i) {{0,3}}(?:[-*+]\s+)?{_NUMBERED}"
    rf"(?:\*\*|__)\s*(?P<title>{_NAMES})\s*:?\s*(?:\*\*|__)\s*:?(?P<rest>.*)"
)
_BARE_HEADING = regex(rf"(?i) {{0,3}}{_NUMBERED}(?P<title>{_NAMES})\s*:?\s*")
_BULLET = regex(r"\s*(?:[-*+•‣–]|\d{1,3}[.)])\s+(?:\[[ xX~]\]\s+)?(?P<text>.*)")
_EMPTY_BULLET = regex(r"\s*(?:[-*+•‣–]|\d{1,3}[.)])\s*")
_RULE = regex(r"\s*(?:[-*_]\s*){3,}")
_FENCE = regex(r"\s*(?:```|~~~)\s*\w*\s*")
_THOUGHT = regex(r"\s*<think(?:ing)?>.*?</think(?:ing)?>", re.DOTALL)
_CITATION = r"\[(?:entr(?:y|ies)\s+)?\d{1,6}(?:\s*[-–,;]\s*\d{1,6})*\]"
_CITATIONS = regex(rf"(?i)\s+(?P<all>{_CITATION}(?:,?\s*{_CITATION})*)(?P<stop>[.;]?)\s*$")
_SPAN = regex(r"(\d+)(?:\s*[-–]\s*(\d+))?")
_NOTHING = regex(
    r"(?i)[(\[_*]*(?:none|n/?a|nothing|not applicable|-|…|\.\.\.)[)\]_*]*(?: (?:so far|yet|to report))?[.!]?"
)
_PLACEHOLDERS = frozenset(line[2:] for line in FORM.splitlines() if line.startswith("- "))


def read_summary(answer: str, sources: Sequence[tuple[str, ...]]) -> tuple[SummaryLine, ...]:
    """The lines of the known sections, in the answer's order. `sources[i]` are those of entry i + 1.

    Every bullet and every paragraph is a line; one that runs over several lines of text is
    joined. Indexes at a line's end become its sources, if there are such entries; a line
    without any has none. Empty where the answer has no known section with content.
    """
    lines = []
    for section, item in _items(answer):
        text, cited = _cited(item, sources)
        if text and text not in _PLACEHOLDERS and not _NOTHING.fullmatch(text):
            lines.append(SummaryLine(section=section, text=text, sources=cited))
    return tuple(lines)


def _items(answer: str) -> Iterator[tuple[str, str]]:
    """Each bullet or paragraph with its section; what stands before the first known section is left out."""
    section, level, fenced = "", 3, False
    parts: list[str] = []
    for line in [*_THOUGHT.sub("", answer, count=1).splitlines(), ""]:
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
            parts = [_plain(bullet["text"])]
        elif section and not ends:
            parts.append(_plain(line))


def _heading(line: str) -> tuple[str, int, str] | None:
    """A heading: the known section's name (or `""`), its level, and text on the same line."""
    if found := _HASH_HEADING.fullmatch(line):
        title = re.sub(r"[^\w\s]", " ", re.sub(rf"^\W*{_NUMBERED}", "", found["title"]))
        return _SECTION_OF.get(" ".join(title.split()).casefold(), ""), len(found["level"]), ""
    if found := _BOLD_HEADING.fullmatch(line):
        return _SECTION_OF[found["title"].casefold()], 3, _plain(found["rest"])
    if found := _BARE_HEADING.fullmatch(line):
        return _SECTION_OF[found["title"].casefold()], 3, ""
    return None


def _plain(text: str) -> str:
    return " ".join(text.replace("\x00", "\ufffd").split())


def _cited(text: str, sources: Sequence[tuple[str, ...]]) -> tuple[str, tuple[str, ...]]:
    """The text without its citations, and what they cite. Where no index exists, they are no citations."""
    found = _CITATIONS.search(text)
    if found is None:
        return text, ()
    spans = _SPAN.findall(found["all"])
    places = [n for a, b in spans for n in range(max(int(a), 1), min(int(b or a), len(sources)) + 1)]
    if not places:
        return text, ()
    cited = dict.fromkeys(source for n in places for source in sources[n - 1])
    return text[: found.start()] + found["stop"], tuple(cited)
