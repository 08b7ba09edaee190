"""The program: parses the command line, imports its command, and runs it.

Nothing else of the package is imported before a command is known: `--help` and `--version` answer at once.
"""

import argparse
import importlib
import io
import sys
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from memory_engine.cli.options import FAILED, add_shared, database_path, plugin_choice

if TYPE_CHECKING:
    from memory_engine.cli.commands import Command


class CommandEntry(NamedTuple):
    """A word of the command line: its help, and the module and name of its `Command`."""

    help: str
    home: str


COMMANDS = {
    "demo": CommandEntry(
        "watch recorded agents become memory: no key, no network; writes to a new temporary file, or to --db",
        "demo:DEMO",
    ),
    "ingest": CommandEntry("read recorded conversations or logs into threads", "ingest:INGEST"),
    "threads": CommandEntry("list threads", "look:THREADS"),
    "log": CommandEntry("print events, of a thread or of a correlation id, and as they come", "log:LOG"),
    "show": CommandEntry("print a thread's state, now or in the past", "look:SHOW"),
    "context": CommandEntry("print what the model sees next", "look:CONTEXT"),
    "search": CommandEntry("search threads: what was said, done, remembered", "search:SEARCH"),
    "report": CommandEntry("print what the memory holds and what the agent receives", "look:REPORT"),
    "view": CommandEntry("print the rows of a thread's views", "look:VIEW"),
    "memory-files": CommandEntry(
        "print the memory files that an agent keeps, or the history of one", "memory_files:MEMORY_FILES"
    ),
    "diff": CommandEntry("print what changed between two moments of a thread", "explain:DIFF"),
    "why": CommandEntry("print what is behind a chunk, a view's row or a context", "explain:WHY"),
    "bisect": CommandEntry("find the event after which an expression holds", "explain:BISECT"),
    "compact": CommandEntry("compact a thread now", "verify:COMPACT"),
    "compactions": CommandEntry("list compactions and what became of them", "compactions:COMPACTIONS"),
    "undo-compaction": CommandEntry("put back what a compaction took", "compactions:UNDO"),
    "redo-compaction": CommandEntry("compact the originals of a compaction again", "compactions:REDO"),
    "ledger": CommandEntry("print what broke the prompt cache", "compactions:LEDGER"),
    "verify": CommandEntry("replay logs and compare hashes, operations and states", "verify:VERIFY"),
    "rebuild": CommandEntry("make the rows of states and views, and search indexes, again", "verify:REBUILD"),
    "forget": CommandEntry("hide events or chunks from every view; the log keeps them", "life:FORGET"),
    "clear": CommandEntry("let a thread begin again; the log keeps what was", "life:CLEAR"),
    "update": CommandEntry("change a thread's metadata", "life:UPDATE"),
    "archive": CommandEntry("let a thread take no more events", "life:ARCHIVE"),
    "unarchive": CommandEntry("let an archived thread take events again", "life:UNARCHIVE"),
    "erase": CommandEntry("destroy events, or all of a user or tenant, and prove that it is gone", "erasing:ERASE"),
    "delete": CommandEntry("destroy a thread and all that came of it", "erasing:DELETE"),
    "retain": CommandEntry("delete, erase, forget or archive what is old enough, by rules", "retention:RETAIN"),
    "hold": CommandEntry("let nothing of a thread, a user or a tenant be destroyed, or end that", "erasing:HOLD"),
    "acts": CommandEntry("list erasures and deletions, and finish those that were cut off", "erasing:ACTS"),
    "rereduce": CommandEntry("mend a thread whose reducers were missing or wrong", "rereduce:REREDUCE"),
    "to-pytest": CommandEntry("write a test of recorded events", "export:TO_PYTEST"),
    "export": CommandEntry("write a log to one file, with its hashes, redacted if asked to", "export:EXPORT"),
    "import": CommandEntry("make a thread of an exported log, with the same hashes", "export:IMPORT"),
    "anchors": CommandEntry("the hashes of logs, to be kept elsewhere and compared later", "export:ANCHORS"),
    "stats": CommandEntry("print totals over the database", "look:STATS"),
    "backup": CommandEntry("copy a database while it is in use, and check the copy", "backup:BACKUP"),
    "restore": CommandEntry("make a new database of a backup", "backup:RESTORE"),
    "copy": CommandEntry("copy a whole database into another one, and verify it", "copy:COPY"),
    "migrate": CommandEntry("say which schema version a database has, or bring it up to date", "migrate:MIGRATE"),
    "docs": CommandEntry("a tenant's documents: add, list, remove, search", "documents:DOCS"),
    "inspect": CommandEntry("serve a page that shows logs, states, contexts and lineage", "inspect:INSPECT"),
    "mcp": CommandEntry("serve the memory to clients of the Model Context Protocol", "mcp:MCP"),
    "fork": CommandEntry("make a thread that shares another's past", "what_if:FORK"),
    "what-if": CommandEntry("run a log again with edits, other thresholds or another compactor", "what_if:WHAT_IF"),
    "compare-compactors": CommandEntry(
        "run logs again under several compactors, and compare what they keep", "compare:COMPARE_COMPACTORS"
    ),
}
_EPILOG = "exit codes: 0 done, 1 something wrong was found, 2 it could not be done, 130 interrupted"


def command_at(home: str) -> "Command":
    """Import a command from where `COMMANDS` says it is."""
    module, _, name = home.partition(":")
    command: Command = getattr(importlib.import_module(f"memory_engine.cli.{module}"), name)
    return command


class _Parser(argparse.ArgumentParser):
    """Repeats no password of a URL that stands where it does not belong."""

    def error(self, message: str) -> NoReturn:
        from memory_engine.errors.base import shown_place

        super().error(shown_place(message))


class _Version(argparse.Action):
    """Prints the installed version and ends. Looking it up imports a reader of mail headers."""

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
    """The parser of a command line of these words: of its commands, only those among them get their arguments."""
    parser = _Parser(
        prog="memory-engine",
        description="An event-sourced memory for agents: logs, states, compacted memory and contexts.",
        epilog=_EPILOG,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    add_shared(parser)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", dest="command")
    for name, entry in COMMANDS.items():
        inner = commands.add_parser(name, help=entry.help, description=entry.help, allow_abbrev=False)
        if name in words:
            command_at(entry.home).declare(inner)
            add_shared(inner)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line (default: the process's own) and return the exit code.

    Raises `SystemExit` for `--help`, `--version` and for arguments that argparse refuses.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    words = sys.argv[1:] if argv is None else argv
    parser = build_parser(words)
    asked = parser.parse_args(words)
    if asked.command is None:
        parser.print_help()
        return FAILED
    asked.is_db_given = "db" in asked
    asked.db = database_path(getattr(asked, "db", None))
    asked.plugins = plugin_choice(asked)
    from memory_engine.cli.execution import run

    return run(command_at(COMMANDS[asked.command].home), asked)
