"""A standby that commits wait for takes the primary's place amid dispatches, and nothing acknowledged is lost."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote
from uuid import uuid4

import asyncpg
import pytest

from tests.postgres.chaos import Crowd, crowd
from tests.postgres_cluster import UNSYNCED, Cluster, NoServer, running


@pytest.fixture
def pair() -> Iterator[tuple[Cluster, Cluster]]:
    """A primary, and a standby in step with it."""
    try:
        with running(UNSYNCED) as primary:
            standby = primary.copied(primary.folder.with_name("b"), "second")
            try:
                standby.start()
                primary.set({"synchronous_standby_names": "second", "synchronous_commit": "on"})
                primary.reload()
                yield primary, standby
            finally:
                standby.stop("immediate")
    except NoServer as why:
        pytest.skip(str(why))


def either(*folders: Path) -> str:
    """The address of whichever of the servers takes writes."""
    hosts = quote(",".join(map(str, folders)))
    return f"postgresql://postgres@/postgres?host={hosts}&target_session_attrs=read-write&schema=t_{uuid4().hex[:20]}"


async def in_step(primary: Cluster) -> None:
    """Wait until commits wait for the standby."""
    connection = await asyncpg.connect(primary.url)
    query = "SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'"
    while not await connection.fetchval(query):  # noqa: ASYNC110 - only the server knows
        await asyncio.sleep(0.01)
    await connection.close()


async def test_what_was_acknowledged_is_on_the_promoted_standby(pair: tuple[Cluster, Cluster]) -> None:
    """The primary is gone for good; processes go on with the other, by the same address."""
    primary, standby = pair
    await in_step(primary)

    async def disturb(crowd: Crowd) -> None:
        await crowd.more(40)
        await asyncio.to_thread(primary.stop, "immediate")
        await asyncio.to_thread(standby.promote)
        await crowd.more(1)

    done = await crowd(either(primary.folder, standby.folder), disturb, processes=2, rounds=8)
    assert {event_id for ids in done.begun for event_id in ids} == set(done.acknowledged)
