"""Check of a bundle: every memory against the logs that were exported with it."""

from collections.abc import Iterator, Mapping

import msgspec
from attrs import field, frozen

from memory_engine.core.arguments import PathLike, checked_file
from memory_engine.core.chain import is_redacted
from memory_engine.core.json_form import JsonForm
from memory_engine.core.limits import DEFAULT_LIMITS, ReadingLimits
from memory_engine.interchange.bundle import EPISODES, EXTENSION, PREFERENCES, PROCEDURES, Bundle
from memory_engine.interchange.foreign import Json, first_text, objects_in
from memory_engine.replay.export.log_file import LogFile
from memory_engine.store.new_file import file_errors

EVENTS_AT_ONCE = 512
BYTES_AT_ONCE = 8 * 1024 * 1024
_LOGS = "logs/"


@frozen(kw_only=True)
class MemoriesChecked(JsonForm):
    """The outcome of a check: the records that were compared, the logs that hold, and what is wrong, in words.

    `unproven` records name no event, or one of a log that is not in the bundle.
    """

    path: str
    records: int
    logs: int
    events: int
    unproven: int = 0
    problems: tuple[str, ...] = field(default=())

    @property
    def is_whole(self) -> bool:
        """Whether nothing is wrong, and every record was compared."""
        return not self.problems and not self.unproven


class _Event(msgspec.Struct, frozen=True):
    """The compared parts of an event. `said` is its text or value; `None` if its texts were taken out."""

    id: str
    hash: str
    said: object


def check_memories(folder: PathLike, *, limits: ReadingLimits = DEFAULT_LIMITS) -> MemoriesChecked:
    """Check a folder that `export_memories` wrote: its checksums, its logs' hash chains, and each memory's events.

    Needs no database. A memory holds if the event that it names has the hash that it names, in a log whose chain
    holds, and says the same words. Raises `ImportRefused` for a folder that is not a whole bundle, or a log whose chain
    is broken.
    """
    path = checked_file("folder", folder)
    bundle = Bundle(path, limits)
    records = [one for place in (EPISODES, PROCEDURES, PREFERENCES) for one in bundle.records(place)]
    wanted = {(named[0], named[1]) for one in records for named in _named_events(one)}
    logs = [path / place for place in bundle.files if place.startswith(_LOGS)]
    events: dict[tuple[str, int], _Event] = {}
    threads: set[str] = set()
    count = 0
    for log in logs:
        with file_errors(log), LogFile(log) as file:
            thread_id = file.header.thread.id
            threads.add(thread_id)
            events |= {(thread_id, seq): one for seq, one in _events(file, {s for t, s in wanted if t == thread_id})}
            count += file.seq
    problems = [problem for one in records for problem in _problems(one, events, threads)]
    unproven = sum(not any(thread in threads for thread, *_ in _named_events(one)) for one in records)
    return MemoriesChecked(
        path=str(path),
        records=len(records),
        logs=len(logs),
        events=count,
        unproven=unproven,
        problems=tuple(problems),
    )


def _named_events(record: Json) -> list[tuple[str, int, str, str]]:
    """The events that a record names, the one that made it first: thread, seq, id and hash."""
    ours = record.get(EXTENSION)
    if not isinstance(ours, dict):
        return []
    found: list[tuple[str, int, str, str]] = []
    for one in objects_in([ours.get("made_by"), *objects_in(ours.get("sources"))]):
        seq = one.get("seq")
        found.append(
            (
                first_text(one, "thread"),
                seq if type(seq) is int else 0,
                first_text(one, "event"),
                first_text(one, "hash"),
            )
        )
    return found


def _events(file: LogFile, seqs: set[int]) -> Iterator[tuple[int, _Event]]:
    """The events at these seqs; reads the whole log, and checks its chain."""
    while (batch := file.take(EVENTS_AT_ONCE, BYTES_AT_ONCE)) is not None:
        for row in batch.rows:
            if row.seq in seqs:
                payload = msgspec.json.decode(row.payload) if not is_redacted(row) else {}
                yield row.seq, _Event(row.id, row.hash.hex(), None if is_redacted(row) else _payload_content(payload))


def _payload_content(payload: Mapping[str, object]) -> object:
    return payload.get("content", payload.get("value"))


def _problems(record: Json, events: Mapping[tuple[str, int], _Event], threads: set[str]) -> Iterator[str]:
    name = first_text(record, "id", "key")[:80]
    for n, (thread, seq, event_id, digest) in enumerate(_named_events(record)):
        if thread not in threads:
            continue
        found = events.get((thread, seq))
        what = f"{name!r}: event {seq} of thread {thread!r}"
        if found is None:
            yield f"{what} is not in its log"
        elif found.hash != digest or event_id not in ("", found.id):
            yield f"{what} is another one: its hash is {found.hash[:16]}…, not {digest[:16]}…"
        elif n == 0 and found.said != _record_content(record):
            yield f"{what} says something else"


def _record_content(record: Json) -> object:
    """The words, or the value, of a record as an event has them."""
    ours = record.get(EXTENSION)
    if isinstance(ours, dict) and "value" in ours:
        return ours["value"]
    steps = record.get("steps")
    return steps[0] if isinstance(steps, list) and steps else first_text(record, "details")
