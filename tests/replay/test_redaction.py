"""Redaction: what is taken out is nowhere in the file, and what is left verifies, with the hashes of the original."""

import json
import re
import tempfile
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import memory_engine
from memory_engine import Engine, Event, LlmTextResponse, LlmToolCall, Plugin, Thread, ToolCall, ToolResult, UserMessage
from memory_engine import events as e
from memory_engine.core.chain import commitments, is_redacted
from memory_engine.core.records import StoredEvent
from memory_engine.engine import kernel_of
from memory_engine.errors import InvalidRedaction
from memory_engine.replay.export.export import export
from memory_engine.replay.export.redaction import Redaction
from memory_engine.thread import handle_of
from tests import golden_logs
from tests.conversations import turns
from tests.engine.test_forgetting import PATHS, SECRET
from tests.engine.test_forgetting import Path as Way
from tests.exports import NEVER, TALK, files_in, lines_of, read, rows, shown, talk

SAID = f"The {SECRET} totals, please."


async def exported(thread: Thread, path: Path, redaction: Redaction) -> bytes:
    """What a redacted export holds, once it was imported elsewhere and verified as redacted, with the same head."""
    report = await export(handle_of(thread), path, redaction=redaction, force=True)
    async with memory_engine.open(":memory:", config=NEVER) as engine:
        imported = engine.thread((await engine.transfer.import_log(path, scopes="as exported")).thread_id)
        verified = await imported.replay.verify()
        assert (None, report.redacted) == (verified.divergence, verified.redacted)
        assert (await thread.info()).head_hash == report.head_hash == verified.head_hash
        assert await shown(imported)
        again = path.with_name(f"again-{path.name}")
        await export(handle_of(imported), again, force=True)
        assert [line.get("hash") for line in read(path)] == [line.get("hash") for line in read(again)]
        assert lines_of(path)[1:-1] == lines_of(again)[1:-1]  # the last has the hash of the first
    return b"\n".join(lines_of(path))


@pytest.fixture
async def engine() -> AsyncIterator[Engine]:
    """An engine that compacts only when it is asked to."""
    async with memory_engine.open(":memory:", config=NEVER) as opened:
        yield opened


# nothing of it is in the file


@pytest.mark.parametrize("name", ["t.jsonl", "t.jsonl.gz"])
async def test_X6_what_is_redacted_is_nowhere_in_the_file(engine: Engine, tmp_path: Path, name: str) -> None:
    """Neither the text, nor the salt with which a short one could be guessed, nor its length; the head is the same."""
    thread = await engine.create_thread("t")
    await thread.dispatch_all([UserMessage(content=SAID), LlmTextResponse(content="Here they are.")])
    first, second = await rows(engine, "t")
    whole = await exported(thread, tmp_path / name, Redaction(types=["user_message"]))
    assert (False, False, True) == tuple(
        text in whole for text in (SECRET.encode(), first.salt.hex().encode(), second.salt.hex().encode())
    )
    line = read(tmp_path / name)[1]
    assert [digest.hex() for digest in commitments(first)] == line["commitments"]
    assert {"content": "[redacted]"} == line["payload"]
    assert b"Here they are." in whole


@pytest.mark.parametrize("way", PATHS, ids=lambda way: way.__name__)
async def test_what_was_forgotten_is_in_no_thread_s_file(engine: Engine, tmp_path: Path, way: Way) -> None:
    """By each way that a text is copied, from thread to thread too, the file holds nothing that is forgotten."""
    thread = await engine.create_thread("t", user_id="u1", tenant_id="acme")
    event_id = await way(thread)
    await engine.settle()
    await thread.forget(event_ids=[event_id])
    await engine.settle()
    for info in await engine.threads():
        if info.forked_from is None:
            whole = await exported(engine.thread(info.id), tmp_path / "t.jsonl", Redaction())
            assert SECRET.encode() not in whole
    await thread.replay.export(tmp_path / "kept.jsonl", redaction=Redaction(forgotten=False))
    assert SECRET.encode() in b"".join(lines_of(tmp_path / "kept.jsonl"))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (e.EnvironmentChange(content="Dry.", key="weather"), e.EnvironmentChange(content=SAID, key="weather")),
        (e.TaskStarted(goal="Totals."), e.TaskStarted(goal=SAID)),
        (e.TaskStarted(goal="Totals."), e.TaskCompleted(content=SAID)),
        (e.TodoSet(items=(e.TodoItem("1", "paint"),)), e.TodoUpdated(id="1", text=SAID)),
    ],
    ids=lambda event: event.event_type,
)
async def test_a_forgotten_chunk_that_took_the_place_of_another_goes_with_its_event(
    engine: Engine, tmp_path: Path, first: Event, second: Event
) -> None:
    """It has a parent, and yet says what its own event says."""
    thread = await engine.create_thread("t")
    _, told = await thread.dispatch_all([first, second])
    await thread.forget(chunk_ids=[told.chunks[0].id])
    assert SECRET.encode() not in await exported(thread, tmp_path / "t.jsonl", Redaction())


