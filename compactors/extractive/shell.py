"""Shell command lines: what they read and write, and how a summary shows them.

Only programs whose sole purpose is their effect on files are known by name; every other command is shown unchanged.
"""

import re
import shlex
from collections.abc import Iterator, Sequence

import msgspec

from memory_engine.core.lazy import regex

STEP_CHARS_MAX = 2_000
READERS = frozenset("cat bat batcat less more head tail nl sed awk type get-content gc view tac xxd strings".split())
FILTERS = frozenset("head tail sed awk nl less more cat cut wc grep sort uniq tr rg".split())
LISTERS = frozenset("ls dir tree find fd fdfind gci get-childitem glob".split())
SEARCHERS = frozenset("grep egrep fgrep rg ag ack findstr".split())
_OTHERS = """
git gh svn hg cd pwd echo python python3 py pytest tox nox pip pip3 uv poetry ruff mypy node npm npx yarn pnpm bun deno
tsc go cargo rustc make cmake ninja gcc g++ clang java javac mvn gradle gradlew dotnet ruby rake rspec bundle php
composer mix elixir iex swift xcodebuild docker kubectl helm terraform ssh scp curl wget psql sqlite3 mysql touch mkdir
rm mv cp chmod chown ln tar unzip zip kill ps df du env export source bash sh zsh pwsh which man test jq sleep
apply_patch patch diff perl
"""
PROGRAMS = READERS | LISTERS | SEARCHERS | frozenset(_OTHERS.split())
REMOVERS = frozenset("rm unlink del remove-item".split())
_SIGNS = regex(r"\s-{1,2}\w|\s\|\s|&&|\|\||[^<]>\s*\S|\$[\w({]|;\s|^\./|\s\./")
_STOPS = regex(r"\s*(?:&&|\|\||;|\n)\s*")
_HEREDOC = regex(r"<<-?\s*(['\"]?)(\w+)\1(?P<rest>[^\n]*)\n(?P<body>.*?)(?:\n\s*\2(?=\s|$)|\Z)", re.DOTALL)
_WRITTEN = regex(
    r"(?:^|[^\d&>])(?P<sign>>>?)\s*(?P<path>[^\s;&|<>]+)|\btee\s+(?:-a\s+)?(?P<tee>[^\s;&|<>-][^\s;&|<>]*)"
)
_SED_RANGE = regex(r"['\"]?(\d+)(?:,(\d+|\$))?p['\"]?")
_PATTERN = regex(r"[*?$`{}\[\]|<>]")
_COUNT = regex(r"-(?:n\s*|c\s*)?(\d+)")
_NOISE = regex(r"\s*(?:[12]?>\s*&?\s*(?:/dev/null|[12])|2>&1)")


class FileRead(msgspec.Struct, frozen=True, gc=False):
    """A file that a command prints; `first` and `last` are line numbers, 0 if open."""

    path: str
    first: int = 0
    last: int = 0


class FileWrite(msgspec.Struct, frozen=True, gc=False):
    """A file that a command writes, and the text given in the command."""

    path: str
    text: str = ""
    appends: bool = False


class CommandRead(msgspec.Struct, frozen=True, gc=False):
    """A command line as shown, with the files that it only prints, or writes."""

    shown: str
    program: str
    reads: tuple[FileRead, ...] = ()
    writes: tuple[FileWrite, ...] = ()
    removes: tuple[str, ...] = ()
    is_search: bool = False
    is_listing: bool = False


def looks_like_command(text: str) -> bool:
    """Return True if a text is a command line: it begins with a known program, or has a shell's syntax."""
    first = text.strip().partition("\n")[0]
    program = _program(first)
    if not program or len(first) > 4_000:
        return False
    return program in PROGRAMS or bool(re.fullmatch(r"[\w.~/+-]+", program) and _SIGNS.search(first))


def _program(command: str) -> str:
    words = command.split()
    while words and (
        re.fullmatch(r"\w+=\S*", words[0]) or words[0] in ("sudo", "time", "env", "nohup", "command", "exec")
    ):
        words.pop(0)
    return words[0].strip("'\"`(").rpartition("/")[2].lower() if words else ""


