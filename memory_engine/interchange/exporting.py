"""Export of a user's memory as a bundle, with the events that each memory came from, and the user's logs."""

import asyncio
import errno
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path

import msgspec
from attrs import evolve, frozen

from memory_engine.core.json_form import JsonForm
from memory_engine.core.version import installed_version
from memory_engine.errors import ThreadNotFound
from memory_engine.interchange import bundle
from memory_engine.interchange.bundle import EXTENSION, FileDigest, line_of, second
from memory_engine.interchange.foreign import first_text
from memory_engine.replay.export.export import export
from memory_engine.replay.export.redaction import Redaction
from memory_engine.runtime.handle import ThreadHandle
from memory_engine.runtime.scoped import ScopeHandle
from memory_engine.store.new_file import file_errors
from memory_engine.store.protocol import ThreadFilter
from memory_engine.views.layers.entries import metadata_of
from memory_engine.views.layers.fold import LAYER_NAMES, EntryRow, layer_rows
from memory_engine.views.layers.origin import IMPORTED, NATIVE
from memory_engine.views.layers.summaries import covered_rows
from memory_engine.views.preferences.fold import PREFERENCES, Preference

ExportProgress = Callable[[int, int], None]
"""Called with the memories and the logs that are written."""
CAPABILITIES = ("ext",)
SUMMARY_CHARS = 120
_IDS_AT_ONCE = 500
_CARRIED = ("name", "updated_at", "valid_at", "invalid_at")


@frozen(kw_only=True)
class MemoriesExported(JsonForm):
    """The written bundle: memories and preferences, and the logs. `left_out` counts what it does not hold.

    `digest` is the SHA-256 of its list of checksums: it binds every file. With `dry_run`, nothing was written.
    """

    path: str
    user_id: str
    tenant_id: str
    memories: int
    preferences: int
    left_out: Mapping[str, int]
    logs: int = 0
    events: int = 0
    bytes: int = 0
    digest: str = ""
    dry_run: bool = False


class ProvingEvent(msgspec.Struct, frozen=True):
    """An event that a memory came from, and its hash in the log."""

    thread: str
    seq: int
    event: str
    hash: str


async def export_memories(
    user: ScopeHandle,
    folder: Path,
    *,
    logs: bool = True,
    dry_run: bool = False,
    progress: ExportProgress | None = None,
) -> MemoriesExported:
    """Write a user's memory to a new folder; see `Transfer.export_memories`."""
    with file_errors(folder):
        await asyncio.to_thread(_check_new, folder)
    where = ThreadFilter(user_id=user.scope_id, tenant_id=user.tenant_id)
    own = [record.id for record, _ in await user.kernel.store.threads(where)]
    left_out: Counter[str] = Counter()
    records = await _Records.of(user, frozenset(own), left_out)
    report = MemoriesExported(
        path=str(folder),
        user_id=user.scope_id,
        tenant_id=user.tenant_id,
        dry_run=dry_run,
        memories=records.memories,
        preferences=len(records.preferences),
        left_out=dict(left_out),
    )
    if dry_run:
        return report
    with file_errors(folder):
        await asyncio.to_thread(_make, folder)
    writing = _Writing(folder)
    for place, lines in records.files():
        await asyncio.to_thread(writing.add, place, b"".join(lines))
    written, events = await _write_logs(user, own if logs else (), writing, records.memories, progress)
    with file_errors(folder):
        digest = await asyncio.to_thread(writing.finish, records.counts(), records.span(), user.kernel.now_us())
    size = sum(one.bytes for one in writing.files)
    return evolve(report, logs=written, events=events, bytes=size, digest=digest)


async def _write_logs(
    user: ScopeHandle, thread_ids: Sequence[str], writing: "_Writing", memories: int, progress: ExportProgress | None
) -> tuple[int, int]:
    """Write the logs of threads, without the texts of what was forgotten; gives how many logs and events there are."""
    written = events = 0
    for n, thread_id in enumerate(thread_ids, 1):
        place = f"logs/{n:06d}.jsonl.gz"
        try:
            told = await export(ThreadHandle(user.kernel, thread_id), writing.folder / place, redaction=Redaction())
        except ThreadNotFound:  # deleted since
            continue
        with file_errors(writing.folder / place):
            await asyncio.to_thread(writing.note, place)
        events += told.events
        written += 1
        if progress is not None:
            progress(memories, written)
    return written, events


def _check_new(folder: Path) -> None:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        what = "there is something already: name a new folder, or an empty one"
        raise FileExistsError(errno.EEXIST, what, str(folder))