@pytest.mark.parametrize("way", PATHS, ids=lambda way: way.__name__)
async def test_a_pattern_reaches_every_copy(engine: Engine, tmp_path: Path, way: Way) -> None:
    """In every thread, whichever event or view tells it again."""
    thread = await engine.create_thread("t", user_id="u1", tenant_id="acme")
    await way(thread)
    await engine.settle()
    for info in await engine.threads():
        whole = await exported(engine.thread(info.id), tmp_path / "t.jsonl", Redaction(patterns=[SECRET]))
        assert SECRET.encode() not in whole


@pytest.mark.parametrize("way", PATHS, ids=lambda way: way.__name__)
async def test_what_says_where_it_is_from_goes_with_its_source(engine: Engine, tmp_path: Path, way: Way) -> None:
    """One event is named; its later versions, its summaries and what views drew from it are taken out with it."""
    thread = await engine.create_thread("t", user_id="u1", tenant_id="acme")
    event_id = await way(thread)
    await engine.settle()
    (row,) = await kernel_of(engine).store.find("t", [event_id])
    assert SECRET.encode() not in await exported(thread, tmp_path / "t.jsonl", Redaction(seqs=[row.seq]))


ALL_TYPES = sorted({type(event).event_type for event in golden_logs.samples()})
CHARACTERS = re.compile(r"é|👩|milk|glass|Timed out|Sundays|Always|weather\b.*Oslo|Java 21|sig\b|ENET|cat\b")
"""Texts that stand in the samples of all events."""


async def everything(engine: Engine) -> Thread:
    """A thread with one event of each type, every field set."""
    await golden_logs.everything(engine)
    return engine.thread("everything")


async def test_what_names_a_chunk_that_said_nothing_stays(engine: Engine, tmp_path: Path) -> None:
    """An event is taken out with the chunks whose words it may repeat, not for any id that begins with their seq."""
    thread = await engine.create_thread("t")
    receipt = await thread.dispatch(UserMessage(content=SAID))
    for n, said in enumerate(("0", "7")):
        await thread.dispatch(
            e.ContextRecalled(content=f"Recalled {said}: invoices.", query="invoices", request=f"1.{said}"),
            event_id=f"r{n}",
        )
    whole = await exported(thread, tmp_path / "t.jsonl", Redaction(seqs=[receipt.seq]))
    assert [False, True] == [f"Recalled {said}".encode() in whole for said in ("0", "7")]


async def test_every_type_can_be_taken_out_whole(engine: Engine, tmp_path: Path) -> None:
    """What is left of each event still is one of its class; types, places and ids are those of the log."""
    thread = await everything(engine)
    whole = await exported(thread, tmp_path / "t.jsonl", Redaction(types=ALL_TYPES))
    assert [] == CHARACTERS.findall(whole.decode().partition("\n")[2])
    plain = [recorded async for recorded in thread.events()]
    assert [one.type for one in plain] == [line["type"] for line in read(tmp_path / "t.jsonl")[1:-1]]


@settings(max_examples=8)
@given(st.sets(st.sampled_from(ALL_TYPES)), st.sets(st.integers(1, 80), max_size=6), st.booleans())
async def test_whatever_is_taken_out_the_rest_verifies(types: set[str], seqs: set[int], forgotten: bool) -> None:
    """Any rules together: the import verifies as redacted, views open, and the head is that of the original."""
    rules = Redaction(types=sorted(types), seqs=sorted(seqs), forgotten=forgotten, patterns=["c.t"], fields=["reason"])
    with tempfile.TemporaryDirectory() as folder:
        async with memory_engine.open(":memory:", config=NEVER) as engine:
            await exported(await everything(engine), Path(folder) / "t.jsonl", rules)
        async with memory_engine.open(":memory:") as engine:
            await exported(await golden_logs.talk(engine), Path(folder) / "t.jsonl", rules)


# fields


