"""A workspace: a folder whose files are recorded in a thread's log, and restored as of any moment of it."""

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import msgspec
from attrs import field, frozen

from memory_engine.core.arguments import checked_list
from memory_engine.core.aside import aside, on_thread
from memory_engine.core.json_form import JsonForm
from memory_engine.core.records import NewEvent, StoredEvent
from memory_engine.errors import (
    IdempotencyConflict,
    ImportedWorkspace,
    UnreadableContent,
    WorkspaceChanged,
    WorkspaceNotRecorded,
    WorkspaceTooLarge,
)
from memory_engine.projections.base import ReadableRows
from memory_engine.replay.rewind import RewindReport
from memory_engine.runtime.eras import era_of
from memory_engine.runtime.handle import ThreadHandle
from memory_engine.store.attested import imported_of
from memory_engine.store.reader import LogReader, MomentLike
from memory_engine.thread import Past, Thread, handle_of
from memory_engine.views.workspace.events import WorkspaceChange, WorkspaceRecorded, changed_file
from memory_engine.views.workspace.fold import (
    WORKSPACE,
    AnyWorkspaceRow,
    WorkspaceFile,
    contents_of,
    files_of,
    tree_of,
)
from memory_engine.workspace.folder import Folder, OpenFolder, Present, Scan, UnrecordedFile, WorkspaceLimits, digest_of
from memory_engine.workspace.ignoring import Ignored, unsafe

TRIES_MAX = 8
"""How often a record is made again when others record the same thread's folder at the same time."""
_PART_BYTES = 4 * 2**20
"""Bytes of changes from which on a record is several events."""
_ENVELOPE_BYTES = 4096


class WorkspaceRecord(JsonForm, msgspec.Struct, frozen=True, kw_only=True):
    """What `record` found. `seq` is its last event, 0 if nothing had changed; `left_out` files are not recorded."""

    seq: int
    written: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    left_out: tuple[UnrecordedFile, ...] = ()


class WorkspaceRestore(JsonForm, msgspec.Struct, frozen=True, kw_only=True):
    """What `restore` did, or would do: the files that it wrote and removed.

    `left_out` are recorded files that it did not write: ignored now, or forgotten. `changed` are files in the folder
    that hold what the log does not; only a dry run lists them, for the others raise `WorkspaceChanged`. `kept` are
    files with what someone wrote while the folder was being restored.
    """

    written: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    left_out: tuple[UnrecordedFile, ...] = ()
    changed: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()


class WorkspaceRewind(JsonForm, msgspec.Struct, frozen=True, kw_only=True):
    """What `rewind` did, or would do: to the thread, and to the files."""

    thread: RewindReport
    files: WorkspaceRestore


