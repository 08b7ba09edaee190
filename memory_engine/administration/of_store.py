"""Acts on a store as a whole, and what comes into it and leaves it: `engine.admin` and `engine.transfer`."""

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING

from memory_engine.core.arguments import (
    PathLike,
    checked_call,
    checked_file,
    checked_flag,
    checked_list,
    checked_path,
    checked_text,
    checked_type,
)
from memory_engine.core.aside import imported
from memory_engine.core.lazy import lazy_module, lazy_modules
from memory_engine.errors import BackupFailed, InvalidArgument, KeyUnsupported, ThreadNotFound
from memory_engine.errors.base import is_url
from memory_engine.runtime.handle import ThreadHandle
from memory_engine.runtime.kernel import Kernel
from memory_engine.runtime.scoped import ScopeHandle
from memory_engine.store.protocol import Backup, Copied, Rekeyable, ThreadFilter

if TYPE_CHECKING:
    from memory_engine.administration import erasing, holds, of_thread, retention
    from memory_engine.core import limits as reading
    from memory_engine.interchange import exporting, importing
    from memory_engine.interchange.systems import System
    from memory_engine.replay import anchors, verify
    from memory_engine.replay.anchors import Anchor, Contradicted
    from memory_engine.replay.divergence import VerifyReport
    from memory_engine.replay.export import archive, claims, importer, redaction
    from memory_engine.replay.verify import VerifyProgress
    from memory_engine.store import keys
    from memory_engine.store.acts import Act
    from memory_engine.store.keys import KeySource
else:
    reading = lazy_module("memory_engine.core.limits")
    keys = lazy_module("memory_engine.store.keys")
    anchors, verify = lazy_modules("memory_engine.replay", "anchors verify")
    erasing, holds, of_thread, retention = lazy_modules(
        "memory_engine.administration", "erasing holds of_thread retention"
    )
    exporting, importing = lazy_modules("memory_engine.interchange", "exporting importing")
    archive, claims, importer = lazy_modules("memory_engine.replay.export", "archive claims importer")


