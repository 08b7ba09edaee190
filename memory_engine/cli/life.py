"""The commands that change a thread: forget, clear, update, archive and unarchive."""

import argparse

from memory_engine.cli.commands import Command, WrongArgument, add_thread, add_yes, agreed, existing, pair, whole
from memory_engine.cli.terminal import Terminal
from memory_engine.core.excerpts import counted
from memory_engine.core.records import Receipt


def add_reason(parser: argparse.ArgumentParser) -> None:
    """The option that says why."""
    parser.add_argument("--reason", metavar="TEXT", default="", help="why; recorded with it")


def _declare_forget(parser: argparse.ArgumentParser) -> None:
    add_thread(parser)
    parser.add_argument("--seq", type=whole, metavar="SEQ", action="append", default=[], help="an event, by its seq")
    parser.add_argument("--event", metavar="ID", action="append", default=[], help="an event, by its id")
    parser.add_argument("--chunk", metavar="ID", action="append", default=[], help="a chunk, by its id")
    add_reason(parser)
    add_yes(parser)


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
    put_receipt(terminal, receipt, f"{' and '.join(named)} forgotten; `memory-engine erase` destroys the bytes too")
    return 0


def _declare_clear(parser: argparse.ArgumentParser) -> None:
    add_thread(parser)
    add_reason(parser)


async def clear(asked: argparse.Namespace, terminal: Terminal) -> int:
    """Start a thread over; its log keeps what was."""
    async with existing(asked.db, plugins=asked.plugins) as engine:
        receipt = await engine.thread(asked.thread).admin.clear(asked.reason)
    before = f"memory-engine show {asked.thread} --at {receipt.seq - 1}"
    put_receipt(terminal, receipt, f"cleared; to see it as it was: {before}")
    return 0


def _declare_update(parser: argparse.ArgumentParser) -> None:
    add_thread(parser)
    parser.add_argument(
        "--metadata", type=pair, metavar="KEY=VALUE", action="append", default=[], help="set a key of its metadata"
    )
    parser.add_argument("--remove", metavar="KEY", action="append", default=[], help="remove a key of its metadata")


async def update(asked: argparse.Namespace, terminal: Terminal) -> int:
    """Change keys of a thread's metadata; the others stay."""
    if not asked.metadata and not asked.remove:
        raise WrongArgument("name what to change: --metadata KEY=VALUE or --remove KEY, each as often as you like")
    async with existing(asked.db, plugins=asked.plugins) as engine:
        thread = engine.thread(asked.thread)
        receipt = await thread.admin.update(metadata={**dict(asked.metadata), **dict.fromkeys(asked.remove)})
        metadata = (await thread.info()).metadata
    put_receipt(terminal, receipt, " ".join(f"{key}={value}" for key, value in metadata.items()) or "no metadata")
    return 0


def put_receipt(terminal: Terminal, receipt: Receipt, said: str) -> None:
    """Print what one event has done."""
    terminal.json({"thread_id": receipt.thread_id, "seq": receipt.seq, "event_id": receipt.event_id})
    terminal.say(f"{receipt.thread_id}, event {receipt.seq}: {said}", "green")


async def archive(asked: argparse.Namespace, terminal: Terminal) -> int:
    """Make a thread refuse new events."""
    return await _set_archived(asked, terminal, is_archived=True)


async def unarchive(asked: argparse.Namespace, terminal: Terminal) -> int:
    """Make an archived thread accept events again."""
    return await _set_archived(asked, terminal, is_archived=False)


async def _set_archived(asked: argparse.Namespace, terminal: Terminal, *, is_archived: bool) -> int:
    async with existing(asked.db, plugins=asked.plugins) as engine:
        thread = engine.thread(asked.thread)
        await (thread.admin.archive() if is_archived else thread.admin.unarchive())
        status = (await thread.info()).status
    terminal.json({"thread_id": asked.thread, "status": status})
    terminal.say(f"{asked.thread} is {status}", "green")
    return 0


FORGET = Command(_declare_forget, forget)
CLEAR = Command(_declare_clear, clear)
UPDATE = Command(_declare_update, update)
ARCHIVE = Command(add_thread, archive)
UNARCHIVE = Command(add_thread, unarchive)
