"""Calls as records of work: which files were read and changed, which commands and tests ran, and how they ended.

A call is classified by the form of its arguments and result, never by its tool's name alone. Calls that are not work on
files and commands (a booking, a search in a catalogue) are left to `actions`, which reports the values of records.
"""

from collections.abc import Iterator, Sequence
from enum import IntEnum

import msgspec

from memory_engine.compactors.extractive.arguments import CallArguments
from memory_engine.compactors.extractive.edits import change_of, changed, patched_files
from memory_engine.compactors.extractive.outputs import FileHits, Output, shorten_middle
from memory_engine.compactors.extractive.shell import FileRead
from memory_engine.context.work_lines import CommandLine, FileLine, WorkLine
from memory_engine.core.sections import COMMANDS, FILES, TESTS
from memory_engine.language.sentences import clean

COMMAND_CHARS_MAX = 160
OUTCOME_CHARS_MAX = 160
ERROR_CHARS_MAX = 200
FAILURE_CHARS_MAX = 120
NAMES_CHARS_MAX = 140
FILE_LINES_MIN = 2
"""Minimum lines in the text of a file, if nothing else marks it as one; a shorter result is an answer."""
LOG_LINES_MIN = 12
"""Minimum number of lines, other than sentences, in an output; a summary reports how it ended."""
SIMILAR_SHARE = 0.3
TEXTS_MAX = 6
"""Maximum number of arguments among which a text before and one after an edit are looked for."""


class Rank(IntEnum):
    """The order of priority where there is no room for all."""

    TEST = 0
    RULE = 1
    CHANGE = 2
    FAILURE = 3
    EFFECT = 4
    READ = 5
    SEARCH = 6
    REMARK = 7


class WorkFact(msgspec.Struct, frozen=True, gc=False):
    """One thing that a call did."""

    section: str
    line: WorkLine
    rank: Rank


class CallOutcome(msgspec.Struct, frozen=True, gc=False):
    """A call's outcome: its text, the text's form, and whether the call failed."""

    output: Output
    has_failed: bool
    is_record: bool
    """True if it is a JSON text without a printed text in it."""


def facts_of(name: str, asked: CallArguments, outcome: CallOutcome) -> tuple[WorkFact, ...]:
    """Return what a call did, in order; empty if it is not work on files and commands."""
    if asked.command is not None:
        is_told_elsewhere = outcome.is_record and not asked.command.reads and not asked.command.writes
        return () if is_told_elsewhere else tuple(_of_command(asked, outcome))
    if outcome.output.run is not None:
        return (_run(_title(name, asked), outcome),)
    if edits := tuple(_edits(asked, outcome)):
        return edits
    return tuple(_of_tool(name, asked, outcome))


def _of_command(asked: CallArguments, outcome: CallOutcome) -> Iterator[WorkFact]:
    command = asked.command
    if command is None:
        return
    output = outcome.output
    for write in command.writes:
        change = changed("", write.text)
        written = FileLine(clean(write.path), edits=1, changes=(change,) if change else ())
        yield WorkFact(FILES, written, Rank.CHANGE)
    if not has_failed(outcome):
        removed = map(clean, command.removes)
        yield from (WorkFact(FILES, FileLine(path, status="deleted"), Rank.CHANGE) for path in removed)
    if output.run is not None:
        yield _run(shorten_middle(command.shown, COMMAND_CHARS_MAX), outcome)
    elif command.reads and not has_failed(outcome):
        yield from (_shell_read(read, output, alone=len(command.reads) == 1) for read in command.reads)
    else:
        sought = command.is_search or command.is_listing
        rank = Rank.FAILURE if has_failed(outcome) else Rank.SEARCH if sought else Rank.EFFECT
        line = _command(
            shorten_middle(command.shown, COMMAND_CHARS_MAX), outcome, searches=sought, lists=command.is_listing
        )
        yield WorkFact(COMMANDS, line, rank)


def _shell_read(read: FileRead, output: Output, *, alone: bool) -> WorkFact:
    path = clean(read.path)
    if read.last < 0:  # part of it, in unknown lines
        return WorkFact(FILES, FileLine(path, is_read=True), Rank.READ)
    if read.first or read.last:
        last = read.last or (read.first + output.lines - 1 if alone else read.first)
        return WorkFact(FILES, FileLine(path, is_read=True, ranges=((read.first or 1, last),)), Rank.READ)
    return WorkFact(FILES, FileLine(path, is_read=True, is_whole=True, lines=output.lines if alone else 0), Rank.READ)


