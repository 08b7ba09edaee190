"""Roles of fields and facets of events: declared once, where the event is, and read by whoever must know."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Annotated, Generic, Literal, TypeVar, get_args, get_origin, get_type_hints

import msgspec
import pytest

import memory_engine
from memory_engine import Event, Plugin, UserMessage
from memory_engine import events as e
from memory_engine.core.events.delivery import Delivering, Delivery
from memory_engine.core.events.roles import FieldKind, Reference, Role, Source, roles_of, sources_in
from memory_engine.core.reduction import NOTHING, ReduceContext, ReducerRegistry, reduce_into
from memory_engine.core.state import State
from memory_engine.errors import InvalidEvent, ReducerError
from memory_engine.events import BUILTIN_EVENTS, EventRegistry, builtin_registry
from memory_engine.replay.export.payloads import Hide, PayloadWalk, shape_of
from memory_engine.replay.export.redaction import STAND_IN, Scrubber
from memory_engine.replay.what_if.references import references_of
from memory_engine.wiring import builtin_plugins
from tests.replay.test_what_if_references import structs
from tests.unit.test_events import ALL_SAMPLES

STRUCTS = [cls for seen in [set[type]()] for event in BUILTIN_EVENTS for cls in structs(event, seen)]
NOT_TEXT: dict[FieldKind, str] = {
    FieldKind.ID: "act agent_id app call_id call_ids category channel claim clarification_id compaction_id compactor "
    "criterion detail digest edit entry_id event_id facts file_id file_ids flow_id form format given id industry "
    "hidden instead_of invocation kind lines media_type method model name namespace of owner parent pointer "
    "recorded response_id retention scorer section session_id shown skipped_id skipped_type source_thread "
    "sources task_id task_path tenant_id thread_id threads timer_id tool tool_id trigger type",
    FieldKind.NAME: "channel digest document_id ended flow flow_dact index key keys name namespace new_paths old_paths "
    "path paths playbook_id secret share source thread",
    FieldKind.CHUNK: "after before chunk_ids container covers insights leaving original parent_ids read removed "
    "request snippet sources summaries",
    FieldKind.JSON: "arguments entry metadata native parameters policy state version",
    FieldKind.STATUS: "status",
}
"""What fields are called that redaction does not take for text. Whoever adds one has looked at what it may hold."""
TEXT_NAMES = {"UserMessage", "LlmTextResponse"}
"""Events whose `name` is a person's."""


def string_roles() -> Iterator[tuple[type, str, Role]]:
    """The declared roles of the fields that hold texts."""
    for cls in STRUCTS:
        for name, role in roles_of(cls).items():
            if role.kind is not FieldKind.TEXT:
                yield cls, name, role


def test_no_text_field_is_declared_to_be_anything_else() -> None:
    """By the table above; nothing in it is left over."""
    found: dict[FieldKind, set[str]] = {}
    for cls, name, role in string_roles():
        found.setdefault(role.kind, set()).add(name)
        assert name != "name" or cls.__name__ not in TEXT_NAMES
    assert {kind: set(names.split()) for kind, names in NOT_TEXT.items()} == found


def texts(whole: object, clean: object) -> Iterator[tuple[str, object]]:
    """The texts of a struct that no role keeps, and what stands in their places."""
    if isinstance(whole, msgspec.Struct):
        hints = get_type_hints(type(whole), include_extras=True)
        for name in whole.__struct_fields__:
            is_fixed = get_origin(hints[name]) is Literal or any(
                get_origin(a) is Literal for a in get_args(hints[name])
            )
            if name not in roles_of(type(whole)) and not is_fixed:
                yield from texts(getattr(whole, name), getattr(clean, name))
    elif isinstance(whole, tuple | list):
        assert isinstance(clean, tuple | list)
        for one, other in zip(whole, clean, strict=True):
            yield from texts(one, other)
    elif isinstance(whole, dict):
        assert isinstance(clean, dict)
        assert whole.keys().isdisjoint(clean)
        for one, other in zip(whole.values(), clean.values(), strict=True):
            yield from texts(one, other)
    elif isinstance(whole, str) and whole:
        yield whole, clean


def holds_text(cls: type) -> bool:
    """Whether a field of the event, or of a struct in it, is a text by its type and its role."""
    for one in structs(cls, set()):
        roles, hints = roles_of(one), get_type_hints(one)
        for name in one.__struct_fields__:
            is_string = str in (hints[name], *get_args(hints[name]))
            if is_string and roles.get(name, Role()).kind is FieldKind.TEXT:
                return True
    return False


def test_search_knows_every_text() -> None:
    """An event with texts has `content` or `bodies`, or its plug-in says what search finds, if anything."""
    said = {event_type for plugin in builtin_plugins() for event_type in plugin.extractors}
    told = {cls for cls in BUILTIN_EVENTS if "content" in cls.__struct_fields__ or cls.bodies is not Event.bodies}
    unsaid = {cls for cls in BUILTIN_EVENTS if holds_text(cls) and cls not in told and cls.event_type not in said}
    assert set() == unsaid


@pytest.mark.parametrize("sample", ALL_SAMPLES, ids=[sample.event_type for sample in ALL_SAMPLES])
def test_redaction_leaves_no_text_standing(sample: Event) -> None:
    """In every field of a built-in event that declares no role, nested ones too; what is left is such an event."""
    payload = msgspec.json.decode(msgspec.json.encode(sample))
    walk = PayloadWalk(scrubber=Scrubber((), b"secret"), rules=(), known=set())
    clean = walk.value(payload, shape_of(type(sample)), FieldKind.TEXT, (), Hide.TEXTS)
    for text, instead in texts(sample, msgspec.convert(clean, type(sample))):
        assert (text, STAND_IN) == (text, instead)


