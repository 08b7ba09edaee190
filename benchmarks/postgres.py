"""The same work on a PostgreSQL server: against bare asyncpg, by several processes, in long threads, in search."""

import asyncio
import statistics
import sys
from asyncio.subprocess import PIPE
from collections.abc import Sequence
from itertools import islice
from time import perf_counter_ns
from uuid import uuid4

import memory_engine
from benchmarks.figures import Bar, Figure, Reference, Rounds, quantile
from benchmarks.ours import BATCH, WITHOUT_COMPACTION, as_event, dispatch_timed, events, payload
from benchmarks.payloads import messages
from benchmarks.peer_process import ROOT
from benchmarks.recall_texts import Talk, questions
from benchmarks.setting import Setting, say, settle_memory
from memory_engine import Event, Thread
from tests.postgres_cluster import UNSYNCED, Cluster, NoServer, running

BARE = "bare asyncpg: one INSERT that commits"
BARE_ROWS = "bare asyncpg, the same rows, 64 events a transaction"
SYNCED, NOT_SYNCED = "as the server is by default", "the server does not sync"
THREADS = 64
BLOCK = 20
_COLUMNS = "tid, tenant_id, seq, id_key, id, type, version, recorded_at_us, occurred_at_us, causation_id, "
_COLUMNS += "correlation_id, salt, hash, payload, spilled, record"
_PUT = f"INSERT INTO @.events ({_COLUMNS}) VALUES ({', '.join(f'${n}' for n in range(1, 17))})"
_MOVE = (
    "UPDATE @.heads SET seq = $2, hash = $3, epoch = $4, status = $5, open_compaction = $6, chunks = $7, "
    "tokens = $8, marks = $9 WHERE tid = $1"
)
_PLACE = "INSERT INTO @.live (tid, tenant_id, seq, n, key, container) VALUES ($1, $2, $3, $4, $5, $6)"


async def postgres(setting: Setting) -> list[Figure]:
    """A server of its own, over a socket: dispatches, throughput, processes, long threads, search."""
    found: list[Figure] = []
    try:
        for case, settings in ((SYNCED, {}), (NOT_SYNCED, UNSYNCED)):
            with running(settings) as cluster:
                say(f"  {cluster.version}, {case}")
                found += await _dispatch(setting, cluster, case)
                if case == NOT_SYNCED:
                    continue
                found += await _many_threads(setting, cluster)
                found += await _processes(setting, cluster)
                found += await _long_thread(setting, cluster)
                found += await _search(setting, cluster)
    except (NoServer, ImportError) as why:
        say(f"  nothing is measured: {why}")
    return found


async def _dispatch(setting: Setting, cluster: Cluster, case: str) -> list[Figure]:
    """Blocks in turn: ours, and the payload put into a table of three columns."""
    import asyncpg

    ours, theirs = Rounds(), Rounds()
    bare = await asyncpg.connect(cluster.url)
    await bare.execute("CREATE TABLE bare (pos bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, payload bytea)")
    insert = await bare.prepare("INSERT INTO bare (payload) VALUES ($1)")
    async with memory_engine.open(cluster.new_url(), config=WITHOUT_COMPACTION) as engine:
        for seed in range(setting.size(12, 2)):
            settle_memory()
            thread = await engine.create_thread()
            batch = events(seed, setting.size(200, 20))
            for at in range(0, len(batch), BLOCK):
                block = batch[at : at + BLOCK]
                ours.add(await dispatch_timed(thread, block))
                times = []
                for content in map(payload, block):
                    begun = perf_counter_ns()
                    await insert.fetchval(content)
                    times.append(perf_counter_ns() - begun)
                theirs.add(times)
    await bare.close()
    return [
        Figure(
            bench="postgres",
            case=f"dispatch, {case}",
            value=ours.p50_us,
            unit="us, p50",
            reference=Reference(BARE, theirs.p50_us),
            ratio_best=ours.best_us / theirs.best_us,
            bar=Bar("ratio", "<=", 1.6) if case == SYNCED else None,
            asserted=not setting.quick,
            detail={"p99_us": ours.p99_us, "reference_p99_us": theirs.p99_us},
        )
    ]


