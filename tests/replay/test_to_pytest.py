"""A piece of a recorded log becomes the source of a test: it passes as written, and fails when a reducer changes."""

import ast
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import memory_engine
from memory_engine import (
    Add,
    Chunk,
    CompactionPolicy,
    EngineConfig,
    Event,
    Plugin,
    ReduceContext,
    Reduction,
    StateView,
    Thread,
    ToolCall,
    UserMessage,
)
from memory_engine import events as e
from memory_engine.cli import main
from memory_engine.errors import NoSuchTest
from memory_engine.replay.export.redaction import Redaction
from memory_engine.replay.to_pytest import Constants, literal, quoted, text_literal
from memory_engine.testing import check_regression
from tests.views.test_view_laws import CONFIG, EVENTS, each

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}
LINE_LENGTHS = (60, 88, 120, 320)


def pytest_of(folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the tests of a folder in a process of their own."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(folder), str(folder)]
    return subprocess.run(command, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, check=False)


def run_here(source: str) -> None:
    """Run what is generated, in this process."""
    names: dict[str, object] = {}
    exec(compile(source, "generated.py", "exec"), names)
    [test] = [value for name, value in names.items() if name.startswith("test_")]
    assert callable(test)
    test()


def formatted(source: str, folder: Path) -> bool:
    """Whether a formatter would leave it as it is, however long lines may be."""
    ruff = shutil.which("ruff")
    if ruff is None:
        pytest.skip("there is no ruff here")
    path = folder / "generated.py"
    path.write_text(source, encoding="utf-8")
    commands = [[ruff, "format", "--isolated", "--check", "--line-length", str(n), str(path)] for n in LINE_LENGTHS]
    return all(0 == subprocess.run(one, capture_output=True, check=False).returncode for one in commands)


async def talk(thread: Thread) -> None:
    """A conversation with calls, a to-do list, a task and compactions."""
    await thread.dispatch(e.SessionStarted(content="You plan trips. 'Always' \"politely\"."))
    await thread.dispatch(e.TodoSet(items=(e.TodoItem("1", "find flights"), e.TodoItem("2", "find a hotel"))))
    for n in range(8):
        await thread.dispatch(UserMessage(content=f"And on day {n}? " + "What would you say to a walk? " * 9))
        await thread.dispatch(e.LlmToolCall(calls=(ToolCall.create(f"c{n}", "look", {"day": n, "é": [1.5, None]}),)))
        await thread.dispatch(e.ToolResult(call_id=f"c{n}", content=f'{{"day": {n}}}', name="look"))
        await thread.dispatch(e.TodoCompleted(id="1") if n == 3 else e.LlmTextResponse(content=f"Day {n} is fine."))
    await thread.compaction.settle()


POLICY = EngineConfig(compaction=CompactionPolicy(threshold=8, tokens_min=0, keep_recent=2))


async def test_the_test_passes_as_written(tmp_path: Path) -> None:
    """One event, some, and all, across compactions; by seqs and by ids. Nothing but the file is needed."""
    folder = tmp_path / "generated"
    async with memory_engine.open(":memory:", config=POLICY) as engine:
        thread = await engine.create_thread("trip")
        await talk(thread)
        events = [event async for event in thread.events()]
        head = len(events)
        assert "compaction_completed" in {event.type for event in events}
        sources = {
            "all": await thread.replay.to_pytest(1),
            "some": await thread.replay.to_pytest(5, head - 4, name="some_of_it"),
            "one": await thread.replay.to_pytest(events[6].id, events[6].id),
        }
    await anyio.Path(folder).mkdir()
    for name, source in sources.items():
        await anyio.Path(folder / f"test_{name}.py").write_text(source, encoding="utf-8")
        assert formatted(source, tmp_path)
    done = await anyio.to_thread.run_sync(pytest_of, folder)
    assert (0, True) == (done.returncode, "3 passed" in done.stdout), done.stdout
    assert "def test_some_of_it() -> None:" in sources["some"]
    assert "def test_trip_events_7_to_7() -> None:" in sources["one"]


async def test_the_same_log_gives_the_same_source() -> None:
    """No time and no chance is in it."""
    async with memory_engine.open(":memory:", config=POLICY) as engine:
        thread = await engine.create_thread("trip")
        await talk(thread)
        assert await thread.replay.to_pytest(3, 20) == await thread.to_pytest(3, 20)


async def test_a_changed_reducer_fails_the_test(tmp_path: Path) -> None:
    """With the event, the reducer, and what was recorded and is now."""
    async with memory_engine.open(":memory:") as engine:
        thread = await engine.create_thread("t")
        await thread.dispatch_all([UserMessage(content="Hello"), e.LlmTextResponse(content="Hi")])
        source = await thread.replay.to_pytest(1, 2)
    changed = source.replace('"label": "",', "").replace(
        "PLUGINS: Sequence[Plugin] = ()",
        "from memory_engine import Add, Chunk, Reduction\n\n"
        "changed = Plugin('changed')\n\n\n"
        "@changed.replaces_reducer('reduce_llm_text_response')\n"
        "def shout(view, event, ctx):\n"
        "    chunk = Chunk(id=ctx.new_id(), type='agent_response', content=event.content.upper())\n"
        "    return Reduction((Add(chunk.id, first=True),), (chunk,))\n\n\n"
        "PLUGINS = [changed]",
    )
    await anyio.Path(tmp_path / "test_changed.py").write_text(changed, encoding="utf-8")
    done = await anyio.to_thread.run_sync(pytest_of, tmp_path)
    assert 1 == done.returncode
    assert "event 2 (llm_text_response), of reducer reduce_llm_text_response: recorded → now" in done.stdout
    assert "operation 1: ADD 2.0 → ADD 2.0 first" in done.stdout
    assert "chunk 2.0 content: 'Hi' → 'HI'" in done.stdout


HOSTILE = (
    'quotes " \' """ \'\'\' "',
    "\\ \\n \\",
    "\x00\x1b[31m\r\n\t\x7f",
    "\u202eright to left\u2066 \ufeff é é 🧿 \U000e0041",
    "trailing blanks \n and tabs\t\n\n",
    '{braces} %s # no comment """\nfake = 1\n"""',
    "x" * 300 + " " * 300,
    "a line\nanother" + '"' * 7,
    '\\"""',
    " ",
    "",
)


async def test_hostile_content_comes_back_exactly(tmp_path: Path) -> None:
    """Whatever the log holds, the source is one module with one test, which passes; a formatter changes nothing."""
    hostile_id = "x\"\"\"\n'''\\\u202e"
    async with memory_engine.open(":memory:") as engine:
        thread = await engine.create_thread(hostile_id)
        await thread.dispatch_all([UserMessage(content=text, name=text[:20]) for text in HOSTILE])
        await thread.dispatch(e.ToolResult(call_id="'\"\\", content=HOSTILE[0], name=HOSTILE[1]))
        source = await thread.replay.to_pytest(3)
    run_here(source)
    tree = ast.parse(source)
    assert 1 == sum(isinstance(node, ast.FunctionDef) for node in tree.body)
    assert "fake" not in {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    assert all(text == HOSTILE[n] for n, text in enumerate(_payloads(source), 2) if n < len(HOSTILE))
    assert formatted(source, tmp_path)


def _payloads(source: str) -> list[object]:
    names: dict[str, object] = {}
    exec(compile(source, "generated.py", "exec"), names)
    events = names["EVENTS"]
    assert isinstance(events, list)
    return [event["payload"].get("content", "") for event in events]


async def test_a_megabyte_is_one_constant(tmp_path: Path) -> None:
    """It stands once, in lines that an editor can show, and comes back exactly."""
    long = "".join(chr(33 + n * 7 % 90) for n in range(1_000_000))
    async with memory_engine.open(":memory:") as engine:
        thread = await engine.create_thread("t")
        await thread.dispatch_all([UserMessage(content=long), UserMessage(content="short")])
        source = await thread.replay.to_pytest(1)
    assert len(source) < 1_200_000
    assert max(map(len, source.splitlines())) < 250
    assert [long, "short"] == _payloads(source)
    run_here(source)
    assert formatted(source, tmp_path)


TEXTS = st.text(st.characters(codec="utf-8"), max_size=400) | st.text("\"\\\n 'x", max_size=40)


@given(TEXTS)
def test_any_text_comes_back_from_its_source(text: str) -> None:
    """Law: on one line and between triple quotes, in printable lines without a blank at their end."""
    for source in (quoted(text), text_literal(text)):
        assert text == ast.literal_eval(source)
        assert all(line.isprintable() and not line.endswith(" ") for line in source.split("\n"))
    assert 1 == len(quoted(text).splitlines())


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)


@given(VALUES)
def test_any_value_comes_back_from_its_source(value: object) -> None:
    """Law: with its constants before it."""
    constants = Constants()
    expression = literal(value, constants)
    names: dict[str, object] = {}
    exec(f"{constants.source()}found = {expression}\n", names)
    assert value == names["found"]
    assert repr(value) == repr(names["found"])


@settings(max_examples=25)
@given(EVENTS, st.integers(1, 14), st.integers(0, 8))
async def test_whatever_happened_its_test_passes(events: Sequence[Event], first: int, more: int) -> None:
    """Law: any piece of any log, with events of every family, does again what it did."""
    async with memory_engine.open(":memory:", config=CONFIG) as engine:
        thread = await engine.create_thread("t")
        await each(thread, events)
        head = (await thread.info()).events
        if head:
            first = min(first, head)
            run_here(await thread.replay.to_pytest(first, min(head, first + more)))


# plug-ins


def shop() -> tuple[Plugin, type[Event]]:
    """An event of one's own, with its reducer."""
    plugin = Plugin("shop")

    @plugin.event("shop_order")
    class ShopOrder(Event):
        order: str

    @plugin.reducer(ShopOrder)
    def reduce_shop_order(_view: StateView, event: ShopOrder, ctx: ReduceContext) -> Reduction:
        chunk = Chunk(id=ctx.new_id(), type="order", content=f"Order {event.order}")
        return Reduction((Add(chunk.id),), (chunk,))

    @plugin.renderer("order")
    def render(chunk: Chunk) -> list[dict[str, object]]:
        return [{"role": "system", "content": f"[{chunk.text}]"}]

    return plugin, ShopOrder


async def test_a_plug_in_is_given_by_hand(tmp_path: Path) -> None:
    """The file says which types need one; without it the test says so, with it the test passes."""
    plugin, order = shop()
    path = str(tmp_path / "m.db")
    async with memory_engine.open(path, plugins=[plugin]) as engine:
        thread = await engine.create_thread("t")
        await thread.dispatch_all([UserMessage(content="I want it"), order(order="FW-1")])
        source = await thread.replay.to_pytest(1)
    assert "# Put here the plug-ins that declare shop_order.\n" in source
    with pytest.raises(AssertionError, match=r"event 2 \(shop_order\): nothing here declares .* put its plug-in into"):
        run_here(source)
    names: dict[str, object] = {}
    exec(compile(source, "generated.py", "exec"), names)
    names["PLUGINS"] = [plugin]
    names["test_t_events_1_to_2"]()  # type: ignore[operator]
    async with memory_engine.open(path) as engine:
        with pytest.raises(NoSuchTest, match="event 2 of thread 't': version 1 of shop_order is not known here"):
            await engine.thread("t").replay.to_pytest(1)
        assert "def test_t_events_1_to_1" in await engine.thread("t").replay.to_pytest(1, 1)


@pytest.mark.parametrize(
    ("first", "last", "name", "why"),
    [
        (2, 1, "", "the last is before the first"),
        (0, 0, "", "nothing has happened yet"),
        (1, 2, "no name", "a function could not be called so"),
        (1, 2, "1é", "a function could not be called so"),
    ],
)
async def test_what_no_test_can_be_made_of(first: int, last: int, name: str, why: str) -> None:
    """Is an error that says why."""
    async with memory_engine.open(":memory:") as engine:
        thread = await engine.create_thread("t")
        await thread.dispatch_all([UserMessage(content="a"), UserMessage(content="b")])
        with pytest.raises(NoSuchTest, match=why):
            await thread.replay.to_pytest(first, last, name=name)


def test_what_is_not_compared_may_be_left_out() -> None:
    """State and messages are compared where they are given, each with its own message."""
    event = {
        "seq": 1,
        "id": "e",
        "type": "user_message",
        "version": 1,
        "recorded_at_us": 0,
        "payload": {"content": "a"},
    }
    chunk = {"id": "1.0", "type": "user_message", "content": "a", "tokens": 1}
    whole = {**event, "operations": ["ADD 1.0"], "chunks": [chunk]}
    check_regression("t", events=[whole])
    check_regression("t", events=[whole], after={"1.0": "a"}, messages=[{"role": "user", "content": "a"}])
    with pytest.raises(AssertionError, match=r"the state after event 1: .*\n  chunk 1\.0: 'b' → 'a'"):
        check_regression("t", events=[whole], after={"1.0": "b"})
    with pytest.raises(AssertionError, match=r"the context after event 1: .*\n  message 1 content: 'b' → 'a'"):
        check_regression("t", events=[whole], messages=[{"role": "user", "content": "b"}])
    with pytest.raises(AssertionError, match=r"operation 1: nothing → ADD 1\.0"):
        check_regression("t", events=[event])


def test_the_order_of_a_state_is_compared() -> None:
    """The same chunks in another order are another state."""
    places = [
        {"key": key, "chunk": {"id": chunk_id, "type": "note", "content": chunk_id, "tokens": 1}}
        for key, chunk_id in (("80", "1.0"), ("81", "2.0"))
    ]
    event = {"seq": 3, "id": "e", "type": "session_ended", "version": 1, "recorded_at_us": 0, "payload": {}}
    check_regression("t", before=places, events=[event], after={"1.0": "1.0", "2.0": "2.0"})
    with pytest.raises(AssertionError, match=r"the order of the state: .*\n  2\.0, 1\.0 → 1\.0, 2\.0"):
        check_regression("t", before=places, events=[event], after={"2.0": "2.0", "1.0": "1.0"})


# the command


async def fill(path: str) -> None:
    """A file with one thread."""
    async with memory_engine.open(path, config=POLICY) as engine:
        await talk(await engine.create_thread("trip"))


def test_the_command_writes_a_file_that_passes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """To a new file, or to standard output, or in JSON; no file is written over."""
    path, out = str(tmp_path / "m.db"), tmp_path / "out" / "test_trip.py"
    out.parent.mkdir()
    anyio.run(fill, path)
    words = ["to-pytest", "trip", "--seqs", "4..9", "--name", "a_walk", "--db", path]
    assert 0 == main([*words, "--out", str(out)])
    assert f"pytest {out}\n" == capsys.readouterr().out
    assert 0 == pytest_of(out.parent).returncode
    assert 0 == main(words)
    assert out.read_text(encoding="utf-8") == capsys.readouterr().out
    assert 0 == main([*words, "--json"])
    assert out.read_text(encoding="utf-8") == json.loads(capsys.readouterr().out)["source"]
    assert 2 == main([*words, "--out", str(out)])
    assert "File exists" in capsys.readouterr().err


@pytest.mark.parametrize("words", [("--seqs", "..3"), ("--seqs", "3.."), ("--seqs", ""), ()])
def test_the_command_wants_a_range(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    """One seq, or two with dots between."""
    with pytest.raises(SystemExit) as ended:
        main(["to-pytest", "t", *words])
    assert 2 == ended.value.code
    assert "--seqs" in capsys.readouterr().err


async def test_no_test_is_made_of_texts_that_were_taken_out(tmp_path: Path) -> None:
    """A redacted event reduces to something else than was recorded: it is refused, and events beside it are not."""
    async with memory_engine.open(":memory:") as engine:
        thread = await engine.create_thread("t")
        for text in ("the gate code is 4482", "thank you"):
            await thread.dispatch(UserMessage(content=text))
        await thread.replay.export(tmp_path / "t.jsonl", redaction=Redaction(patterns=(r"\b4482\b",)))
        await engine.transfer.import_log(tmp_path / "t.jsonl", thread_id="copy", scopes="as exported")
        with pytest.raises(NoSuchTest, match="event 1 were taken out"):
            await engine.thread("copy").replay.to_pytest(1, 2)
        assert "thank you" in await engine.thread("copy").replay.to_pytest(2)
