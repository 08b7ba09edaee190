"""Four processes write to sixteen threads, through deaths of theirs and the server's: nothing acknowledged is lost."""

import asyncio
import random
import signal
from collections.abc import Iterator

import pytest

from tests.depth import DEEP
from tests.postgres.chaos import Crowd, crowd, kill_now_and_then
from tests.postgres_cluster import Cluster, NoServer, running

TIMES, ROUNDS = (3, 3) if DEEP else (2, 2)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A server of the module's own, to be crashed."""
    try:
        with running() as cluster:
            yield cluster
    except NoServer as why:
        pytest.skip(str(why))


async def test_four_processes_on_sixteen_threads(cluster: Cluster) -> None:
    """Every event of each is there once, in its order, amid compactions of all."""
    done = await crowd(cluster.new_url(), rounds=ROUNDS)
    assert len(done.begun) == 4 * 16 * ROUNDS
    assert {event_id for ids in done.begun for event_id in ids} == set(done.acknowledged)
    assert done.compactions


async def test_processes_are_killed(cluster: Cluster) -> None:
    """Others come in their places; what the dead were told is there, and what they were not told is there or not."""
    dice = random.Random(random.SystemRandom().randrange(1 << 32))

    async def disturb(crowd: Crowd) -> None:
        await kill_now_and_then(crowd, dice, TIMES)

    done = await crowd(cluster.new_url(), disturb, rounds=ROUNDS)
    assert done.deaths
    assert done.acknowledged


async def test_the_server_crashes(cluster: Cluster) -> None:
    """Every process waits for it, asks what became of its commits, and goes on."""

    async def disturb(crowd: Crowd) -> None:
        for _ in range(TIMES - 1):
            await crowd.more(20)
            await asyncio.to_thread(cluster.restart, "immediate")

    done = await crowd(cluster.new_url(), disturb, rounds=ROUNDS)
    assert {event_id for ids in done.begun for event_id in ids} == set(done.acknowledged)


async def test_a_process_that_sleeps_past_its_lease_writes_nothing_stale(cluster: Cluster) -> None:
    """Stopped amid its compactions until others have taken its threads over, it finds that out, and loses no event."""

    async def disturb(crowd: Crowd) -> None:
        sleeper = await crowd.join(lease_s=0.1)
        for _ in range(TIMES - 1):
            await crowd.more(10)
            if sleeper.returncode is None:
                sleeper.send_signal(signal.SIGSTOP)
            await crowd.more(60, asleep=sleeper)
            await asyncio.sleep(0.2)
            if sleeper.returncode is None:
                sleeper.send_signal(signal.SIGCONT)

    done = await crowd(cluster.new_url(), disturb, processes=3, rounds=ROUNDS)
    assert {event_id for ids in done.begun for event_id in ids} == set(done.acknowledged)
