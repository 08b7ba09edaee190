"""The commands that continue a log in a fork: fork, what-if."""

import argparse
import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from memory_engine.cli.commands import (
    MOMENT,
    Command,
    Option,
    WrongArgument,
    add_thread,
    always,
    chosen_plugins,
    existing,
    moment,
    positive,
    whole,
)
from memory_engine.cli.terminal import Progress, Terminal
from memory_engine.compaction.applied import applied_policy
from memory_engine.compaction.base import Compactor
from memory_engine.compaction.service import CompactionService
from memory_engine.core.bounded import read_file
from memory_engine.core.events.registry import EventRegistry
from memory_engine.core.json_form import named
from memory_engine.core.records import NewEvent
from memory_engine.core.threads import CompactionPolicy
from memory_engine.engine import Engine, kernel_of
from memory_engine.ingest.events import EventReader, UnusableRecord
from memory_engine.plugins import Plugin
from memory_engine.replay.what_if import Change, try_change
from memory_engine.replay.what_if.calls import Prices
from memory_engine.replay.what_if.change import Edit, InsertEvent, ReplaceEvent, SkipEvent
from memory_engine.reports import Printout, line
from memory_engine.thread import Thread, handle_of
from memory_engine.wiring import model_compactor


async def fork(thread: Thread, asked: argparse.Namespace) -> Printout:
    """Make a thread that shares another's past."""
    past = await thread.at((await thread.info()).events if asked.at is None else asked.at)
    made = await past.fork(thread_id=asked.id)
    said = f"{made.id} shares the past of {thread.id} up to event {past.seq}, and has its own future"
    return Printout({"thread_id": thread.id, "fork_id": made.id, "at": past.seq}, [line(said)])


def _declare_what_if(parser: argparse.ArgumentParser) -> None:
    add_thread(parser)
    edits = parser.add_argument_group("edits, by the seqs of the thread's log")
    edits.add_argument("--skip", type=positive, action="append", default=[], metavar="SEQ", help="leave this event out")
    edits.add_argument(
        "--replace", nargs=2, action="append", default=[], metavar=("SEQ", "FILE"), help="replace it with another"
    )
    edits.add_argument(
        "--insert", nargs=2, action="append", default=[], metavar=("SEQ", "FILE"), help="insert an event after it"
    )
    add_policy(parser)
    how = parser.add_argument_group("how it is compacted")
    how.add_argument("--compactor", metavar="NAME", help="a registered compactor: embedded, or a plug-in's")
    add_models(how)
    parser.add_argument("--upto", type=moment, metavar="MOMENT", help=f"only the log up to: {MOMENT}")
    parser.add_argument("--max-tokens", type=positive, metavar="N", help="the token budget of the measured contexts")
    parser.add_argument("--keep", action="store_true", help="keep the run as a fork (default: run in memory)")
    parser.add_argument("--fork-id", default="", metavar="ID", help="keep it as a fork of this id")
    prices = parser.add_argument_group("prices, in USD for a million tokens")
    for what in ("input", "cached-input", "output"):
        prices.add_argument(f"--price-{what}", type=_price, metavar="USD")


def add_policy(parser: argparse.ArgumentParser) -> None:
    """The options for a compaction policy."""
    policy = parser.add_argument_group("when it is compacted (defaults: the policy that the log was compacted by)")
    policy.add_argument("--window", type=positive, metavar="N", help="as by default for a model that takes N tokens")
    policy.add_argument("--threshold", type=positive, metavar="N", help="at N chunks, whatever their tokens")
    policy.add_argument("--tokens-min", type=whole, metavar="N", help="if these take N tokens")
    policy.add_argument("--soft-tokens", type=positive, metavar="N", help="over N tokens")
    policy.add_argument("--hard-tokens", type=positive, metavar="N", help="before a context, over N tokens")
    policy.add_argument("--keep-recent", type=whole, metavar="N", help="keep the newest N as they are")
    policy.add_argument("--ratio", type=_ratio, metavar="R", help="to this share of the tokens, such as 0.2")
    policy.add_argument("--no-compaction", action="store_true", help="never")


def add_models(group: argparse._ArgumentGroup) -> None:
    """The options that allow model calls."""
    group.add_argument("--model", metavar="NAME", help="ask this model for summaries (litellm's name for it)")
    group.add_argument("--call-models", action="store_true", help="allow model calls, which cost time and money")


def _price(text: str) -> float:
    value = float(text)
    if not 0 <= value < 1e6:
        raise argparse.ArgumentTypeError(f"{text} is not a price")
    return value


def _ratio(text: str) -> float:
    value = float(text)
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not between 0 and 1")
    return value


_price.__name__ = "price"
_ratio.__name__ = "ratio"


def policy_of(asked: argparse.Namespace, base: CompactionPolicy) -> CompactionPolicy | None:
    """`base`, or the default for the given window, with the changes that the options ask for; `None` without any."""
    if asked.no_compaction:
        return CompactionPolicy(enabled=False)
    if asked.window is not None:
        base = CompactionPolicy.for_window(asked.window)
    names = ("threshold", "tokens_min", "soft_tokens", "hard_tokens", "keep_recent", "ratio")
    given = {name: value for name in names if (value := getattr(asked, name)) is not None}
    if not given and asked.window is None:
        return None
    if asked.threshold is not None:
        given.setdefault("tokens_min", 0)
    return replace(base, **given)


