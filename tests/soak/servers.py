"""Processes share a PostgreSQL database while they, and the server, die and sleep: see `tests.postgres.chaos`."""

import asyncio
import random
import signal
import time
import traceback
from collections.abc import Callable

from attrs import define, field

from tests.postgres.chaos import Crowd, crowd
from tests.postgres_cluster import Cluster, running

MOVES = ("kill", "kill", "restart", "sleep")
ROUNDS = 20


@define
class ServerReport:
    """What became of all trials, each a schema of its own with four processes and sixteen threads."""

    seed: int
    trials: int = 0
    acknowledged: int = 0
    compactions: int = 0
    kills: int = 0
    restarts: int = 0
    sleeps: int = 0
    failures: list[str] = field(factory=list)
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether every database held what was promised."""
        return not self.failures


Progress = Callable[[ServerReport], None]


async def disturb_servers(trials: int, seed: int, progress: Progress) -> ServerReport:
    """So many trials, one after the other, on one server. Raises `NoServer`."""
    report, began = ServerReport(seed), time.monotonic()
    with running() as cluster:
        for n in range(trials):
            await _trial(report, cluster, random.Random(f"{seed}/{n}"))
            report.seconds = time.monotonic() - began
            progress(report)
    return report


async def _trial(report: ServerReport, cluster: Cluster, dice: random.Random) -> None:
    async def disturb(all_of_them: Crowd) -> None:
        for _ in range(12):
            await all_of_them.more(dice.randint(1, 200))
            alive = [child for child in all_of_them.children if child.returncode is None]
            if not alive:
                return
            move, child = dice.choice(MOVES), dice.choice(alive)
            if move == "kill":
                report.kills += 1
                all_of_them.kill(child)
                await all_of_them.join(lease_s=dice.choice((0.2, 30.0)))
            elif move == "restart":
                report.restarts += 1
                await asyncio.to_thread(cluster.restart, "immediate")
            else:
                report.sleeps += 1
                child.send_signal(signal.SIGSTOP)
                await asyncio.sleep(dice.uniform(0.1, 1.0))
                if child.returncode is None:
                    child.send_signal(signal.SIGCONT)

    report.trials += 1
    try:
        done = await crowd(cluster.new_url(), disturb, rounds=ROUNDS)
    except Exception as error:  # one trial's verdict: it is counted, and the others go on
        where = traceback.extract_tb(error.__traceback__)[-1]
        report.failures.append(f"trial {report.trials - 1}: {where.name}: {where.line} {error!r:.300}")
    else:
        report.acknowledged += len(done.acknowledged)
        report.compactions += done.compactions
