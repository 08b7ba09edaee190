"""Searching all threads of a tenant at once, in a store with another tenant of the same words."""

import statistics
from collections.abc import Sequence
from itertools import islice
from time import perf_counter_ns

import memory_engine
from benchmarks.figures import Bar, Figure, Reference, quantile
from benchmarks.ours import WITHOUT_COMPACTION
from benchmarks.recall_search import idle
from benchmarks.recall_texts import Talk, questions
from benchmarks.recall_vectors import Clusters
from benchmarks.setting import Setting, say, settle_memory
from memory_engine import Engine, UserMessage

TENANT = "acme"
EACH = 100
"""Passages of a thread."""
OTHERS = 10
"""One thread in this number is the other tenant's."""
USERS = 10
"""Threads of a user."""


async def over_tenant(setting: Setting) -> list[Figure]:
    """The same questions to all threads of a tenant, and to those of one of its users."""
    threads = setting.size(10_000, 30)
    found: list[Figure] = []
    path = str(setting.new_path("recall-tenant"))
    async with memory_engine.open(path, config=WITHOUT_COMPACTION) as engine:
        say(f"  writing {threads:,} threads of {EACH} messages")
        told = await _filled(engine, threads)
    asked = questions(told, setting.size(200, 10))
    async with memory_engine.open(path, config=WITHOUT_COMPACTION) as engine:
        found += await _asked(setting, engine, asked, f"{threads:,} threads of a tenant, by words")
    few = setting.size(2_000, 30)
    clusters = Clusters()
    clusters.learn(asked)
    path = str(setting.new_path("recall-tenant-vectors"))
    async with memory_engine.open(path, config=WITHOUT_COMPACTION, embedder=clusters) as engine:
        say(f"  writing {few:,} threads of {EACH} messages, with vectors")
        await _filled(engine, few)
        found += await _asked(setting, engine, asked, f"{few:,} threads of a tenant, by words and vectors")
    return found


async def _filled(engine: Engine, threads: int) -> list[str]:
    """So many threads of the tenant, indexed, and some of another; the texts of the first ones."""
    talk = Talk(7).messages(2 * threads * EACH)
    told: list[str] = []
    for number in range(threads):
        for tenant_id in (TENANT, "other")[: 1 + (number % OTHERS == 0)]:
            thread = await engine.create_thread(tenant_id=tenant_id, user_id=f"u{number // USERS}")
            batch: Sequence[UserMessage] = list(islice(talk, EACH))
            await thread.dispatch_all(batch)
            await thread.admin.prepare_search()
            told += [str(message.content) for message in batch] if len(told) < 50 * EACH else []
    return told


async def _asked(setting: Setting, engine: Engine, asked: Sequence[str], case: str) -> list[Figure]:
    begun = perf_counter_ns()
    await engine.search(asked[0], tenant_id=TENANT)
    first_ms = (perf_counter_ns() - begun) / 1e6
    await idle()
    settle_memory()
    whole: list[float] = []
    users: list[float] = []
    for n, question in enumerate(asked):
        for user_id, taken in ((None, whole), (f"u{n % 3}", users)):
            begun = perf_counter_ns()
            await engine.search(question, tenant_id=TENANT, user_id=user_id)
            taken.append((perf_counter_ns() - begun) / 1e6)
    return [
        Figure(
            bench="recall",
            case=f"search over {case}",
            value=statistics.median(whole),
            unit="ms, p50",
            reference=Reference(f"over {USERS} of them, of one user", statistics.median(users)),
            ratio_best=min(whole) / min(users),
            bar=Bar("value", "<=", 30 if "vectors" in case else 20),
            asserted=not setting.quick,
            detail={"first_search_ms": first_ms, "p95_ms": quantile(whole, 0.95)},
        )
    ]
