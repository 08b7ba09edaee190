"""Portable Memory bundles (`.mem`, format 1): a folder of JSON lines, a manifest, and a SHA-256 of each file.

A bundle of ours adds to each record, under `memoryEngine`: where the memory belongs, and
which events it came from. Other programs keep that of an episode and pass it on.
"""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Never

import msgspec

from memory_engine.core.bounded import open_file, read_file
from memory_engine.core.clock import to_datetime, to_us
from memory_engine.core.json_text import BrokenText, parse
from memory_engine.core.lazy import regex
from memory_engine.core.limits import ReadingLimits
from memory_engine.errors import FileRefused, ImportRefused
from memory_engine.interchange.foreign import (
    ForeignFile,
    ForeignMemory,
    ForeignPreference,
    Json,
    first_text,
    given_of,
    moment_under,
)
from memory_engine.store.new_file import file_errors
from memory_engine.views.layers.events import Layer
from memory_engine.views.layers.fold import LAYER_NAMES

NAME = "portable-memory"
EXTENSION = "memoryEngine"
MANIFEST, CHECKSUMS = "manifest.json", "CHECKSUMS"
FORMAT = "1.1.0"
SPEC = "https://github.com/MacPaw/portable-memory/blob/main/Spec/portable-memory-spec.md"
EPISODES, PROCEDURES, PREFERENCES = "items/episode.jsonl", "items/procedure.jsonl", "items/preference.jsonl"
TOMBSTONES = "audit/tombstones.jsonl"
BLOCK = 1 << 20
_PLACE = regex(r"[A-Za-z0-9_\-]+(?:/[A-Za-z0-9_\-.]*[A-Za-z0-9_\-])+|CHECKSUMS")
_SYSTEM = regex(r"[a-z0-9][a-z0-9._-]{0,39}")
"""Names of systems: a model sees exactly these words."""
_GIVEN = (
    "categories", "metadata", "actors", "speaker", "sourceType", "sourceID", "contextID", "importance", "confidence",
    "sensitivity", "pinned", "expirationDate", "episodeID", "subject", "predicate", "object", "version", "steps",
)  # fmt: skip


class FileDigest(msgspec.Struct, frozen=True):
    """A file of a bundle as its manifest lists it."""

    path: str
    sha256: str
    bytes: int


class BundleHead(msgspec.Struct, frozen=True):
    """The fields of a manifest that are read."""

    format: str
    files: tuple[FileDigest, ...]


class Bundle:
    """A bundle on the disk, whose files are all there as its manifest says. Raises `ImportRefused`."""

    def __init__(self, folder: Path, limits: ReadingLimits) -> None:
        self.folder = folder
        self._limits = limits
        self.files = {one.path: one for one in self._head().files}
        for one in self.files.values():
            self._check(one)

    def _head(self) -> BundleHead:
        try:
            head = msgspec.json.decode(self._read(MANIFEST), type=BundleHead)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            self._refuse(MANIFEST, f"it is not the manifest of a bundle: {error}")
        if head.format.partition(".")[0] != FORMAT.partition(".")[0]:
            self._refuse(MANIFEST, f"its format is {head.format[:40]!r}, not {FORMAT!r}")
        return head

    def _refuse(self, place: str, why: str, line: int = 1) -> Never:
        raise ImportRefused(str(self.folder / place), line, why)

    def _check(self, one: FileDigest) -> None:
        if not _PLACE.fullmatch(one.path) or ".." in one.path:
            self._refuse(MANIFEST, f"{one.path[:80]!r} is not a file of this bundle")
        try:
            digest, size = bundle_file_digest(self.folder / one.path, self.folder)
        except (FileNotFoundError, FileRefused) as error:
            self._refuse(one.path, f"the manifest lists it, and it cannot be read: {error}")
        if (digest, size) != (one.sha256, one.bytes):
            self._refuse(one.path, "it is not the file that was written: its digest is another one")

    def _read(self, place: str) -> bytes:
        path = self.folder / place
        try:
            with file_errors(path):
                return read_file(path, limit=self._limits.file_bytes, within=self.folder)
        except FileNotFoundError:
            self._refuse(place, "there is no such file: it is not a bundle, or not a whole one")
        except FileRefused as error:
            self._refuse(place, str(error))

    def kinds(self) -> list[str]:
        """The kinds of items that it holds."""
        return [Path(place).stem for place in self.files if place.startswith("items/") and place.endswith(".jsonl")]

    def records(self, place: str) -> Iterator[Json]:
        """The objects of a file of JSON lines; none if the bundle has no such file."""
        if place not in self.files:
            return
        for line, raw in enumerate(self._read(place).split(b"\n"), 1):
            if not raw.strip():
                continue
            try:
                found = parse(raw.decode(), line, self._limits)
            except UnicodeDecodeError:
                self._refuse(place, "not UTF-8", line)
            except BrokenText as error:
                self._refuse(place, error.why, line)
            if not isinstance(found, dict):
                self._refuse(place, "it is not an object", line)
            yield found


def bundle_file_digest(path: Path, within: Path) -> tuple[str, int]:
    """The SHA-256 and the size of a file. Raises `FileRefused`, `OSError`."""
    found, size = sha256(), 0
    with open_file(path, within=within) as file:
        while block := file.read(BLOCK):
            found.update(block)
            size += len(block)
    return found.hexdigest(), size


