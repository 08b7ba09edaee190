"""The commands that change a thread: forget, clear, update, archive and unarchive."""

import argparse

from memory_engine.cli.commands import (
    REASON,
    Command,
    Option,
    WrongArgument,
    add_thread,
    add_yes,
    agreed,
    always,
    existing,
    pair,
    whole,
)
from memory_engine.cli.terminal import Terminal
from memory_engine.core.excerpts import counted
from memory_engine.core.records import Receipt
from memory_engine.reports import Printout, line
from memory_engine.thread import Thread


async def forget(asked: argparse.Namespace, terminal: Terminal) -> int:
    """Hide events and chunks, and everything derived from them, from every view; the log keeps them."""
    events, chunks = len(asked.seq) + len(asked.event), len(asked.chunk)
    if not events and not chunks:
        raise WrongArgument("name what to forget: --seq, --event or --chunk, each as often as you like")
    named = [counted(count, what) for count, what in ((events, "event"), (chunks, "chunk")) if count]
    async with existing(asked.db, plugins=asked.plugins) as engine:
        thread = engine.thread(asked.thread)
        await thread.info()
        if not agreed(asked, terminal, f"Forget {' and '.join(named)} of {thread.id}?", "say --yes"):
            return 0
        receipt = await thread.forget(seqs=asked.seq, event_ids=asked.event, chunk_ids=asked.chunk, reason=asked.reason)
    said = f"{' and '.join(named)} forgotten; `memory-engine erase` destroys the bytes too"
    return terminal.show(receipt_printout(receipt, said))


async def clear(thread: Thread, asked: argparse.Namespace) -> Printout:
    """Start a thread over; its log keeps what was."""
    receipt = await thread.admin.clear(asked.reason)
    before = f"memory-engine show {asked.thread} --at {receipt.seq - 1}"
    return receipt_printout(receipt, f"cleared; to see it as it was: {before}")


def _names_a_change(asked: argparse.Namespace) -> None:
    if not asked.metadata and not asked.remove:
        raise WrongArgument("name what to change: --metadata KEY=VALUE or --remove KEY, each as often as you like")


async def update(thread: Thread, asked: argparse.Namespace) -> Printout:
    """Change keys of a thread's metadata; the others stay."""
    receipt = await thread.admin.update(metadata={**dict(asked.metadata), **dict.fromkeys(asked.remove)})
    metadata = (await thread.info()).metadata
    said = " ".join(f"{key}={value}" for key, value in metadata.items()) or "no metadata"
    return receipt_printout(receipt, said)


def receipt_printout(receipt: Receipt, said: str) -> Printout:
    """What one event has done."""
    data = {"thread_id": receipt.thread_id, "seq": receipt.seq, "event_id": receipt.event_id}
    return Printout(data, [line(f"{receipt.thread_id}, event {receipt.seq}: {said}", "green")])


async def archive(thread: Thread, _asked: argparse.Namespace) -> Printout:
    """Make a thread refuse new events."""
    await thread.admin.archive()
    return await _status_of(thread)


async def unarchive(thread: Thread, _asked: argparse.Namespace) -> Printout:
    """Make an archived thread accept events again."""
    await thread.admin.unarchive()
    return await _status_of(thread)


async def _status_of(thread: Thread) -> Printout:
    status = (await thread.info()).status
    return Printout({"thread_id": thread.id, "status": status}, [line(f"{thread.id} is {status}", "green")])


FORGET = Command.of(
    forget,
    add_thread,
    Option.many("--seq", "SEQ", "an event, by its seq", whole),
    Option.many("--event", "ID", "an event, by its id"),
    Option.many("--chunk", "ID", "a chunk, by its id"),
    REASON,
    add_yes,
)
CLEAR = Command.of_thread(clear, REASON, writes=always)
UPDATE = Command.of_thread(
    update,
    Option.many("--metadata", "KEY=VALUE", "set a key of its metadata", pair),
    Option.many("--remove", "KEY", "remove a key of its metadata"),
    writes=always,
    check=_names_a_change,
)
ARCHIVE = Command.of_thread(archive, writes=always)
UNARCHIVE = Command.of_thread(unarchive, writes=always)
