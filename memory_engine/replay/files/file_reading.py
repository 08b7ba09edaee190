"""Exports read line by line: every way in which a file may not be what was written is refused, by its line."""

import gzip
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, NoReturn, TypeVar, cast

import msgspec
from attrs import frozen

from memory_engine.codec import decode_reduction
from memory_engine.errors import ForeignChunkId, ImportRefused, IntegrityError, InvalidIdentifier, InvalidOperation
from memory_engine.executor import check_ids
from memory_engine.ids import check_identifier
from memory_engine.log import fold, is_redacted, link_hash, live_chunk
from memory_engine.persistence import LiveChunk, check_record
from memory_engine.records import StoredEvent
from memory_engine.replay.files.log_file import (
    FIRST_US,
    FORMAT,
    FORMAT_VERSION,
    LAST_US,
    LINE_BYTES_MAX,
    FileEnd,
    FileEvent,
    FileHeader,
    FormatOf,
    row_of,
)
from memory_engine.state import State, Tally

T = TypeVar("T", FormatOf, FileHeader, FileEvent, FileEnd)

_GZIP = b"\x1f\x8b"
_OF_EVENTS = b'"payload"'
_CHANGED = "its hash is not that of what it says and of the lines before: it, or their order, was changed"
CHUNK_DIGITS_MAX = 18
"""Of the number that a chunk has in its event: stores keep 63 bits."""
_REFORMATTED = (
    "its JSON was written anew by another program (other spaces or escapes), and the hash is over bytes: "
    "take the file as it was exported"
)


@frozen
class Batch:
    """Some events in order, and what they do to a state: live rows by chunk (`None`: gone), and the counters after."""

    rows: Sequence[StoredEvent]
    live: Mapping[str, LiveChunk | None]
    tally: Tally


