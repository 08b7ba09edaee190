"""Events: typed again when they are read, stored bytes never re-encoded, and bad input refused by name."""

import json
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

import msgspec
import pytest

import memory_engine
from memory_engine import errors
from memory_engine import events as e
from memory_engine.core.codec import encode_event
from memory_engine.core.events.tasks import TodoStatus
from memory_engine.core.records import NewEvent
from memory_engine.events import BUILTIN_EVENTS, Event, EventRegistry, UnknownEvent, builtin_registry, event
from memory_engine.plugins import Plugin
from memory_engine.runtime.config import EngineConfig
from memory_engine.storage.memory import MemoryStore
from memory_engine.testing import given
from tests.unit.view_samples import NOTE, VIEW_SAMPLES

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "events.jsonl"
MIXED = (e.TextPart("Look: é 👩‍👩‍👧"), e.ImagePart("data:image/png;base64,AA==", "image/png", "a cat"))
CALLS = (e.ToolCall.create("c1", "search", {"q": "é", "n": 10**30}), e.ToolCall("c2", "wait", long_running=True))
PAID = (NOTE(original="1.0", parent_ids=("1.0",)),)
REACH = (e.RewindReach(e.Destination("user", "u1", "acme"), ("fact:ab.0",), ("fact:cd.0",)),)
LINE = e.SummaryLine("next_steps", "Go on.", ("1.0", "2.0"))