async def test_fields_are_named_or_found_by_their_path(engine: Engine, tmp_path: Path) -> None:
    """A name is meant wherever it stands, a path from the payload on; numbers there go too, all else stays."""
    thread = await engine.create_thread("t")
    entry = {"email": "ann@example.org", "age": 77_000_077, "more": {"email": "bo@example.org"}, "colour": "blue"}
    await thread.dispatch(e.MemoryAppended(layer="semantic", content="Ann", metadata=entry))
    for rules, expected in (
        (["email"], {**entry, "email": "[redacted]", "more": {"email": "[redacted]"}}),
        (["metadata.email"], {**entry, "email": "[redacted]"}),
        (["payload.metadata.age"], {**entry, "age": "[redacted]"}),
    ):
        await exported(thread, tmp_path / "t.jsonl", Redaction(fields=rules))
        assert expected == read(tmp_path / "t.jsonl")[1]["payload"]["metadata"]  # type: ignore[index]
    whole = await exported(thread, tmp_path / "t.jsonl", Redaction(fields=["metadata"]))
    assert [] == re.findall("example|blue|77000077|colour|email", whole.decode())


async def test_a_named_field_takes_what_chunks_say_of_it_along(engine: Engine, tmp_path: Path) -> None:
    """A chunk that has the text, shared with the event or not, and a summary that cites the chunk."""
    thread = await engine.create_thread("t")
    await thread.dispatch_all([UserMessage(content=SAID * 20), *turns(6)])
    await thread.compact()
    whole = await exported(thread, tmp_path / "t.jsonl", Redaction(fields=["content"]))
    assert [] == re.findall(rf"{SECRET}|word\d", whole.decode())


async def test_arguments_stay_json(engine: Engine, tmp_path: Path) -> None:
    """Programs read them: what stands in their place can be read."""
    thread = await talk(engine)
    await exported(thread, tmp_path / "t.jsonl", Redaction(fields=["arguments"]))
    [call] = read(tmp_path / "t.jsonl")[3]["payload"]["calls"]  # type: ignore[index]
    assert {"id": "c1", "name": "look", "arguments": "{}"} == call


@pytest.mark.parametrize("name", ["layer", "chunk_ids"])
async def test_what_holds_a_log_together_cannot_be_taken_out(engine: Engine, tmp_path: Path, name: str) -> None:
    """Chunk ids and fixed sets of values: the export is refused, and nothing is written."""
    thread = await everything(engine)
    with pytest.raises(InvalidRedaction, match=name):
        await thread.replay.export(tmp_path / "t.jsonl", redaction=Redaction(fields=[name]))
    assert [] == files_in(tmp_path)


async def test_ids_can_be_taken_out_by_name(engine: Engine, tmp_path: Path) -> None:
    """Each gets another, the same one everywhere: calls still find their results."""
    thread = await talk(engine)
    whole = await exported(thread, tmp_path / "t.jsonl", Redaction(fields=["id", "call_id"]))
    called, answered = (read(tmp_path / "t.jsonl")[n]["payload"] for n in (3, 4))
    assert called["calls"][0]["id"] == answered["call_id"] != "c1"  # type: ignore[index]
    assert [] == [text for text in (b'"c1"', b'"todo:1"', b'"1"') if text in whole]


# patterns


async def test_patterns_look_into_json_and_keys_and_numbers(engine: Engine, tmp_path: Path) -> None:
    """Escaped within a call's arguments, in a key, as a number: it is the same text."""
    thread = await engine.create_thread("t", metadata={"ticket": "for Zoë"}, user_id="Zoë")
    arguments = json.dumps(
        {"name": "Zoë", "Zoë's card": 4111222233334444, "nested": json.dumps(["Zoë", {"n": 4111222233334444}])}
    )
    assert "Zo\\u00eb" in arguments
    await thread.dispatch_all(
        [
            LlmToolCall(calls=(ToolCall(id="c1", name="pay", arguments=arguments),)),
            ToolResult(call_id="c1", content='{"to":"Zo\\u00eb","card":4111222233334444}'),
            e.FlowCompleted(
                flow_id="f", flow_dact="pay", user_query="Pay!", slots={"Zoë": [4111222233334444]}, outcome="paid Zoë"
            ),
        ]
    )
    whole = await exported(thread, tmp_path / "t.jsonl", Redaction(patterns=["Zoë", "4111222233334444"]))
    assert [] == re.findall(r"Zoë|u00eb|4111222233334444", whole.decode())
    assert b"pay" in whole


