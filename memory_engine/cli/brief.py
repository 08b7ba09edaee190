"""The commands of the brief: brief, pin and unpin."""

import argparse

from memory_engine.cli.commands import MOMENT, Command, WrongArgument, add_thread, existing, moment, positive
from memory_engine.cli.life import add_reason, put_receipt
from memory_engine.cli.terminal import Terminal
from memory_engine.core.excerpts import Column, counted, one_line
from memory_engine.views.brief.view import Brief, BriefStatement


def _declare_brief(parser: argparse.ArgumentParser) -> None:
    add_thread(parser)
    parser.add_argument("--at", type=moment, metavar="MOMENT", help=f"as of: {MOMENT}")
    parser.add_argument("--standing", action="store_true", help="only statements that are not spent")


async def brief(asked: argparse.Namespace, terminal: Terminal) -> int:
    """Print what people said in a thread, what became of each statement, and the pins."""
    async with existing(asked.db, read_only=True, plugins=asked.plugins) as engine:
        thread = engine.thread(asked.thread)
        await thread.info()
        found = await thread.brief.read(at=asked.at)
    shown = in_time(found, standing=asked.standing)
    terminal.json(found.as_data() | {"statements": shown})
    terminal.say(
        f"{len(found.standing)} of {counted(len(found), 'statement')} still stand in {found.thread_id} "
        f"at event {found.seq}",
        "bold",
    )
    if shown:
        heads = [Column("SEQ", right=True), Column("SPEAKER", least=8), Column("KIND"), Column("STATUS")]
        terminal.table([*heads, Column("TEXT", least=20)], [_statement_row(one, terminal.width) for one in shown])
    return 0


def in_time(found: Brief, *, standing: bool = False) -> list[BriefStatement]:
    """The statements of a brief in the order of time, those of an agent that leads first."""
    return sorted(found.standing if standing else found, key=lambda one: (one.origin != "parent", one.seq, one.n))


def _statement_row(one: BriefStatement, width: int) -> tuple[str, str, str, str, str]:
    return str(one.seq), speaker_of(one), one.kind, became(one), one_line(one.text, width)


def speaker_of(one: BriefStatement) -> str:
    """The author of a statement, if known."""
    if one.origin == "parent":
        return f"{one.speaker or 'a person'} in {one.thread_id}"
    if one.origin == "tool":
        return f"{one.speaker or 'the agent'} after a tool"
    return one.speaker or ("the agent" if one.origin == "agent" else "a person")


def became(one: BriefStatement) -> str:
    """The fate of a statement, and the event that decided it."""
    return f"{one.status} by {one.by}" if one.by else one.status


def _declare_pin(parser: argparse.ArgumentParser) -> None:
    add_thread(parser)
    parser.add_argument("text", metavar="TEXT", nargs="?", help="what to keep in every context, word for word")
    parser.add_argument("--chunk", metavar="ID", help="keep the text of this chunk instead")


async def pin(asked: argparse.Namespace, terminal: Terminal) -> int:
    """Keep a text, or that of a chunk, in the brief of every context."""
    if (asked.text is None) == (asked.chunk is None):
        raise WrongArgument("say what to pin: a TEXT, or --chunk ID")
    async with existing(asked.db, plugins=asked.plugins) as engine:
        thread = engine.thread(asked.thread)
        await thread.info()
        receipt = await thread.pin(asked.text if asked.chunk is None else await thread.replay.chunk(asked.chunk))
    put_receipt(terminal, receipt, f"pinned; `memory-engine unpin {asked.thread} {receipt.seq}` takes it out")
    return 0


def _declare_unpin(parser: argparse.ArgumentParser) -> None:
    add_thread(parser)
    parser.add_argument("seq", type=positive, metavar="SEQ", help="the pin's seq (`memory-engine brief` lists them)")
    add_reason(parser)


async def unpin(asked: argparse.Namespace, terminal: Terminal) -> int:
    """Take a pin out of the brief."""
    async with existing(asked.db, plugins=asked.plugins) as engine:
        thread = engine.thread(asked.thread)
        await thread.info()
        receipt = await thread.unpin(asked.seq, reason=asked.reason)
    put_receipt(terminal, receipt, f"the pin of event {asked.seq} is taken out")
    return 0


BRIEF = Command(_declare_brief, brief)
PIN = Command(_declare_pin, pin)
UNPIN = Command(_declare_unpin, unpin)
