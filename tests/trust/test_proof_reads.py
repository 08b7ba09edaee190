"""The law of a proof: whatever a context, an adapter, an export or the inspector shows of an event, it finds."""

import base64
import json
import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from unicodedata import normalize

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import memory_engine
from memory_engine import Engine, FilePart, Thread, ToolCall, UserMessage, sync
from memory_engine import events as e
from memory_engine.administration.proof import find_texts
from memory_engine.core.records import NewEvent
from memory_engine.core.spelling import SPELLINGS, Sought, unescaped
from memory_engine.replay.export.redaction import Redaction
from memory_engine.thread import handle_of
from memory_engine.views.checkpoints.events import CheckpointName
from memory_engine.views.checkpoints.packing import Form
from memory_engine.views.checkpoints.pieces import strings, to_bytes
from memory_engine.views.checkpoints.view import Checkpoints, Given, Write
from tests.command_line import Run

words = st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), min_size=3, max_size=20).map(str.strip)
names = words.filter(lambda text: len(text) > 2 and not text.isspace())


def packed(value: object) -> Form:
    """A value as a serializer gives it."""
    return "msgpack", msgspec.msgpack.encode(value)


@given(names, st.text(max_size=9), st.lists(st.booleans(), max_size=5), st.sampled_from(("NFC", "NFD")))
def test_a_text_is_found_in_every_spelling(name: str, beside: str, depths: list[bool], form: str) -> None:
    """In JSON within JSON, with all or few characters escaped, accents composed or not."""
    written = beside.encode("utf-8", "replace").decode() + normalize(form, name)  # type: ignore[arg-type]
    for is_ascii in depths:
        written = json.dumps([written], ensure_ascii=is_ascii)
    assert Sought(name).is_in(written.encode())


@pytest.mark.parametrize("written", [r"\u0041nna", r"\\\\u0041nna", r"\u0041\u006E\u006ea", "Ann\\u0061"])
def test_plain_letters_may_be_escaped_too(written: str) -> None:
    """JSON allows it for any character, and either case of digits."""
    assert Sought("Anna").is_in(written.encode())
    assert not Sought("Anne").is_in(written.encode())


@given(st.text(st.characters(codec="utf-8", exclude_characters="\\"), max_size=20), st.booleans())
def test_a_text_without_its_escapes_knows_where_it_was(text: str, is_ascii: bool) -> None:
    """Each character begins where its escape does."""
    written = json.dumps(text, ensure_ascii=is_ascii)[1:-1]
    read = unescaped(written)
    if read is None:
        assert text == written
    else:
        assert (text, len(written)) == (read.text, read.starts[-1])


# what is shown


async def save(checkpoints: Checkpoints, values: Mapping[str, object], beside: Sequence[NewEvent] = ()) -> None:
    """Save a checkpoint of a graph."""
    given = {channel: Given("1", True, partial(packed, value)) for channel, value in values.items()}
    draft = await checkpoints.draft(CheckpointName("", "0001"), "", given)
    await checkpoints.save(draft, "", packed({"step": 1}), '{"source": "input"}', beside=beside)


async def spoken(thread: Thread, name: str) -> None:
    """A thread whose events hold a name in all the ways in which events do."""
    file = f"data:text/plain;base64,{base64.b64encode(f'Dear {name},'.encode()).decode()}"
    long = f"The guest of room 12 is called {name}, and wants to be woken at seven in the morning, please."
    await thread.dispatch(UserMessage(content=(e.TextPart(text="See:"), FilePart(url=file, media_type="text/plain"))))
    call = ToolCall(id="c1", name="save", arguments=json.dumps({"who": name, "raw": json.dumps({"who": name})}))
    await thread.dispatch(e.LlmToolCall(calls=(call,)))
    await thread.dispatch(e.ToolResult(call_id="c1", content=json.dumps({"saved": name})))
    checkpoints = Checkpoints(handle_of(thread))
    values = {"notes": f"Somebody said: {long} That was all.", "guest": {"name": name, "tags": [name * 20]}}
    await save(checkpoints, values, [NewEvent(UserMessage(content=long))])
    await checkpoints.write(CheckpointName("", "0001"), "t1", "", [Write("x", 0, packed([name, long]))])


