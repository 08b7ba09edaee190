"""The commands of the brief: brief, pin and unpin."""

import argparse

from memory_engine.cli.commands import AT, REASON, Command, Option, WrongArgument, always, positive
from memory_engine.cli.life import receipt_printout
from memory_engine.core.excerpts import counted
from memory_engine.reports import Column, Printout, line, table_of
from memory_engine.thread import Thread
from memory_engine.views.brief.view import Brief, BriefStatement


async def brief(thread: Thread, asked: argparse.Namespace) -> Printout:
    """What people said in a thread, what became of each statement, and the pins."""
    found = await thread.brief.read(at=asked.at)
    shown = in_time(found, standing=asked.standing)
    counts = f"{len(found.standing)} of {counted(len(found), 'statement')} still stand"
    head = line(f"{counts} in {found.thread_id} at event {found.seq}", "bold")
    heads = [Column("SEQ", right=True), Column("SPEAKER", least=8), Column("KIND"), Column("STATUS")]
    rows = [(str(one.seq), speaker_of(one), one.kind, became(one), one.text) for one in shown]
    table = table_of([*heads, Column("TEXT", least=20, cut=True)], rows)
    return Printout(found.as_data() | {"statements": shown}, [head, table])


def in_time(found: Brief, *, standing: bool = False) -> list[BriefStatement]:
    """The statements of a brief in the order of time, those of an agent that leads first."""
    return sorted(found.standing if standing else found, key=lambda one: (one.origin != "parent", one.seq, one.n))


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


def _names_a_text(asked: argparse.Namespace) -> None:
    if (asked.text is None) == (asked.chunk is None):
        raise WrongArgument("say what to pin: a TEXT, or --chunk ID")


async def pin(thread: Thread, asked: argparse.Namespace) -> Printout:
    """Keep a text, or that of a chunk, in the brief of every context."""
    receipt = await thread.pin(asked.text if asked.chunk is None else await thread.replay.chunk(asked.chunk))
    return receipt_printout(receipt, f"pinned; `memory-engine unpin {asked.thread} {receipt.seq}` takes it out")


async def unpin(thread: Thread, asked: argparse.Namespace) -> Printout:
    """Take a pin out of the brief."""
    receipt = await thread.unpin(asked.seq, reason=asked.reason)
    return receipt_printout(receipt, f"the pin of event {asked.seq} is taken out")


BRIEF = Command.of_thread(brief, AT, Option.flag("--standing", "only statements that are not spent"))
PIN = Command.of_thread(
    pin,
    Option.word("text", "TEXT", "what to keep in every context, word for word"),
    Option.value("--chunk", "ID", "keep the text of this chunk instead"),
    writes=always,
    check=_names_a_text,
)
UNPIN = Command.of_thread(
    unpin,
    Option.value("seq", "SEQ", "the pin's seq (`memory-engine brief` lists them)", positive),
    REASON,
    writes=always,
)
