"""Whether the indexes of a thread say what its rows say: those of event ids, of words, and of vectors."""

from collections.abc import Mapping, Sequence
from uuid import UUID

from memory_engine.storage.postgres.reads import LAST_SEQ, Reads
from memory_engine.storage.postgres.rows import id_from_row, id_key, term_key
from memory_engine.storage.vector_blocks import size_faults


async def faults_of(reads: Reads, thread_id: str) -> Mapping[str, Sequence[str]]:
    """Differences between them at one moment, in lines by kind. Raises `ThreadNotFound`."""
    tid = (await reads.there(thread_id))["tid"]
    found = {"ids": await _event_id_faults(reads, tid)}
    index = await reads.one("SELECT folded, passages, terms FROM @.passage_indexes WHERE tid = $1", tid)
    if index is not None:
        counters = await _counters(reads, tid, (index["passages"], index["terms"]))
        found["search"] = [
            *counters,
            *await _word_list_faults(reads, tid, index["folded"]),
            *await _vectors(reads, tid),
        ]
    return {kind: lines for kind, lines in found.items() if lines}


async def _event_id_faults(reads: Reads, tid: UUID) -> list[str]:
    """Each id must lead to its one event: a retry of an event that is not found would be recorded again."""
    lines: list[str] = []
    after = 0
    while rows := await reads.fetch(
        "SELECT seq, id_key, id FROM @.events WHERE tid = $1 AND seq BETWEEN $2 AND $3 ORDER BY seq LIMIT 10000",
        tid,
        after + 1,
        LAST_SEQ,
    ):
        after = rows[-1]["seq"]
        for row in rows:
            event_id = id_from_row(row["id_key"], row["id"])
            if id_key(event_id) != row["id_key"]:
                lines.append(f"event {event_id} of seq {row['seq']} is not found by its id")
    return lines


async def _counters(reads: Reads, tid: UUID, kept: tuple[int, int]) -> list[str]:
    [given] = await reads.fetch(
        "SELECT count(*) AS n, coalesce(sum(size), 0) AS terms FROM @.passages WHERE tid = $1", tid
    )
    return [
        f"{name}: {counted:,} are counted, {there:,} are there"
        for name, counted, there in zip(("passages", "terms"), kept, (given["n"], given["terms"]), strict=True)
        if counted != there
    ]


async def _word_list_faults(reads: Reads, tid: UUID, folded: int) -> list[str]:
    """The lists name the passages that hold each word, and no others."""
    holding: dict[bytes, set[int]] = {}
    names: dict[bytes, str] = {}
    for row in await reads.fetch("SELECT place, terms FROM @.passages WHERE tid = $1 AND place <= $2", tid, folded):
        for word in row["terms"].decode().split():
            key = term_key(word)
            names[key] = word
            holding.setdefault(key, set()).add(row["place"])
    listed: dict[bytes, set[int]] = {}
    for row in await reads.fetch("SELECT term, places FROM @.words WHERE tid = $1", tid):
        listed.setdefault(row["term"], set()).update(row["places"])
    lines = []
    for key in sorted(holding.keys() | listed.keys()):
        wrong = holding.get(key, set()) ^ listed.get(key, set())
        if wrong:
            name = names.get(key, key.decode(errors="replace"))
            of = len(holding.get(key, ()))
            lines.append(f"the list of the word {name!r} is wrong about {len(wrong):,} of {of:,} passages")
    return lines


async def _vectors(reads: Reads, tid: UUID) -> list[str]:
    """Vectors of one model have one dimension, and each has its passage."""
    lines: list[str] = []
    sizes: dict[str, dict[int, int]] = {}
    for row in await reads.fetch(
        "SELECT model, octet_length(vector) AS size, count(*) AS n FROM @.vectors WHERE tid = $1 GROUP BY 1, 2 "
        "ORDER BY 1, 3 DESC, 2",
        tid,
    ):
        sizes.setdefault(row["model"], {})[row["size"]] = row["n"]
    for model, by_size in sizes.items():
        counted: dict[int, int] = {}
        for size in sorted(by_size):  # an older release has written four bytes a number
            key = size if size % 2 or size // 2 not in counted else size // 2
            counted[key] = counted.get(key, 0) + by_size[size]
        lines += size_faults(model, counted)
    lost = await reads.fetch(
        "SELECT model, count(*) AS n FROM @.vectors v WHERE v.tid = $1 AND NOT EXISTS "
        "(SELECT 1 FROM @.passages p WHERE p.tid = v.tid AND p.place = v.place) GROUP BY model ORDER BY model",
        tid,
    )
    return [*lines, *(f"vectors of {row['model']}: {row['n']:,} are of no passage" for row in lost)]