async def test_a_digest_of_what_is_redacted_is_not_left_behind(engine: Engine, tmp_path: Path) -> None:
    """Keys that the engine makes of texts could be guessed back: they get other names, wherever they come again."""
    thread = await engine.create_thread("t", user_id="u1", tenant_id="acme")
    entry = await thread.tool_cache.add("look", {"pin": 9876543210}, "ok", 5)
    assert entry is not None
    assert await thread.tool_cache.lookup("look", {"pin": 9876543210})
    await thread.tool_cache.clear()
    tenant = engine.tenant("acme")
    await tenant.documents.add_text("The pin is 9876543210.\n\nStay.", title="Pins", id="pins")
    await tenant.documents.add_text("Nothing.\n\nStay.", title="Pins", id="pins")
    [first] = [one async for one in tenant.events()][:1]
    assert isinstance(first.event, e.DocumentAdded)
    keys = [
        passage.key for splice in first.event.splices for passage in splice.passages if "9876543210" in passage.text
    ]
    for one, rules in ((thread, Redaction(patterns=["9876543210"])), (tenant, Redaction(patterns=["9876543210"]))):
        whole = await exported(engine.thread(one.id), tmp_path / "t.jsonl", rules)
        assert [] == [text for text in ("9876543210", entry.key, *keys, first.event.digest) if text.encode() in whole]


async def test_a_pattern_that_matches_in_an_id_of_an_event_is_refused(engine: Engine, tmp_path: Path) -> None:
    """The hash binds it: rather no file than one that tells. What the engine made up tells nothing, and stays."""
    thread = await engine.create_thread("t")
    await thread.dispatch(UserMessage(content="Hello"))
    await exported(thread, tmp_path / "t.jsonl", Redaction(patterns=["[0-9a-f]{4}"]))
    await thread.dispatch(UserMessage(content="Hello"), event_id="mail-from-ann")
    with pytest.raises(InvalidRedaction, match="an id of event 2"):
        await thread.replay.export(tmp_path / "u.jsonl", redaction=Redaction(patterns=["ann"]))


async def test_events_that_come_out_otherwise_are_redacted_too(engine: Engine, tmp_path: Path) -> None:
    """A shortened result says how long the whole was: after the redaction that is another number."""
    thread = await engine.create_thread("t")
    await thread.dispatch_all(
        [
            LlmToolCall(calls=(ToolCall(id="c1", name="look"),)),
            ToolResult(call_id="c1", content="x" * 30_000 + SECRET),
        ]
    )
    await thread.compaction.offload()
    await exported(thread, tmp_path / "t.jsonl", Redaction(patterns=[SECRET]))
    assert [False, True, True] == ["commitments" in line for line in read(tmp_path / "t.jsonl")[1:-1]]


# rules


@pytest.mark.parametrize(
    ("rules", "why"),
    [
        ({"patterns": ["("]}, "not a regular expression"),
        ({"patterns": ["x*"]}, "matches where there is nothing"),
        ({"fields": [""]}, "the name of nothing"),
        ({"types": "user_message"}, "give a list"),
    ],
)
def test_rules_that_cannot_be_followed_are_refused(rules: dict[str, Sequence[str]], why: str) -> None:
    """Before anything is read."""
    with pytest.raises(InvalidRedaction, match=why):
        Redaction(**rules)  # type: ignore[arg-type]


async def test_rules_that_nothing_was_for_are_named(engine: Engine, tmp_path: Path) -> None:
    """A misspelt field takes nothing out: whoever exports should know."""
    thread = await talk(engine)
    rules = Redaction(
        fields=["content", "contnet"], types=["user_message", "usermessage"], patterns=["blue", "geen"], seqs=[1, 99]
    )
    report = await thread.replay.export(tmp_path / "t.jsonl", redaction=rules)
    assert ("field contnet", "pattern geen", "type usermessage", "event 99") == report.idle_rules


async def test_the_header_tells_no_pattern(engine: Engine, tmp_path: Path) -> None:
    """What was looked for, and where, may be as telling as what was found."""
    await (await talk(engine)).replay.export(
        tmp_path / "t.jsonl", redaction=Redaction(patterns=["sesame"], seqs=[2], types=["tool_result"])
    )
    header = lines_of(tmp_path / "t.jsonl")[0]
    assert b'"redaction":{"types":["tool_result"],"patterns":1,"seqs":1,"forgotten":true}' in header
    assert b"sesame" not in header


# what is not the package's own


shop = Plugin("shop")


@shop.event("order_placed")
class OrderPlaced(Event):
    """An order: of whom and what, by names of its own."""

    order_id: str
    address: str
    total: int
    notes: dict[str, object]
    status: str


