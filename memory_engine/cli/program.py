"""The program: parses the command line, imports its command, and runs it.

Nothing else of the package is imported before a command is known: `--help` and `--version` answer at once.
"""

import argparse
import importlib
import io
import sys
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from memory_engine.cli.options import (
    CHOSEN,
    FAILED,
    add_shared,
    database_path,
    did_you_mean,
    key_choice,
    plugin_choice,
)

if TYPE_CHECKING:
    from memory_engine.cli.commands import Command


class CommandEntry(NamedTuple):
    """A word of the command line: its help text, and the module and name of its `Command`."""

    help: str
    home: str


COMMANDS = {
    "demo": CommandEntry(
        "watch recorded agents become memory: no key, no network; writes to a new temporary file, or to --db",
        "demo:DEMO",
    ),
    "ingest": CommandEntry("read recorded conversations or logs into threads", "ingest:INGEST"),
    "threads": CommandEntry("list threads", "look:THREADS"),
    "log": CommandEntry("print events of a thread or a correlation id; --follow prints new ones", "log:LOG"),
    "show": CommandEntry("print a thread's state, now or in the past", "look:SHOW"),
    "context": CommandEntry("print what the model sees next", "look:CONTEXT"),
    "brief": CommandEntry("print what people said in a thread and what of it still stands", "brief:BRIEF"),
    "search": CommandEntry("search what was said, done and remembered", "search:SEARCH"),
    "report": CommandEntry("print what the conversation's memory holds and what the agent receives", "look:REPORT"),
    "view": CommandEntry("print the rows of a thread's views", "look:VIEW"),
    "memory-files": CommandEntry(
        "print the memory files that an agent keeps, or the history of one", "memory_files:MEMORY_FILES"
    ),
    "files": CommandEntry("list the workspace files that a thread recorded, now or in the past", "workspace:FILES"),
    "restore-files": CommandEntry("write a thread's workspace files into a folder", "workspace:RESTORE_FILES"),
    "diff": CommandEntry("print what changed between two moments of a thread", "explain:DIFF"),
    "why": CommandEntry("print the events behind a chunk, a view's row or a context", "explain:WHY"),
    "bisect": CommandEntry("find the first event after which an expression is true", "explain:BISECT"),
    "compact": CommandEntry("compact a thread now", "compactions:COMPACT"),
    "compactions": CommandEntry("list compactions and their status", "compactions:COMPACTIONS"),
    "undo-compaction": CommandEntry("undo a compaction: put its originals back", "compactions:UNDO"),
    "redo-compaction": CommandEntry("summarize the originals of a compaction again", "compactions:REDO"),
    "ledger": CommandEntry("print what broke the prompt cache", "compactions:LEDGER"),
    "verify": CommandEntry("replay logs and compare hashes, operations and states", "verify:VERIFY"),
    "rebuild": CommandEntry("remake the rows of states and views, and search indexes", "verify:REBUILD"),
    "forget": CommandEntry("hide events or chunks from every view; the log keeps them", "life:FORGET"),
    "clear": CommandEntry("start a thread over; the log keeps what was", "life:CLEAR"),
    "rewind": CommandEntry("go back to a moment, with what was learned since, or undo that", "rewind:REWIND"),
    "quarantine": CommandEntry("hide what rests on a tool, a document or another source", "quarantine:QUARANTINE"),
    "release": CommandEntry("end a quarantine: what it hid comes back", "quarantine:RELEASE"),
    "pin": CommandEntry("keep a text in the brief of every context", "brief:PIN"),
    "unpin": CommandEntry("take a pin out of the brief", "brief:UNPIN"),
    "update": CommandEntry("change a thread's metadata", "life:UPDATE"),
    "archive": CommandEntry("make a thread refuse new events", "life:ARCHIVE"),
    "unarchive": CommandEntry("make an archived thread accept events again", "life:UNARCHIVE"),
    "erase": CommandEntry("destroy events, or everything of a user or tenant, with a proof", "erasing:ERASE"),
    "delete": CommandEntry("destroy a thread and everything derived from it", "erasing:DELETE"),
    "retain": CommandEntry("delete, erase, forget or archive what is old enough, by rules", "retention:RETAIN"),
    "hold": CommandEntry("protect a thread, a user or a tenant from being destroyed, or end that", "erasing:HOLD"),
    "acts": CommandEntry("list erasures and deletions, and finish interrupted ones", "erasing:ACTS"),
    "rereduce": CommandEntry("repair a thread whose reducers were missing or wrong", "rereduce:REREDUCE"),
    "to-pytest": CommandEntry("write a pytest test from recorded events", "export:TO_PYTEST"),
    "export": CommandEntry("write a log to one file, with its hashes, redacted if you like", "export:EXPORT"),
    "import": CommandEntry("make a thread from an exported log, with the same hashes", "export:IMPORT"),
    "anchors": CommandEntry("print the hashes of logs, to keep elsewhere and compare later", "export:ANCHORS"),
    "stats": CommandEntry("print totals over the database", "stats:STATS"),
    "backup": CommandEntry("copy a database while it is in use, and check the copy", "backup:BACKUP"),
    "restore": CommandEntry("make a new database from a backup", "backup:RESTORE"),
    "copy": CommandEntry("copy a whole database into another, and verify it", "copy:COPY"),
    "rekey": CommandEntry("encrypt a database, change its key, or decrypt it", "rekey:REKEY"),
    "migrate": CommandEntry("show a database's schema version, or migrate it", "migrate:MIGRATE"),
    "docs": CommandEntry("a tenant's documents: add, list, remove, search", "documents:DOCS"),
    "memories": CommandEntry(
        "a user's memories: import those of another system, export them with proof, check", "memories:MEMORIES"
    ),
    "inspect": CommandEntry("serve a web page over logs, states, contexts and lineage", "inspect:INSPECT"),
    "mcp": CommandEntry("serve the memory to MCP clients", "mcp:MCP"),
    "fork": CommandEntry("make a thread that shares another's past", "what_if:FORK"),
    "what-if": CommandEntry(
        "run a log again with edits, other thresholds or another compactor, in a fork", "what_if:WHAT_IF"
    ),
    "compare-compactors": CommandEntry(
        "run logs again under several compactors, and compare what they keep", "compare:COMPARE_COMPACTORS"
    ),
    "lab": CommandEntry("run recorded threads again under a change, and report what got worse", "lab:LAB"),
    "completion": CommandEntry("print a completion script for a shell", "completion:COMPLETION"),
}