class LogFile:
    """An export, open from its header on. It holds one batch of events, and the state that they make.

    `hash` is of the last event that was taken (empty: of none), `redacted` counts those that are. All that reads
    raises `ImportRefused`.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._line = 0
        self._ids: set[str] = set()
        self._state = State()
        self._is_whole = False
        self.hash = b""
        self.redacted = 0
        self._raw = path.open("rb")
        try:
            self._file = self._unpacked()
            self.header = self._header()
        except BaseException:  # whatever it is, the file is closed; it goes on to the caller
            self._raw.close()
            raise

    def __enter__(self) -> "LogFile":
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._raw.close()

    @property
    def seq(self) -> int:
        """The seq of the last event that was taken, 0 before the first."""
        return self._state.seq

    def take(self, limit: int, size: int) -> Batch | None:
        """The next events: at most `limit`, and about `size` bytes of them; `None` at the end of the whole file."""
        rows: list[StoredEvent] = []
        draft = self._state.draft()
        while len(rows) < limit and size > 0 and not self._is_whole:
            line = self._read_line()
            if _OF_EVENTS not in line:
                self._end(line, draft.seq)
                break
            stored = self._event(line, draft.seq + 1)
            try:
                _check_chunk_ids(stored)
                fold(draft, (stored,), self.header.thread.id)
            except (InvalidOperation, IntegrityError, msgspec.MsgspecError, UnicodeDecodeError) as error:
                why = error.why if isinstance(error, IntegrityError) else str(error)
                self._refuse(f"what it did cannot be applied: {why}")
            rows.append(stored)
            size -= len(line)
        if not rows:
            return None
        live = {chunk_id: live_chunk(placed) for chunk_id, placed in draft.touched.items()}
        self._state = draft.freeze(draft.seq)
        return Batch(rows, live, self._state.tally)

    def _header(self) -> FileHeader:
        line = self._read_line()
        try:
            found = msgspec.json.decode(line, type=FormatOf)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            self._refuse("this is no exported log: the first line says neither `format` nor `version`")
        if found.format != FORMAT:
            self._refuse(f"this is no exported log: its format is {found.format!r}")
        if found.version > FORMAT_VERSION:
            known = f"this package knows up to {FORMAT_VERSION}; upgrade"
            self._refuse(f"the file is of version {found.version} of the format, {known}")
        header = self._decoded(line, FileHeader)
        try:
            check_record(header.thread)
        except InvalidIdentifier as error:
            self._refuse(str(error))
        if not FIRST_US <= header.thread.created_at_us <= LAST_US:
            self._refuse(f"the thread's `created_at_us` is {header.thread.created_at_us:,}, which is no time")
        return header

    def _event(self, line: bytes, seq: int) -> StoredEvent:
        """An event's row, if it is the one that comes after all that was taken."""
        try:
            stored = row_of(self._decoded(line, FileEvent))
            _check_texts(stored)
        except (ValueError, InvalidIdentifier) as error:
            self._refuse(str(error))
        if stored.seq < seq:
            self._refuse(f"event {stored.seq} comes a second time, or after a later one")
        if stored.seq > seq:
            self._refuse(f"event {seq} is missing: event {stored.seq} comes in its place")
        if stored.id in self._ids:
            self._refuse(f"another event has the id {stored.id!r} too")
        if link_hash(stored, self.hash) != stored.hash:
            self._refuse(_REFORMATTED if link_hash(_compact(stored), self.hash) == stored.hash else _CHANGED)
        self._ids.add(stored.id)
        self.hash = stored.hash
        self.redacted += is_redacted(stored)
        return stored

    def _end(self, line: bytes, seq: int) -> None:
        """The last line: the file must hold just what it and the header say."""
        end = self._decoded(line, FileEnd)
        for told in ((end.end, end.hash), (self.header.head.seq, self.header.head.hash)):
            if told != (seq, self.hash.hex()):
                self._refuse(
                    f"the file holds {seq} events, its first or last line says {told[0]}, or another last hash"
                )
        if end.redacted != self.redacted:
            self._refuse(f"{self.redacted} events are redacted, the last line says {end.redacted}")
        self._line += 1
        if self._some_bytes().strip():
            self._refuse("more follows after what must be the last line")
        self._is_whole = True

    def _decoded(self, line: bytes, kind: type[T]) -> T:
        try:
            line.decode()  # what stays raw is not looked at otherwise
            return msgspec.json.decode(line, type=kind)
        except UnicodeDecodeError:
            self._refuse("it is not UTF-8")
        except msgspec.ValidationError as error:
            self._refuse(str(error))
        except (msgspec.DecodeError, RecursionError) as error:
            self._refuse(f"not JSON, or cut off: {error}")

    def _read_line(self) -> bytes:
        self._line += 1
        line = self._some_bytes()
        if not line:
            why = "the file ends before its last line: it was cut off" if self._line > 1 else "the file is empty"
            self._refuse(why)
        if len(line) > LINE_BYTES_MAX:
            self._refuse(f"the line has more than {LINE_BYTES_MAX} bytes")
        return line

    def _some_bytes(self) -> bytes:
        """The next line, or the beginning of one that is too long."""
        try:
            return self._file.readline(LINE_BYTES_MAX + 1)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            self._refuse(f"the compressed file is damaged or cut off: {error}")

    def _unpacked(self) -> BinaryIO:
        """What the file holds, whatever its name says."""
        is_packed = self._raw.read(len(_GZIP)) == _GZIP
        self._raw.seek(0)
        return cast("BinaryIO", gzip.GzipFile(fileobj=self._raw, mode="rb")) if is_packed else self._raw

    def _refuse(self, why: str) -> NoReturn:
        raise ImportRefused(str(self._path), max(1, self._line), why) from None


def _check_texts(stored: StoredEvent) -> None:
    """Raise `InvalidIdentifier` for what no store could hold or compare exactly."""
    check_identifier("event id", stored.id)
    check_identifier("event type", stored.type)
    for what, value in (("causation id", stored.causation_id), ("correlation id", stored.correlation_id)):
        if value:
            check_identifier(what, value)


def _check_chunk_ids(stored: StoredEvent) -> None:
    """Raise `ForeignChunkId` for a chunk's id that is not of the event, or has a number that no store keeps."""
    chunks = decode_reduction(stored.record).chunks
    check_ids(chunks, seq=stored.seq)
    for chunk in chunks:
        if len(chunk.id.partition(".")[2]) > CHUNK_DIGITS_MAX:
            raise ForeignChunkId(chunk.id)


def _compact(stored: StoredEvent) -> StoredEvent:
    """The row with its JSON as the engine writes it."""
    record = _written(stored.record) if stored.record else b""
    return msgspec.structs.replace(stored, payload=_written(stored.payload), record=record)


def _written(text: bytes) -> bytes:
    return msgspec.json.encode(msgspec.json.decode(text))
