"""Long trials of what the engine promises, see docs/guarantees/reliability.md. Exit code 1: a promise was broken."""

import argparse
import asyncio
import json
import random
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import attrs

from tests.soak.flips import FlipReport, flip
from tests.soak.kills import KillReport, kill
from tests.soak.load import LoadReport, strain
from tests.soak.mutations import MutationReport, mutate
from tests.soak.servers import ServerReport, disturb_servers

Report = KillReport | FlipReport | MutationReport | LoadReport | ServerReport


def _arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--kills", type=int, default=0, metavar="N", help="kill processes amid every kind of work")
    parser.add_argument("--flips", type=int, default=0, metavar="N", help="flip bits of a database, and read it")
    parser.add_argument("--tables", default="", metavar="A,B", help="flip in rows of these tables alone")
    parser.add_argument(
        "--mutations", type=int, default=0, metavar="N", help="spoil files of tests/corpus, and read them"
    )
    parser.add_argument(
        "--postgres", type=int, default=0, metavar="N", help="kill and stop processes on a server that crashes, N times"
    )
    parser.add_argument("--minutes", type=float, default=0, metavar="M", help="work on many threads at once")
    parser.add_argument("--threads", type=int, default=50, metavar="N", help="on so many; default: 50")
    parser.add_argument("--seed", type=int, help="the same plan again; default: drawn, and printed")
    parser.add_argument("--json", action="store_true", help="the summary as one line of JSON")
    asked = parser.parse_args(words)
    if not (asked.kills or asked.flips or asked.mutations or asked.minutes or asked.postgres):
        parser.error("say what to do: --kills, --flips, --mutations, --postgres or --minutes")
    if asked.seed is None:
        asked.seed = random.SystemRandom().randrange(1 << 32)
    return asked


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _show(report: Report) -> None:
    """Progress, in a line."""
    done = {
        name: value
        for name, value in attrs.asdict(report).items()
        if isinstance(value, int | float) and value and name != "seed"
    }
    bad = len(report.failures)
    _say(", ".join(f"{name} {value:,.0f}" for name, value in done.items()) + f", failures {bad}")


async def _all(asked: argparse.Namespace, folder: Path) -> dict[str, Report]:
    reports: dict[str, Report] = {}
    if asked.kills:
        reports["kills"] = await kill(asked.kills, asked.seed, folder, _show)
    if asked.flips:
        tables = frozenset(asked.tables.split(",")) if asked.tables else None
        reports["flips"] = await flip(asked.flips, asked.seed, folder, _show, tables)
    if asked.mutations:
        reports["mutations"] = await mutate(asked.mutations, asked.seed, folder, _show)
    if asked.postgres:
        reports["postgres"] = await disturb_servers(asked.postgres, asked.seed, _show)
    if asked.minutes:
        with tempfile.TemporaryDirectory() as own:
            reports["load"] = await strain(asked.minutes * 60, asked.threads, Path(own), _show)
    return reports


def main(words: Sequence[str] | None = None) -> int:
    """Do what is asked for; the exit code."""
    asked = _arguments(words)
    _say(f"seed {asked.seed}")
    folder = Path(tempfile.mkdtemp(prefix="memory-engine-soak-"))
    reports = asyncio.run(_all(asked, folder))
    if asked.json:
        print(json.dumps({name: attrs.asdict(report) for name, report in reports.items()}))
    else:
        for name, report in reports.items():
            for key, value in attrs.asdict(report).items():
                print(f"{name} {key}: " + ("".join(f"\n  {one}" for one in value) if key == "failures" else f"{value}"))
    if not any(folder.iterdir()):
        folder.rmdir()
    return 0 if all(report.ok for report in reports.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