# One of each built-in event, every field set; the order means nothing.
SAMPLES: tuple[Event, ...] = (
    e.UserMessage(content=MIXED, name="Ann"),
    e.ParentAgentMessage(content="Do it.", agent_id="a1"),
    e.LlmTextResponse(content="Yes.", response_id="r1", name="bot"),
    e.LlmThinking(content="Hm.", response_id="r1", signature="sig"),
    e.LlmToolCall(calls=CALLS, content="Let me see.", response_id="r1"),
    e.LlmSkillCall(call_id="c3", name="skill", arguments='{"a":1}', response_id="r1"),
    e.LlmSubagentSpawn(call_id="c4", agent_id="a2", task="Look it up.", response_id="r1"),
    e.LlmSubagentMessage(agent_id="a2", content="How is it going?", response_id="r1"),
    e.LlmClarification(content="May I?", clarification_id="q1", approval=True, response_id="r1"),
    e.ToolResult(call_id="c1", content=MIXED, name="search", final=False),
    e.SkillResult(call_id="c3", content="Done.", name="skill", final=False),
    e.SubagentResult(call_id="c4", content="Found.", agent_id="a2", final=False),
    e.ToolError(call_id="c2", content="Timed out.", name="wait"),
    e.SubagentError(call_id="c4", content="Lost.", agent_id="a2"),
    e.SkillError(call_id="c3", content="Broken.", name="skill"),
    e.SystemFailure(content="No network.", code="ENET"),
    e.TaskStarted(goal="Find it.", task_id="t1", single=True),
    e.TaskCompleted(content="Found it.", task_id="t1", lenient=True, single=True),
    e.TaskAbandoned(content="No use.", task_id="t1", lenient=True, single=True),
    e.TaskTerminated(content="Stop.", task_id="t1", lenient=True, single=True),
    e.TodoSet(items=(e.TodoItem("1", "buy milk", "in_progress"), e.TodoItem("2", "drink it"))),
    e.TodoCompleted(id="1", lenient=True),
    e.TodoExpanded(id="2", items=(e.TodoItem("3", "find a glass", "completed"),), lenient=True),
    e.TodoUpdated(id="2", text="drink it all", status="in_progress", lenient=True),
    e.TodoDeleted(id="3", lenient=True),
    e.MemoryMarkCritical(chunk_ids=("1.0", "2.0"), lenient=True),
    e.ContextRecalled(
        content="Oldest first:\n[2026-01-02]\n- user: é",
        query="What is é?",
        request="5.0",
        at_end=True,
        passages=(e.RecalledPassage("id-1"), e.RecalledPassage("id-2", "user:acme/u1", 7, 1)),
        threads=("user:acme/u1", "t2"),
        leaving=("3.0",),
    ),
    e.ContextAsked(max_tokens=8_000, window=32_000, less=2, counted=1_000, upto=7, reports=1, lacks=2, unsaid=(3, 5)),
    e.EventsErased(
        rows=(e.ErasedRow(2, "ab" * 32), e.ErasedRow(3, "cd" * 32)), act="act1", by="officer", reason="asked"
    ),
    e.MemoryForget(chunk_ids=("1.0",), seqs=(2, 3), reason="asked to", summaries=("4.0",), call_ids=("c1",),
                   reach=(e.Reach(e.Destination("agent", "b", "acme"), (1, 2)),), lines=("ab" * 16,)),
    e.ThreadCleared(reason="a new matter"),
    e.ThreadUpdated(
        metadata=(e.MetadataEntry("title", "Lisbon"), e.MetadataEntry("draft", removed=True)),
        policy='{"threshold":7}', default_policy=True,
    ),
    e.ThreadSeeded(chunks=(e.InitialChunk("Be kind.", "system", "critical", "rules"), e.InitialChunk(MIXED))),
    e.CompactionStarted(compaction_id="k1", trigger="auto", chunk_ids=("1.0", "2.0"), compactor="fake",
                        owner="host/1/2", deadline_us=1_700_000_000_000_000),
    e.CompactionCompleted(compaction_id="k1", trigger="manual", compactor="fake", model="m", tokens_before=90,
                          replacements=(e.Replacement(("1.0", "2.0"), (LINE,)), e.Replacement(("3.0",))),
                          usage=e.Usage(10, 20, 0.5), tokens_after=9),
    e.CompactionFailed(compaction_id="k1", compactor="fake", reason="raised", error="Boom",
                       usage=e.Usage(1)),
    e.CompactionAbandoned(compaction_id="k1", reason="cancelled"),
    e.CompactorStoodIn(compaction_id="k1", compactor="embedded", instead_of="model", reason="timeout", error="late"),
    e.CompactionUndone(compaction_id="k1", completed=5, summaries=("5.0",), reason="asked to", seen=8, restored=(
        e.RestoredChunk(original="1.0", type="user_message", retention="batch_compressible", category="working_flow",
                        parent_ids=("1.0",), content=MIXED, label="Ann", before="5.0"),
        e.RestoredChunk(original="2.0", type="agent_action", retention="critical", category="working_flow",
                        parent_ids=("2.0", "1.5"), calls=CALLS, lines=(LINE,), call_id="c1", name="n", final=False,
                        response_id="r1", status="failed", is_container=True, container="1.0", after="1.0"),
    )),
    e.ThreadRewound(to=1, removed=("2.0",), reason="taken back", seen=8, reach=REACH, restored=PAID),
    e.SourceQuarantined(source="tool:mail", hidden=("e1",), shown=("e2",), removed=("2.0",), ends=True, own=False,
                        of="t1", by="Ann", reason="bad", seen=8, reach=REACH, restored=PAID),
    e.FactsRewound(hidden=("fact:ab.0",), shown=("fact:cd.0",), removed=("3.0",), reason="taken back"),
    e.ThreadRereduced(from_seq=1, removed=("1.0",), mended=(e.MendedEvent(1, "ab", "cd"),), undoes=5, reason="mended",
                      seen=8, restored=(NOTE(original="2.0", parent_ids=("2.0",)),)),
    e.ExternalInject(content=MIXED, source="mail", retention="ephemeral"),
    e.ExternalTimer(content="Tick.", timer_id="tm1"),
    e.EnvironmentChange(content="Raining.", key="weather", single=True),
    e.ExecutionRetry(content="Again.", attempt=3),
    e.ExecutionResume(content="Go."),
    e.ExecutionPause(content="Wait."),
    e.SessionStarted(content="You are helpful.", session_id="s1", beside=True),
    e.SessionEnded(content="Bye.", session_id="s1"),
    *VIEW_SAMPLES,
)  # fmt: skip
FILED = (
    e.TextPart("See."),
    e.ImagePart("", file_id="file-1", detail="low"),
    e.FilePart("data:application/pdf;base64,AA==", "application/pdf", "a.pdf"),
    e.FilePart(file_id="file-2", text="é"),
)
NATIVE = '{"anthropic":{"message":{"content":[{"cache_control":{"type":"ephemeral"}}]}}}'
HOSTED = '{"anthropic":{"message":[{"$whole":{"type":"server_tool_use","id":"s1","input":{"query":"jdk"}}}]}}'

