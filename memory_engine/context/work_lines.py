"""Lines of work in a summary, one per file, command or test run, and the merging of several summaries into one.

A line has no fields except its text, so the text is a record in a fixed form: what is written can be read back, and
lines about the same thing are merged into one, through any number of summaries. A text in another form is left as it
is.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Self

import msgspec
from msgspec.structs import replace

from memory_engine.core.events.base import SummaryLine
from memory_engine.core.lazy import regex
from memory_engine.core.sections import ASKED, COMMANDS, FILES, SAID, SECTION_ORDER, TESTS

CHANGES_MAX = 3
"""Maximum number of changes, the latest, that a file's line lists."""
RANGES_MAX = 8
"""Maximum number of ranges that a file's line lists; if there are more, it gives the first and the last line read."""
RUNS_MAX = 64
"""Maximum number of test runs, the latest, that another run is compared with."""
PARTS_MAX = 32
"""Maximum number of parts of a path by whose ends other paths are looked up."""
WORKED, FAILED = "→", "✗"
_CHANGE_BORDER = " | "
_FILE = regex(r"(?P<path>\S.*?): (?=(?:read|created|edit(?:ed)?|deleted|failed)\b)(?P<parts>.+)", re.DOTALL)
_PART_BORDER = regex(r"; (?=(?:read|created|edit(?:ed)?|deleted|failed)\b)")
_READ = regex(r"read(?: (?P<what>all|[\d, \-]+))?(?: of (?P<lines>\d+) lines)?")
_EDITED = regex(r"edited(?: ×(?P<times>\d+))?(?:: (?P<changes>.*))?", re.DOTALL)
_COMMAND = regex(r"(?P<command>.+?)(?: \(×(?P<times>\d+)\))?(?: (?P<sign>[→✗]) (?P<outcome>.+))?", re.DOTALL)

Range = tuple[int, int]


class FileLine(msgspec.Struct, frozen=True, gc=False):
    """The work on one file: `ranges` are the lines read (first, last), `lines` its length if known."""

    path: str
    is_read: bool = False
    is_whole: bool = False
    """Whether the whole file was read."""
    ranges: tuple[Range, ...] = ()
    lines: int = 0
    status: str = ""
    """`created` or `deleted`."""
    edits: int = 0
    changes: tuple[str, ...] = ()
    failure: str = ""
    """Why the last attempt to read it failed, if nothing has succeeded since."""
    edit_failure: str = ""
    """Why the last attempt to change it failed, if no other change has succeeded since."""

    @property
    def text(self) -> str:
        """Text of the line."""
        parts = [self.status] if self.status else []
        if self.is_read:
            parts.append(f"read{_shown_ranges(self)}{f' of {self.lines} lines' if self.lines else ''}")
        if self.edits:
            times = f" ×{self.edits}" if self.edits > 1 else ""
            parts.append(f"edited{times}{': ' if self.changes else ''}{_CHANGE_BORDER.join(self.changes)}")
        if self.edit_failure:
            parts.append(f"edit failed: {self.edit_failure}")
        if self.failure:
            parts.append(f"failed: {self.failure}")
        return f"{self.path}: {'; '.join(parts or ['read'])}"

    @staticmethod
    def read(text: str) -> "FileLine | None":
        """Return the record of a line, or `None` for a text in another form."""
        found = _FILE.fullmatch(text)
        if found is None:
            return None
        line = FileLine(found["path"])
        for part in _PART_BORDER.split(found["parts"]):
            line = _with_part(line, part)
        return line

    @property
    def key(self) -> str:
        """Key by which lines about the same file are recognized."""
        return self.path.removeprefix("./").rstrip("/") or self.path

    def then(self, later: Self) -> Self:
        """Return this line merged with a later one about the same file."""
        is_whole = self.is_whole or later.is_whole
        works = later.edits > 0 or bool(later.status)
        return replace(
            self,
            is_read=self.is_read or later.is_read,
            is_whole=is_whole,
            ranges=() if is_whole else merge_ranges((*self.ranges, *later.ranges)),
            lines=later.lines or self.lines,
            status=later.status or ("" if self.status == "deleted" and works else self.status),
            edits=self.edits + later.edits,
            changes=tuple(dict.fromkeys((*self.changes, *later.changes)))[-CHANGES_MAX:],
            failure=later.failure or ("" if works or later.is_read else self.failure),
            edit_failure=later.edit_failure or ("" if works else self.edit_failure),
        )