def test_a_role_changes_neither_bytes_nor_checks() -> None:
    """An alias is encoded, decoded and refused as the bare type is."""

    class Bare(msgspec.Struct):
        at: int
        by: str

    class Told(msgspec.Struct):
        at: e.Seq
        by: e.Id

    assert msgspec.json.encode(Bare(1, "a")) == msgspec.json.encode(Told(1, "a"))
    assert msgspec.inspect.type_info(int) == msgspec.inspect.type_info(e.Seq)
    with pytest.raises(msgspec.ValidationError, match="int"):
        msgspec.json.decode(b'{"at": "1", "by": "a"}', type=Told)


T = TypeVar("T")


class Listed(msgspec.Struct, Generic[T]):
    """Roles in all places where a field may hold them."""

    one: e.ChunkId | None
    many: tuple[e.SourceSeq, ...]
    bounded: Annotated[e.SeqBound, msgspec.Meta(ge=0)]
    table: dict[str, e.Id]
    text: str
    other: T


def test_a_role_is_found_in_lists_and_options() -> None:
    """That of a field is that of its items; the values of a mapping have none."""
    roles = roles_of(Listed)
    assert ["one", "many", "bounded"] == list(roles)
    assert (Reference.CHUNK, Source.SEQ, Reference.BOUND) == (
        roles["one"].reference, roles["many"].source, roles["bounded"].reference
    )  # fmt: skip
    assert roles == roles_of(Listed[int])
    assert [(Source.SEQ, 3), (Source.SEQ, 5)] == list(sources_in(Listed(None, (3, 5), 7, {"a": "b"}, "c", 1)))


def test_every_reference_is_known_to_reruns() -> None:
    """Whatever role names another event, a rerun knows how to renumber it."""
    for cls in STRUCTS:
        referring = {name for name, role in roles_of(cls).items() if role.reference is not Reference.NONE}
        assert referring == set(references_of(cls))


# facets


def reducers() -> ReducerRegistry:
    """The built-in ones."""
    found = ReducerRegistry()
    events = EventRegistry()
    for plugin in builtin_plugins():
        plugin.install(events, found)
    return found


def test_every_event_has_a_reducer() -> None:
    """Also one that brings no chunk: the reducer that does nothing."""
    found = reducers()
    assert [] == [cls.event_type for cls in BUILTIN_EVENTS if not found.of_type(cls.event_type)]


def test_chunks_come_from_where_an_event_says() -> None:
    """On one state, that each changes for the next, twice: chunks of their own name no parents, and `none` is none."""
    found, state, fitted = reducers(), State(), set()
    for seq, sample in enumerate([*ALL_SAMPLES, *ALL_SAMPLES], 1):
        context, draft = ReduceContext(seq, f"e{seq}", seq), state.draft()
        with suppress(ReducerError):  # what needs chunks that are not there is refused
            made = reduce_into(draft, found.of_type(sample.event_type), sample, context, "t")
            state = draft.freeze(seq)
            fitted.add(sample.event_type)
            assert sample.event_chunks != "none" or made == NOTHING
            if sample.event_chunks in ("own", "recalled"):
                assert not any(chunk.parent_ids for chunk in made.chunks)
    assert {cls.event_type for cls in BUILTIN_EVENTS if cls.event_chunks in ("none", "own", "recalled")} <= fitted


def test_what_delivers_says_so() -> None:
    """The events with deliveries, and no others, are declared to bring facts; their heads are remembered."""
    for cls in BUILTIN_EVENTS:
        assert issubclass(cls, Delivering) == (cls.event_delivers in ("tenant", "industry"))
        assert cls.event_tracked or not cls.event_delivers


desk = Plugin("desk")


@desk.event("note_passed", role="user", chunks="none", delivers="tenant")
class NotePassed(Event):
    """A note for an agent, of one's own making."""

    to: e.Destination
    note: str

    def deliveries(self) -> tuple[Delivery, ...]:
        """The note as a message."""
        return (Delivery(self.to, UserMessage(content=self.note)),)


@desk.event("note_escaped")
class NoteEscaped(NotePassed):
    """The same, without saying that it delivers."""


async def test_an_event_of_ones_own_delivers() -> None:
    """Once, within its tenant; where it does not say that it delivers, nothing goes out."""
    async with memory_engine.open(":memory:", plugins=[desk]) as engine:
        thread = await engine.create_thread("t", tenant_id="acme")
        to = e.Destination("agent", "helper", "acme")
        await thread.dispatch_all([NotePassed(to=to, note="Call Ann."), NoteEscaped(to=to, note="Do not.")])
        await engine.settle()
        told = [event.event async for event in engine.agent("helper", tenant_id="acme").events()]
        assert [UserMessage(content="Call Ann.")] == told
        assert ["0000000001.0"] == list(await thread.views.read("facts"))
        with pytest.raises(InvalidEvent, match="facts stay within a tenant"):
            await thread.dispatch(NotePassed(to=e.Destination("agent", "helper", "other"), note="Call Ann."))
        with pytest.raises(InvalidEvent, match="industry"):
            await thread.dispatch(NotePassed(to=e.Destination("industry", "retail"), note="Call Ann."))
        assert (await thread.replay.verify()).ok
        assert (await (await thread.at(1)).views.read("facts")).keys() == (await thread.views.read("facts")).keys()


def test_roles_in_lists() -> None:
    """An event is grouped as it says; one that nobody knows, with the others."""
    registry = builtin_registry()
    desk.install(registry, reducers())
    assert ["user", "assistant", "compaction", "user", "other"] == [
        registry.role(name) for name in ("user_message", "llm_thinking", "compaction_undone", "note_passed", "?")
    ]