class CommandGroup(NamedTuple):
    """Commands that belong together: their purpose, and each by its word within the group (`debug why`)."""

    help: str
    commands: dict[str, str]


def _command_group(what: str, words: str) -> CommandGroup:
    """`words` are names of commands, or `word=name` where the group has a shorter word for one."""
    pairs = (one.partition("=") for one in words.split())
    return CommandGroup(what, {word: name or word for word, _, name in pairs})


GROUPS = {
    "start": _command_group("bring data in, and serve it", "demo ingest memories docs inspect mcp completion"),
    "threads": _command_group(
        "threads, and what is in them",
        "list=threads show context brief search report view memory-files files restore-files fork pin unpin update "
        "rewind quarantine release clear forget archive unarchive",
    ),
    "logs": _command_group("logs, and whether they verify", "show=log export import verify rebuild rereduce anchors"),
    "debug": _command_group("find out why", "why diff bisect ledger what-if compare-compactors lab to-pytest"),
    "compaction": _command_group(
        "compact, and undo that", "run=compact list=compactions undo=undo-compaction redo=redo-compaction"
    ),
    "erasing": _command_group("destroy data, or protect it", "erase delete retain hold acts"),
    "store": _command_group("the database", "stats backup restore copy rekey migrate"),
}
"""Every command is in one group, and works without it. No group has the name of a command that takes words:
a thread may be called `export`, so `log export` prints its log."""
_EPILOG = "exit codes: 0 done, 1 done and found something wrong, 2 could not be done, 130 interrupted"


def command_at(home: str) -> "Command":
    """Import a command from where `COMMANDS` says it is."""
    module, _, name = home.partition(":")
    command: Command = getattr(importlib.import_module(f"memory_engine.cli.{module}"), name)
    return command


class Misused(Exception):
    """The words do not parse: `usage.refuse` says so. Holds the parser that refused them, and why."""

    def __init__(self, parser: argparse.ArgumentParser, why: str) -> None:
        super().__init__(why)
        self.parser = parser
        self.why = why