def _make(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    for name in ("items", "logs"):
        (folder / name).mkdir()


@frozen
class _Records:
    """The lines of a bundle, by kind."""

    episodes: Sequence[tuple[str, bytes]]
    procedures: Sequence[tuple[str, bytes]]
    preferences: Sequence[bytes]
    moments: Sequence[int]

    @property
    def memories(self) -> int:
        return len(self.episodes) + len(self.procedures)

    @classmethod
    async def of(cls, user: ScopeHandle, own: frozenset[str], left_out: Counter[str]) -> "_Records":
        """The memories in a user's thread now: without forgotten, erased or removed ones."""
        rows = await _all_layer_entries(user) if await user.exists() else []
        preferences = [row for _, row in (await user.rows(PREFERENCES)).items()]
        proof = await _Proof.of(user, own, rows, preferences, left_out)
        episodes: list[tuple[str, bytes]] = []
        procedures: list[tuple[str, bytes]] = []
        for row in rows:
            name, record = _bundle_record(row, proof)
            (procedures if row.layer == "procedural" else episodes).append((name, line_of(record)))
        plain = [line_of(_preference(one, proof)) for one in preferences if one.rule is None]
        if len(plain) < len(preferences):
            left_out["preferences with a rule"] += len(preferences) - len(plain)
        moments = [row.timestamp_us for row in rows if row.layer != "procedural"]
        return cls(sorted(episodes), sorted(procedures), sorted(plain), moments)

    def files(self) -> Iterable[tuple[str, list[bytes]]]:
        """The files that have lines."""
        found = (
            (bundle.EPISODES, [line for _, line in self.episodes]),
            (bundle.PROCEDURES, sorted(line for _, line in self.procedures)),
            (bundle.PREFERENCES, list(self.preferences)),
        )
        return ((place, lines) for place, lines in found if lines)

    def counts(self) -> dict[str, int]:
        """The number of lines by kind."""
        return {Path(place).stem: len(lines) for place, lines in self.files()}

    def span(self) -> tuple[int, int] | None:
        """The first and the last moment of an episode."""
        return (min(self.moments), max(self.moments)) if self.moments else None


async def _all_layer_entries(user: ScopeHandle) -> list[EntryRow]:
    """The entries of all layers; in place of summaries the entries that they summarise."""
    found: list[EntryRow] = []
    for layer in LAYER_NAMES:
        for row in (await layer_rows(user, layer)).rows():
            found += await covered_rows(user, row) if row.count else [row]
    return found


class _Proof:
    """The events that memories came from."""

    def __init__(
        self, user: ScopeHandle, hashes: Mapping[int, str], sources: Mapping[tuple[str, str], ProvingEvent]
    ) -> None:
        self._user = user
        self._hashes = hashes
        self._sources = sources

    @classmethod
    async def of(
        cls,
        user: ScopeHandle,
        own: frozenset[str],
        rows: Sequence[EntryRow],
        preferences: Sequence[Preference],
        left_out: Counter[str],
    ) -> "_Proof":
        """Look up the hashes. An event of a thread that is not this user's is counted, and not named."""
        made = {row.seq for row in rows} | {one.seq for one in preferences}
        seqs = made.union(*(row.drawn_from for row in rows))
        stored = await user.kernel.reader.rows_at(user.id, seqs) if seqs else {}
        wanted: dict[str, set[str]] = {}
        for row in rows:
            if row.sources and row.source_thread in own:
                wanted.setdefault(row.source_thread, set()).update(row.sources)
            elif row.sources:
                left_out["sources in threads of others"] += len(row.sources)
        sources: dict[tuple[str, str], ProvingEvent] = {}
        for thread_id, ids in wanted.items():
            asked = sorted(ids)
            for start in range(0, len(asked), _IDS_AT_ONCE):
                for one in await user.kernel.store.find(thread_id, asked[start : start + _IDS_AT_ONCE]):
                    sources[thread_id, one.id] = ProvingEvent(thread_id, one.seq, one.id, one.hash.hex())
        hashes = {seq: one.hash.hex() for seq, one in stored.items()}
        return cls(user, hashes, sources)

    def of_event(self, seq: int, event_id: str) -> ProvingEvent:
        """The event that made a row."""
        return ProvingEvent(self._user.id, seq, event_id, self._hashes.get(seq, ""))

    def sources(self, row: EntryRow) -> list[ProvingEvent]:
        """The events that an entry was drawn from."""
        found = [self._sources.get((row.source_thread, event_id)) for event_id in row.sources]
        drawn = [
            ProvingEvent(self._user.id, seq, "", self._hashes[seq]) for seq in row.drawn_from if seq in self._hashes
        ]
        return [one for one in found if one is not None] + drawn


def _bundle_record(row: EntryRow, proof: _Proof) -> tuple[str, dict[str, object]]:
    """The id and the record of an entry."""
    metadata = metadata_of(row)
    is_imported = metadata.get("origin") == IMPORTED and bool(first_text(metadata, "system"))
    system = first_text(metadata, "system") if is_imported else NATIVE
    name = first_text(metadata, "id") if is_imported else row.event_id
    given = metadata.get("given", {}) if is_imported else _without_keys(metadata, row)
    ours: dict[str, object] = {
        "system": system,
        "id": name,
        "layer": row.layer,
        "timestamp_us": row.timestamp_us,
        "metadata": given,
        "made_by": proof.of_event(row.seq, row.event_id),
        "sources": proof.sources(row),
    }
    if row.layer == "semantic" and not (is_imported and system != NATIVE) and row.key != row.event_id:
        ours["key"] = row.key
    ours |= {key: metadata[key] for key in _CARRIED if is_imported and key in metadata}
    record_id = name if system in (NATIVE, bundle.NAME) else f"{system}:{name}"
    common: dict[str, object] = {"id": record_id, EXTENSION: msgspec.to_builtins(ours)}
    if row.layer == "procedural":
        return record_id, common | _procedure(row, first_text(ours, "name"))
    return record_id, common | _episode(row, first_text(ours, "name"), system)


def _without_keys(metadata: Mapping[str, object], row: EntryRow) -> dict[str, object]:
    """The metadata without the key and the condition that a row shows in it."""
    shown = {"key": row.key, "condition": row.condition}
    return {key: value for key, value in metadata.items() if shown.get(key) != value}


def _episode(row: EntryRow, name: str, system: str) -> dict[str, object]:
    at = second(row.timestamp_us)
    return {
        "eventTime": at,
        "mentionTime": at,
        "ingestionTime": at,
        "sourceType": "text",
        "sourceID": system,
        "actors": [],
        "summary": row.content[:SUMMARY_CHARS],
        "details": row.content,
        "sensitivity": "low",
        "metadata": {"layer": row.layer} | ({"name": name} if name else {}),
        "categories": [],
        "importance": 0.5,
        "confidence": 0.7,
        "lifecycleState": "HOT",
        "extractionState": "done",
        "accessCount": 0,
        "pinned": False,
        "vaultRefs": [],
    }


def _procedure(row: EntryRow, name: str) -> dict[str, object]:
    return {
        "name": name or row.condition[:SUMMARY_CHARS],
        "triggerPattern": row.condition,
        "steps": [row.content],
        "successCount": 0,
        "failureCount": 0,
        "enabled": True,
    }


def _preference(row: Preference, proof: _Proof) -> dict[str, object]:
    said = row.value if isinstance(row.value, str) else msgspec.json.encode(row.value).decode()
    ours = {"value": row.value, "origin": row.origin, "made_by": proof.of_event(row.seq, row.event_id)}
    return {"key": row.key, "value": said, EXTENSION: msgspec.to_builtins(ours)}


class _Writing:
    """A bundle on the way to its folder. Without its manifest, which is written last, a folder is not a bundle."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files: list[FileDigest] = []

    def add(self, place: str, content: bytes) -> None:
        """Write a file."""
        with file_errors(self.folder / place):
            (self.folder / place).write_bytes(content)
        self.files.append(FileDigest(place, sha256(content).hexdigest(), len(content)))

    def note(self, place: str) -> None:
        """List a file that is there."""
        digest, size = bundle.bundle_file_digest(self.folder / place, self.folder)
        self.files.append(FileDigest(place, digest, size))

    def finish(self, counts: Mapping[str, int], span: tuple[int, int] | None, now_us: int) -> str:
        """Write the checksums and the manifest; gives the digest of the checksums."""
        files = sorted(self.files, key=lambda one: one.path)
        checksums = "".join(f"{one.sha256}  {one.path}\n" for one in files).encode()
        (self.folder / bundle.CHECKSUMS).write_bytes(checksums)
        digest = sha256(checksums).hexdigest()
        manifest: dict[str, object] = {
            "format": bundle.FORMAT,
            "specURL": bundle.SPEC,
            "generator": f"memory-engine/{installed_version()}",
            "conformanceLevel": "L0",
            "createdAt": second(now_us),
            "exportMode": "full",
            "schemaVersion": 1,
            "embeddingModel": "",
            "embeddingDim": 0,
            "embeddingsIncluded": False,
            "capabilities": list(CAPABILITIES),
            "counts": dict(counts),
            "files": [msgspec.to_builtins(one) for one in files],
            "bundleDigest": digest,
        }
        if span is not None:
            manifest["coverage"] = {"from": second(span[0]), "to": second(span[1])}
        (self.folder / bundle.MANIFEST).write_bytes(line_of(manifest))
        return digest