async def shown(thread: Thread) -> AsyncIterator[str]:
    """Every text that a reader of the thread gets to see: of contexts, of checkpoints, of files in messages."""
    context = await thread.context(max_tokens=100_000)
    for form in ("openai.chat", "openai.responses", "anthropic"):
        for one in leaves(msgspec.to_builtins(context.render(form))):
            yield one
    checkpoints = Checkpoints(handle_of(thread))
    saved = await checkpoints.read(CheckpointName("", "0001"))
    assert saved is not None
    for _, data in (*saved.values.values(), *(write.value for write in saved.writes)):
        for one in leaves(msgspec.msgpack.decode(data)):
            yield one


def leaves(value: object) -> Iterator[str]:
    """The texts of a JSON value, and of JSON in them."""
    match value:
        case str():
            yield value
            with suppress(ValueError):
                yield from leaves(json.loads(value))
        case dict():
            yield from leaves(list(value.values()))
        case list() | tuple():
            for one in value:
                yield from leaves(one)


@given(names)
@settings(max_examples=25)
async def test_whatever_is_shown_is_found(name: str) -> None:
    """By the whole text that is shown, and by the name in it."""
    async with memory_engine.open(":memory:") as engine:
        thread, name = await engine.create_thread("t"), f"Qv{name}"
        await spoken(thread, name)
        texts = {one async for one in shown(thread) if name in one}
        assert len(texts) >= 5
        for text in (name, *texts):
            proof = await find_texts(engine.kernel, [text])
            assert (True, ()) == (bool(proof.left), proof.unread), text


async def test_a_proof_says_what_it_read(tmp_path: Path) -> None:
    """The spellings, the files, and of rows the columns with values and bytes; also what packed content unpacked to."""
    async with memory_engine.open(str(tmp_path / "m.db")) as engine:
        await spoken(await engine.create_thread("t"), "Łukasz Żółć")
        proof = await find_texts(engine.kernel, ["Łukasz Żółć", "nobody said this"])
    assert SPELLINGS == proof.spellings
    assert {"events.payload", "events.record", "threads.metadata"} <= set(proof.tables)
    payloads = proof.tables["events.payload"]
    assert (6, True, True) == (payloads.values, payloads.bytes > 1_000, payloads.unpacked > 300)
    places = " ".join(proof.left)
    assert "text 2" not in places
    for n in range(1, 7):
        assert f"event {n}" in places, n
    assert "event 5, piece" in places


async def test_a_large_event_is_read_where_its_payload_is(tmp_path: Path) -> None:
    """In a table of its own, packed as well."""
    async with memory_engine.open(str(tmp_path / "m.db")) as engine:
        thread = await engine.create_thread("t")
        text = " ".join(f"{n * 7919 % 10_007:x}" for n in range(200_000))
        await save(Checkpoints(handle_of(thread)), {"notes": f"{text} Ångström {text[::-1]}"})
        proof = await find_texts(engine.kernel, ["Ångström"])
        assert ["blobs.body of thread t, event 1, piece 0: text 1"] == list(proof.left)


# erasing

SAID = "My account at the bank is DE-4412-Quillfeather."


async def noted(engine: Engine) -> Thread:
    """A thread whose graph has noted down what a person said, and answered it."""
    thread = await engine.create_thread("t")
    await thread.dispatch(UserMessage(content=SAID))
    quoting = [
        f"Today: {SAID} (noted)",
        {"log": [f'They wrote "{SAID}" to us.']},
        json.dumps({"content": SAID, "who": "Zoë"}),
        {"content": f"You said: {SAID} Is that right?"},
        "weather",
    ]
    await Checkpoints(handle_of(thread)).write(
        CheckpointName("", "1"), "t", "", [Write(f"c{n}", 0, packed(value)) for n, value in enumerate(quoting)]
    )
    await save(Checkpoints(handle_of(thread)), {f"c{n}": value for n, value in enumerate(quoting)})
    return thread


