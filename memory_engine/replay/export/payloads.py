"""Payloads and recorded chunks with their texts taken out.

Everything that holds a log together stays: types, enumerations, ids, places.
"""

from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from functools import cache

import msgspec
import msgspec.inspect as shapes
from attrs import define, field

from memory_engine.core.chunks import Chunk
from memory_engine.core.events.base import Content, Part, SummaryLine, ToolCall
from memory_engine.core.events.roles import FieldKind, roles_of
from memory_engine.errors import InvalidRedaction
from memory_engine.replay.export.redaction import STAND_IN, Scrubber, is_chunk_id, is_opaque, is_status

_OWN = "memory_engine."
_OPEN = shapes.AnyType()
_BYTES = shapes.BytesType | shapes.ByteArrayType | shapes.MemoryViewType
_WRITTEN = (
    _BYTES | shapes.DateTimeType | shapes.DateType | shapes.TimeType | shapes.TimeDeltaType
    | shapes.UUIDType | shapes.DecimalType
)  # fmt: skip
"""Types whose values JSON holds as text, though they are not texts."""


class Hide(IntEnum):
    """The parts of a value to take out: matches of patterns, all texts, numbers too, ids too."""

    MATCHES = 0
    TEXTS = 1
    INSIDE = 2
    """For a field that a rule names."""
    ALL = 3


@define
class PayloadWalk:
    """A payload on its way through the rules.

    `renamed` are the names that got another one, `kept` the ids that stay; `fields` the rules that named a field of it.
    """

    scrubber: Scrubber
    rules: Sequence[tuple[str, ...]]
    known: set[str]
    is_known_type: bool = True
    renamed: dict[str, str] = field(factory=dict)
    kept: set[str] = field(factory=set)
    fields: set[int] = field(factory=set)

    def value(self, value: object, shape: shapes.Type, kind: FieldKind, path: tuple[str, ...], hide: Hide) -> object:
        """The value without the texts to hide."""
        shape = _option(shape, value)
        match value:
            case str():
                return self._string(value, shape, kind, path, hide)
            case bool():
                return value and hide is not Hide.ALL
            case int() | float():
                return self._number(value, shape, hide)
            case list():
                items = zip(value, _item_shapes(shape, kind, len(value)), strict=True)
                return [self.value(item, inner, of_item, path, hide) for item, (inner, of_item) in items]
            case dict():
                return self._mapping(value, shape, path, hide)
        return value

    def text(self, text: str, kind: FieldKind, hide: Hide) -> str:
        """A text of a payload, or of a chunk."""
        if not text or (kind is FieldKind.CHUNK and is_chunk_id(text)):
            return text
        if kind is FieldKind.ID and is_opaque(text) and hide is not Hide.ALL:
            return text
        if kind is FieldKind.ID:
            clean = self.scrubber.renamed(text) if hide is Hide.ALL else self.scrubber.named(text)
            if clean == text:
                self.kept.add(text)
            else:
                self.renamed[text] = clean
            return clean
        if kind is FieldKind.NAME:
            hidden = hide or text in self.known or text in self.renamed
            clean = self.scrubber.renamed(text) if hidden else self.scrubber.named(text)
            if clean != text:
                self.renamed[text] = clean
            return clean
        if hide and not (kind is FieldKind.STATUS and is_status(text)):
            return "{}" if kind is FieldKind.JSON else STAND_IN
        return self.scrubber.scrubbed(text)

    def _string(self, text: str, shape: shapes.Type, kind: FieldKind, path: tuple[str, ...], hide: Hide) -> str:
        if isinstance(shape, _BYTES):
            return "" if hide else text
        if not isinstance(shape, shapes.StrType | shapes.AnyType) or (kind is FieldKind.CHUNK and is_chunk_id(text)):
            if hide is Hide.ALL:
                raise InvalidRedaction(".".join(path), "its values are not free: they hold the log together")
            return text
        return self.text(text, kind, hide)

    def _number(self, value: float, shape: shapes.Type, hide: Hide) -> object:
        is_open = isinstance(shape, shapes.AnyType)
        if hide >= Hide.INSIDE or (is_open and (hide or self.scrubber.matches(str(value)))):
            return STAND_IN if is_open and self.is_known_type else 0
        return value

    def _mapping(
        self, value: Mapping[str, object], shape: shapes.Type, path: tuple[str, ...], hide: Hide
    ) -> dict[str, object]:
        fields = _fields(shape)
        tag = shape.tag_field if isinstance(shape, shapes.StructType) else None
        is_free = isinstance(shape, shapes.DictType | shapes.FrozenDictType) or (not fields and self.is_known_type)
        inner = shape.value_type if isinstance(shape, shapes.DictType | shapes.FrozenDictType) else _OPEN
        found: dict[str, object] = {}
        for key, item in value.items():
            inside = (*path, key)
            how = self._named(inside) or min(hide, Hide.INSIDE)
            if key == tag:
                found[key] = item
            elif key in fields:
                of_field, kind = fields[key]
                found[key] = self.value(item, of_field, kind, inside, how)
            else:
                name = self.scrubber.renamed(key) if hide and is_free else self.scrubber.named(key)
                found[name] = self.value(item, inner, FieldKind.TEXT, inside, how)
        if isinstance(shape, shapes.StructType) and found != value:
            self._rename_digests(shape.cls, found)
        return found

    def _rename_digests(self, cls: type, found: dict[str, object]) -> None:
        """Rename ids that are derived from redacted texts: a short text could be guessed from its id."""
        for name, role in roles_of(cls).items():
            text = found.get(name)
            if role.digest is not None and isinstance(text, str) and text.startswith(role.digest):
                found[name] = self.text(text, FieldKind.NAME, Hide.TEXTS)

    def _named(self, path: tuple[str, ...]) -> Hide:
        for n, rule in enumerate(self.rules):
            if path == rule or (len(rule) == 1 and path[-1] == rule[0]):
                self.fields.add(n)
                return Hide.ALL
        return Hide.MATCHES


