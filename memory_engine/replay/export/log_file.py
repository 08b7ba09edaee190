"""A log as a file: a header, a line for each event, and a last line that says the file is whole.

JSON lines in UTF-8. Payload and operations are in the lines byte for byte, as recorded: the hashes are over
those bytes. docs/how-to/backup-and-export.md describes the format for people.

Exports are read line by line; a file that was altered is refused with the number of the line.
"""

import gzip
import hashlib
import sys
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Annotated, BinaryIO, NoReturn, TypeVar, cast

import msgspec
from attrs import frozen
from msgspec import Meta

from memory_engine.core.bounded import open_file
from memory_engine.core.chain import apply_rows, commitments, is_redacted, link_hash, live_chunk
from memory_engine.core.codec import decode_reduction
from memory_engine.core.executor import check_ids
from memory_engine.core.ids import check_identifier
from memory_engine.core.records import StoredEvent
from memory_engine.core.state import State, Tally
from memory_engine.core.threads import UNREADABLE, LiveChunk, ThreadRecord, check_record
from memory_engine.errors import (
    ForeignChunkId,
    ImportRefused,
    IntegrityError,
    InvalidIdentifier,
    InvalidInput,
    InvalidOperation,
)
from memory_engine.replay.export.claims import check_policy

FORMAT = "memory_engine log"
FORMAT_VERSION = 2
HEADER_HASHED_SINCE = 2
"""From this version on the last line has the hash of the first."""
LINE_BYTES_MAX = 256 * 1024 * 1024
PACKED_RATIO_MAX, PACKED_FREE_BYTES = 200, 64 * 1024 * 1024
"""A compressed log may unpack to this number of times its size, or to this number of bytes."""
SALT_BYTES_MAX = 63
"""A salt is shorter than 64 bytes, which would say that the row is redacted."""
_NOTHING = b"null"

HexDigest = Annotated[str, Meta(pattern="^[0-9a-f]{64}$", description="SHA-256 in hexadecimal.")]
AnyDigest = Annotated[str, Meta(pattern="^([0-9a-f]{64})?$", description="SHA-256 in hexadecimal; empty: of nothing.")]
Salt = Annotated[str, Meta(pattern=f"^([0-9a-f]{{2}}){{1,{SALT_BYTES_MAX}}}$", description="Bytes in hexadecimal.")]
FileSeq = Annotated[int, Meta(ge=1, le=0xFFFF_FFFF)]
Count = Annotated[int, Meta(ge=0, le=0xFFFF_FFFF)]
Version = Annotated[int, Meta(ge=1, le=0x7FFF_FFFF)]
NonEmpty = Annotated[str, Meta(min_length=1)]
FIRST_US, LAST_US = -62_135_596_800_000_000, 253_402_300_799_999_999
"""The years 1 to 9999: other times cannot be read back."""
Time = Annotated[int, Meta(ge=FIRST_US, le=LAST_US, description="Microseconds since 1970, UTC.")]
Payload = Annotated[
    msgspec.Raw,
    Meta(description="The event, in the schema of its type and version.", extra_json_schema={"type": "object"}),
]
RawRecord = Annotated[
    msgspec.Raw,
    Meta(
        description="What the event did: operations, new chunks, what they share with the payload; null: nothing.",
        extra_json_schema={"type": ["array", "null"]},
    ),
]