# Events with the fields that came after their first release.
LATER_SAMPLES: tuple[Event, ...] = (
    e.UserMessage(content=FILED, native=NATIVE),
    e.UserMessage(content="3 files", origin="tool"),
    e.ParentAgentMessage(content="Do it.", native=NATIVE),
    e.LlmTextResponse(content="Ye", response_id="r1", interrupted="cancelled", native=NATIVE),
    e.LlmThinking(content="", response_id="r1", native='{"anthropic":{"message":{"content":[]}}}'),
    e.LlmToolCall(calls=CALLS, response_id="r1", native=NATIVE),
    e.LlmClarification(content="May I?", native=NATIVE),
    e.ToolResult(call_id="c1", content=FILED, native=NATIVE),
    e.ToolError(call_id="c2", content=FILED, native=NATIVE),
    e.SessionStarted(content="You are helpful.", native=NATIVE),
    e.ExternalInject(content="Mind this.", source="system", native=NATIVE),
    e.CompactionUndone(compaction_id="k1", completed=5, summaries=("5.0",), restored=(
        e.RestoredChunk(original="1.0", type="user_message", retention="batch_compressible", category="working_flow",
                        parent_ids=("1.0",), content=FILED, native=NATIVE),
    )),
    e.ItemPut(namespace=("users", "ann"), key="k1", value={"text": "Java 21", "deep": [1, None]}, index=("text",),
              created_us=5, ttl_us=6, order=(1, 0)),
    e.CompactionStarted(compaction_id="k2", trigger="manual", chunk_ids=("1.0", "2.0"), compactor="fake",
                        owner="host/1/2", deadline_us=1_700_000_000_000_000, policy='{"threshold":4}',
                        instructions="Keep every price.", focus="the invoice", note="flush: no end within 10 s"),
    e.MemoryAppended(layer="semantic", content="Java 21", key="jdk", own=True),
    e.MemoryShared(destination=e.Destination("agent", "helper", "acme"), layer="semantic", content="Java 21", own=True),
    e.UserMessage(content="See.", native=HOSTED, uncounted=True),
    e.LlmTextResponse(content="", native=HOSTED, uncounted=True),
    e.LlmToolCall(calls=CALLS, native=HOSTED, uncounted=True),
)  # fmt: skip
ALL_SAMPLES = (*SAMPLES, *LATER_SAMPLES)


def golden() -> list[tuple[str, int, bytes]]:
    """The stored payloads of every type and version, as releases wrote them: (type, version, payload)."""
    lines = [json.loads(line) for line in GOLDEN.read_text(encoding="utf-8").splitlines()]
    return [(line["type"], line["version"], line["payload"].encode()) for line in lines]


def golden_line(sample: Event) -> str:
    """The line of the golden file that holds this event."""
    payload, _ = encode_event(sample, builtin_registry())
    line = {"type": sample.event_type, "version": sample.event_version, "payload": payload.decode()}
    return json.dumps(line, ensure_ascii=False)


def test_there_is_a_sample_of_every_event() -> None:
    """No built-in event is left out below, and none of its fields keeps its default."""
    assert Counter(BUILTIN_EVENTS) == Counter(type(sample) for sample in SAMPLES)
    unset = [
        f"{field.name} of {cls.__name__}"
        for cls in BUILTIN_EVENTS
        for field in msgspec.structs.fields(cls)
        if not field.required
        and all(getattr(sample, field.name) == field.default for sample in ALL_SAMPLES if type(sample) is cls)
    ]
    assert [] == unset


@pytest.mark.parametrize("sample", ALL_SAMPLES, ids=[sample.event_type for sample in ALL_SAMPLES])
def test_an_event_comes_back_typed(sample: Event) -> None:
    """Decoding gives an equal value of the same class, all inner values typed too."""
    registry = builtin_registry()
    payload, recorded = encode_event(sample, registry)
    assert (sample, sample, type(sample)) == (
        registry.decode(sample.event_type, sample.event_version, payload), recorded, type(recorded)
    )  # fmt: skip