@cache
def shape_of(cls: type[msgspec.Struct] | None) -> shapes.Type:
    """The shape of a class's payloads; of an unknown one (`None`), any shape."""
    return shapes.type_info(cls) if cls is not None else _OPEN


def _fields(shape: shapes.Type) -> dict[str, tuple[shapes.Type, FieldKind]]:
    """The fields of an object on the wire."""
    match shape:
        case (
            shapes.StructType(cls=cls, fields=fields, array_like=False)
            | shapes.DataclassType(cls=cls, fields=fields)
            | shapes.TypedDictType(cls=cls, fields=fields)
        ):
            return {one.encode_name: (one.type, _field_kind(cls, one.name)) for one in fields}
    return {}


def _field_kind(cls: type, name: str) -> FieldKind:
    """The kind of a class's field: text, unless it is known to be something else."""
    role = roles_of(cls).get(name)
    if role is not None:
        return role.kind
    is_named = name in ("id", "key", "keys", "ids") or name.endswith(("_id", "_ids", "_key"))
    return FieldKind.NAME if is_named and not cls.__module__.startswith(_OWN) else FieldKind.TEXT


def _item_shapes(shape: shapes.Type, kind: FieldKind, count: int) -> list[tuple[shapes.Type, FieldKind]]:
    """The shape and the kind of each item of a list, which is in a field of this kind."""
    known: list[tuple[shapes.Type, FieldKind]] = []
    match shape:
        case shapes.CollectionType(item_type=inner):
            return [(inner, kind)] * count
        case shapes.TupleType(item_types=types):
            known = [(inner, kind) for inner in types]
        case shapes.StructType(cls=cls, fields=fields, array_like=True, tag=tag):
            known = [(one.type, _field_kind(cls, one.name)) for one in fields]
            if tag is not None:
                known.insert(0, (shapes.LiteralType((tag,)), FieldKind.ID))
        case shapes.NamedTupleType(cls=cls, fields=fields):
            known = [(one.type, _field_kind(cls, one.name)) for one in fields]
    return [*known, *[(_OPEN, FieldKind.TEXT)] * count][:count]


def _option(shape: shapes.Type, value: object) -> shapes.Type:
    """The shape of a value: that of its field, or the one of several that it has; anything where it has none."""
    options = shape.types if isinstance(shape, shapes.UnionType) else (shape,)
    bare = (one.type if isinstance(one, shapes.Metadata) else one for one in options)
    return next((one for one in bare if _fits_shape(one, value)), _OPEN)


