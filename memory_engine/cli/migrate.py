"""The command `migrate`: shows a database's schema version, or migrates it."""

import argparse

from memory_engine.cli.commands import Command, check_is_there
from memory_engine.cli.options import FOUND_PROBLEMS, key_for
from memory_engine.cli.terminal import Progress, Terminal
from memory_engine.core.excerpts import counted
from memory_engine.errors.base import shown_place
from memory_engine.reports import Column
from memory_engine.storage.places import schema_of
from memory_engine.store.keys import as_key
from memory_engine.store.protocol import SchemaVersions, StoreSchema

_HEADS = (Column("VERSION", right=True), Column("BRINGS", least=20))


def _declare_migrate(parser: argparse.ArgumentParser) -> None:
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument(
        "--check", action="store_true", help="show its version; exit code 1 if it differs; change nothing"
    )
    what.add_argument("--apply", action="store_true", help="migrate it to this package's version")


async def migrate(asked: argparse.Namespace, terminal: Terminal) -> int:
    """Check or change the schema version. Returns 1 if a checked one differs from this package's."""
    check_is_there(asked.db)
    schema, place = schema_of(asked.db, as_key(key_for(asked.db))), shown_place(asked.db)
    before = await schema.versions()
    found = await _migrated(schema, terminal) if asked.apply else before
    terminal.json({"path": place, "stored": before.stored, "newest": before.newest, "waiting": before.waiting})
    if asked.check:
        _put_check(before, place, terminal)
    else:
        brought = f", brought up from {before.stored}" if before.stored != found.stored else ", as it was"
        terminal.say(f"{place}: schema version {found.stored}{brought}", "bold")
    return FOUND_PROBLEMS if found.stored != found.newest else 0


async def _migrated(schema: StoreSchema, terminal: Terminal) -> SchemaVersions:
    """Migrate, and print a line for each migration once all are done."""
    steps: list[tuple[str, str]] = []

    def done(number: int, what: str) -> None:
        steps.append((str(number), what))
        progress.update({"migrations": len(steps)})

    try:
        with Progress("migrating", terminal) as progress:
            return await schema.migrate(done)
    finally:
        if steps:
            terminal.table(_HEADS, steps)


def _put_check(found: SchemaVersions, place: str, terminal: Terminal) -> None:
    terminal.say(f"{place}: schema version {found.stored}, this package has {found.newest}", "bold")
    if found.waiting:
        terminal.table(_HEADS, [(str(number), what) for number, what in found.waiting.items()])
    if found.stored > found.newest:
        terminal.say("a newer package wrote it: upgrade this one", "red")
    elif found.waiting:
        terminal.say(
            f"{counted(len(found.waiting), 'migration')} to do: memory-engine migrate --apply, or open it once"
        )


MIGRATE = Command(_declare_migrate, migrate)
