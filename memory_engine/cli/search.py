"""The command that searches threads."""

import argparse
from collections.abc import Iterator

from memory_engine.cli.commands import NEAR_MAX, Command, WrongArgument, always, positive, time, whole
from memory_engine.cli.options import did_you_mean
from memory_engine.core.json_form import named
from memory_engine.engine import Engine
from memory_engine.recall.hits import KINDS, Found, hit_lines
from memory_engine.reports import Line, Paper, Printout, line

WIDTH_MAX = 100


def _declare_thread_search(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("within", metavar="THREAD", nargs="?", help="search this thread (default: as --thread)")
    parser.add_argument("query", metavar="QUERY", help="a question, or words in quotes")
    parser.add_argument(
        "--thread",
        metavar="THREAD",
        action="append",
        help="search this thread (may be repeated; default: all that have no tenant)",
    )
    parser.add_argument("--user", metavar="USER", help="search all threads of exactly this user")
    parser.add_argument(
        "--tenant", metavar="TENANT", help="... of exactly this tenant (without: threads that have none)"
    )
    parser.add_argument(
        "--kind",
        metavar="KIND",
        action="append",
        help=f"only passages of this kind (may be repeated): {', '.join(KINDS)}, or one of your own",
    )
    parser.add_argument("--limit", type=positive, default=10, metavar="N", help="at most N hits (default: 10)")
    parser.add_argument("--at", type=whole, metavar="SEQ", help="as of this event (with one THREAD)")
    parser.add_argument("--as-of", type=time, metavar="TIME", help="what was true then (UTC unless it names its zone)")
    parser.add_argument(
        "--min-trust",
        metavar="ORIGIN",
        help="leave out what has a lower origin: operator, person, agent, imported or tool",
    )
    parser.add_argument("--explain", action="store_true", help="show what each signal added to the score")


def _threads(asked: argparse.Namespace) -> list[str]:
    return [*([] if asked.within is None else [asked.within]), *(asked.thread or [])]


def _check(asked: argparse.Namespace) -> None:
    threads = _threads(asked)
    if threads and (asked.user or asked.tenant):
        raise WrongArgument("name what to search: a THREAD, or --user and --tenant, not both")
    if asked.at is not None and len(threads) != 1:
        raise WrongArgument("--at is a seq within one thread: give one THREAD with it")
    if asked.at is not None and asked.as_of is not None:
        raise WrongArgument("give --at or --as-of, not both")


async def search(engine: Engine, asked: argparse.Namespace) -> Printout:
    """Passages of threads, best first."""
    threads = _threads(asked)
    found = await _search_hits(engine, threads, asked)
    why_nothing = "" if found else await _why_nothing(engine, threads, asked)
    data = {
        **named(found, "query how failure waiting unindexed missing unread untrusted"),
        "hits": list(found),
        "reason": why_nothing,
    }

    def drawn(paper: Paper) -> Iterator[Line]:
        if not found:
            yield line(why_nothing)
        yield from hit_lines(found, width=min(paper.width, WIDTH_MAX), several=len(threads) != 1)
        if found.untrusted:
            yield line(f"{found.untrusted} of a lower origin were left out")

    return Printout(data, [drawn], warnings=[f"found by words alone: {found.failure}"] if found.failure else [])


async def _why_nothing(engine: Engine, threads: list[str], asked: argparse.Namespace) -> str:
    """Says that nothing was found, and what may be wrong with the query."""
    if not threads and not await engine.threads(user_id=asked.user, tenant_id=asked.tenant or "", limit=1):
        whose = f"of user {asked.user} " if asked.user else ""
        where = f"in tenant {asked.tenant}" if asked.tenant else "without a tenant"
        how = "; --tenant names one, --thread a thread" if not asked.tenant else ""
        near = await _near_scope(engine, asked)
        return f"no thread {whose}{where}: nothing was searched{how}{near or '; `threads` lists those there are'}"
    unknown = [kind for kind in asked.kind or () if kind not in KINDS]
    if not unknown:
        return "nothing was found"
    near = did_you_mean(unknown[0], KINDS)
    return f"nothing was found{near}" if near else f"nothing was found (embedded kinds are {', '.join(KINDS)})"


async def _near_scope(engine: Engine, asked: argparse.Namespace) -> str:
    """Users or tenants of the latest threads whose names are like the one that has none; "" if none is."""
    found = await engine.threads(order="updated", limit=NEAR_MAX)
    if asked.tenant:
        return did_you_mean(asked.tenant, {info.tenant_id for info in found} - {"", asked.tenant})
    return did_you_mean(asked.user or "", {info.user_id for info in found} - {"", asked.user})


async def _search_hits(engine: Engine, threads: list[str], asked: argparse.Namespace) -> Found:
    kinds = tuple(asked.kind or ())
    if asked.at is not None:
        thread = engine.thread(threads[0])
        try:
            return await thread.search(
                asked.query,
                limit=asked.limit,
                kinds=kinds,
                at=asked.at,
                explain=asked.explain,
                min_trust=asked.min_trust,
            )
        except ValueError as error:
            raise WrongArgument(str(error)) from None
    return await engine.search(
        asked.query,
        thread_ids=threads or None,
        user_id=asked.user,
        tenant_id=asked.tenant or "",
        limit=asked.limit,
        kinds=kinds,
        as_of=asked.as_of,
        explain=asked.explain,
        min_trust=asked.min_trust,
    )


SEARCH = Command.of_store(search, _declare_thread_search, writes=always, check=_check, busy="searching")