def _edits(asked: CallArguments, outcome: CallOutcome) -> Iterator[WorkFact]:
    """Yield the files that a call changes: its arguments say so, and its result does not look like something found."""
    output = outcome.output
    if not asked.writes and (output.hits or output.names or asked.searches):
        return
    if files := patched_files(asked):
        counts = [f"+{file.count}/-{file.removed}" for file in files]
        change = change_of(asked) if len(files) == 1 else ""
        for file, count in zip(files, counts, strict=True):
            yield _edit(file.path, change or count, outcome)
        return
    texts = asked if asked.texts and (asked.writes or len(asked.texts) > 1) else _as_texts(asked)
    path = asked.paths[0] if asked.paths else output.header if output.numbers else ""
    if texts is None or not path or asked.is_url:
        return
    yield _edit(path, change_of(texts), outcome, whole=len(texts.texts) == 1)


def _as_texts(asked: CallArguments) -> CallArguments | None:
    """Return the arguments with two similar values as texts before and after; `None` if no two are similar.

    Used where the arguments' names do not say which texts these are.
    """
    others = [(key, value) for key, value in asked.values if value not in asked.paths]
    told = [*asked.texts, *others][:TEXTS_MAX]
    for n, (_, old) in enumerate(told):
        for _, new in told[n + 1 :]:
            if _are_alike(old, new):
                return msgspec.structs.replace(asked, texts=(("", old), ("", new)))
    is_written = len(asked.texts) == 1 and "\n" in asked.texts[0][1]
    return asked if is_written else None


def _are_alike(old: str, new: str) -> bool:
    """Return True if one text may be a version of the other: they share words and are not plain values."""
    a, b = set(old.split()), set(new.split())
    return min(len(a), len(b)) > 1 and len(a & b) >= SIMILAR_SHARE * max(len(a), len(b))


def _edit(path: str, change: str, outcome: CallOutcome, *, whole: bool = False) -> WorkFact:
    path = clean(path)
    if has_failed(outcome) or (outcome.output.error and not outcome.output.diff):
        return WorkFact(FILES, FileLine(path, edit_failure=_failure(outcome)), Rank.FAILURE)
    status = "created" if whole and "creat" in outcome.output.first.lower() else ""
    return WorkFact(FILES, FileLine(path, status=status, edits=1, changes=(change,) if change else ()), Rank.CHANGE)


def _of_tool(name: str, asked: CallArguments, outcome: CallOutcome) -> Iterator[WorkFact]:
    """Yield what a call of a tool other than a shell did: a search, a listing, a file's text, or a long output."""
    output = outcome.output
    if outcome.is_record and not output.names:
        return
    is_text = output.is_prose and output.lines > LOG_LINES_MIN
    if not name and asked.shown and not is_text and not output.numbers:
        rank = Rank.FAILURE if has_failed(outcome) else Rank.EFFECT
        yield WorkFact(COMMANDS, _command(_title(name, asked), outcome, lists=True), rank)
        return
    if output.hits or output.names or (asked.searches and (output.is_empty or output.lines > 1)):
        yield WorkFact(COMMANDS, _command(_title(name, asked), outcome, searches=True, lists=True), Rank.SEARCH)
    elif asked.paths and has_failed(outcome) and not asked.texts and output.lines <= LOG_LINES_MIN:
        if len(asked.values) == len(asked.paths) == 1:
            yield WorkFact(FILES, FileLine(clean(asked.paths[0]), failure=_failure(outcome)), Rank.FAILURE)
        else:
            yield WorkFact(COMMANDS, _command(_title(name, asked), outcome), Rank.FAILURE)
    elif asked.paths and output.is_empty and not asked.texts and not _others(asked):
        where = f" at {asked.first}-{asked.last}" if asked.last else ""
        yield WorkFact(FILES, FileLine(clean(asked.paths[0]), failure=f"nothing{where}"), Rank.READ)
    elif (asked.paths or output.header) and (output.numbers or _is_text_of_file(asked, output)):
        yield _read_fact(asked, output)
    elif output.diff or output.numbers or (output.lines >= LOG_LINES_MIN and not output.is_prose):
        rank = Rank.FAILURE if has_failed(outcome) else Rank.EFFECT
        yield WorkFact(COMMANDS, _command(_title(name, asked), outcome), rank)


