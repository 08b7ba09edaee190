"""Long trials of what the engine promises: `python -m tests.soak --help`. Exit code 1: a promise was broken."""

import argparse
import asyncio
import json
import random
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import attrs

from tests.soak.kills import KillReport, kill


def _arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--kills", type=int, default=0, metavar="N", help="kill processes amid their work")
    parser.add_argument("--seed", type=int, help="the same plan again; default: drawn, and printed")
    parser.add_argument("--json", action="store_true", help="the summary as one line of JSON")
    asked = parser.parse_args(words)
    if asked.seed is None:
        asked.seed = random.SystemRandom().randrange(1 << 32)
    return asked


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _show_kills(report: KillReport) -> None:
    _say(f"{report.kills} kills, {report.acknowledged} acknowledged, {len(report.failures)} bad files")


def main(words: Sequence[str] | None = None) -> int:
    """Do what is asked for; the exit code."""
    asked = _arguments(words)
    _say(f"seed {asked.seed}")
    folder = Path(tempfile.mkdtemp(prefix="memory-engine-soak-"))
    reports: dict[str, KillReport] = {}
    if asked.kills:
        reports["kills"] = asyncio.run(kill(asked.kills, asked.seed, folder, _show_kills))
    if asked.json:
        print(json.dumps({name: attrs.asdict(report) for name, report in reports.items()}))
    else:
        for name, report in reports.items():
            for key, value in attrs.asdict(report).items():
                print(f"{name} {key}: {value}")
    if not any(folder.iterdir()):
        folder.rmdir()
    return 0 if all(report.ok for report in reports.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