def _with_part(line: FileLine, part: str) -> FileLine:
    """Return the record with the content of one part of its text added."""
    if found := _READ.fullmatch(part):
        what, lines = found["what"] or "", int(found["lines"] or 0)
        ranges = () if what == "all" else tuple(map(_range, filter(None, map(str.strip, what.split(",")))))
        return replace(line, is_read=True, is_whole=what == "all", ranges=ranges, lines=lines)
    if found := _EDITED.fullmatch(part):
        changes = tuple(found["changes"].split(_CHANGE_BORDER)) if found["changes"] else ()
        return replace(line, edits=int(found["times"] or 1), changes=changes)
    if part.startswith("edit failed: "):
        return replace(line, edit_failure=part.removeprefix("edit failed: "))
    if part.startswith("failed: "):
        return replace(line, failure=part.removeprefix("failed: "))
    return replace(line, status=part)


def _range(text: str) -> Range:
    first, _, last = text.partition("-")
    return int(first or 0), int(last or first or 0)


def _shown_ranges(line: FileLine) -> str:
    if line.is_whole:
        return " all"
    shown = line.ranges if len(line.ranges) <= RANGES_MAX else ((line.ranges[0][0], line.ranges[-1][1]),)
    told = ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in shown)
    return f" {told}" if told else ""


def merge_ranges(ranges: Iterable[Range]) -> tuple[Range, ...]:
    """Return the ranges in order, merging those that touch or overlap."""
    found: list[Range] = []
    for first, last in sorted(ranges):
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(found[-1][1], last))
        else:
            found.append((first, last))
    return tuple(found)


class CommandLine(msgspec.Struct, frozen=True, gc=False):
    """A command, or a test run, with its last outcome."""

    command: str
    outcome: str = ""
    has_failed: bool = False
    times: int = 1

    @property
    def text(self) -> str:
        """Text of the line."""
        times = f" (×{self.times})" if self.times > 1 else ""
        outcome = f" {FAILED if self.has_failed else WORKED} {self.outcome}" if self.outcome else ""
        return f"{self.command}{times}{outcome}"

    @classmethod
    def read(cls, text: str) -> Self | None:
        """Return the record of a line, or `None` for an empty text."""
        found = _COMMAND.fullmatch(text)
        if found is None:
            return None
        return cls(found["command"], found["outcome"] or "", found["sign"] == FAILED, int(found["times"] or 1))

    @property
    def key(self) -> str:
        """Key by which lines about the same command are recognized."""
        return self.command

    def then(self, later: Self) -> Self:
        """Return this line merged with a later one about the same command; the last outcome applies."""
        return replace(later, times=self.times + later.times)

    def covers(self, earlier: Self) -> bool:
        """Return whether this test run includes all tests of an earlier one: it has a subset of its words."""
        return self.command != earlier.command and set(self.command.split()) <= set(earlier.command.split())


WorkLine = FileLine | CommandLine
_FORMS: dict[str, type[FileLine] | type[CommandLine]] = {FILES: FileLine, COMMANDS: CommandLine, TESTS: CommandLine}


class KeptLine(msgspec.Struct, frozen=True, gc=False):
    """A line of work and the ids of its sources."""

    section: str
    line: WorkLine
    sources: tuple[str, ...]
    is_known: bool = True
    """Whether its sources are known: a line without sources may come from anywhere."""


