"""Routes about the store: its totals, its threads, and the tree of forks that a thread is in."""

from collections.abc import Sequence

from attrs import frozen

from memory_engine.core.json_form import named
from memory_engine.core.threads import Head, ThreadInfo, ThreadRecord
from memory_engine.core.version import installed_version
from memory_engine.engine import kernel_of
from memory_engine.inspector.answers import Inspection, Query, Route
from memory_engine.inspector.offload import beside
from memory_engine.store.protocol import ThreadFilter

ThreadsFound = Sequence[tuple[ThreadRecord, Head, int]]
THREADS_AT_ONCE_MAX = 1_000
FORKS_MAX = 2_000
"""The most threads of one tree that are shown; `cut` marks a larger one."""


async def store(inspection: Inspection, _query: Query) -> object:
    """Totals over the store; of a large one, recent ones."""
    totals = await inspection.totals.now(kernel_of(inspection.engine).store.stats)
    return {
        "path": inspection.path,
        "read_only": inspection.engine.config.read_only,
        "may_write": inspection.may_write,
        "version": installed_version(),
        **named(totals),
    }


async def threads(inspection: Inspection, query: Query) -> object:
    """Threads that match, newest events first, and all kinds and statuses of the store."""
    wanted = _ThreadFilter(
        query.text("q", "").casefold(),
        {name: query.text(name, "") for name in ("kind", "user", "tenant", "agent", "status")},
    )
    offset, limit = query.number("offset", 0), query.number("limit", 200, least=1, most=THREADS_AT_ONCE_MAX)
    found = await kernel_of(inspection.engine).store.listed(ThreadFilter(order="updated"))
    return await beside(lambda: _threads_page(found, wanted, offset, limit))


@frozen
class _ThreadFilter:
    """The values that the threads of a list must match."""

    text: str
    exactly: dict[str, str]

    @property
    def takes_all(self) -> bool:
        """Whether nothing is asked of a thread."""
        return not self.text and not any(self.exactly.values())

    def takes(self, record: ThreadRecord, head: Head) -> bool:
        values = {
            "kind": record.kind,
            "user": record.user_id,
            "tenant": record.tenant_id,
            "agent": record.agent_id,
            "status": head.status,
        }
        if any(value and values[name] != value for name, value in self.exactly.items()):
            return False
        if not self.text:
            return True
        said = (record.id, record.user_id, record.tenant_id, record.agent_id)
        metadata = (text for pair in record.metadata.items() for text in (*pair, "=".join(pair)))
        return any(self.text in text.casefold() for text in (*said, *metadata))


def _threads_page(found: ThreadsFound, wanted: _ThreadFilter, offset: int, limit: int) -> dict[str, object]:
    matching = found if wanted.takes_all else [one for one in found if wanted.takes(one[0], one[1])]
    return {
        "total": len(matching),
        "threads": [_thread_row(*one) for one in matching[offset : offset + limit]],
        "kinds": sorted({record.kind for record, _, _ in found}),
        "statuses": sorted({head.status for _, head, _ in found}),
    }


def _thread_row(record: ThreadRecord, head: Head, updated_us: int) -> dict[str, object]:
    row = ThreadInfo.of(record, head, updated_us).as_data()
    del row["head_hash"]
    return row


async def forks(inspection: Inspection, query: Query) -> object:
    """The whole tree of forks that a thread is in, from its first thread."""
    record, head = await _one(inspection, query.text("thread"))
    while record.forked_from is not None:
        record, head = await _one(inspection, record.forked_from.thread_id)
    root = _fork(record, head)
    waiting, count = [root], 1
    while waiting:
        parent = waiting.pop()
        for fork_id in await kernel_of(inspection.engine).store.forks(parent.id):
            if count == FORKS_MAX:
                return root.data | {"cut": True}
            fork = _fork(*await _one(inspection, fork_id))
            parent.children.append(fork.data)
            waiting.append(fork)
            count += 1
    return root.data


@frozen
class _Fork:
    """A thread of a tree, as data; append its forks to `children`."""

    id: str
    data: dict[str, object]
    children: list[object]


def _fork(record: ThreadRecord, head: Head) -> _Fork:
    seq = record.forked_from.seq if record.forked_from is not None else None
    children: list[object] = []
    return _Fork(record.id, {"id": record.id, "seq": seq, "events": head.seq, "children": children}, children)


async def _one(inspection: Inspection, thread_id: str) -> tuple[ThreadRecord, Head]:
    """A thread's record. Raises `ThreadNotFound`."""
    found = await kernel_of(inspection.engine).store.threads(ThreadFilter(id=thread_id))
    if not found:
        await kernel_of(inspection.engine).store.head(thread_id)
    return found[0]


STORE_ROUTES = (
    Route.of("store", "", store),
    Route.of("threads", "q kind status user tenant agent offset limit", threads),
    Route.of("forks", "thread", forks),
)