class Redacted(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A summary of the redaction, without what it hides: patterns and places by their number only."""

    fields: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    patterns: Count = 0
    seqs: Count = 0
    forgotten: bool = False


class FileHead(msgspec.Struct, frozen=True):
    """The last event in the file; seq 0 without events."""

    seq: Count
    hash: AnyDigest


class FileHeader(msgspec.Struct, frozen=True, kw_only=True):
    """The first line. The origin of a fork is for information: the file holds its whole past."""

    format: Annotated[str, Meta(pattern=f"^{FORMAT}$")]
    version: Version
    thread: ThreadRecord
    head: FileHead
    redaction: Redacted | None = None


class FileEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An event.

    With `commitments` (to payload and record) in place of the salt it is redacted: the hash is over the recorded bytes,
    and stand-ins replace its texts.
    """

    seq: FileSeq
    id: NonEmpty
    type: NonEmpty
    version: Version
    recorded_at_us: Time
    occurred_at_us: Time | None = None
    causation_id: str = ""
    correlation_id: str = ""
    salt: Salt | None = None
    commitments: tuple[HexDigest, HexDigest] | None = None
    hash: HexDigest
    payload: Payload
    record: RawRecord


class FileEnd(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The last line: how many events there are, how many of them redacted, and the hash of the last.

    `header` is the hash of the first line, without its end: none in files of version 1.
    """

    end: Count
    hash: AnyDigest
    header: HexDigest | None = None
    redacted: Count = 0


class FormatOf(msgspec.Struct, frozen=True):
    """The marks of an export, and its version."""

    format: str
    version: int


def line_of(value: FileHeader | FileEvent | FileEnd) -> bytes:
    """A line, with its end."""
    return msgspec.json.encode(value) + b"\n"


def header_hash(line: bytes) -> str:
    """The hash of a first line."""
    return hashlib.sha256(line.strip()).hexdigest()


def event_line(stored: StoredEvent) -> FileEvent:
    """The line of a row."""
    if is_redacted(stored):
        salt, digests = None, tuple(digest.hex() for digest in commitments(stored))
    else:
        salt, digests = stored.salt.hex(), None
    return FileEvent(
        seq=stored.seq,
        id=stored.id,
        type=stored.type,
        version=stored.version,
        recorded_at_us=stored.recorded_at_us,
        occurred_at_us=stored.occurred_at_us,
        causation_id=stored.causation_id,
        correlation_id=stored.correlation_id,
        salt=salt,
        commitments=(digests[0], digests[1]) if digests is not None else None,
        hash=stored.hash.hex(),
        payload=msgspec.Raw(stored.payload),
        record=msgspec.Raw(stored.record or _NOTHING),
    )


def row_of(line: FileEvent) -> StoredEvent:
    """The row of a line. Raises `ValueError` unless it has either a salt or commitments."""
    if (line.salt is None) == (line.commitments is None):
        raise ValueError("an event has either a salt or commitments")
    record = bytes(line.record)
    return StoredEvent(
        seq=line.seq,
        id=line.id,
        type=line.type,
        version=line.version,
        recorded_at_us=line.recorded_at_us,
        occurred_at_us=line.occurred_at_us,
        causation_id=line.causation_id,
        correlation_id=line.correlation_id,
        payload=bytes(line.payload),
        record=b"" if record == _NOTHING else record,
        salt=bytes.fromhex(line.salt if line.salt is not None else "".join(line.commitments or ())),
        hash=bytes.fromhex(line.hash),
    )


def schema() -> dict[str, object]:
    """The JSON schema of a line."""
    lines, definitions = msgspec.json.schema_components([FileHeader, FileEvent, FileEnd], ref_template="#/$defs/{name}")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A line of an exported log: the first is a FileHeader, the last a FileEnd, all between are FileEvents",
        "oneOf": list(lines),
        "$defs": definitions,
    }


T = TypeVar("T", FormatOf, FileHeader, FileEvent, FileEnd)

_GZIP = b"\x1f\x8b"
_OF_EVENTS = b'"payload"'
_CHANGED = "its hash is not that of what it says and of the lines before: it, or their order, was changed"
CHUNK_DIGITS_MAX = 18
"""The greatest number of a chunk in its event: stores keep 63 bits."""
_REFORMATTED = (
    "its JSON was written anew by another program (other spaces or escapes), and the hash is over bytes: "
    "take the file as it was exported"
)


@frozen
class FileBatch:
    """Some events in order, and what they do to a state: live rows by chunk (`None`: gone), and the counters after."""

    rows: Sequence[StoredEvent]
    live: Mapping[str, LiveChunk | None]
    tally: Tally


class LogFile:
    """An export, open from its header on. It holds one batch of events, and the state that they make.

    `hash` is of the last event that was taken (empty: of none), `redacted` counts those that are. `header_hashed` says,
    at the end of the file, whether a hash covers the header. All methods that read raise `ImportRefused`.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._line = 0
        self._ids: set[str] = set()
        self._state = State()
        self._is_whole = False
        self._unpacked_bytes, self._unpacked_max = 0, sys.maxsize
        self.hash = b""
        self.redacted = 0
        self.header_hashed = False
        self._header_hash = ""
        self._raw = open_file(path)
        try:
            self._file = self._unpacked()
            self.header = self._header()
        except BaseException:  # close the file after any error; it goes on to the caller
            self._raw.close()
            raise

    def __enter__(self) -> "LogFile":
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._raw.close()

    @property
    def seq(self) -> int:
        """The seq of the last event that was taken, 0 before the first."""
        return self._state.seq

    def take(self, limit: int, size: int) -> FileBatch | None:
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
                apply_rows(draft, (stored,), self.header.thread.id, None)
            except (InvalidOperation, IntegrityError, *UNREADABLE) as error:
                why = error.why if isinstance(error, IntegrityError) else str(error)
                self._refuse(f"what it did cannot be applied: {why}")
            rows.append(stored)
            size -= len(line)
        if not rows:
            return None
        live = {chunk_id: live_chunk(placed) for chunk_id, placed in draft.touched.items()}
        self._state = draft.freeze(draft.seq)
        return FileBatch(rows, live, self._state.tally)

    def _header(self) -> FileHeader:
        line = self._read_line()
        try:
            found = msgspec.json.decode(line, type=FormatOf)
        except UNREADABLE:
            self._refuse("this is not an exported log: the first line says neither `format` nor `version`")
        if found.format != FORMAT:
            self._refuse(f"this is not an exported log: its format is {found.format!r}")
        if found.version > FORMAT_VERSION:
            known = f"this package knows up to {FORMAT_VERSION}; upgrade"
            self._refuse(f"the file is of version {found.version} of the format, {known}")
        header = self._decoded(line, FileHeader)
        try:
            check_record(header.thread)
            check_policy(header.thread.policy)
        except InvalidInput as error:
            self._refuse(str(error))
        if not FIRST_US <= header.thread.created_at_us <= LAST_US:
            self._refuse(f"the thread's `created_at_us` is {header.thread.created_at_us:,}, which is not a time")
        self._header_hash = header_hash(line)
        return header

    def _event(self, line: bytes, seq: int) -> StoredEvent:
        """An event's row; refused unless it is the next one."""
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
        stored = msgspec.structs.replace(stored, previous=self.hash)
        self.hash = stored.hash
        self.redacted += is_redacted(stored)
        return stored

    def _end(self, line: bytes, seq: int) -> None:
        """Check the last line: the file must hold exactly the events that it and the header announce."""
        end = self._decoded(line, FileEnd)
        for told in ((end.end, end.hash), (self.header.head.seq, self.header.head.hash)):
            if told != (seq, self.hash.hex()):
                self._refuse(
                    f"the file holds {seq} events, its first or last line says {told[0]}, or another last hash"
                )
        if end.header is None and self.header.version >= HEADER_HASHED_SINCE:
            self._refuse("the last line lacks the hash of the first, which every file of this version has")
        if end.header not in (None, self._header_hash):
            self._refuse("the first line has another hash than the last line says: one of them was changed")
        self.header_hashed = end.header is not None
        if end.redacted != self.redacted:
            self._refuse(f"{self.redacted} events are redacted, the last line says {end.redacted}")
        self._line += 1
        if self._some_bytes().strip():
            self._refuse("more follows after what must be the last line")
        self._is_whole = True

    def _decoded(self, line: bytes, kind: type[T]) -> T:
        try:
            line.decode()  # raw parts are not decoded elsewhere
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
            line = self._file.readline(LINE_BYTES_MAX + 1)
            self._unpacked_bytes += len(line)
            if self._unpacked_bytes > self._unpacked_max:
                why = (
                    f"it unpacks to over {PACKED_RATIO_MAX} times its size; if you trust it, unpack it (gunzip) before"
                )
                self._refuse(why)
            return line
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            self._refuse(f"the compressed file is damaged or cut off: {error}")

    def _unpacked(self) -> BinaryIO:
        """The file's content, unpacked where it is compressed under any name."""
        is_packed = self._raw.read(len(_GZIP)) == _GZIP
        if is_packed:
            self._unpacked_max = max(PACKED_FREE_BYTES, PACKED_RATIO_MAX * self._path.stat().st_size)
        self._raw.seek(0)
        return cast("BinaryIO", gzip.GzipFile(fileobj=self._raw, mode="rb")) if is_packed else self._raw

    def _refuse(self, why: str) -> NoReturn:
        raise ImportRefused(str(self._path), max(1, self._line), why) from None


def _check_texts(stored: StoredEvent) -> None:
    """Raise `InvalidIdentifier` for an id that a store could not hold or compare exactly."""
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
    record = _reencoded_json(stored.record) if stored.record else b""
    return msgspec.structs.replace(stored, payload=_reencoded_json(stored.payload), record=record)


def _reencoded_json(text: bytes) -> bytes:
    return msgspec.json.encode(msgspec.json.decode(text))
