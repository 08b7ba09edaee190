"""What a person reads who called a command with words that it does not take: the fault, a guess, and one example.

Loaded for such words, and for `--help` of a command.
"""

import argparse
import re
from collections.abc import Sequence

from memory_engine.cli.options import FAILED, database_path, did_you_mean

EXAMPLES = {
    "acts": "acts --finish",
    "anchors": "anchors --out anchors.jsonl",
    "archive": "archive {thread}",
    "backup": "backup copy.db",
    "bisect": "bisect {thread} --expr 'len(chunks) > 3'",
    "brief": "brief {thread} --standing",
    "clear": "clear {thread}",
    "compact": "compact {thread}",
    "compactions": "compactions {thread}",
    "compare-compactors": "compare-compactors {thread}",
    "completion": "completion bash",
    "context": "context {thread} --max-tokens 8000",
    "copy": "copy memory.db copy.db",
    "delete": "delete {thread} --dry-run",
    "demo": "demo",
    "diff": "diff {thread} 3 10",
    "docs": "docs list --tenant {tenant}",
    "docs add": "docs add handbook/ --tenant {tenant}",
    "docs list": "docs list --tenant {tenant}",
    "docs remove": "docs remove handbook/refunds.md --tenant {tenant}",
    "docs search": "docs search 'how long do refunds take?' --tenant {tenant}",
    "erase": "erase {thread} --seq 3 --dry-run",
    "export": "export {thread} log.jsonl",
    "files": "files {thread} --at 3",
    "forget": "forget {thread} --seq 3",
    "fork": "fork {thread} --at 3",
    "hold": "hold {thread} --reason 'request 118'",
    "import": "import log.jsonl --thread restored",
    "ingest": "ingest conversation.jsonl",
    "inspect": "inspect --open",
    "lab": "lab run memory.db --under defaults",
    "lab run": "lab run memory.db --under defaults",
    "ledger": "ledger {thread}",
    "log": "log {thread} --limit 20",
    "mcp": "mcp --read-only",
    "memories": "memories export memories/ --user {user}",
    "memories check": "memories check memories/",
    "memories export": "memories export memories/ --user {user}",
    "memories import": "memories import memories.json --user {user}",
    "memory-files": "memory-files {thread}",
    "migrate": "migrate --check",
    "pin": "pin {thread} 'Answer in English'",
    "rebuild": "rebuild {thread}",
    "redo-compaction": "redo-compaction {thread}",
    "rekey": "rekey --new-key-file key.txt",
    "report": "report {thread}",
    "rereduce": "rereduce {thread} --dry-run",
    "restore": "restore copy.db restored.db",
    "restore-files": "restore-files {thread} --to work --dry-run",
    "retain": "retain rules.toml --dry-run",
    "rewind": "rewind {thread} --to 3 --dry-run",
    "quarantine": "quarantine {thread} tool:read_mail --reason 'it was hacked'",
    "release": "release {thread} tool:read_mail",
    "search": "search {thread} 'where is the order?'",
    "show": "show {thread} --at 3",
    "stats": "stats --chart",
    "threads": "threads --order created --limit 10",
    "to-pytest": "to-pytest {thread} --seqs 1..3",
    "unarchive": "unarchive {thread}",
    "undo-compaction": "undo-compaction {thread}",
    "unpin": "unpin {thread} 3",
    "update": "update {thread} --metadata stage=done",
    "verify": "verify {thread}",
    "view": "view {thread}",
    "what-if": "what-if {thread} --skip 3",
    "why": "why {thread} --context",
}
"""A call for each command; the names in braces are of `memory-engine demo` unless the database has its own."""
USUAL = {"thread": "support", "tenant": "acme", "user": "ines"}
NAMES_MAX = 5
"""How many threads, tenants or users are named for one that is missing."""
_PROGRAM = "memory-engine"
_MISSING = "the following arguments are required: "
_ONE_OF = r"one of the arguments (.+) is required"
_ABOUT = r"argument ([^:]+): (.*)"
_VALUE = r"invalid (.+) value: (.*)"
_CHOICE = r"invalid choice: '?(.*?)'?(?: \(choose from .*)?"
_TOO_MANY = "unrecognized arguments: "
_FIELDS = {"thread": "id", "tenant": "tenant_id", "user": "user_id"}
_KINDS = {"THREAD": "thread", "--tenant": "tenant", "--user": "user"}


def example(command: str, names: dict[str, str] | None = None) -> str:
    """One call of the command that works, or "" for a command of which there is none."""
    words = EXAMPLES.get(command.removeprefix(_PROGRAM).strip(), "")
    return f"{_PROGRAM} {words.format(**USUAL | (names or {}))}" if words else ""


