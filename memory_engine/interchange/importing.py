"""Import of another system's memories: events in a user's own thread, each once."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path

from attrs import define, field, frozen

from memory_engine.core.aside import on_thread
from memory_engine.core.clock import to_us
from memory_engine.core.codec import encode_json
from memory_engine.core.json_form import JsonForm
from memory_engine.core.limits import DEFAULT_LIMITS, ReadingLimits
from memory_engine.core.moments import moment
from memory_engine.core.records import NewEvent
from memory_engine.errors import ImportRefused, PreferenceError
from memory_engine.interchange import bundle
from memory_engine.interchange.foreign import ForeignFile, ForeignMemory, ForeignPreference, memory_id
from memory_engine.interchange.systems import System, read_foreign
from memory_engine.runtime.scoped import ScopeHandle
from memory_engine.views.layers.entries import metadata_of
from memory_engine.views.layers.events import Layer, MemoryAppended, MemoryRemoved
from memory_engine.views.layers.fold import LAYER_NAMES, EntryRow, entry_row, layer_rows
from memory_engine.views.layers.origin import IMPORTED, NATIVE
from memory_engine.views.preferences.domain import Domain
from memory_engine.views.preferences.fold import PREFERENCES
from memory_engine.views.preferences.view import Preferences, check_preference

MemoriesProgress = Callable[[int, int], None]
"""Called with the memories that are done, and all of them."""
EVENTS_AT_ONCE = 200
IDS_AT_ONCE = 500
OWNERS_SHOWN = 5
GONE = "memories that were forgotten, removed or replaced here"
OLDER = "memories that are older than what is here"
OTHERS = "memories of other users"


@frozen(kw_only=True)
class ImportOptions:
    """How to read a file. `source_user`: of a file with memories of several users, take those of this one."""

    system: System = "auto"
    source_user: str = ""
    dry_run: bool = False
    limits: ReadingLimits = DEFAULT_LIMITS


@define(kw_only=True)
class MemoriesImported(JsonForm):
    """The outcome of an import: of `found` memories and preferences, `added` are new, `known` were here already.

    `changed` replaced an earlier version of themselves, `removed` were deleted in the file. `left_out` counts what was
    not taken, by kind. With `dry_run`, nothing was written.
    """

    path: str
    system: str
    user_id: str
    tenant_id: str
    thread_id: str
    dry_run: bool = False
    found: int = 0
    added: int = 0
    changed: int = 0
    known: int = 0
    removed: int = 0
    left_out: Counter[str] = field(factory=Counter)


async def import_memories(
    user: ScopeHandle, path: Path, options: ImportOptions, progress: MemoriesProgress | None = None
) -> MemoriesImported:
    """Take the memories of a file into a user's thread; see `Transfer.import_memories`."""
    if not options.dry_run:
        user.kernel.check_writable("an import")
    file = await on_thread(lambda: read_foreign(path, options.system, options.limits))
    memories = _of_one_owner(file, options.source_user)
    report = MemoriesImported(
        path=str(path),
        system=file.system,
        user_id=user.scope_id,
        tenant_id=user.tenant_id,
        thread_id=user.id,
        dry_run=options.dry_run,
        found=len(memories) + len(file.preferences),
        left_out=Counter(file.left_out),
    )
    plan = await _plan(user, memories, file.deleted, report)
    await _dispatch_plan(user, plan, report, progress)
    await _take_preferences(user, file.preferences, report)
    return report


def _of_one_owner(file: ForeignFile, wanted: str) -> list[ForeignMemory]:
    """The memories of one user of the other system. Raises `ImportRefused` where the file has several."""
    owners = sorted({one.owner for one in file.memories if one.owner})
    if not wanted and len(owners) > 1:
        shown = ", ".join(map(repr, owners[:OWNERS_SHOWN])) + (", …" if len(owners) > OWNERS_SHOWN else "")
        why = f"it holds memories of {len(owners)} users ({shown}): name the one to take with source_user"
        raise ImportRefused(str(file.path), 1, why)
    taken = [one for one in file.memories if not wanted or one.owner == wanted]
    if len(taken) < len(file.memories):
        file.left_out[OTHERS] += len(file.memories) - len(taken)
    return taken


def appended(memory: ForeignMemory) -> MemoryAppended:
    """The event of a memory, with its origin in the metadata."""
    times = {name: getattr(memory, name) for name in ("updated_at", "valid_at", "invalid_at")}
    metadata: dict[str, object] = {"origin": IMPORTED, "system": memory.system, "id": memory.id}
    metadata |= {name: at.isoformat() for name, at in times.items() if at is not None}
    if memory.name:
        metadata["name"] = memory.name
    if memory.given:
        metadata["given"] = dict(memory.given)
    name = memory_id(memory.system, memory.id)
    return MemoryAppended(
        layer=memory.layer,
        content=memory.content,
        key=(memory.key or name) if memory.layer == "semantic" else "",
        condition=memory.condition if memory.layer == "procedural" else "",
        metadata=metadata,
        entry_id=name,
        timestamp_us=to_us(memory.at) if memory.at is not None else None,
    )


def _first_id(name: str) -> str:
    """The id of the first event of a memory: it is in the log as long as the log is, whatever becomes of the memory."""
    return f"import:{sha256(name.encode()).hexdigest()[:40]}"


def _version_id(name: str, event: MemoryAppended) -> str:
    return f"{_first_id(name)}:{sha256(encode_json(event)).hexdigest()[:24]}"


@frozen
class _Here:
    """A user's thread: entries by id and by key, and of the asked ids those in its log, with their digests."""

    by_id: Mapping[str, EntryRow]
    by_key: Mapping[str, EntryRow]
    ids: frozenset[str]
    payloads: frozenset[bytes]