def test_wire_names_and_versions_are_unique() -> None:
    """Each (name, version) is one class's, and every class declares both itself."""
    counted = Counter((cls.event_type, cls.event_version) for cls in BUILTIN_EVENTS)
    assert {} == {key: n for key, n in counted.items() if n > 1}
    assert [] == [cls for cls in BUILTIN_EVENTS if "event_type" not in cls.__dict__ or cls.event_version < 1]


def test_the_golden_file_holds_every_version() -> None:
    """Every version that was ever written has its line, and every sample of the current ones has its own."""
    expected = {(cls.event_type, v) for cls in BUILTIN_EVENTS for v in range(1, cls.event_version + 1)}
    there = set(GOLDEN.read_text(encoding="utf-8").splitlines())
    lines = [line for sample in ALL_SAMPLES if (line := golden_line(sample)) not in there]
    assert [] == lines, "\n".join(["missing at the end of tests/golden/events.jsonl:", *lines])
    assert expected == {(name, version) for name, version, _ in golden()}


@pytest.mark.parametrize("line", golden(), ids=[f"{name}-v{version}" for name, version, _ in golden()])
def test_a_golden_payload_is_read_and_written_the_same(line: tuple[str, int, bytes]) -> None:
    """An old line decodes to its typed event; one of the current version is encoded to the same bytes."""
    name, version, payload = line
    samples = [sample for sample in ALL_SAMPLES if sample.event_type == name]
    read = builtin_registry().decode(name, version, payload)
    assert type(samples[0]) is type(read)
    if version == samples[0].event_version:
        assert [payload] == [encode_event(sample, builtin_registry())[0] for sample in samples if sample == read]


def test_a_list_of_texts_becomes_a_to_do_list() -> None:
    """Version 1 of `todo_set` held bare texts: they are numbered, and none is done."""
    read = builtin_registry().decode("todo_set", 1, b'{"items":["buy milk","drink it"]}')
    assert e.TodoSet(items=(e.TodoItem("1", "buy milk"), e.TodoItem("2", "drink it"))) == read


async def test_every_event_survives_a_log(tmp_path: Path) -> None:
    """Written, closed, opened and read, each event is equal to what was dispatched."""
    of_other_logs = e.CompactionCompleted | e.CompactionUndone | e.ThreadRereduced | e.ThreadRewound | e.ExecutionPause
    sent = [sample for sample in ALL_SAMPLES if not isinstance(sample, of_other_logs | e.SourceQuarantined)]
    async with memory_engine.open(str(tmp_path / "log.db")) as engine:
        thread = await engine.create_thread("t", tenant_id="acme")
        await thread.dispatch_all(sent)
        await engine.settle()
    async with memory_engine.open(str(tmp_path / "log.db")) as engine:
        read = [recorded.event async for recorded in engine.thread("t").events(upto=len(sent))]
        assert (sent, None) == (read, (await engine.thread("t").replay.verify()).divergence)


# What this process knows nothing of.

billing = Plugin("billing")


@billing.event("invoice_paid")
class InvoicePaid(Event, frozen=True):
    """An event of another package."""

    content: str
    amount: int = 0


@billing.reducer(InvoicePaid)
def reduce_invoice_paid(
    _view: memory_engine.StateView, event: InvoicePaid, ctx: memory_engine.ReduceContext
) -> memory_engine.Reduction:
    """A note of the payment."""
    chunk = memory_engine.Chunk(id=ctx.new_id(), type="invoice", content=event.content)
    return memory_engine.Reduction(operations=(memory_engine.Add(chunk.id),), chunks=(chunk,))


async def test_an_unknown_event_is_preserved(tmp_path: Path) -> None:
    """Without its plug-in an event is read as bytes and hinders no other; with it, it is whole again."""
    path = str(tmp_path / "log.db")
    async with memory_engine.open(path, plugins=[billing]) as engine:
        thread = await engine.create_thread("t")
        await thread.dispatch(InvoicePaid(content="paid", amount=7))
    async with memory_engine.open(path) as engine:
        read = await engine.thread("t").replay.latest(1)
        assert UnknownEvent("invoice_paid", 1, b'{"content":"paid","amount":7}') == read[0].event
        await engine.thread("t").dispatch(e.UserMessage(content="thanks"))
        assert 2 == len(await engine.thread("t").state())
    async with memory_engine.open(path, plugins=[billing]) as engine:
        thread = engine.thread("t")
        assert ["paid", "thanks"] == [chunk.text for chunk in (await thread.state()).chunks()]
        assert (await thread.replay.verify()).ok


