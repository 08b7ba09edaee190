"""Export: a thread's whole log as one file, redacted if that is asked for. Reads only."""

import asyncio
import gzip
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import TracebackType

import msgspec
from attrs import frozen

from memory_engine.core.arguments import checked_type
from memory_engine.core.aside import on_thread
from memory_engine.core.chain import is_redacted, link_hash
from memory_engine.core.json_form import JsonForm
from memory_engine.core.records import StoredEvent
from memory_engine.core.threads import ThreadRecord
from memory_engine.errors import IntegrityError, ThreadNotFound
from memory_engine.replay.export.log_file import (
    FORMAT,
    FORMAT_VERSION,
    FileEnd,
    FileHead,
    FileHeader,
    event_line,
    header_hash,
    line_of,
)
from memory_engine.replay.export.redaction import Redaction
from memory_engine.replay.export.redactor import RedactedLog
from memory_engine.replay.verify import VerifyProgress
from memory_engine.runtime.handle import ThreadHandle
from memory_engine.runtime.kernel import Kernel
from memory_engine.store.new_file import beside, check_free, file_errors, put_in_place, sync
from memory_engine.store.protocol import ThreadFilter
from memory_engine.store.reader import MomentLike, seq_of

COMPRESSED = ".gz"
_LEVEL = 6


@frozen(kw_only=True)
class ExportReport(JsonForm):
    """The written file. `bytes` is its size, `redacted` counts events whose texts were taken out.

    `idle_rules` are rules of the redaction that matched nothing: misspelt, perhaps. `broken_at` is the seq of the first
    event whose hash is not its own (0: none): the file repeats the log, and no import takes it.
    """

    path: str
    thread_id: str
    events: int
    redacted: int
    bytes: int
    head_hash: str
    idle_rules: tuple[str, ...] = ()
    broken_at: int = 0


async def export(  # noqa: PLR0913 - the options of an export, by keyword
    thread: ThreadHandle,
    path: Path,
    *,
    upto: MomentLike | None = None,
    redaction: Redaction | None = None,
    progress: VerifyProgress | None = None,
    compress: bool = False,
    force: bool = False,
) -> ExportReport:
    """Write the log of a thread up to a moment (default: the head) to a file; see `Replay.export`.

    `compress` packs it also where its name does not end in `.gz`, `force` replaces a file that is there. The file is
    there when it is whole, not before. Raises `FileExistsError`, `IntegrityError` where the log cannot be read,
    `InvalidRedaction` for texts that cannot be taken out.
    """
    kernel = thread.kernel
    if redaction is not None:
        checked_type("redaction", redaction, Redaction, give="a Redaction")
    with file_errors(path):
        check_free(path, force=force)
    log = await _log_of(thread, upto, redaction)
    at_head = (await kernel.reader.rows_at(thread.id, {log.upto})).get(log.upto)
    digest = at_head.hash.hex() if at_head is not None else ""
    header = FileHeader(
        format=FORMAT,
        version=FORMAT_VERSION,
        thread=log.thread,
        head=FileHead(log.upto, digest),
        redaction=redaction.told() if redaction is not None else None,
    )
    lines = _Lines(thread.id)
    is_packed = compress or path.name.endswith(COMPRESSED)
    with file_errors(path), _NewFile(path, compress=is_packed, force=force) as file:
        file.write(first := line_of(header))
        async for rows in log.pages():
            await on_thread(partial(_write_rows, file, lines, rows))
            if progress is not None:
                progress(lines.events)
        end = FileEnd(end=lines.events, hash=digest, header=header_hash(first), redacted=lines.redacted)
        file.write(line_of(end))
        size = await asyncio.to_thread(file.finish)
    return ExportReport(
        path=str(path),
        thread_id=thread.id,
        events=lines.events,
        redacted=lines.redacted,
        bytes=size,
        head_hash=digest,
        idle_rules=log.idle(),
        broken_at=lines.broken_at,
    )


async def _log_of(thread: ThreadHandle, upto: MomentLike | None, redaction: Redaction | None) -> "Log | RedactedLog":
    kernel = thread.kernel
    found = await kernel.store.threads(ThreadFilter(id=thread.id))
    if not found:
        raise ThreadNotFound(thread.id)
    record, head = found[0]
    seq = head.seq if upto is None else await seq_of(kernel.store, thread.id, upto)
    if redaction is None:
        return Log(kernel, record, seq)
    return await RedactedLog.of(kernel, record, seq, redaction)


class Log:
    """A thread's recorded log up to a seq."""

    def __init__(self, kernel: Kernel, thread: ThreadRecord, upto: int) -> None:
        self._kernel = kernel
        self.thread = thread
        self.upto = upto

    def pages(self) -> AsyncIterator[Sequence[StoredEvent]]:
        """Its rows, in order."""
        return self._kernel.reader.raw_pages(self.thread.id, upto=self.upto)

    def idle(self) -> tuple[str, ...]:
        """The rules that took nothing out: an export that is not redacted has no rules."""
        return ()


def _write_rows(file: "_NewFile", lines: "_Lines", rows: Sequence[StoredEvent]) -> None:
    file.write(lines.of(rows))


class _Lines:
    """The lines of rows that are given in order, and what is found on the way."""

    def __init__(self, thread_id: str) -> None:
        self.events = 0
        self.redacted = 0
        self.broken_at = 0
        self._previous = b""
        self._thread_id = thread_id

    def of(self, rows: Sequence[StoredEvent]) -> bytes:
        """Their lines. Raises `IntegrityError` for a row that no line can hold."""
        return b"".join([self._line(stored) for stored in rows])

    def _line(self, stored: StoredEvent) -> bytes:
        for what, text in (("payload", stored.payload), ("record", stored.record or b"null")):
            if not _is_on_one_line(text):
                why = f"its {what} is not JSON, so no file can hold it; you can export the events before it (upto)"
                raise IntegrityError(self._thread_id, stored.seq, why)
        if not self.broken_at and link_hash(stored, self._previous) != stored.hash:
            self.broken_at = stored.seq
        self._previous = stored.hash
        self.events += 1
        self.redacted += is_redacted(stored)
        return line_of(event_line(stored))


def _is_on_one_line(text: bytes) -> bool:
    try:
        msgspec.json.decode(text, type=msgspec.Raw)
    except (msgspec.DecodeError, RecursionError):
        return False
    return b"\n" not in text


class _NewFile:
    """A temporary file, which gets its name once it is whole."""

    def __init__(self, path: Path, *, compress: bool, force: bool) -> None:
        self._path = path
        self._force = force
        self._beside = beside(path)
        self._raw = self._beside.open("xb")
        # neither a name nor a time inside: the same log gives the same bytes
        self._packed = gzip.GzipFile("", "wb", _LEVEL, self._raw, mtime=0) if compress else None

    def __enter__(self) -> "_NewFile":
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        with suppress(OSError, ValueError):
            if self._packed is not None:
                self._packed.close()
        self._raw.close()
        self._beside.unlink(missing_ok=True)

    def write(self, lines: bytes) -> None:
        """Go on with these lines."""
        (self._packed or self._raw).write(lines)

    def finish(self) -> int:
        """Let the file be there, on the disk; gives its bytes. Raises `FileExistsError` where another is by now."""
        if self._packed is not None:
            self._packed.close()
        sync(self._raw)
        size = self._raw.tell()
        self._raw.close()
        put_in_place(self._beside, self._path, force=self._force)
        return size
