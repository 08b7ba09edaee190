"""The command that searches threads."""

import argparse
import textwrap

from memory_engine.cli.commands import Command, WrongArgument, positive, whole
from memory_engine.cli.databases import existing
from memory_engine.cli.terminal import Terminal
from memory_engine.cli.text import escaped
from memory_engine.engine import Engine
from memory_engine.recall.found import Found, Hit

WIDTH_MAX = 100
_INDENT = "   "


def _declare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("query", metavar="QUERY", help="what is looked for: a question, or words")
    parser.add_argument("--thread", metavar="THREAD", action="append", help="search this thread (may be repeated)")
    parser.add_argument("--user", metavar="USER", help="search the threads of exactly this user")
    parser.add_argument("--tenant", metavar="TENANT", help="search the threads of exactly this tenant")
    parser.add_argument("--kind", metavar="KIND", action="append", help="only passages of this kind (may be repeated)")
    parser.add_argument("--limit", type=positive, default=10, metavar="N", help="so many hits (default: 10)")
    parser.add_argument("--at", type=whole, metavar="SEQ", help="as of this event, of the one thread that is searched")
    parser.add_argument("--explain", action="store_true", help="show what each signal added to the score")


async def search(asked: argparse.Namespace, terminal: Terminal) -> int:
    """Search threads for passages, best first."""
    threads: list[str] = asked.thread or []
    if bool(threads) == bool(asked.user or asked.tenant):
        raise WrongArgument("say what is searched: --thread, or --user and --tenant")
    if asked.at is not None and len(threads) != 1:
        raise WrongArgument("--at is a seq of one thread: give one --thread with it")
    async with existing(asked.db) as engine:
        found = await _found(engine, threads, asked)
    terminal.json(
        {
            "query": found.query,
            "how": found.how,
            "failure": found.failure,
            "waiting": found.waiting,
            "hits": [_as_json(hit) for hit in found],
        }
    )
    _put(found, terminal)
    return 0


async def _found(engine: Engine, threads: list[str], asked: argparse.Namespace) -> Found:
    kinds = tuple(asked.kind or ())
    if asked.at is not None:
        thread = engine.thread(threads[0])
        try:
            return await thread.search(asked.query, limit=asked.limit, kinds=kinds, at=asked.at, explain=asked.explain)
        except ValueError as error:
            raise WrongArgument(str(error)) from None
    return await engine.search(
        asked.query,
        thread_ids=threads or None,
        user_id=asked.user,
        tenant_id=asked.tenant or "",
        limit=asked.limit,
        kinds=kinds,
        explain=asked.explain,
    )


def _as_json(hit: Hit) -> dict[str, object]:
    return {
        "text": hit.text,
        "kind": hit.kind,
        "role": hit.role,
        "speaker": hit.speaker,
        "about": hit.about,
        "at": hit.at.isoformat(),
        "thread_id": hit.thread_id,
        "seq": hit.seq,
        "event_id": hit.event_id,
        "event_type": hit.event_type,
        "key": hit.key,
        "score": hit.score,
        "why": hit.why,
        "parts": dict(hit.parts),
        "alike": list(hit.alike),
    }


def _put(found: Found, terminal: Terminal) -> None:
    if not found:
        terminal.say("nothing was found")
    several = len({hit.thread_id for hit in found}) > 1
    room = min(terminal.width, WIDTH_MAX) - len(_INDENT)
    for n, hit in enumerate(found, 1):
        where = f"{hit.thread_id} {hit.seq}" if several else f"event {hit.seq}"
        facts = (where, hit.kind, hit.speaker or hit.role, f"{hit.at:%Y-%m-%d}", f"{hit.score:.2f}")
        terminal.put(f"{n:>2} {terminal.styled(escaped(' · '.join(filter(None, facts))), 'bold')}")
        for line in textwrap.wrap(escaped(" ".join(hit.text.split())), room):
            terminal.put(_INDENT + line)
        parts = sorted(hit.parts.items(), key=lambda part: -part[1])
        said = ", ".join(f"{name} {value:.3f}" for name, value in parts if value) or hit.why
        terminal.put(_INDENT + terminal.styled(said, "dim"))
    if found.failure:
        terminal.warn(f"found by words alone: {found.failure}")


SEARCH = Command("search", "search threads: what was said, done, remembered", _declare, search)
