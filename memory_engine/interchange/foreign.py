"""The memories that a file of another system holds, before they become events."""

from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from hashlib import sha256
from pathlib import Path

import msgspec
from attrs import define, field

from memory_engine.core.codec import encode_json
from memory_engine.core.ids import check_identifier
from memory_engine.core.moments import moment
from memory_engine.errors import InvalidIdentifier
from memory_engine.views.layers.events import Layer
from memory_engine.views.layers.origin import NATIVE

Json = Mapping[str, object]
CONTENT_CHARS_MAX = 1_000_000
"""A longer memory is a document: it is counted, and not taken."""
METADATA_BYTES_MAX = 64 * 1024


class ForeignMemory(msgspec.Struct, frozen=True, kw_only=True):
    """A memory of another system. `system` and `id` name it there; two memories of one name are one memory.

    `key` is the key of a fact, for facts that come from a memory engine; `name` is a heading, such as a block's label.
    `at` is when it was learned, `valid_at` and `invalid_at` are when it began and ceased to be true. `owner` is the
    user whose memory it is there, as far as the file says.
    """

    system: str
    id: str
    content: str
    layer: Layer = "semantic"
    key: str = ""
    condition: str = ""
    name: str = ""
    at: datetime | None = None
    updated_at: datetime | None = None
    valid_at: datetime | None = None
    invalid_at: datetime | None = None
    owner: str = ""
    given: Mapping[str, object] = {}


class ForeignPreference(msgspec.Struct, frozen=True, kw_only=True):
    """A preference of another system."""

    system: str
    key: str
    value: object


@define
class ForeignFile:
    """The memories of a file, and the counts of what cannot be taken, by kind. `deleted` are ids of memories."""

    path: Path
    system: str
    memories: list[ForeignMemory] = field(factory=list)
    preferences: list[ForeignPreference] = field(factory=list)
    deleted: set[str] = field(factory=set)
    left_out: Counter[str] = field(factory=Counter)
    _names: set[tuple[str, str]] = field(factory=set, init=False)
    _keys: set[str] = field(factory=set, init=False)

    def leave_out(self, kind: str, found: object = None) -> None:
        """Count what is not taken: the items of a list or a mapping, or one thing."""
        count = len(found) if isinstance(found, list | dict) else 1
        if count:
            self.left_out[kind] += count

    def add(self, memory: ForeignMemory) -> None:
        """Take a memory, or count it where it cannot be one. Without an id it gets one from its content."""
        why = self._unusable(memory)
        if why:
            self.leave_out(why)
            return
        if not memory.id:
            digest = sha256(f"{memory.owner}\0{memory.layer}\0{memory.content}".encode()).hexdigest()
            memory = msgspec.structs.replace(memory, id=digest[:32])
        if (memory.system, memory.id) in self._names:
            self.leave_out("memories with an id that came before")
            return
        if not _is_storable(memory.given):
            self.leave_out("metadata that cannot be stored")
            memory = msgspec.structs.replace(memory, given={})
        self._names.add((memory.system, memory.id))
        self.memories.append(memory)

    def _unusable(self, memory: ForeignMemory) -> str:
        if not memory.content.strip():
            return "memories without a text"
        if len(memory.content) > CONTENT_CHARS_MAX:
            return f"memories of over {CONTENT_CHARS_MAX:,} characters"
        texts = (memory.content, memory.name, memory.condition, memory.owner)
        if any(_has_surrogates(text) for text in texts):
            return "memories with a lone surrogate"
        if len(memory.name) > CONTENT_CHARS_MAX or len(memory.condition) > CONTENT_CHARS_MAX:
            return f"memories of over {CONTENT_CHARS_MAX:,} characters"
        return "" if self._has_names(memory) else "memories with an id that no store can hold"

    def _has_names(self, memory: ForeignMemory) -> bool:
        try:
            for name in (memory.system, memory_id(memory.system, memory.id or "-"), memory.key or "-"):
                check_identifier("id of a memory", name)
        except InvalidIdentifier:
            return False
        return True

    def add_preference(self, preference: ForeignPreference) -> None:
        """Take a preference, or count it where it cannot be one."""
        try:
            check_identifier("key of a preference", preference.key)
        except InvalidIdentifier:
            self.leave_out("preferences with a key that no store can hold")
            return
        if not _is_storable({"value": preference.value}):
            self.leave_out("preferences with a value that cannot be stored")
        elif preference.key in self._keys:
            self.leave_out("preferences with a key that came before")
        else:
            self._keys.add(preference.key)
            self.preferences.append(preference)


def memory_id(system: str, id: str) -> str:
    """The id of an imported memory here; one that comes from a memory engine keeps its own."""
    return id if system == NATIVE else f"{system}:{id}"


def first_text(value: object, *keys: str) -> str:
    """The first text, or number, under one of the keys; empty without one."""
    for key in keys:
        found = value.get(key) if isinstance(value, Mapping) else None
        if isinstance(found, str):
            return found
        if isinstance(found, int) and not isinstance(found, bool):
            return str(found)
    return ""


def moment_under(value: object, *keys: str) -> datetime | None:
    """The first moment under one of the keys."""
    found = (moment(value.get(key)) for key in keys) if isinstance(value, Mapping) else ()
    return next((one for one in found if one is not None), None)


def given_of(value: Json, *keys: str) -> dict[str, object]:
    """The values under these keys, those that exist."""
    return {key: value[key] for key in keys if value.get(key) not in (None, "", [], {})}


def objects_in(value: object) -> list[Json]:
    """The objects of a list; none of anything else."""
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, list) else []


def _has_surrogates(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def _is_storable(value: Mapping[str, object]) -> bool:
    """Return True for values that the log returns unchanged: short, without infinities and lone surrogates."""
    try:
        encoded = encode_json(value)
        return len(encoded) <= METADATA_BYTES_MAX and bool(msgspec.json.decode(encoded) == value)
    except (msgspec.MsgspecError, TypeError, ValueError, OverflowError, RecursionError):
        return False