def read_command(text: str) -> CommandRead:
    """Find what a command line does with files."""
    writes = tuple(_heredocs(text))
    plain = _HEREDOC.sub(_shortened, text).strip()
    shown = " ".join(_NOISE.sub("", plain).split())
    steps = [step for step in _STOPS.split(plain) if step.strip()]
    telling = [step for step in steps if _program(step) not in ("cd", "echo", "export", "set", "true", "printf", "pwd")]
    programs = [_program(step) for step in telling]
    reads: list[FileRead] = []
    for step in telling:
        found = list(_reads(step))
        if not found:
            reads = []
            break
        reads += found
    program = programs[0] if programs else _program(plain)
    return CommandRead(
        shown or "(no command)",
        program,
        tuple(reads),
        writes,
        tuple(_removed(telling)),
        bool(programs) and all(one in SEARCHERS for one in programs),
        bool(programs) and all(one in LISTERS for one in programs),
    )


def _removed(steps: Sequence[str]) -> Iterator[str]:
    """Yield the files that a command removes, if it names them one by one."""
    for step in steps:
        words = _shell_words(_NOISE.sub("", step)) if _program(step) in REMOVERS and len(step) <= STEP_CHARS_MAX else []
        yield from (word for word in words[1:] if not word.startswith("-") and not _PATTERN.search(word))


def _shortened(heredoc: re.Match[str]) -> str:
    """Return a here-document as its first line, unless it is written to a file: a message, say."""
    line = heredoc.string[heredoc.string.rfind("\n", 0, heredoc.start()) + 1 : heredoc.start()]
    if _WRITTEN.search(f"{line}{heredoc['rest']}") is not None:
        return heredoc["rest"]
    first = next(filter(None, map(str.strip, heredoc["body"].split("\n"))), "")
    return f"{heredoc['rest']} {first}"


def _heredocs(text: str) -> Iterator[FileWrite]:
    for found in _HEREDOC.finditer(text):
        line = text[text.rfind("\n", 0, found.start()) + 1 : found.start()] + found["rest"]
        written = _WRITTEN.search(line)
        if written is not None and written["path"] != "/dev/null":
            yield FileWrite(written["path"] or written["tee"], found["body"], written["sign"] == ">>")


def _reads(step: str) -> Iterator[FileRead]:
    """Yield the files that one step prints; none if it does anything else."""
    step = _NOISE.sub("", step)
    if len(step) > STEP_CHARS_MAX or ">" in step or "<" in step or "`" in step or "$(" in step:
        return
    stages = [_shell_words(stage) for stage in re.split(r"\s\|\s", step)]
    first = stages[0]
    if (
        not first
        or _program(first[0]) not in READERS
        or any(not s or _program(s[0]) not in FILTERS for s in stages[1:])
    ):
        return
    program, words = _program(first[0]), first[1:]
    if any(word in ("-i", "--in-place") or re.match(r"-i\W", word) for word in words):
        return
    low, high = _printed_range(program, words)
    for stage in stages[1:]:
        more = _printed_range(_program(stage[0]), stage[1:])
        if _program(stage[0]) not in ("cat", "nl", "less", "more") and more == (0, 0):
            low, high = -1, -1
            break
        low, high = (low + more[0] - 1 if low and more[0] else more[0] or low), (more[1] or high)
    for path in _operands(program, words):
        yield FileRead(path, max(low, 0), max(high, 0)) if low >= 0 else FileRead(path, 0, -1)


def _printed_range(program: str, words: Sequence[str]) -> tuple[int, int]:
    """Return the lines that a reading program prints, 0 where open."""
    told = " ".join(words)
    if program == "sed":
        found = _SED_RANGE.search(told)
        if found is None:
            return 0, 0
        return int(found[1]), 0 if found[2] == "$" else int(found[2] or found[1])
    if program == "head":
        found = _COUNT.search(told)
        return 1, int(found[1]) if found else 10
    return 0, 0


def _operands(program: str, words: Sequence[str]) -> Iterator[str]:
    """Yield the files among a reading program's arguments."""
    skip = 1 if program in ("sed", "awk") and "-f" not in words else 0
    takes_value = False
    for word in words:
        if takes_value:
            takes_value = False
        elif word.startswith("-") or word == "+":
            takes_value = word in ("-n", "-c", "-e", "-F", "-v") and program in ("head", "tail", "awk")
        elif skip:
            skip -= 1
        elif not re.fullmatch(r"\d+", word):
            yield word


def _shell_words(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:
        return command.split()