async def test_events_of_ones_own_are_taken_out_by_their_types(tmp_path: Path) -> None:
    """Ids get other names, texts go with keys that are free, and numbers only where their field is named."""
    placed = OrderPlaced(
        order_id="A-7", address="Elm Street 1", total=31, notes={"for Ann": ["a", 77_000_077]}, status="new"
    )
    async with memory_engine.open(":memory:", plugins=[shop]) as engine:
        thread = await engine.create_thread("t")
        await thread.dispatch_all([placed, placed])
        await thread.replay.export(tmp_path / "typed.jsonl", redaction=Redaction(types=["order_placed"]))
        await thread.replay.export(tmp_path / "named.jsonl", redaction=Redaction(fields=["total", "order_id"]))
        first, second = (line["payload"] for line in read(tmp_path / "typed.jsonl")[1:3])
        assert first == second
        assert [] == re.findall("A-7|Elm|Ann|77000077|new", str(first))
        assert 31 == first["total"]  # type: ignore[index]
        named = read(tmp_path / "named.jsonl")[1]["payload"]
        assert (0, "Elm Street 1") == (named["total"], named["address"])  # type: ignore[index]
        await engine.transfer.import_log(tmp_path / "typed.jsonl", thread_id="copy", scopes="as exported")
        assert (await engine.thread("copy").replay.verify()).ok


@shop.event("order_checked", chunks="none")
class OrderChecked(Event):
    """What somebody found of an order: its fields say what they are for."""

    placed_at: e.SourceSeq
    rule: e.Id
    customer_id: str
    found: str


async def test_events_of_ones_own_say_what_their_fields_are_for(tmp_path: Path) -> None:
    """What was drawn from a redacted event goes with it; its ids stay, and what says nothing gets another name."""
    placed = OrderPlaced(order_id="A-7", address="Elm Street 1", total=31, notes={}, status="new")
    checked = OrderChecked(placed_at=1, rule="vat", customer_id="A-7", found="Ann lives there.")
    async with memory_engine.open(":memory:", plugins=[shop]) as engine:
        thread = await engine.create_thread("t")
        await thread.dispatch_all([placed, checked, OrderChecked(placed_at=2, rule="vat", customer_id="", found="Ok.")])
        await thread.replay.export(tmp_path / "t.jsonl", redaction=Redaction(seqs=[1]))
    _, first, second = (line["payload"] for line in read(tmp_path / "t.jsonl")[1:4])
    assert isinstance(first, dict)
    assert (1, "vat", "[redacted]") == (first["placed_at"], first["rule"], first["found"])
    assert first["customer_id"].startswith("redacted:")
    assert second == {"placed_at": 2, "rule": "vat", "customer_id": "", "found": "[redacted]"}


async def test_events_that_are_not_known_here_are_taken_out_too(tmp_path: Path) -> None:
    """Without their class: all texts, and numbers; only the names of fields stay."""
    placed = OrderPlaced(order_id="A-7", address="Elm Street 1", total=31_000_031, notes={"n": "Ann"}, status="new")
    async with memory_engine.open(":memory:", plugins=[shop]) as engine:
        thread = await engine.create_thread("t")
        await thread.dispatch(placed)
        await thread.replay.export(tmp_path / "plain.jsonl")
    async with memory_engine.open(":memory:") as engine:
        await engine.transfer.import_log(tmp_path / "plain.jsonl", scopes="as exported")
        await engine.thread("t").replay.export(tmp_path / "t.jsonl", redaction=Redaction(types=["order_placed"]))
    payload = read(tmp_path / "t.jsonl")[1]["payload"]
    expected = {"order_id", "address", "total", "notes", "status"}
    assert (expected, []) == (set(payload), re.findall("A-7|Elm|Ann|31000031|new", str(payload)))  # type: ignore[call-overload]


async def test_a_redacted_log_can_be_redacted_again(engine: Engine, tmp_path: Path) -> None:
    """Commitments stay what they were, whoever takes out more."""
    thread = await talk(engine)
    await thread.replay.export(tmp_path / "one.jsonl", redaction=Redaction(types=["user_message"]))
    await engine.transfer.import_log(tmp_path / "one.jsonl", thread_id="copy", scopes="as exported")
    whole = await exported(engine.thread("copy"), tmp_path / "two.jsonl", Redaction(types=["tool_result"]))
    assert b"My bike" not in whole
    assert (2, len(TALK)) == (sum(map(is_redacted, await _copied(tmp_path / "two.jsonl"))), len(TALK))


async def _copied(path: Path) -> list[StoredEvent]:
    """The rows that an import makes."""
    async with memory_engine.open(":memory:") as engine:
        return await rows(engine, (await engine.transfer.import_log(path, scopes="as exported")).thread_id)