class _Parser(argparse.ArgumentParser):
    """Raises `Misused`, shows an example in the help of a command, and takes options between positionals."""

    def error(self, message: str) -> NoReturn:
        raise Misused(self, message)

    def format_help(self) -> str:
        if " " not in self.prog:
            return super().format_help()
        from memory_engine.cli.usage import example

        text, shown = super().format_help(), example(self.prog)
        return f"{text}\nexample: {shown}\n" if shown else text

    def parse_known_args(  # type: ignore[override] # pyright: ignore[reportIncompatibleMethodOverride]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        words = list(sys.argv[1:] if args is None else args)
        has_actions = any(isinstance(one, argparse._SubParsersAction) for one in self._actions)
        ordered = words if has_actions or "--" in words else self._options_last(words)
        return super().parse_known_args(ordered, namespace or argparse.Namespace())

    def _is_option(self, word: str) -> bool:
        """As argparse sees it: a known option, or a word with a hyphen that is neither a number nor a sentence."""
        if word.partition("=")[0] in self._option_string_actions:
            return True
        return word.startswith("-") and word != "-" and " " not in word and not word[1:].replace(".", "").isdecimal()

    def _options_last(self, words: list[str]) -> list[str]:
        """The same words, positionals first: argparse gives those that may be left out nothing at the first option."""
        first: list[str] = []
        options: list[str] = []
        at = 0
        while at < len(words):
            end = at + 1
            if not self._is_option(words[at]):
                first.append(words[at])
            else:
                action = self._option_string_actions.get(words[at])
                nargs = 0 if action is None else 1 if action.nargs is None else action.nargs
                if nargs == "?":
                    nargs = int(end < len(words) and not words[end].startswith("-"))
                end += int(nargs)
                options += words[at:end]
            at = end
        return [*first, *options]


class _Version(argparse.Action):
    """Prints the installed version and exits. Looking it up imports a reader of mail headers."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        _namespace: argparse.Namespace,
        _values: object,
        _option: str | None = None,
    ) -> None:
        from memory_engine.core.version import installed_version

        print(f"memory-engine {installed_version()}")
        parser.exit()


def build_parser(words: Collection[str] = ()) -> argparse.ArgumentParser:
    """The parser for these words: it knows only the commands among them."""
    parser = _Parser(
        prog="memory-engine",
        usage="memory-engine [OPTION …] [GROUP] COMMAND …",
        description="An event-sourced memory for agents: logs, states, compacted memory and contexts.",
        epilog="\n\n".join([*map(_group_help, GROUPS), "`memory-engine COMMAND --help` says more.", _EPILOG]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    add_shared(parser)
    commands = parser.add_subparsers(prog=parser.prog, metavar="COMMAND", dest="command", help=argparse.SUPPRESS)
    for name in (name for name in COMMANDS if name in words):
        about = COMMANDS[name].help
        inner = commands.add_parser(name, description=about, epilog=_siblings(name), allow_abbrev=False)
        command_at(COMMANDS[name].home).declare(inner)
        add_shared(inner)
    return parser


def _group_help(group: str) -> str:
    """A group and its commands, a line each, with the word in the group if that differs."""
    from textwrap import wrap

    lines = [f"{group}: {GROUPS[group].help}"]
    for word, name in GROUPS[group].commands.items():
        also = "" if word == name else f" ({group} {word})"
        head, *rest = wrap(COMMANDS[name].help + also, 74)
        lines += [f"  {name:<19} {head}", *(f"{'':<22}{line}" for line in rest)]
    return "\n".join(lines)


def _siblings(name: str) -> str | None:
    """The description of a group, by the command with the group's name (`threads`)."""
    if name not in GROUPS:
        return None
    return f"of this group: {', '.join(f'{name} {word}' for word in GROUPS[name].commands)}"


def _next_word(words: Sequence[str], at: int = 0) -> int:
    """The index of the first word from there on that is neither a shared option nor the value of one."""
    while at < len(words) and words[at].startswith("-"):
        at += 2 if words[at] in ("--db", "--plugins", "--key-file", "--key-env") else 1
    return at


def _without_group(words: list[str]) -> list[str]:
    """The words with a command's own name instead of a group and its word. Raises `Misused` for an unknown command."""
    at = _next_word(words)
    if at >= len(words) or not {"-h", "--help", "--version"}.isdisjoint(words[:at]):
        return words
    name = words[at]
    if name not in GROUPS:
        if name not in COMMANDS:
            _refuse(f"there is no command {name!r}", name, [*COMMANDS, *GROUPS], "`memory-engine --help` lists them")
        return words
    following = at + 1 if name in COMMANDS else _next_word(words, at + 1)
    word = words[following] if following < len(words) else ""
    if name in COMMANDS and (not word or word.startswith("-")):
        return words
    known = GROUPS[name].commands
    if word in known or word in known.values():
        return [*words[:at], *words[at + 1 : following], known.get(word, word), *words[following + 1 :]]
    if word:
        _refuse(f"{name!r} has no command {word!r}", word, known, f"`memory-engine {name} --help` lists them")
    _Parser(
        prog=f"memory-engine {name}",
        usage=f"memory-engine [OPTION …] {name} COMMAND …",
        epilog=f"{_group_help(name)}\n\n{_EPILOG}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        add_help=False,
    ).print_help()
    raise SystemExit(0 if {"-h", "--help"} & set(words[at:]) else FAILED)


def _refuse(why: str, word: str, known: Iterable[str], otherwise: str) -> NoReturn:
    """Raise `Misused` with what was probably meant."""
    build_parser().error(why + (did_you_mean(word, known) or f"; {otherwise}"))


def _innermost(parser: argparse.ArgumentParser, words: Iterable[str]) -> argparse.ArgumentParser:
    """The parser of the command, or of its action, that the words name."""
    for word in words:
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction) and word in action.choices:
                parser = action.choices[word]
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line (default: the process's own) and return the exit code.

    Raises `SystemExit` for `--help`, `--version` and for arguments that argparse refuses.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        words = _without_group(words)
        parser = build_parser(words)
        asked, more = parser.parse_known_args(words)
        if more:
            raise Misused(_innermost(parser, words), f"unrecognized arguments: {' '.join(more)}")
    except Misused as wrong:
        from memory_engine.cli.usage import refuse

        raise SystemExit(refuse(wrong.parser, wrong.why, words)) from None
    if asked.command is None:
        parser.print_help()
        return FAILED
    asked.is_db_given = "db" in asked
    asked.db = database_path(getattr(asked, "db", None))
    asked.plugins = plugin_choice(asked)
    from memory_engine.cli.execution import run

    CHOSEN.set(key_choice(asked))
    return run(command_at(COMMANDS[asked.command].home), asked)
