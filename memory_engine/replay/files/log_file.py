"""A log as a file: a header, a line for each event, and a last line that says the file is whole.

JSON lines in UTF-8. Payload and operations stand in the lines byte for byte as they are recorded: the hashes are over
those bytes. docs/export.md describes the format for people.
"""

from typing import Annotated

import msgspec
from msgspec import Meta

from memory_engine.log import commitments, is_redacted
from memory_engine.persistence import ThreadRecord
from memory_engine.records import StoredEvent

FORMAT = "memory_engine log"
FORMAT_VERSION = 1
LINE_BYTES_MAX = 256 * 1024 * 1024
SALT_BYTES_MAX = 63
"""One of 64 bytes would say that the row is redacted."""
_NOTHING = b"null"

Digest = Annotated[str, Meta(pattern="^[0-9a-f]{64}$", description="SHA-256 in hexadecimal.")]
AnyDigest = Annotated[str, Meta(pattern="^([0-9a-f]{64})?$", description="SHA-256 in hexadecimal; empty: of nothing.")]
Salt = Annotated[str, Meta(pattern=f"^([0-9a-f]{{2}}){{1,{SALT_BYTES_MAX}}}$", description="Bytes in hexadecimal.")]
Seq = Annotated[int, Meta(ge=1, le=0xFFFF_FFFF)]
Count = Annotated[int, Meta(ge=0, le=0xFFFF_FFFF)]
Version = Annotated[int, Meta(ge=1, le=0x7FFF_FFFF)]
Name = Annotated[str, Meta(min_length=1)]
FIRST_US, LAST_US = -62_135_596_800_000_000, 253_402_300_799_999_999
"""The years 1 to 9999: no other time can be read back."""
Time = Annotated[int, Meta(ge=FIRST_US, le=LAST_US, description="Microseconds since 1970, UTC.")]
Payload = Annotated[
    msgspec.Raw,
    Meta(description="The event, in the schema of its type and version.", extra_json_schema={"type": "object"}),
]
Record = Annotated[
    msgspec.Raw,
    Meta(
        description="What the event did: operations, new chunks, what they share with the payload; null: nothing.",
        extra_json_schema={"type": ["array", "null"]},
    ),
]


class Redacted(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What was taken out, as far as it may be told: patterns and places by their number only."""

    fields: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    patterns: Count = 0
    seqs: Count = 0
    forgotten: bool = False


class FileHead(msgspec.Struct, frozen=True):
    """The last event in the file; seq 0 where there is none."""

    seq: Count
    hash: AnyDigest


class FileHeader(msgspec.Struct, frozen=True, kw_only=True):
    """The first line. What the thread was forked from is for information: the file holds its whole past."""

    format: Annotated[str, Meta(pattern=f"^{FORMAT}$")]
    version: Version
    thread: ThreadRecord
    head: FileHead
    redaction: Redacted | None = None


class FileEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An event.

    With `commitments` (to payload and record) in place of the salt it is redacted: the hash is over what was recorded,
    and stand-ins are in the place of its texts.
    """

    seq: Seq
    id: Name
    type: Name
    version: Version
    recorded_at_us: Time
    occurred_at_us: Time | None = None
    causation_id: str = ""
    correlation_id: str = ""
    salt: Salt | None = None
    commitments: tuple[Digest, Digest] | None = None
    hash: Digest
    payload: Payload
    record: Record


class FileEnd(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The last line: how many events there are, how many of them redacted, and the hash of the last."""

    end: Count
    hash: AnyDigest
    redacted: Count = 0


class FormatOf(msgspec.Struct, frozen=True):
    """What tells an export from other files, and which version it is of."""

    format: str
    version: int


_ENCODER = msgspec.json.Encoder()


def line_of(value: FileHeader | FileEvent | FileEnd) -> bytes:
    """A line, with its end."""
    return _ENCODER.encode(value) + b"\n"


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