def _is_text_of_file(asked: CallArguments, output: Output) -> bool:
    if asked.is_url or asked.texts:
        return False
    return output.lines >= (LOG_LINES_MIN if _others(asked) else FILE_LINES_MIN) and not output.diff


def _others(asked: CallArguments) -> list[str]:
    """Return the values that are neither paths nor line numbers."""
    return [value for _, value in asked.values if value not in asked.paths and not value.lstrip("-").isdecimal()]


def _read_fact(asked: CallArguments, output: Output) -> WorkFact:
    path = clean(asked.paths[0] if asked.paths else output.header)
    asks = asked.first or asked.last
    if output.numbers is not None and (asks or output.numbers[0] > 1):
        return WorkFact(FILES, FileLine(path, is_read=True, ranges=(output.numbers,)), Rank.READ)
    if asks:
        ranges = ((asked.first, asked.last or asked.first + output.lines - 1),)
        return WorkFact(FILES, FileLine(path, is_read=True, ranges=ranges), Rank.READ)
    lines = output.numbers[1] if output.numbers is not None else output.lines
    return WorkFact(FILES, FileLine(path, is_read=True, is_whole=True, lines=lines), Rank.READ)


def _run(command: str, outcome: CallOutcome) -> WorkFact:
    run = outcome.output.run
    told = run.outcome if run is not None else ""
    return WorkFact(TESTS, CommandLine(command, told, run is not None and run.has_failed), Rank.TEST)


def _title(name: str, asked: CallArguments) -> str:
    shown, name = shorten_middle(asked.shown, COMMAND_CHARS_MAX), clean(name)
    return f"{name}: {shown}" if name and shown else name or shown or "call"


def has_failed(outcome: CallOutcome) -> bool:
    """Return True if a call failed: by its flag, its exit code, or a trace in its output."""
    output = outcome.output
    return outcome.has_failed or bool(output.exit_code) or output.has_trace


def _failure(outcome: CallOutcome) -> str:
    output = outcome.output
    told = output.error or output.first or "no result"
    return shorten_middle(told, FAILURE_CHARS_MAX).replace("; ", ", ")


def _command(title: str, outcome: CallOutcome, *, searches: bool = False, lists: bool = False) -> CommandLine:
    output = outcome.output
    if has_failed(outcome):
        code = f"exit {output.exit_code}" if output.exit_code else ""
        told = output.error or next(iter(output.last), "")
        told = "" if code and told.lower().startswith("exit code") else shorten_middle(told, ERROR_CHARS_MAX)
        return CommandLine(title, ": ".join(filter(None, (code, told))) or "failed", has_failed=True)
    if output.is_empty:
        return CommandLine(title, "nothing found" if searches else "no output")
    if output.hits:
        return CommandLine(title, _hit_count(output.hits))
    if output.diff:
        files = [f"{file.path} +{file.count}/-{file.removed}" for file in output.diff]
        return CommandLine(title, f"changes in {len(files)}: {_fitting_names(files)}")
    if output.names and (lists or len(output.names) > 1):
        return CommandLine(title, f"{len(output.names)} found: {_fitting_names(output.names)}")
    return CommandLine(title, _outcome_text(outcome))


def _outcome_text(outcome: CallOutcome) -> str:
    """Return a short output whole; for a longer one its error, or its first and last line."""
    output = outcome.output
    if output.short:
        return output.short
    if output.error:
        return shorten_middle(output.error, ERROR_CHARS_MAX)
    told = list(dict.fromkeys(filter(None, (output.first, *output.last[:1]))))
    room = OUTCOME_CHARS_MAX // max(len(told), 1)
    return " … ".join(shorten_middle(line, room) for line in told) or f"{output.lines} lines"


def line_form(line: str) -> str:
    """Return how a line begins, to find lines that end every result of a tool."""
    return line[:12].rpartition(" ")[0] or line[:12]


def _hit_count(hits: Sequence[FileHits]) -> str:
    total = sum(hit.count for hit in hits)
    if len(hits) == 1:
        return f"{total} hits in {hits[0].path}"
    return f"{total} hits in {len(hits)} files: {_fitting_names([f'{hit.path} ({hit.count})' for hit in hits])}"


def _fitting_names(names: Sequence[str]) -> str:
    """Return the first names that fit, and how many more there are."""
    told: list[str] = []
    room = NAMES_CHARS_MAX
    for name in map(clean, names):
        room -= len(name) + 2
        if room < 0 and told:
            break
        told.append(name)
    more = len(names) - len(told)
    return ", ".join(told) + (f" and {more} more" if more else "")