async def test_erasing_takes_the_values_that_quote_a_message(tmp_path: Path) -> None:
    """In any spelling. A message that quotes it is one of its own, as its event is: it stays, and the proof says so."""
    async with memory_engine.open(str(tmp_path / "m.db")) as engine:
        thread = await noted(engine)
        report = await thread.admin.erase(seqs=[1])
        left = [
            to_bytes(piece)
            async for one in thread.events()
            for piece in getattr(one.event, "pieces", ())
            if piece[0] != "["
        ]
        assert [True, True] == [b"Is that right?" in data for data in left if b"Quillfeather" in data]
        assert report.proof is not None
        assert (True, 1) == (report.proof.ok, report.proof.elsewhere)
        held = [f"events.payload of thread t, event {n}, piece 3" for n in (2, 3)]
        assert held == list(report.proof.elsewhere_in)
        assert not (await find_texts(engine.kernel, ["DE-4412-Quillfeather"])).ok
        await thread.admin.erase(seqs=[2, 3])
        assert (await find_texts(engine.kernel, ["DE-4412-Quillfeather"])).ok
        assert (await thread.replay.verify()).ok


async def test_the_proof_looks_for_what_was_packed(engine: Engine) -> None:
    """Texts of an erased checkpoint count as destroyed, and are found where another event still says them."""
    thread = await engine.create_thread("t")
    await save(
        Checkpoints(handle_of(thread)),
        {"notes": "Ten boxes of Quillfeather ink stand in the cellar of the old town hall."},
    )
    await thread.dispatch(
        UserMessage(content="Ten boxes of Quillfeather ink stand in the cellar of the old town hall.")
    )
    report = await thread.admin.erase(seqs=[1])
    assert report.proof is not None
    assert ("events.payload of thread t, event 2",) == report.proof.elsewhere_in


def test_the_command_names_the_places_and_what_it_read(run: Run, tmp_path: Path) -> None:
    """Exit code 1 for a name that a tool's arguments hold escaped."""
    path = tmp_path / "m.db"
    with sync.open(str(path)) as engine:
        thread = engine.create_thread("t")
        call = ToolCall(id="c1", name="save", arguments=json.dumps({"who": "Søren Ørsted"}))
        thread.dispatch(e.LlmToolCall(calls=(call,)))
    code, out, _ = run("--db", str(path), "erase", "--prove", "--text", "Søren Ørsted")
    assert (1, True, True) == (code, "events.payload of thread t, event 1" in out, "spellings: as written" in out)
    code, out, _ = run("--db", str(path), "erase", "--prove", "--text", "Søren Kierkegaard", "--json")
    found = json.loads(out)
    assert (0, True, []) == (code, found["ok"], found["unread"])
    assert found["tables"]["events.payload"]["values"] == 1


# redaction


@pytest.mark.parametrize("pattern", ["Quillfeather", r"DE-\d+", 'wrote "My', "noted.$|Today: My"])
async def test_a_pattern_takes_out_what_is_packed(engine: Engine, tmp_path: Path, pattern: str) -> None:
    """Of an export no value may hold what a pattern matches; the rest stays."""
    await noted(engine)
    path = tmp_path / "less.jsonl"
    await engine.thread("t").replay.export(path, redaction=Redaction(patterns=(pattern,)))
    async with memory_engine.open(":memory:") as other:
        await other.transfer.import_log(path)
        less = [*await other.thread("t").replay.latest(9)]
        kept = [to_bytes(p) for one in less for p in getattr(one.event, "pieces", ()) if not p.startswith("[")]
        texts = [string.decode() for data in kept for _, string in strings(data)]
        assert not [text for text in texts if re.search(pattern, text)]
        assert len(kept) < 8


async def test_a_pattern_reaches_into_files_and_escaped_texts(engine: Engine, tmp_path: Path) -> None:
    """A text file in base64 goes whole; JSON within prose loses what matches once it is read."""
    thread = await engine.create_thread("t")
    file = f"data:text/plain;base64,{base64.b64encode('Dear Zoë,'.encode()).decode()}"
    await thread.dispatch(UserMessage(content=(FilePart(url=file, media_type="text/plain"),)))
    await thread.dispatch(UserMessage(content='The tool gave: {"who": "Zo\\u00eb", "n": 1}'))
    await thread.replay.export(tmp_path / "less.jsonl", redaction=Redaction(patterns=("Zoë",)))
    async with memory_engine.open(":memory:") as other:
        await other.transfer.import_log(tmp_path / "less.jsonl")
        first, second = [one.event for one in await other.thread("t").replay.latest(2)]
    assert isinstance(first, UserMessage)
    assert isinstance(second, UserMessage)
    assert "[redacted]" == first.content[0].url  # type: ignore[union-attr]
    assert 'The tool gave: {"who": "[redacted]", "n": 1}' == second.content