async def test_an_event_of_a_forgotten_plug_in_is_refused() -> None:
    """It could neither be reduced nor shown: the error names event and class, and nothing is written."""
    async with memory_engine.open(":memory:") as engine:
        thread = await engine.create_thread("t")
        with pytest.raises(errors.UnknownEventClass, match="open it with the plug-in that has it") as caught:
            await thread.dispatch_all([e.UserMessage(content="pay"), InvoicePaid(content="paid")])
        assert ("invoice_paid", "InvoicePaid") == (caught.value.event_type, caught.value.name)
        assert 0 == (await thread.info()).events


NO_EVENTS: list[object] = [None, "Hello", 5, {"content": "Hello"}, e.UserMessage, e.TodoItem("1", "x")]


@pytest.mark.parametrize("value", NO_EVENTS, ids=str)
async def test_what_is_no_event_is_refused(value: object) -> None:
    """Alone, in an envelope or in a list; and so is an event where a list of them is due."""
    async with memory_engine.open(":memory:") as engine:
        thread = await engine.create_thread("t")
        wrong = cast("Event", value)
        for sent in (thread.dispatch(wrong), thread.dispatch(NewEvent(wrong)), thread.dispatch_all([wrong])):
            with pytest.raises(errors.InvalidEvent, match="cannot be recorded"):
                await sent
        for alone in (e.UserMessage(content="Hello"), NewEvent(e.UserMessage(content="Hello")), None):
            with pytest.raises(errors.InvalidEvent, match="a list of events is expected"):
                await thread.dispatch_all(cast("list[Event]", alone))
        assert 0 == (await thread.info()).events


OLDER = {
    "task_started": b'{"goal":"Win.","task_id":"t"}',
    "task_completed": b'{"task_id":"t"}',
    "task_abandoned": b"{}",
    "task_terminated": b"{}",
    "environment_change": b'{"content":"Rain."}',
    "todo_completed": b'{"id":"1"}',
    "todo_expanded": b'{"id":"1","items":[]}',
    "todo_updated": b'{"id":"1"}',
    "todo_deleted": b'{"id":"1"}',
    "memory_mark_critical": b'{"chunk_ids":["1.0"]}',
    "session_started": b'{"content":"Be kind."}',
    "user_message": b'{"content":"","native":"{\\"x\\":{\\"message\\":[{\\"$whole\\":{}}]}}"}',
    "llm_text_response": b'{"content":"","native":"{\\"x\\":{\\"message\\":[{\\"$whole\\":{}}]}}"}',
    "llm_tool_call": b'{"calls":[],"native":"{\\"x\\":{\\"message\\":[{\\"$whole\\":{}}]}}"}',
}
"""Version 1 of events whose reducers do something else now."""


@pytest.mark.parametrize("name", OLDER)
def test_version_1_says_that_it_is_reduced_as_it_was(name: str) -> None:
    """A field that is false in a new event is set, and nothing else is another."""
    read, new = (builtin_registry().decode(name, version, OLDER[name]) for version in (1, 2))
    assert isinstance(read, Event)
    assert isinstance(new, Event)
    differing = {field for field in read.__struct_fields__ if getattr(read, field) != getattr(new, field)}
    assert (1, True) == (len(differing), getattr(read, differing.pop()))


async def test_verifying_an_unknown_event_names_it(tmp_path: Path) -> None:
    """What cannot be reduced here is not called sound: the report names seq, type and version."""
    path = str(tmp_path / "log.db")
    async with memory_engine.open(path, plugins=[billing]) as engine:
        thread = await engine.create_thread("t")
        await thread.dispatch_all([e.UserMessage(content="pay"), InvoicePaid(content="paid")])
    async with memory_engine.open(path) as engine:
        report = await engine.thread("t").replay.verify()
        found = report.divergence
        assert found is not None
        assert (2, "unloaded", "invoice_paid") == (found.seq, found.kind, found.event_type)
        assert ("invoice_paid",) == report.unloaded_types
        assert isinstance(report.unloaded, errors.PluginNotLoaded)
        assert "thread 't': no plug-in that is loaded declares the event type 'invoice_paid'; name" in str(found)


