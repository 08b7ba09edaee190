"""Many threads in a folder: a file for each, and a list of them with digests, written last."""

import asyncio
import errno
import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
from attrs import frozen

from memory_engine.core.arguments import checked_type
from memory_engine.core.bounded import open_file, read_file
from memory_engine.core.json_form import JsonForm
from memory_engine.core.threads import UNREADABLE
from memory_engine.errors import ImportRefused, MemoryEngineError, ThreadNotFound
from memory_engine.replay.export.claims import CONVERSATION_OF_NOBODY, Allowed
from memory_engine.replay.export.export import ExportReport, export
from memory_engine.replay.export.importer import import_log
from memory_engine.replay.export.redaction import Redaction
from memory_engine.runtime.handle import ThreadHandle
from memory_engine.runtime.kernel import Kernel
from memory_engine.store.new_file import file_errors
from memory_engine.store.protocol import ThreadFilter

MANIFEST = "manifest.json"
FORMAT, VERSION = "memory-engine-store", 1

FolderProgress = Callable[[int, int], None]
"""Called with the threads and the events that are done."""


class ManifestEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A thread's file in the folder: its SHA-256, and the log that it holds."""

    thread_id: str
    file: str
    sha256: str
    events: int
    head_hash: str


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The list of an exported store's files."""

    format: str
    version: int
    threads: tuple[ManifestEntry, ...]


@frozen(kw_only=True)
class StoreExport(JsonForm):
    """The written folder. `idle_rules` matched nothing in any thread; of `broken` threads the chain does not hold."""

    path: str
    threads: int
    events: int
    redacted: int
    bytes: int
    idle_rules: tuple[str, ...] = ()
    broken: tuple[str, ...] = ()


@frozen(kw_only=True)
class StoreImport(JsonForm):
    """The outcome of an import: `threads` of the folder with their `events`, of which `added` were written now.

    `known` threads were there already, whole. `failed` gives the reason of each that could not be taken.
    """

    path: str
    threads: int
    events: int
    added: int
    known: int
    failed: Mapping[str, str]


async def export_all(
    kernel: Kernel, folder: Path, *, redaction: Redaction | None = None, progress: FolderProgress | None = None
) -> StoreExport:
    """Write every thread's log to a folder; see `Transfer.export_all`."""
    if redaction is not None:
        checked_type("redaction", redaction, Redaction, give="a Redaction")
    with file_errors(folder):
        await asyncio.to_thread(_make, folder)
    reports: list[ExportReport] = []
    entries: list[ManifestEntry] = []
    events = 0
    for n, (record, _) in enumerate(await kernel.store.threads(ThreadFilter()), 1):
        file = folder / f"{n:06d}.jsonl.gz"
        try:
            report = await export(ThreadHandle(kernel, record.id), file, redaction=redaction)
        except ThreadNotFound:  # deleted since
            continue
        with file_errors(file):
            digest = await asyncio.to_thread(_file_sha256, file)
        entries.append(ManifestEntry(record.id, file.name, digest, report.events, report.head_hash))
        reports.append(report)
        events += report.events
        if progress is not None:
            progress(len(reports), events)
    manifest = msgspec.json.encode(Manifest(FORMAT, VERSION, tuple(entries)))
    with file_errors(folder / MANIFEST):
        await asyncio.to_thread((folder / MANIFEST).write_bytes, msgspec.json.format(manifest) + b"\n")
    idle = [set(report.idle_rules) for report in reports]
    return StoreExport(
        path=str(folder),
        threads=len(reports),
        events=events,
        redacted=sum(report.redacted for report in reports),
        bytes=sum(report.bytes for report in reports),
        idle_rules=tuple(sorted(set.intersection(*idle))) if idle else (),
        broken=tuple(report.thread_id for report in reports if report.broken_at),
    )


async def import_all(
    kernel: Kernel,
    folder: Path,
    *,
    allowed: Allowed = CONVERSATION_OF_NOBODY,
    progress: FolderProgress | None = None,
) -> StoreImport:
    """Make the threads of an exported folder; see `Transfer.import_all`."""
    kernel.check_writable("an import")
    entries = read_manifest(folder)
    failed: dict[str, str] = {}
    added = known = events = 0
    for n, entry in enumerate(entries, 1):
        try:
            if await _is_there(kernel, entry):
                known += 1
            else:
                added += await _taken_in(kernel, folder / entry.file, entry, allowed)
            events += entry.events
        except MemoryEngineError as error:  # the others do not wait for it
            failed[entry.thread_id] = str(error)
        if progress is not None:
            progress(n, events)
    return StoreImport(path=str(folder), threads=len(entries), events=events, added=added, known=known, failed=failed)


def read_manifest(folder: Path) -> tuple[ManifestEntry, ...]:
    """The list of a folder. Raises `ImportRefused` if no export finished it."""
    path = folder / MANIFEST
    try:
        with file_errors(path):
            written = read_file(path, within=folder)
        manifest = msgspec.json.decode(written, type=Manifest)
    except FileNotFoundError:
        raise ImportRefused(
            str(path), 1, "there is no such file: it is not an exported store, or not a whole one"
        ) from None
    except UNREADABLE as error:
        raise ImportRefused(str(path), 1, str(error)) from None
    if (manifest.format, manifest.version) != (FORMAT, VERSION):
        raise ImportRefused(
            str(path), 1, f"its format is {manifest.format!r} {manifest.version}, not {FORMAT!r} {VERSION}"
        )
    files: set[str] = set()
    for entry in manifest.threads:
        if Path(entry.file).name != entry.file or entry.file in ("", "..") or "\0" in entry.file:
            raise ImportRefused(str(path), 1, f"{entry.file!r} is not a file of this folder")
        if entry.file in files:
            raise ImportRefused(str(path), 1, f"it names the file {entry.file!r} twice")
        files.add(entry.file)
    return manifest.threads


async def _is_there(kernel: Kernel, entry: ManifestEntry) -> bool:
    """Whether the store holds this very log already, or goes on from it: its hash binds all before it."""
    if not await kernel.store.threads(ThreadFilter(id=entry.thread_id)):
        return False
    rows = await kernel.store.read_at(entry.thread_id, [entry.events] if entry.events else [])
    return [row.hash.hex() for row in rows] == ([entry.head_hash] if entry.events else [])


async def _taken_in(kernel: Kernel, file: Path, entry: ManifestEntry, allowed: Allowed) -> int:
    try:
        with file_errors(file):
            digest = await asyncio.to_thread(_file_sha256, file)
    except FileNotFoundError:
        raise ImportRefused(str(file), 1, "there is no such file, and the list names it") from None
    if digest != entry.sha256:
        raise ImportRefused(str(file), 1, "it is not the file that was written: its digest is another one")
    report = await import_log(kernel, file, allowed=allowed)
    if report.thread_id != entry.thread_id:
        raise ImportRefused(str(file), 1, f"it is thread {report.thread_id!r}, the list says {entry.thread_id!r}")
    return report.added


def _make(folder: Path) -> None:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        what = "there is something already: name a new folder, or an empty one"
        raise FileExistsError(errno.EEXIST, what, str(folder))
    folder.mkdir(exist_ok=True)


def _file_sha256(file: Path) -> str:
    with open_file(file, within=file.parent) as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