class Workspace:
    """A folder's files in a thread's log.

    Nothing outside the folder is read or written: links, devices and other file systems are left alone. `ignore` are
    patterns as in `.gitignore`, after sensible defaults; `!pattern` records files that the defaults, or the finder of
    secrets, would leave out. The methods read files on another thread. Raises `InvalidArgument` for a wrong pattern.
    """

    def __init__(
        self,
        thread: Thread | Past | ThreadHandle,
        folder: "str | os.PathLike[str]",
        *,
        ignore: Sequence[str] = (),
        limits: WorkspaceLimits | None = None,
    ) -> None:
        self._thread = handle_of(thread)
        ignored = Ignored(checked_list("ignore", ignore, str, each="pattern"))
        self._folder = Folder(Path(folder), ignored, limits or WorkspaceLimits())

    # reading

    async def files(self, *, at: MomentLike | None = None) -> list[WorkspaceFile]:
        """The recorded files, now or as of a moment, in order of path."""
        return list((await self._tree(at)).values())

    async def read(self, path: str, *, at: MomentLike | None = None) -> bytes | None:
        """The recorded content of a file; `None` if it is not recorded, or was forgotten."""
        row = (await self._tree(at)).get(path)
        return None if row is None else (await self._contents([row])).get(row.digest)

    # recording

    async def record(self) -> WorkspaceRecord:
        """Record what has changed in the folder since the last record: all or nothing, one event if it is not large.

        The first record of a thread is an event even if there are no files. A content that the log holds already is
        referred to. A file that is left out counts as removed. Raises `FolderRefused`, `WorkspaceTooLarge`, and what
        `dispatch` raises.
        """
        self._thread.check_present("a record of files")
        tries = 0
        while True:
            rows = await self._thread.rows(WORKSPACE)
            known, recorded, tree = contents_of(rows), files_of(rows), tree_of(rows)
            base = tree.seq if tree is not None else 0
            era = await era_of(self._thread)
            scan = await on_thread(partial(self._folder.scan, known, _digests(recorded)))
            changes = list(_changes(scan, recorded, known))
            if not changes and tree is not None:
                return WorkspaceRecord(seq=0, left_out=tuple(scan.left_out))
            try:
                receipts = await self._thread.dispatch_all(self._events(changes, f"workspace:{base}{era}"))
            except IdempotencyConflict:
                tries += 1
                if tries >= TRIES_MAX:
                    raise
                continue
            return WorkspaceRecord(
                seq=receipts[-1].seq,
                written=tuple(one.path for one in changes if one.digest),
                removed=tuple(one.path for one in changes if not one.digest),
                left_out=tuple(scan.left_out),
            )

    def _events(self, changes: Sequence[WorkspaceChange], event_id: str) -> list[NewEvent]:
        """The record as events, each of a bearable size."""
        limit = self._thread.kernel.config.event_bytes_max - _ENVELOPE_BYTES
        parts: list[list[WorkspaceChange]] = [[]]
        size, here = 0, set[str]()
        for one in changes:
            bytes_ = len(msgspec.json.encode(one))
            if bytes_ > limit:
                raise WorkspaceTooLarge(str(self._folder.path), f"bytes of an event, for {one.path!r},", limit)
            if size + bytes_ > min(_PART_BYTES, limit):
                parts.append([])
                size, here = 0, set()
            is_repeated = one.digest in here and not one.held_at
            parts[-1].append(msgspec.structs.replace(one, text="", data="") if is_repeated else one)
            here.add(one.digest)
            size += bytes_
        claim = self._thread.kernel.new_id()
        return [
            NewEvent(WorkspaceRecorded(changes=tuple(part), part=n, parts=len(parts), claim=claim), f"{event_id}:{n}")
            for n, part in enumerate(parts)
        ]

    # restoring

    async def restore(
        self, *, at: MomentLike | None = None, dry_run: bool = False, imported: bool = False
    ) -> WorkspaceRestore:
        """Make the folder's files those of the last record, or of a moment; ignored files stay as they are.

        Only files whose content the log holds are replaced or removed; if any other is in the way, nothing is written
        and `WorkspaceChanged` is raised: record the folder first. `imported` is your consent to write files from a log
        that was imported; without it, they raise `ImportedWorkspace`. Raises `WorkspaceNotRecorded`, `FolderRefused`,
        and `OSError` if the system refuses: what was written until then stays, and another call goes on.
        """
        plan = await self._planned(at, imported=imported)
        if dry_run:
            return plan.report
        plan.check(str(self._folder.path))
        kept = await on_thread(lambda: plan.applied(self._folder))
        return msgspec.structs.replace(plan.report, kept=tuple(kept))

    async def rewind(
        self,
        moment: MomentLike | None = None,
        *,
        redo: bool = False,
        dry_run: bool = False,
        reason: str = "",
        imported: bool = False,
    ) -> WorkspaceRewind:
        """Rewind the thread (see `Thread.rewind`) and restore the files of that moment.

        Refuses before anything is recorded or written, as `restore` does. If the folder changes while the thread is
        being rewound, the thread stays rewound, and `restore` says which files are in the way.
        """
        face = Thread(self._thread)
        told = await face.rewind(moment, redo=redo, dry_run=True, reason=reason)
        plan = await self._planned(told.to, imported=imported)
        if dry_run:
            return WorkspaceRewind(thread=told, files=plan.report)
        plan.check(str(self._folder.path))
        report = await face.rewind(moment, redo=redo, reason=reason)
        return WorkspaceRewind(thread=report, files=await self.restore(imported=imported))

    async def _planned(self, at: MomentLike | None, *, imported: bool) -> "_Plan":
        tree = await self._tree(at, needed=True)
        if not imported:
            elsewhere = await imported_of(self._thread.kernel.store, self._thread.id)
            if any(row.seq in elsewhere or row.content_seq in elsewhere for row in tree.values()):
                raise ImportedWorkspace(self._thread.id)
        kept = await self._kept()
        scan = await on_thread(lambda: self._folder.scan(kept, _digests(tree)))
        wanted = _wanted(tree, self._folder.ignored)
        missing = [row for path, row in wanted.items() if not _is_same(scan.files.get(path), row)]
        contents = await self._contents(missing)
        return _Plan.of(tree, wanted, scan, kept, contents)

    # what the log holds

    async def _tree(self, at: MomentLike | None, *, needed: bool = False) -> Mapping[str, WorkspaceFile]:
        """The recorded files by path, as of the end of a whole record."""
        rows: ReadableRows[AnyWorkspaceRow] = await self._thread.rows(WORKSPACE, at=at)
        tree = tree_of(rows)
        if tree is not None and tree.since >= 0:  # in the middle of a record
            rows = await self._thread.rows(WORKSPACE, at=tree.since)
            tree = tree_of(rows)
        if needed and tree is None:
            upto = await self._thread.upto(at)
            raise WorkspaceNotRecorded(self._thread.id, await self._thread.last_seq() if upto is None else upto)
        return files_of(rows)

    async def _recorded(self, seqs: Collection[int]) -> dict[int, WorkspaceRecorded]:
        reader = self._thread.kernel.reader
        found = {}
        for seq, stored in (await reader.rows_at(self._thread.id, set(seqs))).items():
            event = reader.decode(self._thread.id, stored).event
            if isinstance(event, WorkspaceRecorded):
                found[seq] = event
        return found

    async def _contents(self, rows: Iterable[WorkspaceFile]) -> dict[str, bytes]:
        """The contents of files by digest, without those that are gone: each is what its digest says."""
        wanted = {row.digest: row.content_seq for row in rows}
        found: dict[str, bytes] = {}
        for event in (await self._recorded(wanted.values())).values():
            found.update((digest, content) for digest, content in _held(event) if digest in wanted)
        return found

    async def _kept(self) -> frozenset[str]:
        """The digests of all contents that the log holds, those that a rewind took back included."""
        reader, last = self._thread.kernel.reader, (await self._thread.kernel.store.head(self._thread.id)).seq
        forgotten = (await reader.forgotten(self._thread.id)).origins
        kept: set[str] = set()
        async for stored in reader.walk(self._thread.id, upto=last, types=[WorkspaceRecorded.event_type]):
            if stored.seq not in forgotten:
                digests = partial(_held_digests, reader, self._thread.id, stored)
                kept.update(await aside(digests, items=len(stored.payload) // 1000))
        return frozenset(kept)


def _held_digests(reader: LogReader, thread_id: str, stored: StoredEvent) -> list[str]:
    event = reader.decode(thread_id, stored).event
    return [digest for digest, _ in _held(event)] if isinstance(event, WorkspaceRecorded) else []


def _held(event: WorkspaceRecorded) -> Iterator[tuple[str, bytes]]:
    """The contents in an event, by digest, if they are what their digests say."""
    for one in event.changes:
        if one.digest and one.holds_content:
            try:
                content = one.content()
            except UnreadableContent:
                continue
            if digest_of(content) == one.digest:
                yield one.digest, content


def _digests(tree: Mapping[str, WorkspaceFile]) -> dict[str, str]:
    return {path: row.digest for path, row in tree.items()}


def _changes(scan: Scan, recorded: Mapping[str, WorkspaceFile], known: Mapping[str, int]) -> Iterator[WorkspaceChange]:
    for path, one in scan.files.items():
        if _is_same(one, recorded.get(path)):
            continue
        if one.digest in scan.contents:
            yield changed_file(path, one.digest, scan.contents[one.digest], executable=one.executable)
        else:
            yield WorkspaceChange(path, one.digest, one.size, one.executable, held_at=known[one.digest])
    yield from (WorkspaceChange(path) for path in recorded if path not in scan.files)


def _is_same(present: Present | None, row: WorkspaceFile | None) -> bool:
    if present is None or row is None:
        return present is None and row is None
    return (present.digest, present.executable) == (row.digest, row.executable)


def _wanted(tree: Mapping[str, WorkspaceFile], ignored: Ignored) -> dict[str, WorkspaceFile]:
    """The files of a tree that may be written."""
    return {path: row for path, row in tree.items() if not unsafe(path) and not ignored.ignores(path)}


@frozen
class _Plan:
    """The changes to a folder that restore a tree."""

    writes: Sequence[tuple[str, WorkspaceFile, bytes | None, str]]
    """Path, row, content (`None`: only its mode changes), and the digest of the file that it replaces."""
    removals: Sequence[tuple[str, str]]
    report: WorkspaceRestore = field(factory=WorkspaceRestore)

    @classmethod
    def of(
        cls,
        tree: Mapping[str, WorkspaceFile],
        wanted: Mapping[str, WorkspaceFile],
        scan: Scan,
        kept: Collection[str],
        contents: Mapping[str, bytes],
    ) -> "_Plan":
        """Compare a tree with what is in the folder."""
        blocked = [one.path for one in scan.left_out]
        writes: list[tuple[str, WorkspaceFile, bytes | None, str]] = []
        left = [UnrecordedFile(path, unsafe(path) or "it is ignored") for path in tree if path not in wanted]
        changed: list[str] = []
        for path, row in wanted.items():
            present = scan.files.get(path)
            if _is_same(present, row):
                continue
            only_mode = present is not None and present.digest == row.digest
            if any(path == one or path.startswith(f"{one}/") for one in blocked):
                changed.append(path)
            elif not only_mode and row.digest not in contents:
                left.append(UnrecordedFile(path, "its content was forgotten"))
            elif present is not None and not only_mode and present.digest not in kept:
                changed.append(path)
            else:
                replaced = present.digest if present is not None else ""
                writes.append((path, row, None if only_mode else contents[row.digest], replaced))
        gone = {path: one for path, one in scan.files.items() if path not in wanted}
        changed += [path for path, one in gone.items() if one.digest not in kept]
        removals = [(path, one.digest) for path, one in gone.items() if one.digest in kept]
        report = WorkspaceRestore(
            written=tuple(path for path, *_ in writes),
            removed=tuple(path for path, _ in removals),
            left_out=tuple(left),
            changed=tuple(changed),
        )
        return cls(writes, removals, report)

    def check(self, folder: str) -> None:
        """Raise `WorkspaceChanged` if a file is in the way."""
        if self.report.changed:
            raise WorkspaceChanged(folder, self.report.changed)

    def applied(self, folder: Folder) -> list[str]:
        """Do it; removals first, as a folder may become a file. Returns where bytes of others were kept."""
        with folder.opened() as opened:
            kept = [opened.remove(path, digest) for path, digest in self.removals]
            kept += [_written(opened, *one) for one in self.writes]
        return [path for path in kept if path]


def _written(folder: OpenFolder, path: str, row: WorkspaceFile, content: bytes | None, replaced: str) -> str:
    if content is None:
        folder.set_executable(path, row.digest, executable=row.executable)
        return ""
    return folder.write(path, content, executable=row.executable, instead_of=replaced)