def _fits_shape(shape: shapes.Type, value: object) -> bool:
    match value:
        case str():
            return _holds_text(shape, value)
        case bool() | int() | float():
            return isinstance(shape, shapes.IntType | shapes.FloatType | shapes.BoolType | shapes.LiteralType)
        case list():
            is_array = isinstance(shape, shapes.StructType) and shape.array_like
            return is_array or isinstance(shape, shapes.CollectionType | shapes.TupleType | shapes.NamedTupleType)
        case dict():
            if isinstance(shape, shapes.StructType):
                return not shape.array_like and (shape.tag is None or value.get(shape.tag_field) == shape.tag)
            maps = shapes.DictType | shapes.FrozenDictType | shapes.DataclassType | shapes.TypedDictType
            return isinstance(shape, maps)
    return False


def _holds_text(shape: shapes.Type, text: str) -> bool:
    """Whether a text may be a value of this shape."""
    if isinstance(shape, shapes.LiteralType):
        return text in shape.values
    if isinstance(shape, shapes.EnumType):
        return text in {one.value for one in shape.cls}
    return isinstance(shape, shapes.StrType | _WRITTEN)


def chunk_without(chunk: Chunk, walk: PayloadWalk, hide: Hide, is_told: Callable[[SummaryLine], bool]) -> Chunk:
    """A chunk in its event's form, redacted by `walk` already. A summary loses lines about hidden ones."""
    return msgspec.structs.replace(
        chunk,
        content=_scrubbed_content(chunk.content, walk, hide),
        calls=tuple(_scrubbed_call(call, walk, hide) for call in chunk.calls),
        lines=tuple(line_without(line, walk, Hide.TEXTS if hide or is_told(line) else hide) for line in chunk.lines),
        label=_scrubbed_label(chunk.label, walk, hide),
        name=_scrubbed_name(chunk.name, walk),
        status=walk.text(chunk.status, FieldKind.STATUS, hide),
        native=walk.text(chunk.native, FieldKind.JSON, hide),
        call_id=_id(chunk.call_id, walk),
        response_id=_id(chunk.response_id, walk),
    )


def line_without(line: SummaryLine, walk: PayloadWalk, hide: Hide) -> SummaryLine:
    """A line of a summary."""
    sources = tuple(walk.text(source, FieldKind.CHUNK, Hide.MATCHES) for source in line.sources)
    return SummaryLine(line.section, walk.text(line.text, FieldKind.TEXT, hide), sources)


def _scrubbed_content(content: Content, walk: PayloadWalk, hide: Hide) -> Content:
    if isinstance(content, str):
        return walk.text(content, FieldKind.TEXT, hide)
    return tuple(_scrubbed_part(part, walk, hide) for part in content)


def _scrubbed_part(part: Part, walk: PayloadWalk, hide: Hide) -> Part:
    texts = {
        name: walk.text(getattr(part, name), FieldKind.TEXT, hide)
        for name in part.__struct_fields__
        if name not in roles_of(type(part))
    }
    ids = {name: _id(getattr(part, name), walk) for name in roles_of(type(part))}
    return msgspec.structs.replace(part, **texts, **ids)


def _scrubbed_call(call: ToolCall, walk: PayloadWalk, hide: Hide) -> ToolCall:
    return msgspec.structs.replace(
        call,
        id=_id(call.id, walk),
        name=_id(call.name, walk),
        arguments=walk.text(call.arguments, FieldKind.JSON, hide),
    )


def _id(text: str, walk: PayloadWalk) -> str:
    """An id, or the other one that the event has for it now."""
    return walk.renamed.get(text) or walk.text(text, FieldKind.ID, Hide.MATCHES)


def _scrubbed_label(label: str, walk: PayloadWalk, hide: Hide) -> str:
    """A label is a name or an id that the event has, or words."""
    if label in walk.renamed:
        return walk.renamed[label]
    return label if label in walk.kept else walk.text(label, FieldKind.TEXT, hide)


def _scrubbed_name(name: str, walk: PayloadWalk) -> str:
    """A chunk's name, which is often made of a name in the event: `environment:weather`."""
    for old, new in walk.renamed.items():
        if name == old or name.endswith(f":{old}"):
            return name.removesuffix(old) + new
    return walk.scrubber.named(name)