async def _many_threads(setting: Setting, cluster: Cluster) -> list[Figure]:
    """64 senders, each awaiting its own thread's dispatch before the next; then the rows that they wrote, bare."""
    each = setting.size(60, 5)
    conversations = [events(seed, each) for seed in range(THREADS)]
    ours, theirs = [], []
    for number in range(setting.size(4, 1)):
        say(f"  64 threads, round {number + 1}")
        settle_memory()
        schema = f"b_{uuid4().hex[:12]}"
        url = f"{cluster.url}&schema={schema}"
        async with memory_engine.open(url, config=WITHOUT_COMPACTION) as engine:
            threads = [await engine.create_thread(f"t{number}") for number in range(THREADS)]
            ours.append(await _sent(threads, conversations))
        theirs.append(await _written(cluster, schema))
    return [
        Figure(
            bench="postgres",
            case="64 threads in one process",
            value=statistics.median(ours),
            unit="events/s",
            reference=Reference(BARE_ROWS, statistics.median(theirs)),
            ratio_best=max(ours) / max(theirs),
            bar=Bar("ratio", ">=", 0.35),
            asserted=not setting.quick,
            detail={"best": max(ours), "reference_best": max(theirs)},
        )
    ]


async def _sent(threads: Sequence[Thread], conversations: Sequence[Sequence[Event]]) -> float:
    """Events a second, from the first dispatch to the last receipt."""

    async def send(thread: Thread, batch: Sequence[Event]) -> None:
        for event in batch:
            await thread.dispatch(event)

    begun = perf_counter_ns()
    await asyncio.gather(*(send(thread, batch) for thread, batch in zip(threads, conversations, strict=True)))
    return sum(map(len, conversations)) / (perf_counter_ns() - begun) * 1e9


async def _written(cluster: Cluster, schema: str) -> float:
    """Events a second of bare asyncpg, which writes the rows of one schema to the like tables of another."""
    import asyncpg

    copy = f"c_{uuid4().hex[:12]}"
    async with memory_engine.open(f"{cluster.url}&schema={copy}"):
        pass
    connection = await asyncpg.connect(cluster.url)
    rows = await connection.fetch(f"SELECT {_COLUMNS} FROM {schema}.events ORDER BY seq, tid")
    live = await connection.fetch(f"SELECT tid, tenant_id, seq, n, key, container FROM {schema}.live ORDER BY seq, tid")
    heads = await connection.fetch(f"SELECT * FROM {schema}.heads")
    if len(rows) != len(live):
        raise ValueError("each event must have one live row: copy a store that was not compacted")
    await connection.execute(f"INSERT INTO {copy}.heads SELECT * FROM {schema}.heads")
    moves = {head["tid"]: (head["tid"], *list(head.values())[2:]) for head in heads}
    put, move, place = (sql.replace("@", copy) for sql in (_PUT, _MOVE, _PLACE))
    begun = perf_counter_ns()
    for at in range(0, len(rows), THREADS):
        part = rows[at : at + THREADS]
        async with connection.transaction():
            await connection.executemany(move, [moves[row["tid"]] for row in part])
            await connection.executemany(put, [tuple(row) for row in part])
            await connection.executemany(place, [tuple(row) for row in live[at : at + THREADS]])
    rate = len(rows) / (perf_counter_ns() - begun) * 1e9
    await connection.close()
    return rate


async def _processes(setting: Setting, cluster: Cluster) -> list[Figure]:
    """One, two and four processes, each with 16 senders on threads of its own."""
    rates: dict[int, float] = {}
    for count in (1, 2, 4):
        say(f"  {count} processes")
        url = cluster.new_url()
        async with memory_engine.open(url):
            pass
        words = ("-m", "benchmarks.postgres_child", url)
        children = [
            await asyncio.create_subprocess_exec(
                sys.executable, *words, str(n), str(setting.size(100, 3)), stdin=PIPE, stdout=PIPE, cwd=ROOT
            )
            for n in range(count)
        ]
        for child in children:
            assert child.stdout is not None
            await child.stdout.readline()
        begun = perf_counter_ns()
        told = await asyncio.gather(*(child.communicate(b"go\n") for child in children))
        took = perf_counter_ns() - begun
        rates[count] = sum(int(said) for said, _ in told) / took * 1e9
    return [
        Figure(
            bench="postgres",
            case=f"{count} processes on threads of their own",
            value=rate,
            unit="events/s",
            reference=Reference("one process", rates[1]),
            asserted=not setting.quick,
        )
        for count, rate in rates.items()
    ]


