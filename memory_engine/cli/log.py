"""The command that prints events: of a thread or with a correlation id, and, with `--follow`, as they come."""

import argparse
from collections.abc import AsyncIterator, Callable, Container, Sequence
from functools import partial

from attrs import frozen

from memory_engine.cli.commands import Command, WrongArgument, existing, positive, whole
from memory_engine.cli.options import did_you_mean
from memory_engine.cli.terminal import Terminal
from memory_engine.core.excerpts import columns, of_event, one_line, padded
from memory_engine.core.records import RecordedEvent, StoredEvent
from memory_engine.engine import Engine, kernel_of
from memory_engine.errors import ThreadNotFound
from memory_engine.replay.data import event_as_data
from memory_engine.runtime.following import Lookout
from memory_engine.store.protocol import ThreadFilter

WIDE = 100
"""Columns from which a log shows dates too."""
NEW_FEW = 64
"""How many of a correlation's latest events are read to find new ones, before all are."""
PIECE_FIRST = 64
"""Events that are read of a thread's end at first, where its latest are asked for."""
INDEXED_MAX = 512
"""With fewer events than this of a correlation id, those of a thread are read by their seqs alone."""
THREAD_COLUMNS = 24
UNCUT = 4096


def _declare_log(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("thread", metavar="THREAD", nargs="?", help="a thread's id; not needed with --correlation")
    parser.add_argument("--after", type=whole, metavar="N", help="only events after seq N")
    parser.add_argument(
        "--limit", type=positive, metavar="N", help="only N events: the latest, or with --after the first"
    )
    parser.add_argument("--type", metavar="T", help="only events of this type")
    parser.add_argument("--correlation", metavar="ID", help="only events with this correlation id, of all threads")
    parser.add_argument(
        "--tenant",
        default="",
        metavar="T",
        help="with --correlation: threads of exactly this tenant (without: threads that have none)",
    )
    parser.add_argument("--causation", metavar="EVENT", help="only events that this event's id caused")
    parser.add_argument("--follow", action="store_true", help="then print new events as they come (Ctrl-C ends it)")


async def log(asked: argparse.Namespace, terminal: Terminal) -> int:
    """Print events in order."""
    if asked.thread is None and asked.correlation is None:
        raise WrongArgument("name a THREAD (`memory-engine threads` lists them), or give --correlation ID")
    if asked.thread is None and asked.after is not None:
        raise WrongArgument("--after is a seq within one thread: name the THREAD")
    if asked.tenant and asked.thread is not None:
        raise WrongArgument("--tenant is for --correlation: a THREAD has one tenant")
    if asked.follow and asked.after is not None and asked.limit is not None:
        raise WrongArgument("--limit with --after gives the first events, --follow the newest: leave one of them out")
    async with existing(asked.db, read_only=True, plugins=asked.plugins) as engine:
        await _check_type(engine, asked)
        source = _of_thread if asked.thread is not None else _of_all_threads
        async for recorded in source(engine, asked, terminal):
            if terminal.as_json:
                terminal.json(event_as_data(recorded))
            else:
                _put_event(recorded, terminal, with_thread=asked.thread is None)
            if asked.follow:
                terminal.out.flush()
    return 0


async def _check_type(engine: Engine, asked: argparse.Namespace) -> None:
    """Refuse a type that is neither known nor recorded (as one of a missing plug-in may be)."""
    registry = kernel_of(engine).events
    if asked.type is None or registry.has_type(asked.type):
        return
    if asked.thread is not None:
        head = (await kernel_of(engine).store.head(asked.thread)).seq
        async for _ in kernel_of(engine).reader.walk(asked.thread, upto=head, types={asked.type}, raw=True):
            return
    elif any(one.type == asked.type for one in await engine.correlated(asked.correlation, tenant_id=asked.tenant)):
        return
    known = [cls.event_type for cls in registry.classes()]
    near = did_you_mean(asked.type, known) or "; `memory-engine log` shows the types of a thread's events"
    raise WrongArgument(f"there is no event type {asked.type!r}{near}")


async def _of_thread(engine: Engine, asked: argparse.Namespace, terminal: Terminal) -> AsyncIterator[RecordedEvent]:
    """A thread's events that match; with `--follow` also later ones, until the thread is deleted."""
    types = frozenset({asked.type}) if asked.type else None
    head = (await kernel_of(engine).store.head(asked.thread)).seq
    events = _Events(engine, asked.thread, _event_filter(asked), types, await _few_correlated(engine, asked))
    async for recorded in events.chosen(asked.after, asked.limit, head):
        yield recorded
    if not asked.follow:
        return
    try:
        async for recorded in engine.thread(asked.thread).follow(after=head):
            if events.is_wanted(recorded):
                yield recorded
    except ThreadNotFound:
        terminal.warn("the thread was deleted")


async def _few_correlated(engine: Engine, asked: argparse.Namespace) -> frozenset[int] | None:
    """The seqs of the thread's events with the correlation id, by the store's index; `None`: look through the log.

    Many are found as fast by looking, and events that a fork shares are found in the thread that recorded them.
    """
    if asked.correlation is None:
        return None
    store = kernel_of(engine).store
    for record, _ in await store.threads(ThreadFilter(id=asked.thread)):
        found = await kernel_of(engine).store.correlated(
            asked.correlation, limit=INDEXED_MAX, tenant_id=record.tenant_id
        )
        if record.forked_from is None and len(found) < INDEXED_MAX:
            return frozenset(stored.seq for thread_id, stored in found if thread_id == record.id)
    return None


async def _of_all_threads(engine: Engine, asked: argparse.Namespace, _: Terminal) -> AsyncIterator[RecordedEvent]:
    """The events with the correlation id, in the order of recording."""
    wanted, seen, lookout = _event_filter(asked), set[tuple[str, int]](), Lookout(kernel_of(engine))
    latest: int | None = asked.limit
    found: list[RecordedEvent] | None = await _newly_correlated(engine, asked, seen)
    while found is not None:
        seen.update((one.thread_id, one.seq) for one in found)
        chosen = [one for one in found if wanted(one)]
        for recorded in chosen if latest is None else chosen[-latest:]:
            yield recorded
        if not asked.follow:
            return
        latest = None
        found = await lookout.until(partial(_news_of, engine, asked, seen))


async def _news_of(
    engine: Engine, asked: argparse.Namespace, seen: Container[tuple[str, int]]
) -> list[RecordedEvent] | None:
    return await _newly_correlated(engine, asked, seen) or None


async def _newly_correlated(
    engine: Engine, asked: argparse.Namespace, seen: Container[tuple[str, int]]
) -> list[RecordedEvent]:
    """The unseen events with the id. While few are new, only the latest are read."""
    found: list[RecordedEvent] = []
    for limit in (NEW_FEW, None):
        found = await engine.correlated(asked.correlation, tenant_id=asked.tenant, limit=limit)
        if len(found) < NEW_FEW or (found[0].thread_id, found[0].seq) in seen:
            break
    return [one for one in found if (one.thread_id, one.seq) not in seen]


def _event_filter(asked: argparse.Namespace) -> Callable[[StoredEvent | RecordedEvent], bool]:
    def is_wanted(recorded: StoredEvent | RecordedEvent) -> bool:
        return (
            asked.type in (None, recorded.type)
            and asked.correlation in (None, recorded.correlation_id)
            and asked.causation in (None, recorded.causation_id)
        )

    return is_wanted


@frozen
class _Events:
    """A thread's events that match."""

    engine: Engine
    thread_id: str
    is_wanted: Callable[[StoredEvent | RecordedEvent], bool]
    types: frozenset[str] | None
    seqs: frozenset[int] | None
    """The only ones that may match, where they are known."""

    async def between(self, after: int, upto: int) -> AsyncIterator[RecordedEvent]:
        """Those with `after` < seq <= `upto`, in order. Rows that do not match are not decoded."""
        reader = kernel_of(self.engine).reader
        async for stored in self._rows(after, upto):
            if self.is_wanted(stored):
                yield reader.decode(self.thread_id, stored)

    async def _rows(self, after: int, upto: int) -> AsyncIterator[StoredEvent]:
        reader = kernel_of(self.engine).reader
        if self.seqs is None:
            async for stored in reader.walk(self.thread_id, after=after, upto=upto, types=self.types):
                yield stored
        else:
            found = await reader.rows_at(self.thread_id, {seq for seq in self.seqs if after < seq <= upto})
            for seq in sorted(found):
                yield found[seq]

    async def chosen(self, after: int | None, limit: int | None, head: int) -> AsyncIterator[RecordedEvent]:
        """Those after a seq, at most the first `limit`; without a seq, the latest."""
        if limit is not None and after is None:
            for recorded in await self._latest(limit, head):
                yield recorded
            return
        given = 0
        async for recorded in self.between(after or 0, head):
            yield recorded
            given += 1
            if given == limit:
                return

    async def _latest(self, limit: int, head: int) -> Sequence[RecordedEvent]:
        """The latest ones, in order: read from the end, in pieces that grow while too few match."""
        found: list[RecordedEvent] = []
        upto, size = head, max(limit, PIECE_FIRST) if self.seqs is None else head
        while upto and len(found) < limit:
            after = max(0, upto - size)
            found = [recorded async for recorded in self.between(after, upto)] + found
            upto, size = after, size * 2
        return found[-limit:]


def _put_event(recorded: RecordedEvent, terminal: Terminal, *, with_thread: bool) -> None:
    moment = f"{recorded.recorded_at:%Y-%m-%d %H:%M:%S}"
    place = f"{recorded.seq:>6}  {moment if terminal.width >= WIDE else moment[-8:]}  "
    if with_thread:
        thread_id = one_line(recorded.thread_id, THREAD_COLUMNS if terminal.is_terminal else UNCUT)
        place = f"{padded(thread_id, THREAD_COLUMNS)}  {place}"
    kind = padded(one_line(recorded.type, 40), 20)
    room = max(20, terminal.width - columns(place) - columns(kind) - 2)
    said = one_line(of_event(recorded.event), room)
    terminal.put(f"{terminal.styled(place, 'dim')}{terminal.styled(kind, 'cyan')}  {said}".rstrip())


LOG = Command(_declare_log, log)