@pytest.mark.parametrize("version", [0, 3, 99])
def test_a_version_that_is_not_known_is_preserved(version: int) -> None:
    """A newer schema, or one to which no upcaster leads, is left as it is."""
    read = builtin_registry().decode("todo_set", version, b'{"items":{}}')
    assert UnknownEvent("todo_set", version, b'{"items":{}}') == read


@pytest.mark.parametrize("payload", [b"", b"{", b"[]", b'{"content":1}', b'{"content":"\xff"}', b"{}", b"[" * 5000])
def test_a_broken_payload_is_an_error(payload: bytes) -> None:
    """Bytes that do not fit their own schema are never guessed at."""
    with pytest.raises(errors.EventDecodeError) as caught:
        builtin_registry().decode("user_message", 1, payload)
    assert ("user_message", 1) == (caught.value.event_type, caught.value.version)


def test_an_upcaster_that_fails_is_an_error() -> None:
    """Whatever it raises comes as the error that names type and version."""
    registry = EventRegistry([e.TodoSet])
    registry.register_upcaster("todo_set", 1, lambda payload: {"items": payload["nowhere"]})
    with pytest.raises(errors.EventDecodeError, match="todo_set"):
        registry.decode("todo_set", 1, b"{}")


# What cannot be recorded.


@event("anything")
class Anything(Event, frozen=True):
    """An event with a field of any JSON value."""

    value: object = None
    number: float = 0.0
    table: dict[str, object] = msgspec.field(default_factory=dict)


anything = Plugin("anything", events=[Anything])


class Undeclared(Event, frozen=True):
    """An event without a wire name."""


@event("user_message")
class Impostor(Event, frozen=True):
    """A second class under a built-in name."""


BAD = [
    ("a text that is a number", e.UserMessage(content=cast("str", 5)), errors.InvalidEvent),
    ("no text", e.UserMessage(content=cast("str", None)), errors.InvalidEvent),
    ("a part that is a dict", e.UserMessage(content=cast("str", ({"type": "odd"},))), errors.InvalidEvent),
    ("an unknown status", e.TodoItem("1", "x", cast("TodoStatus", "later")), errors.InvalidEvent),
    ("a lone surrogate", e.UserMessage(content="\ud800"), errors.InvalidEvent),
    ("one in a key", Anything(table={"\udfff": 1}), errors.InvalidEvent),
    ("NaN", Anything(number=float("nan")), errors.InvalidEvent),
    ("an infinity", Anything(number=float("-inf")), errors.InvalidEvent),
    ("NaN in a value", Anything(value=[1, {"x": float("nan")}]), errors.InvalidEvent),
    ("a key that is not a text", Anything(value={1: "one"}), errors.InvalidEvent),
    ("a set", Anything(value={1, 2}), errors.InvalidEvent),
    ("bytes", Anything(value=b"raw"), errors.InvalidEvent),
    ("a moment", Anything(value=datetime(2020, 1, 1, tzinfo=UTC)), errors.InvalidEvent),
    ("an object", Anything(value=object()), errors.InvalidEvent),
    ("no declared event", Undeclared(), errors.UndeclaredEvent),
    ("the base class", Event(), errors.UndeclaredEvent),
    ("another class of a name", Impostor(), errors.DuplicateRegistration),
]


@pytest.mark.parametrize(("value", "error"), [bad[1:] for bad in BAD], ids=[bad[0] for bad in BAD])
async def test_bad_input_is_refused(value: Event | e.TodoItem, error: type[errors.InvalidInput]) -> None:
    """What the log could not give back as it is raises, and nothing is written."""
    bad = e.TodoSet(items=(value,)) if isinstance(value, e.TodoItem) else value
    async with memory_engine.open(":memory:", plugins=[anything]) as engine:
        thread = await engine.create_thread()
        with pytest.raises(error):
            await thread.dispatch_all([e.UserMessage(content="good"), bad])
        assert 0 == (await thread.info()).events