class StoreAdmin:
    """Acts on the whole store: keys, copies, holds, retention, and the record of all of them."""

    def __init__(self, kernel: Kernel, place: str) -> None:
        self._kernel = kernel
        self._place = place

    async def backup(
        self,
        path: PathLike,
        progress: Copied | None = None,
        *,
        key: "KeySource | None" = None,
        plain: bool = False,
    ) -> Backup:
        """Copy the whole store of this moment to one new file, while others keep writing; open it like any other.

        The copy is checked before the file appears: the file itself, and each thread's hash chain (`broken` names the
        threads whose chain does not hold, in the store too). A backup keeps what is erased later. `progress` gets how
        much is copied, and the total. It has the key of an encrypted store, unless you give another `key`, or ask for a
        `plain` one. Raises `FileExistsError`, `InvalidKey`, and `BackupFailed` if the copy is damaged or the store has
        no file.
        """
        place = checked_path("path", path)
        if is_url(place):
            raise BackupFailed(place, "a backup is one file: give a path; `Engine.copy_to` copies to another store")
        told = checked_call("progress", progress) or (lambda *_: None)
        if key is None and not plain:
            return await self._kernel.store.backup(place, told)
        other = await keys.other_key(key, plain=plain)
        return await self._kernel.store.backup(place, told, key=other, plain=plain)

    async def rekey(
        self, new_key: "KeySource | None" = None, progress: Copied | None = None, *, plain: bool = False
    ) -> Backup:
        """Encrypt the store with a new key, or with its first; `plain=True` in place of a key decrypts it.

        The whole file is rewritten as a new one, checked, and put in place at once: killed at any moment, this
        leaves a file that either the old key opens or the new one. Dispatches and reads wait meanwhile. Backups keep
        the key that they were made with. Returns what the new file holds. Raises `StoreInUse` while another process or
        engine has the file open, `KeyUnsupported` for a store that is not a file, `InvalidKey`, `MissingExtra`,
        `ReadOnly`, and `StorageRefused` where no new file can be made: then nothing has changed.
        """
        self._kernel.check_writable("another key")
        key = await keys.other_key(new_key, plain=plain)
        if key is None and not plain:
            raise InvalidArgument("new_key", None, "give a key, or plain=True to decrypt the store")
        store = self._kernel.store
        if not isinstance(store, Rekeyable):
            raise KeyUnsupported(self._place)
        return await store.rekey(key, checked_call("progress", progress) or (lambda *_: None))

    async def acts(self) -> "Sequence[Act]":
        """Erasures, deletions, holds, retentions: who asked for them, why, when, and whether they are complete.

        `state` says so (`done`, `pending`, `failed`), `error` why the last try failed.
        """
        return await self._kernel.store.acts()

    async def holds(self) -> "list[holds.StandingHold]":
        """The current legal holds on threads, users and tenants (see `Admin.hold`), oldest first."""
        return await holds.holds(self._kernel.store)

    async def retain(
        self, rules: "Sequence[retention.RetentionRule]", *, by: str = "", dry_run: bool = False
    ) -> "retention.RetentionReport":
        """Apply retention rules in order: delete, erase, forget or archive what is old enough.

        What was done is an act of the store; `dry_run` only says what would be. Raises `InvalidRetention` before
        anything happens, and `LegalHold` at the end, when everything that is not held is done.
        """
        return await retention.retain(self._kernel, rules, by=by, dry_run=dry_run)

    def retain_every(
        self, every: timedelta, rules: "Sequence[retention.RetentionRule]", *, by: str = ""
    ) -> Callable[[], None]:
        """Apply rules now and again after each `every`, while the engine is open; returns a function that stops it.

        Errors, including a hold in the way, are logged and retried the next time.
        """
        self._kernel.check_writable("retention")
        return retention.retain_every(self._kernel, every, rules, by)

    async def finish_acts(self, *, retry_failed: bool = False) -> "list[erasing.ErasureReport]":
        """Continue acts left unfinished by a process that died, or by a reader in the way.

        Opening a store does this too, in the background. An act that has failed three times is tried with
        `retry_failed` only. Raises `ErasureUnfinished`; at the end, when the others are done, `ActFailed` for an act
        that failed, now or before, and `LegalHold` or `ThreadHasForks` for one that waits.
        """
        self._kernel.check_writable("an act")
        return await erasing.finish_acts(self._kernel, retry_failed=retry_failed)

    async def anchors(self) -> "list[Anchor]":
        """An anchor of each thread's head, in order of creation."""
        found = await self._kernel.store.threads(ThreadFilter())
        return [await of_thread.Replay(ThreadHandle(self._kernel, record.id)).anchor() for record, _ in found]

    async def check_anchors(self, anchored: "Sequence[Anchor]") -> "list[Contradicted]":
        """The anchors that the logs here contradict: a different hash at that seq, or no such thread.

        Each one's `why` says if a recorded act has deleted its thread since, and if another thread has its id now.
        """
        checked = checked_list("anchored", anchored, anchors.Anchor, each="anchors")
        return await anchors.check_anchors(self._kernel, checked)