class WorkRecords:
    """Collection of lines of work in chronological order; lines about the same thing are merged."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, str], KeptLine] = {}
        self._runs: list[CommandLine] = []
        """The latest test runs."""

    def add(self, section: str, line: WorkLine, sources: Sequence[str]) -> None:
        """Add the next line. It takes over the sources of the lines that it replaces, so that no source is lost."""
        kept = KeptLine(section, line, tuple(sources), bool(sources))
        if section == TESTS and isinstance(line, CommandLine):
            for covered in self._covered_by(line):
                kept = _with_sources(self._kept.pop(covered), kept)
            self._runs = [*(run for run in self._runs if (TESTS, run.key) in self._kept), line][-RUNS_MAX:]
        key = section, line.key
        before = self._kept.pop(key, None)  # moved to the end: lines are ordered by their last mention
        if before is not None:
            kept = _with_sources(before, msgspec.structs.replace(kept, line=_then(before.line, line)))
        self._kept[key] = kept

    def _covered_by(self, run: CommandLine) -> list[tuple[str, str]]:
        """Return the keys that a test run replaces: runs that it covers, and its command if it ran no tests."""
        covered = [(TESTS, one.key) for one in self._runs if run.covers(one)]
        return [key for key in dict.fromkeys([*covered, (COMMANDS, run.key)]) if key in self._kept]

    def lines(self) -> list[KeptLine]:
        """Return the lines, in the order of their last mention. A test failure is listed only in its last run."""
        self._join_paths()
        seen: set[str] = set()
        told: list[KeptLine] = []
        for kept in reversed(self._kept.values()):
            line = kept.line
            if kept.section == TESTS and isinstance(line, CommandLine):
                head, *failures = line.outcome.split("; ")
                fresh = [failure for failure in failures if failure not in seen]
                seen.update(fresh)
                told.append(msgspec.structs.replace(kept, line=replace(line, outcome="; ".join([head, *fresh]))))
            else:
                told.append(kept)
        return told[::-1]

    def _join_paths(self) -> None:
        """Merge the paths of one file: a short path that is the end of exactly one longer path names the same file."""
        paths = [path for section, path in self._kept if section == FILES]
        ends = _by_end(paths)
        whole = {path: longer[0] for path in paths if len(longer := ends.get(path, [])) == 1}
        if not whole:
            return
        given, self._kept = self._kept, {}
        for (section, path), kept in given.items():
            line, name = kept.line, path
            while section == FILES and name in whole:
                name = whole[name]
            is_moved = isinstance(line, FileLine) and name != path
            self.add(section, replace(line, path=name) if is_moved else line, kept.sources)


def _by_end(paths: Iterable[str]) -> dict[str, list[str]]:
    """Map each path that is the end of longer paths to those, without paths that are themselves an end of another."""
    found: dict[str, list[str]] = {}
    known = set(paths)
    for path in known:
        parts = path.split("/")
        for n in range(1, min(len(parts), PARTS_MAX)):
            end = "/".join(parts[n:])
            if end in known:
                found.setdefault(end, []).append(path)
    return {
        end: [path for path in sorted(longer) if path not in found] or sorted(longer) for end, longer in found.items()
    }


def _then(before: WorkLine, later: WorkLine) -> WorkLine:
    if isinstance(before, FileLine) and isinstance(later, FileLine):
        return before.then(later)
    if isinstance(before, CommandLine) and isinstance(later, CommandLine):
        return before.then(later)
    return later


def _with_sources(before: KeptLine, later: KeptLine) -> KeptLine:
    """Return the later line with the sources of both; if either's are unknown, the result's are unknown too."""
    is_known = before.is_known and later.is_known
    known = tuple(dict.fromkeys((*before.sources, *later.sources))) if is_known else ()
    return msgspec.structs.replace(later, sources=known, is_known=is_known)


def work_line(section: str, text: str) -> WorkLine | None:
    """Return the record of a line of work, or `None` for a line of another section or in another form."""
    form = _FORMS.get(section)
    return None if form is None else form.read(text)


def merged_lines(summaries: Iterable[Sequence[SummaryLine]]) -> tuple[SummaryLine, ...]:
    """Return the lines of several summaries, oldest first, merged into one, section by section in reading order.

    Lines about the same file, command or test run become one, with the sources of all; equal lines appear once. A
    person's requests before the last summary with lines of people become `said`. A line without sources keeps none.
    Pure.
    """
    given = [tuple(lines) for lines in summaries]
    current = max(
        (n for n, lines in enumerate(given) if any(line.section in (SAID, ASKED) for line in lines)), default=0
    )
    records = WorkRecords()
    others: dict[tuple[str, str], SummaryLine] = {}
    for n, lines in enumerate(given):
        for line in lines:
            record = work_line(line.section, line.text)
            if record is not None:
                records.add(line.section, record, line.sources)
                continue
            section = SAID if line.section == ASKED and n < current else line.section
            _merge_line(others, replace(line, section=section))
    found = [SummaryLine(kept.section, kept.line.text, kept.sources) for kept in records.lines()]
    return _in_order([*others.values(), *found])


def _merge_line(others: dict[tuple[str, str], SummaryLine], line: SummaryLine) -> None:
    """Keep a line at its first place, with the sources of its repetitions."""
    key = line.section, line.text
    before = others.get(key)
    if before is not None:
        known = before.sources and line.sources
        line = replace(line, sources=tuple(dict.fromkeys((*before.sources, *line.sources))) if known else ())
    others[key] = line


def _in_order(lines: Sequence[SummaryLine]) -> tuple[SummaryLine, ...]:
    sections = dict.fromkeys([*SECTION_ORDER, *(line.section for line in lines)])
    return tuple(line for section in sections for line in lines if line.section == section)