def compactor_named(name: str, registered: Sequence[Compactor]) -> Compactor:
    """The registered compactor of a name. Raises `WrongArgument`, which names the registered ones."""
    known = {compactor.name: compactor for compactor in reversed(registered)}
    if name not in known:
        raise WrongArgument(f"there is no compactor {name!r}; there are {', '.join(sorted(known))}")
    return known[name]


def registered_compactors(engine: Engine, plugins: Sequence[Plugin]) -> list[Compactor]:
    """Those of the engine, and those that plug-ins bring."""
    return [
        *kernel_of(engine)[CompactionService].compactors,
        *(compactor for plugin in plugins for compactor, _ in plugin.compactors),
    ]


def check_model(asked: argparse.Namespace) -> None:
    """Raise `WrongArgument` if a model is named but must not be called."""
    if asked.model and not asked.call_models:
        raise WrongArgument("--model calls a model, which costs time and money: add --call-models to allow it")


async def what_if(asked: argparse.Namespace, terminal: Terminal) -> int:
    """Run a thread's log again in memory, or into a fork, and print the outcome."""
    check_model(asked)
    if asked.model and asked.compactor:
        raise WrongArgument("--model and --compactor: name one of them")
    keeps = asked.keep or bool(asked.fork_id)
    async with existing(asked.db, read_only=not keeps) as engine:
        thread = engine.thread(asked.thread)
        await thread.info()
        change = await _change(asked, engine)
        ran = partial(thread.replay.what_if, fork_id=asked.fork_id) if keeps else partial(try_change, handle_of(thread))
        with Progress("running again", terminal) as progress:
            report = await ran(change, progress=lambda done: progress.update({"events": done}))
    terminal.show(report if keeps else Printout(report.as_data() | named(report, "calls_shared turns"), [report.drawn]))
    if not keeps:
        terminal.say("nothing was written: --keep writes the run as a fork")
    return 0


async def _change(asked: argparse.Namespace, engine: Engine) -> Change:
    plugins = chosen_plugins(asked.plugins)
    loaded = await kernel_of(engine).store.load(asked.thread, sources=False)
    applied = await applied_policy(kernel_of(engine).reader, loaded.record, loaded.head.seq, engine.config.compaction)
    compactor: Compactor | None = None
    if asked.model:
        compactor = model_compactor(asked.model)
    elif asked.compactor:
        compactor = compactor_named(asked.compactor, registered_compactors(engine, plugins))
    return Change(
        edits=_edits(asked, _registry(engine, plugins)),
        plugins=plugins,
        policy=policy_of(asked, applied),
        compactor=compactor,
        call_models=asked.call_models,
        upto=asked.upto,
        max_tokens=asked.max_tokens,
        prices=_prices(asked),
    )


def _registry(engine: Engine, plugins: Sequence[Plugin]) -> EventRegistry:
    registry = engine.events.copy()
    for plugin in plugins:
        for cls in plugin.events:
            registry.register(cls)
    return registry


def _prices(asked: argparse.Namespace) -> Prices | None:
    given = (asked.price_input, asked.price_cached_input, asked.price_output)
    if all(price is None for price in given):
        return None
    if asked.price_input is None:
        raise WrongArgument("prices need --price-input")
    return Prices(input=asked.price_input, cached_input=asked.price_cached_input, output=asked.price_output or 0.0)


def _edits(asked: argparse.Namespace, registry: EventRegistry) -> list[Edit]:
    edits: list[Edit] = [SkipEvent(seq) for seq in asked.skip]
    for seq, path in asked.replace:
        edits.append(ReplaceEvent(_parsed_seq("--replace", seq), _event(asked.thread, path, registry).event))
    for seq, path in asked.insert:
        edits.append(InsertEvent(_parsed_seq("--insert", seq), _event(asked.thread, path, registry)))
    return edits


def _parsed_seq(option: str, text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise WrongArgument(f"{option} {text}: the first is the seq of an event")
    return int(text)


def _event(thread_id: str, path: str, registry: EventRegistry) -> NewEvent:
    """The event in a file: an object as `log --json` prints it, without the seq. Raises `OSError`, `WrongArgument`."""
    try:
        value = json.loads(read_file(Path(path)).decode())
        new = EventReader(thread_id, registry).read(value, 1).events[0]
    except (ValueError, UnusableRecord) as error:
        raise WrongArgument(f"{path}: {error}") from None
    return new if value.get("id") else replace(new, id="")


FORK = Command.of_thread(
    fork,
    Option.value("--at", "MOMENT", f"where it starts: {MOMENT} (default: the end)", moment),
    Option.value("--id", "ID", "the fork's id (default: a new one)", default=""),
    writes=always,
)
WHAT_IF = Command(_declare_what_if, what_if)