async def _long_thread(setting: Setting, cluster: Cluster) -> list[Figure]:
    """Dispatch to a thread of many events against one of 100, and opening the long one cold."""
    count = setting.size(30_000, 1_000)
    say(f"  building a log of {count:,} messages")
    url = cluster.new_url()
    taken = {"short": Rounds(), "long": Rounds()}
    async with memory_engine.open(url) as engine:
        grown = await engine.create_thread("log")
        source = islice(messages(1), count)
        while batch := [as_event(message) for message in islice(source, BATCH)]:
            await grown.dispatch_all(batch)
        await engine.settle()
        for seed in range(setting.size(30, 2)):
            settle_memory()
            fresh = await engine.create_thread()
            await fresh.dispatch_all(events(seed + 100, 100))
            await fresh.compaction.settle()
            for name, thread in (("short", fresh), ("long", grown))[:: 1 if seed % 2 else -1]:
                taken[name].add(await dispatch_timed(thread, events(seed + 1000, BLOCK)))
                await thread.compaction.settle()
    cold = []
    for number in range(setting.size(16, 3)):
        settle_memory()
        begun = perf_counter_ns()
        async with memory_engine.open(url) as engine:
            await engine.thread("log").context()
            if number:  # the first warms the imports
                cold.append((perf_counter_ns() - begun) / 1e6)
    return [
        Figure(
            bench="postgres",
            case=f"dispatch at {count:,} events of one thread",
            value=taken["long"].p50_us,
            unit="us, p50",
            reference=Reference("at 100 events", taken["short"].p50_us),
            ratio_best=taken["long"].best_us / taken["short"].best_us,
            bar=Bar("ratio", "<=", 1.2),
            asserted=not setting.quick,
        ),
        Figure(
            bench="postgres",
            case=f"open, thread, context at {count:,} events",
            value=statistics.median(cold),
            unit="ms",
            bar=Bar("value", "<=", 25),
            asserted=not setting.quick,
            detail={"best_ms": min(cold)},
        ),
    ]


async def _search(setting: Setting, cluster: Cluster) -> list[Figure]:
    """The same questions by words to the same thread in a file and on the server, in turn."""
    count = setting.size(20_000, 300)
    say(f"  {count:,} passages")
    told = [str(message.content) for message in Talk().messages(count)]
    asked = questions(told, setting.size(200, 10))
    taken: dict[str, list[float]] = {"server": [], "file": []}
    async with (
        memory_engine.open(cluster.new_url(), config=WITHOUT_COMPACTION) as server,
        memory_engine.open(str(setting.new_path("passages")), config=WITHOUT_COMPACTION) as file,
    ):
        threads = {"server": await server.create_thread("talk"), "file": await file.create_thread("talk")}
        for thread in threads.values():
            source = Talk().messages(count)
            while batch := list(islice(source, BATCH)):
                await thread.dispatch_all(batch)
            await thread.admin.prepare_search()
            await thread.search(asked[-1])
        settle_memory()
        for at in range(0, len(asked), BLOCK):
            for name, thread in threads.items():
                for question in asked[at : at + BLOCK]:
                    begun = perf_counter_ns()
                    await thread.search(question)
                    taken[name].append((perf_counter_ns() - begun) / 1e6)
    return [
        Figure(
            bench="postgres",
            case=f"search of {count:,} passages, by words",
            value=statistics.median(taken["server"]),
            unit="ms, p50",
            reference=Reference("in a file", statistics.median(taken["file"])),
            ratio_best=min(taken["server"]) / min(taken["file"]),
            bar=Bar("ratio", "<=", 2),
            asserted=not setting.quick,
            detail={"p95_ms": quantile(taken["server"], 0.95), "reference_p95_ms": quantile(taken["file"], 0.95)},
        )
    ]