async def _here(user: ScopeHandle, events: Sequence[MemoryAppended]) -> _Here:
    if not await user.exists():
        return _Here({}, {}, frozenset(), frozenset())
    rows = [row for layer in LAYER_NAMES for row in (await layer_rows(user, layer)).rows()]
    asked = [one for event in events for one in (event.entry_id, *_ids_of(event))]
    found: set[str] = set()
    payloads: set[bytes] = set()
    for start in range(0, len(asked), IDS_AT_ONCE):
        some = await user.kernel.store.find(user.id, asked[start : start + IDS_AT_ONCE])
        found.update(stored.id for stored in some)
        payloads.update(sha256(stored.payload).digest() for stored in some)
    facts = {row.key: row for row in rows if row.layer == "semantic"}
    return _Here({row.id: row for row in rows}, facts, frozenset(found), frozenset(payloads))


def _ids_of(event: MemoryAppended) -> tuple[str, str]:
    return _first_id(event.entry_id), _version_id(event.entry_id, event)


async def _plan(
    user: ScopeHandle, memories: Sequence[ForeignMemory], deleted: set[str], report: MemoriesImported
) -> list[NewEvent]:
    """The events that the thread lacks."""
    events = [appended(one) for one in memories]
    here = await _here(user, events)
    plan: list[NewEvent] = []
    for memory, event in zip(memories, events, strict=True):
        plan += _step(memory, event, here, report)
    removed = [row for row in here.by_id.values() if _is_deleted(row, deleted)]
    plan += [NewEvent(MemoryRemoved(layer=_layer(row), seqs=(row.seq,), reason="deleted there")) for row in removed]
    report.removed += len(removed)
    return plan


def _layer(row: EntryRow) -> Layer:
    return next(one for one in LAYER_NAMES if one == row.layer)


def _is_deleted(row: EntryRow, deleted: set[str]) -> bool:
    metadata = metadata_of(row) if deleted and not row.count else {}
    is_of_bundle = metadata.get("origin") == IMPORTED and metadata.get("system") == bundle.NAME
    return is_of_bundle and metadata.get("id") in deleted


def _step(memory: ForeignMemory, event: MemoryAppended, here: _Here, report: MemoriesImported) -> list[NewEvent]:
    """The events of one memory, none if there is nothing to do; counts it."""
    first, version = _ids_of(event)
    row = here.by_id.get(event.entry_id)
    if memory.system == NATIVE and event.entry_id in here.ids:
        report.known += 1  # it began here
    elif row is None and first in here.ids:
        report.left_out[GONE] += 1
    elif row is None and event.key in here.by_key:
        report.left_out["facts whose key has a value here"] += 1
    elif row is None:
        report.added += 1
        return [NewEvent(event, first, occurred_at=memory.at)]
    elif _same(row, event):
        report.known += 1
    elif _is_older(memory, row) or sha256(encode_json(event)).digest() in here.payloads:
        report.left_out[OLDER] += 1
    else:
        report.changed += 1
        replaced = [] if event.layer == row.layer == "semantic" else [_removal(row)]
        return [*replaced, NewEvent(event, version, occurred_at=memory.at)]
    return []


def _removal(row: EntryRow) -> NewEvent:
    return NewEvent(MemoryRemoved(layer=_layer(row), seqs=(row.seq,), reason="imported again, changed"))


def _same(row: EntryRow, event: MemoryAppended) -> bool:
    at = row.timestamp_us if event.timestamp_us is None else event.timestamp_us
    given = entry_row(event, seq=row.seq, event_id=row.event_id, recorded_us=at)
    return (row.layer, row.content, row.metadata, row.condition, row.timestamp_us) == (
        given.layer, given.content, given.metadata, given.condition, given.timestamp_us
    )  # fmt: skip


def _is_older(memory: ForeignMemory, row: EntryRow) -> bool:
    known = moment(metadata_of(row).get("updated_at"))
    return known is not None and memory.updated_at is not None and memory.updated_at < known


async def _dispatch_plan(
    user: ScopeHandle, plan: Sequence[NewEvent], report: MemoriesImported, progress: MemoriesProgress | None
) -> None:
    done = 0
    for some in _batches(plan):
        if not report.dry_run:
            await user.dispatch_all(some)
        done += len(some)
        if progress is not None:
            progress(done, len(plan))


def _batches(plan: Sequence[NewEvent]) -> Iterable[Sequence[NewEvent]]:
    return (plan[start : start + EVENTS_AT_ONCE] for start in range(0, len(plan), EVENTS_AT_ONCE))


async def _take_preferences(user: ScopeHandle, given: Sequence[ForeignPreference], report: MemoriesImported) -> None:
    """Set what is not set here otherwise: an import never replaces what a user or an application chose."""
    for one in given:
        event_id = _first_id(f"preference:{one.system}:{one.key}:{encode_json(one.value).decode()}")
        row = (await user.rows(PREFERENCES)).get(one.key)
        if row is not None and row.value == one.value:
            report.known += 1
        elif row is not None:
            report.left_out["preferences that are set here otherwise"] += 1
        elif await user.exists() and await user.kernel.store.find(user.id, [event_id]):
            report.left_out["preferences that were removed here"] += 1
        else:
            await _set(user, one, event_id, report)


async def _set(user: ScopeHandle, one: ForeignPreference, event_id: str, report: MemoriesImported) -> None:
    try:
        check_preference(user.kernel.made(Domain), one.key, one.value, origin=IMPORTED)
    except PreferenceError:
        report.left_out["preferences that are not allowed here"] += 1
        return
    report.added += 1
    if not report.dry_run:
        reason = f"imported from {one.system}"
        await Preferences(user).update(one.key, one.value, origin=IMPORTED, reason=reason, event_id=event_id)