def test_an_error_names_the_place() -> None:
    """The message says where in the event the value stands."""
    odd = Anything(value=[1, {"x": float("nan")}])
    found = given(plugins=[anything]).when(odd).then_raises(errors.InvalidEvent)
    assert "event 'anything' cannot be recorded: nan is not a JSON number at $.value[1].x; nothing was written" == str(
        found
    )
    found = given().when(e.UserMessage(content=cast("str", 5))).then_raises(errors.InvalidEvent)
    assert "$.content" in str(found)


async def test_values_that_json_can_hold_come_back_equal() -> None:
    """Nesting, integers of any size, empty values and any Unicode are recorded faithfully."""
    value: object = {"": [None, True, -(2**63), 2**64 - 1, 10**30 + 1, 0.1, -0.0, "\x00\u2028é👩‍👩‍👧", [], {}]}
    async with memory_engine.open(":memory:", plugins=[anything]) as engine:
        thread = await engine.create_thread()
        await thread.dispatch(Anything(value=value))
        assert Anything(value=value) == (await thread.replay.latest(1))[0].event


@pytest.mark.parametrize(("over", "fits"), [(0, True), (1, False)])
async def test_the_size_limit_is_exact(over: int, fits: bool) -> None:
    """A payload of just the limit is taken, a byte more is a typed error with nothing written."""
    frame = len(b'{"content":""}')
    async with memory_engine.open(":memory:", config=EngineConfig(event_bytes_max=200_000)) as engine:
        thread = await engine.create_thread()
        message = e.UserMessage(content="x" * (200_000 - frame + over))
        if fits:
            await thread.dispatch(message)
        else:
            with pytest.raises(errors.EventTooLarge):
                await thread.dispatch(message)
        assert int(fits) == (await thread.info()).events


async def test_a_moment_without_a_time_zone_is_refused() -> None:
    """A naive `occurred_at` would mean another moment elsewhere; one before 1970 is a moment like any."""
    async with memory_engine.open(MemoryStore()) as engine:
        thread = await engine.create_thread()
        with pytest.raises(errors.InvalidEvent, match="occurred_at"):
            await thread.dispatch(e.UserMessage(content="x"), occurred_at=datetime(2020, 1, 1))  # noqa: DTZ001 - on purpose
        early = datetime(1, 1, 3, tzinfo=UTC)  # what is earlier cannot be shown in every time zone
        await thread.dispatch(e.UserMessage(content="x"), occurred_at=early)
        assert early == (await thread.replay.latest(1))[0].occurred_at


@pytest.mark.parametrize("value", ["\ud800", "a\x00b", "x" * 4097], ids=ascii)
async def test_ids_that_cannot_be_stored_are_refused(value: str) -> None:
    """A lone surrogate, a NUL or more than 4 KB in an id is a typed error, and the thread goes on."""
    message = e.UserMessage(content="x")
    async with memory_engine.open(":memory:") as engine:
        thread = await engine.create_thread()
        for field in ("id", "causation_id", "correlation_id"):
            new = msgspec.structs.replace(NewEvent(message), **{field: value})
            with pytest.raises(errors.InvalidIdentifier):
                await thread.dispatch(new)
        assert 1 == (await thread.dispatch(message)).seq


def test_arguments_are_json_texts() -> None:
    """`ToolCall.create` keeps order and any integer, and refuses what JSON cannot hold."""
    created = e.ToolCall.create("c", "t", {"b": 10**30, "a": "é"})
    assert '{"b":1000000000000000000000000000000,"a":"é"}' == created.arguments
    with pytest.raises(ValueError, match="JSON compliant"):
        e.ToolCall.create("c", "t", {"x": float("inf")})
    with pytest.raises(TypeError):
        e.ToolCall.create("c", "t", {"x": {1, 2}})


@pytest.mark.parametrize(("name", "version"), [("", 1), ("x", 0)])
def test_an_event_needs_a_name_and_a_version(name: str, version: int) -> None:
    """An empty name or a version below 1 is refused where it is declared."""
    with pytest.raises(ValueError, match="a name and a version"):
        event(name, version=version)