class Transfer:
    """Logs and memories that come from files, and go to files."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    async def export_all(
        self,
        folder: PathLike,
        *,
        redaction: "redaction.Redaction | None" = None,
        progress: "archive.FolderProgress | None" = None,
    ) -> "archive.StoreExport":
        """Write every thread's log to a new folder: one file each (see `Replay.export`), and a list with digests.

        The list is written last: a folder without it is incomplete. Raises `FileExistsError` unless the folder is new
        or empty, and `FileFailed` for a disk that is full.
        """
        return await archive.export_all(
            self._kernel, checked_file("folder", folder), redaction=redaction, progress=progress
        )

    async def import_log(  # noqa: PLR0913 - what a file may say is allowed by keyword
        self,
        path: PathLike,
        *,
        thread_id: str = "",
        kinds: Collection[str] = ("conversation",),
        tenant_id: str = "",
        user_id: str = "",
        agent_id: str = "",
        parent_id: str = "",
        scopes: "claims.ImportScopes" = "as given",
        progress: "VerifyProgress | None" = None,
    ) -> "importer.ImportReport":
        """Create a thread from a file that `Replay.export` wrote, with the same events, operations and hashes.

        A file says whose thread it is, and anyone can write one: it is taken if its kind is one of `kinds` and its
        owners are the given ones, so by default only a conversation without owners. With `scopes="as exported"`, for
        files of your own, kind and owners are whatever it says. `thread_id` (default: the original id) may be a thread
        that holds a prefix of this log: it is continued. The whole file is checked first.

        Raises `ScopeNotAllowed` with what the file says and the arguments that allow it, `ImportRefused` with the line
        and the reason, `ThreadExists`, `ThreadDiffers` for a thread of another kind or owner, `FileNotFoundError`, and
        `FileFailed` for a file that cannot be read.
        """
        may = claims.allowed(
            scopes=scopes, kinds=kinds, tenant_id=tenant_id, user_id=user_id, agent_id=agent_id, parent_id=parent_id
        )
        await imported(importer)
        return await importer.import_log(
            self._kernel, checked_file("path", path), thread_id=thread_id, allowed=may, progress=progress
        )

    async def import_all(
        self,
        folder: PathLike,
        *,
        scopes: "claims.ImportScopes" = "as given",
        progress: "archive.FolderProgress | None" = None,
    ) -> "archive.StoreImport":
        """Create the threads in a folder that `export_all` wrote, each as `import_log` does.

        Pass `scopes="as exported"` for an archive of your own: by default only conversations without owners are taken.
        Threads already here are skipped: if an import is interrupted, run it again. A thread that cannot be imported is
        named in the report, with the reason. Raises `ImportRefused` for a folder without a complete list.
        """
        may = claims.Allowed(everything=claims.checked_scopes(scopes) == claims.AS_EXPORTED)
        return await archive.import_all(self._kernel, checked_file("folder", folder), allowed=may, progress=progress)

    async def import_memories(  # noqa: PLR0913 - whose they are, and how to read them, by keyword
        self,
        path: PathLike,
        *,
        user_id: str,
        tenant_id: str = "",
        system: "System" = "auto",
        source_user: str = "",
        dry_run: bool = False,
        limits: "reading.ReadingLimits | None" = None,
        progress: "importing.MemoriesProgress | None" = None,
    ) -> "importing.MemoriesImported":
        """Take memories that another system exported (mem0, Letta, Zep, MIF, a `.mem` bundle) as a user's.

        They become events of the user's own thread: facts, episodes, rules and preferences of the origin "imported",
        with the system and the id that they have there. A memory comes once: a second import of the file adds nothing,
        and forgotten or removed ones do not come back. The whole file is read first. Other content is
        counted in the report, by kind. A file with memories of several users needs `source_user`, the one to take.

        Raises `ImportRefused` with what was seen, `InvalidArgument`, `InvalidIdentifier`, `FileNotFoundError`,
        `FileRefused` for one that is too large, `FileFailed`; then nothing was written.
        """
        limits = reading.DEFAULT_LIMITS if limits is None else limits
        checked_type("limits", limits, reading.ReadingLimits, give="ReadingLimits")
        checked_call("progress", progress)
        await imported(importing)
        options = importing.ImportOptions(
            system=system,
            source_user=checked_text("source_user", source_user),
            dry_run=checked_flag("dry_run", dry_run),
            limits=limits,
        )
        user = ScopeHandle(self._kernel, "user", user_id, tenant_id)
        return await importing.import_memories(user, checked_file("path", path), options, progress)

    async def export_memories(  # noqa: PLR0913 - whose they are, and what goes with them, by keyword
        self,
        folder: PathLike,
        *,
        user_id: str,
        tenant_id: str = "",
        logs: bool = True,
        dry_run: bool = False,
        progress: "exporting.ExportProgress | None" = None,
    ) -> "exporting.MemoriesExported":
        """Write a user's memory to a new folder, as a Portable Memory bundle (`.mem`) with proof.

        It holds the entries and preferences of the user's own thread; each names the events that it came from: thread,
        seq and hash. Beside them are the logs of the user's threads (without them: `logs=False`), without the texts of
        what was forgotten. `memory_engine.interchange.check_memories` compares the two. Raises `FileExistsError` unless
        the folder is new or empty, `InvalidIdentifier`, and `FileFailed` for a disk that is full.
        """
        checked_flag("logs", logs)
        checked_flag("dry_run", dry_run)
        checked_call("progress", progress)
        await imported(exporting)
        user = ScopeHandle(self._kernel, "user", user_id, tenant_id)
        return await exporting.export_memories(
            user, checked_file("folder", folder), logs=logs, dry_run=dry_run, progress=progress
        )


async def verify_threads(
    kernel: Kernel, thread_ids: Sequence[str], progress: "VerifyProgress | None", *, may_go: bool = False
) -> "list[VerifyReport]":
    """Verify threads one after another; `progress` counts the events of all of them.

    Raises `ThreadNotFound`, unless threads `may_go`: then one that is deleted meanwhile has no report.
    """
    reports: list[VerifyReport] = []
    for thread_id in thread_ids:
        before = sum(report.events for report in reports)
        counted = None if progress is None else verify.counted_from(progress, before)
        with suppress(*((ThreadNotFound,) if may_go else ())):
            reports.append(await of_thread.Replay(ThreadHandle(kernel, thread_id)).verify(counted))
    return reports