def read_bundle(folder: Path, limits: ReadingLimits) -> ForeignFile:
    """The memories of a bundle, without deleted ones. Raises `ImportRefused`."""
    bundle = Bundle(folder, limits)
    found = ForeignFile(folder, NAME)
    found.deleted.update(first_text(one, "targetID") for one in bundle.records(TOMBSTONES))
    for kind in bundle.kinds():
        taken = _KINDS.get(kind)
        for record in bundle.records(f"items/{kind}.jsonl"):
            if taken is None:
                found.leave_out(f"records of the kind {kind}")
            elif first_text(record, "id") in found.deleted or first_text(record, "deletedAt"):
                found.leave_out("memories that were deleted there")
            else:
                taken(record, found)
    return found


def _add_episode(record: Json, found: ForeignFile) -> None:
    content = first_text(record, "details") or first_text(record, "summary")
    found.add(_with_ours(record, _plain_memory(record, content, "semantic")))


def _add_fact(record: Json, found: ForeignFile) -> None:
    ended = moment_under(record, "tValidTo", "prunedAt")
    told = " ".join(filter(None, (first_text(record, key) for key in ("subject", "predicate", "object"))))
    plain = _plain_memory(record, first_text(record, "text") or told, "semantic" if ended is None else "episodic")
    found.add(msgspec.structs.replace(plain, valid_at=moment_under(record, "tValidFrom"), invalid_at=ended))


def _add_core(record: Json, found: ForeignFile) -> None:
    if first_text(record, "id") == "persona":
        found.leave_out("blocks in which an agent describes itself (persona)")
        return
    plain = _plain_memory(record, first_text(record, "content"), "semantic")
    found.add(msgspec.structs.replace(plain, id=f"core-{plain.id}", name=plain.id))


def _add_entity(record: Json, found: ForeignFile) -> None:
    plain = _plain_memory(record, first_text(record, "summary"), "semantic")
    found.add(msgspec.structs.replace(plain, name=first_text(record, "canonicalName")))


def _add_procedure(record: Json, found: ForeignFile) -> None:
    steps = record.get("steps")
    said = "\n".join(one for one in steps if isinstance(one, str)) if isinstance(steps, list) else ""
    plain = _plain_memory(record, said, "procedural")
    rule = msgspec.structs.replace(
        plain, condition=first_text(record, "triggerPattern"), name=first_text(record, "name"), given={}
    )
    found.add(_with_ours(record, rule))


def _add_preference(record: Json, found: ForeignFile) -> None:
    ours = _own_extension(record)
    value = ours["value"] if "value" in ours else first_text(record, "value")
    found.add_preference(ForeignPreference(system=NAME, key=first_text(record, "key"), value=value))


_KINDS = {
    "episode": _add_episode,
    "fact": _add_fact,
    "core": _add_core,
    "entity": _add_entity,
    "procedure": _add_procedure,
    "preference": _add_preference,
}


def _plain_memory(record: Json, content: str, layer: Layer) -> ForeignMemory:
    return ForeignMemory(
        system=NAME,
        id=first_text(record, "id"),
        content=content,
        layer=layer,
        at=moment_under(record, "eventTime", "tValidFrom", "createdAt", "updatedAt", "mentionTime"),
        updated_at=moment_under(record, "mentionTime", "updatedAt", "createdAt"),
        given=given_of(record, *_GIVEN),
    )


def _own_extension(record: Json) -> Json:
    ours = record.get(EXTENSION)
    return ours if isinstance(ours, dict) else {}


def _with_ours(record: Json, plain: ForeignMemory) -> ForeignMemory:
    """The memory as the engine that wrote it had it; as the format says, for a record of another program."""
    ours = _own_extension(record)
    system, name = first_text(ours, "system"), first_text(ours, "id")
    if not _SYSTEM.fullmatch(system) or not name:
        return plain
    layer = _layer_of(first_text(ours, "layer"), plain.layer)
    metadata = ours.get("metadata")
    us = ours.get("timestamp_us")
    return ForeignMemory(
        system=system,
        id=name,
        content=first_text(ours, "content") or plain.content,
        layer=layer,
        key=first_text(ours, "key") if layer == "semantic" else "",
        condition=plain.condition,
        name=first_text(ours, "name"),
        at=_bundle_moment(us) if isinstance(us, int) else plain.at,
        updated_at=moment_under(ours, "updated_at"),
        valid_at=moment_under(ours, "valid_at"),
        invalid_at=moment_under(ours, "invalid_at"),
        given=metadata if isinstance(metadata, dict) else {},
    )


def _layer_of(told: str, otherwise: Layer) -> Layer:
    """Return the layer of a name, or `otherwise`. Working memory of another system becomes an episode."""
    for layer in LAYER_NAMES:
        if layer == told:
            return "episodic" if layer == "working" else layer
    return otherwise


def _bundle_moment(us: int) -> datetime | None:
    found = to_datetime(us)
    return found if to_us(found) == us and 1 < found.year < 9999 else None


def second(us: int) -> str:
    """A moment as the format has it: UTC, to the second."""
    return to_datetime(us).astimezone(UTC).replace(microsecond=0).strftime("%Y-%m-%dT%H:%M:%SZ")


def line_of(record: Mapping[str, object]) -> bytes:
    """A record as the format has it: keys in order, no blanks, whole numbers without a point."""
    return msgspec.json.encode(_plain_numbers(record), order="sorted") + b"\n"


def _plain_numbers(value: object) -> object:
    match value:
        case float() if value.is_integer() and abs(value) < 1e16:
            return int(value)
        case dict():
            return {key: _plain_numbers(one) for key, one in value.items()}
        case list() | tuple():
            return [_plain_numbers(one) for one in value]
    return value