def refuse(parser: argparse.ArgumentParser, message: str, words: Sequence[str]) -> int:
    """Print what is wrong with the words, and return the exit code. `message` is argparse's."""
    import shlex

    from memory_engine.cli.terminal import Terminal
    from memory_engine.errors.base import shown_place

    said = _said(parser, message, words)
    missing = [] if _unknown_options(parser, words) else _missing(message)
    kinds = [kind for name, kind in _KINDS.items() if name in missing]
    place = database_path(_value_of("--db", words))
    there = {kind: found for kind in kinds if (found := _names_of(kind, place))}
    for kind, found in there.items():
        said += f"; {kind}s of {shown_place(place)}: {', '.join(found[:NAMES_MAX])}"
        said += " …" if len(found) > NAMES_MAX else ""
    shown = example(parser.prog, {kind: shlex.quote(found[0]) for kind, found in there.items()})
    terminal = Terminal(as_json="--json" in words)
    if terminal.as_json:
        terminal.json({"error": {"type": "UsageError", "message": shown_place(said), "example": shown}})
        return FAILED
    terminal.error(shown_place(said))
    if shown:
        terminal.warn(f"  example: {shown}")
    terminal.warn(f"  help:    {parser.prog} --help")
    return FAILED


def _said(parser: argparse.ArgumentParser, message: str, words: Sequence[str]) -> str:
    """The fault in words that a person would use."""
    name = parser.prog.removeprefix(_PROGRAM).strip() or _PROGRAM
    unknown = _unknown_options(parser, words)
    if unknown:
        known = _options(parser)
        longer = [one for one in known if one.startswith(unknown[0])]
        return f"{name} has no option {unknown[0]}" + did_you_mean(unknown[0], longer or known)
    if missing := _missing(message):
        return f"{name} needs {' and '.join(_with_value(parser, one) for one in missing)}"
    if found := re.fullmatch(_ONE_OF, message):
        return f"{name} needs {' or '.join(found[1].split())}"
    if found := re.fullmatch(_ABOUT, message, re.DOTALL):
        return f"{name}: {_of_argument(parser, found[1], found[2])}"
    if message.startswith(_TOO_MANY):
        more = message.removeprefix(_TOO_MANY)
        taken = " ".join(filter(None, (str(one.metavar or "") for one in parser._actions if not one.option_strings)))
        quotes = "; put words that belong together into quotes" if taken else ""
        return f"{name} takes {taken or 'no words'}: {more} is too much{quotes}"
    return message


def _missing(message: str) -> list[str]:
    return message.removeprefix(_MISSING).split(", ") if message.startswith(_MISSING) else []


def _of_argument(parser: argparse.ArgumentParser, name: str, what: str) -> str:
    """What is wrong with the value of one argument."""
    action = next((one for one in parser._actions if _named(one) == name), None)
    if found := re.fullmatch(_VALUE, what, re.DOTALL):
        return f"{name} takes a {found[1]}, not {found[2]}"
    if action is not None and action.choices and (found := re.fullmatch(_CHOICE, what, re.DOTALL)):
        known = [str(one) for one in action.choices]
        return f"{name} is not {found[1]!r}{did_you_mean(found[1], known)}; it is one of {', '.join(known)}"
    if what == "expected one argument" and action is not None:
        return f"{name} needs {_metavar(action)} after it"
    return f"{name}: {what}"


def _named(action: argparse.Action) -> str:
    """The name that argparse has for an argument in its messages."""
    return "/".join(action.option_strings) or str(action.metavar or action.dest)


def _metavar(action: argparse.Action) -> str:
    return " ".join(action.metavar) if isinstance(action.metavar, tuple) else action.metavar or action.dest.upper()


def _with_value(parser: argparse.ArgumentParser, name: str) -> str:
    """A missing argument: an option with its value, an action with those there are."""
    for action in parser._actions:
        if _named(action) != name:
            continue
        if action.option_strings:
            return f"{name} {_metavar(action)}"
        if action.choices:
            return f"{name} ({', '.join(map(str, action.choices))})"
    return name


def _options(parser: argparse.ArgumentParser) -> list[str]:
    return [*parser._option_string_actions]


def _unknown_options(parser: argparse.ArgumentParser, words: Sequence[str]) -> list[str]:
    """Return the options that the command does not have. Words after `--` are not options."""
    given = words[: words.index("--")] if "--" in words else words
    known = _options(parser)
    names = (word.partition("=")[0] for word in given if re.fullmatch(r"--?[A-Za-z][^\s]*", word))
    return [name for name in names if name not in known]


def _value_of(option: str, words: Sequence[str]) -> str | None:
    for at, word in enumerate(words):
        if word == option and at + 1 < len(words):
            return words[at + 1]
        if word.startswith(f"{option}="):
            return word.partition("=")[2]
    return None


def _names_of(kind: str, place: str) -> list[str]:
    """The threads that were written to last, or the tenants or users, of a database; none if it is not a file here."""
    import asyncio
    from pathlib import Path

    from memory_engine.cli.commands import existing
    from memory_engine.cli.options import CHOSEN, KeyChoice
    from memory_engine.errors import MemoryEngineError
    from memory_engine.errors.base import is_url

    if is_url(place) or not Path(place).is_file():
        return []
    CHOSEN.set(KeyChoice(may_ask=False))

    async def read() -> list[str]:
        async with existing(place, read_only=True) as engine:
            found = await engine.threads(order="updated", limit=100)
        names: list[str] = [getattr(one, _FIELDS[kind]) for one in found]
        return [*dict.fromkeys(filter(None, names))]

    try:
        return asyncio.run(read())
    except (MemoryEngineError, OSError):
        return []
