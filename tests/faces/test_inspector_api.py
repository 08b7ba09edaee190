"""What the inspector's routes tell: the same as the engine, in pages, of any log and of any content."""

from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import cast

import anyio
import msgspec
import pytest
from msgspec.structs import asdict

import memory_engine
from memory_engine import CompactionPolicy, Engine, EngineConfig
from memory_engine import events as e
from memory_engine.engine import kernel_of
from memory_engine.replay.data import chunk_as_data, event_as_data
from memory_engine.replay.diff import diff
from memory_engine.testing.contract_rows import IDS
from memory_engine.thread import handle_of
from memory_engine.views.promotion.events import AgentMdUploaded
from tests.inspecting import Browser, inspected

Data = dict[str, object]
READ_ONLY = EngineConfig(read_only=True)
SCRIPT = "<script>alert('x')</script>\x1b[31m\u202e & \u2028 \x00"


async def make(path: str) -> None:
    """A store with a compacted thread, a fork of it, one that a compaction was undone in, and a tenant's own."""
    config = EngineConfig(compaction=CompactionPolicy(tokens_min=0))
    async with memory_engine.open(path, config=config) as engine:
        talk = await engine.create_thread("talk", user_id="Ines", tenant_id="acme", metadata={"topic": "Invoices"})
        await talk.dispatch(e.SessionStarted(content="Be brief."))
        for n in range(1, 41):
            await talk.dispatch(e.UserMessage(content=f"question {n}: how many invoices are open?"))
            calls = (e.ToolCall.create(f"call_{n}", "count", {"of": "Invoices", "n": n}),)
            await talk.dispatch(e.LlmToolCall(calls=calls), correlation_id=f"turn {n}")
            await talk.dispatch(e.ToolResult(call_id=f"call_{n}", content=f'{{"open": {4000 + n}}}'))
            await talk.compaction.settle()
        await talk.scratchpad.write("Sundays dip")
        await talk.fork(50, thread_id="fork")
        back = await engine.create_thread("back", policy=CompactionPolicy(enabled=False))
        for n in range(12):
            await back.dispatch(e.UserMessage(content=f"line {n} {SCRIPT}"))
        await back.compact()
        await back.compaction.undo()
        await engine.tenant("acme").dispatch(AgentMdUploaded(content="# Rules\n- Be kind."))


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The store of most tests, which only look at it."""
    path = str(tmp_path_factory.mktemp("inspector") / "agent.db")
    anyio.run(make, path)
    return path


@pytest.fixture
async def engine(path: str) -> AsyncIterator[Engine]:
    """The store, opened to look at."""
    async with memory_engine.open(path, config=READ_ONLY) as engine:
        yield engine


@pytest.fixture
async def browser(engine: Engine, path: str) -> AsyncIterator[Browser]:
    """A client of the store's inspector."""
    async with inspected(engine, path) as browser:
        yield browser


async def get(browser: Browser, name: str, given: Mapping[str, object] | None = None) -> Data:
    """The data of a route that must answer."""
    answer = await browser.api(name, given)
    assert 200 == answer.status, answer.body
    return cast(Data, answer.data())


def plain(value: object) -> object:
    """A value as it looks after a way through JSON."""
    return msgspec.json.decode(msgspec.json.encode(value))


def rows(data: Data, name: str) -> list[Data]:
    """A list in an answer."""
    return cast(list[Data], data[name])


async def seqs(browser: Browser, given: Mapping[str, object]) -> list[object]:
    """Where a search found something, in the thread `talk`."""
    return [row["seq"] for row in rows(await get(browser, "find", {"thread": "talk", **given}), "events")]


async def fails(browser: Browser, name: str, given: Mapping[str, object]) -> tuple[int, str]:
    """The status and the type of what a route says instead of an answer."""
    answer = await browser.api(name, given)
    error = cast(dict[str, Data], answer.data())["error"]
    assert str(error["message"])
    return answer.status, str(error["type"])


# the store and its threads


async def test_the_store_says_what_it_is(browser: Browser, engine: Engine, path: str) -> None:
    """Path, mode, and the totals that `stats` gives."""
    found = await get(browser, "store")
    stats = await engine.stats()
    assert (path, True, stats.threads, stats.events, stats.bytes) == tuple(
        found[name] for name in ("path", "read_only", "threads", "events", "bytes")
    )


async def test_threads_come_newest_first_in_pages(browser: Browser, engine: Engine) -> None:
    """Two pages hold all of them, with the kinds and statuses that there are."""
    infos = await engine.threads()
    first = await get(browser, "threads", {"limit": 2})
    rest = await get(browser, "threads", {"offset": 2})
    assert [info.id for info in infos[::-1]] == [row["id"] for row in (*rows(first, "threads"), *rows(rest, "threads"))]
    assert (len(infos), ["conversation", "tenant"], ["active"]) == (first["total"], first["kinds"], first["statuses"])
    talk = next(row for row in rows(rest, "threads") if row["id"] == "talk")
    info = await engine.thread("talk").info()
    assert (info.events, info.chunks, info.tokens, "Ines", {"topic": "Invoices"}, None) == tuple(
        talk[name] for name in ("events", "chunks", "tokens", "user_id", "metadata", "forked_from")
    )


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"q": "INVOICE"}, {"talk", "fork"}),
        ({"q": "ines"}, {"talk", "fork"}),
        ({"q": "back"}, {"back"}),
        ({"q": "back", "kind": "tenant"}, set()),
        ({"user": "ines"}, set()),
        ({"user": "Ines", "tenant": "acme", "status": "active"}, {"talk", "fork"}),
        ({"status": "paused"}, set()),
    ],
)
async def test_threads_are_filtered(browser: Browser, given: Mapping[str, object], expected: set[str]) -> None:
    """`q` is part of an id, a scope or metadata, in any case; the others match exactly."""
    found = await get(browser, "threads", given)
    assert (expected, len(expected)) == ({row["id"] for row in rows(found, "threads")}, found["total"])


async def test_a_fork_knows_its_tree(browser: Browser) -> None:
    """From any of its threads the tree is the same, with the points where it parts."""
    tree = await get(browser, "forks", {"thread": "fork"})
    assert tree == await get(browser, "forks", {"thread": "talk"})
    (child,) = rows(tree, "children")
    assert ("talk", None, "fork", 50, []) == (
        tree["id"], tree["seq"], child["id"], child["seq"], child["children"]
    )  # fmt: skip


# logs


async def test_the_timeline_is_the_log(browser: Browser, engine: Engine) -> None:
    """Page after page, each event comes once, with what it made and the family that it is of."""
    found: list[Data] = []
    while (page := await get(browser, "timeline", {"thread": "talk", "after": len(found), "limit": 50}))["events"]:
        found += rows(page, "events")
    log = [event async for event in engine.thread("talk").events()]
    assert [(event.seq, event.id, event.type, event.correlation_id) for event in log] == [
        (row["seq"], row["id"], row["type"], row["correlation_id"]) for row in found
    ]
    assert [
        ([c.id for c in event.chunks], sum(c.tokens for c in event.chunks), len(event.operations)) for event in log
    ] == [(row["chunks"], row["tokens"], row["operations"]) for row in found]
    assert {"system", "user", "assistant", "tool", "compaction", "memory"} == {row["role"] for row in found}
    assert all(len(str(row["said"])) <= 200 for row in found)


async def test_the_outline_tells_compactions_and_forks(browser: Browser, engine: Engine) -> None:
    """Those that came to an end, with what they cover and made; the log knows no others."""
    outline = await get(browser, "outline", {"thread": "talk"})
    log = {event.seq: event async for event in engine.thread("talk").events()}
    ended = [event for event in log.values() if isinstance(event.event, e.CompactionCompleted)]
    assert [(event.seq, "completed", [c.id for c in event.chunks]) for event in ended] == [
        (row["seq"], row["status"], row["summaries"]) for row in rows(outline, "compactions")
    ]
    assert all(log[cast(int, row["started"])].type == "compaction_started" for row in rows(outline, "compactions"))
    assert ([{"thread_id": "fork", "seq": 50}], len(log), "active") == (
        outline["forks"], outline["head"], outline["status"]
    )  # fmt: skip
    assert (log[1].recorded_at.isoformat(), log[len(log)].recorded_at.isoformat()) == (
        outline["first_at"], outline["last_at"]
    )  # fmt: skip
    (undone,) = rows(await get(browser, "outline", {"thread": "back"}), "compactions")
    assert "undone" == undone["status"]


async def test_the_outline_follows_its_log() -> None:
    """A compaction under way, one that failed, one that was left behind: as of now, however often one asks."""
    started = e.CompactionStarted(
        compaction_id="c1", trigger="manual", chunk_ids=("1.0",), compactor="x", owner="o", deadline_us=0
    )
    async with memory_engine.open(":memory:") as engine, inspected(engine) as browser:
        thread = await engine.create_thread("t", policy=CompactionPolicy(enabled=False))
        for n in range(12):
            await thread.dispatch(e.UserMessage(content=f"line {n}: " + "and what was said about it " * 8))
        empty = await get(browser, "outline", {"thread": "t"})
        await thread.compact()
        (completed,) = rows(await get(browser, "outline", {"thread": "t"}), "compactions")
        await thread.compaction.undo()
        (undone,) = rows(await get(browser, "outline", {"thread": "t"}), "compactions")
        other = await engine.create_thread("u")
        await other.dispatch(e.UserMessage(content="Hello"))
        await other.dispatch(started)
        (running,) = rows(await get(browser, "outline", {"thread": "u"}), "compactions")
        await other.dispatch(e.CompactionFailed(compaction_id="c1", compactor="x", reason="timeout"))
        (failed,) = rows(await get(browser, "outline", {"thread": "u"}), "compactions")
    assert ([], "completed", "undone") == (empty["compactions"], completed["status"], undone["status"])
    assert ((None, "running"), (3, "failed")) == (
        (running["seq"], running["status"]), (failed["seq"], failed["status"])
    )  # fmt: skip


async def test_an_empty_log_has_an_empty_outline() -> None:
    """A thread without events has no times, and every route that takes seq 0 answers."""
    async with memory_engine.open(":memory:") as engine, inspected(engine) as browser:
        await engine.create_thread("t")
        outline = await get(browser, "outline", {"thread": "t"})
        assert (0, None, None) == (outline["head"], outline["first_at"], outline["last_at"])
        for name in ("timeline", "find", "forks", "ledger"):
            await get(browser, name, {"thread": "t"})
        for name in ("state", "context", "views"):
            await get(browser, name, {"thread": "t", "seq": 0})


async def test_a_text_is_found_in_what_events_say(browser: Browser) -> None:
    """In any case, in texts and numbers and calls' arguments; names of fields are nothing that was said."""
    message, _summary = await seqs(browser, {"q": "QUESTION 4:"})
    assert [13] == await seqs(browser, {"q": '"open": 4004'})
    assert [12] == await seqs(browser, {"q": '"n": 4}'}) or [12] == await seqs(browser, {"q": '"n":4}'})
    assert [] == await seqs(browser, {"q": "call_id"})
    assert (11, []) == (message, await seqs(browser, {"q": "nowhere said"}))
    assert [1] == await seqs(browser, {"type": "session_started"})
    assert [] == await seqs(browser, {"type": "session_started", "q": "question"})
    assert [2, 5] == await seqs(browser, {"type": "user_message", "limit": 2})


async def test_a_search_goes_on_where_it_stopped(browser: Browser) -> None:
    """`next` leads through all that there is, and ends with nothing."""
    found, after = [], 0
    while True:
        page = await get(browser, "find", {"thread": "talk", "q": "invoices are open", "after": after, "limit": 7})
        found += [row["type"] for row in rows(page, "events")]
        if page["next"] is None:
            break
        after = cast(int, page["next"])
    assert ["user_message"] * 40 == [kind for kind in found if kind == "user_message"]


@pytest.mark.parametrize("said", ["STRASSE", "ὈΔΥΣΣΕΎΣ", "ÅNGSTRÖM", "日本", 'a "quoted" \\ path', "tab\there"])
async def test_any_script_is_found(said: str) -> None:
    """Letters of other scripts in any case, and what JSON writes otherwise."""
    async with memory_engine.open(":memory:") as engine, inspected(engine) as browser:
        thread = await engine.create_thread("t")
        await thread.dispatch(e.UserMessage(content="something else"))
        await thread.dispatch(e.UserMessage(content=f"… {said.lower()} …"))
        found = await get(browser, "find", {"thread": "t", "q": said})
        assert [2] == [row["seq"] for row in rows(found, "events")]


async def test_an_event_is_told_whole(browser: Browser, engine: Engine) -> None:
    """As `log --json` prints it, with its operations in words, its chunks, and what it changed."""
    thread = engine.thread("talk")
    async for recorded in thread.events(after=20, upto=30):
        found = await get(browser, "event", {"thread": "talk", "seq": recorded.seq})
        lines, change = cast(list[str], found.pop("operations")), found.pop("change")
        chunks = [chunk_as_data(chunk) for chunk in recorded.chunks]
        assert plain(event_as_data(recorded) | {"chunks": chunks}) == found
        changed = await thread.replay.diff(recorded.seq - 1, recorded.seq)
        assert (plain(changed.as_data()), len(recorded.operations)) == (change, len(lines))


async def test_operations_are_told_in_words(browser: Browser, engine: Engine) -> None:
    """What was added, and what a compaction put in the place of what."""
    assert ["ADD 2.0"] == (await get(browser, "event", {"thread": "talk", "seq": 2}))["operations"]
    (undone,) = rows(await get(browser, "outline", {"thread": "back"}), "compactions")
    (line,) = cast(list[str], (await get(browser, "event", {"thread": "back", "seq": undone["seq"]}))["operations"])
    assert line.startswith("BATCH_REPLACE 1.0 2.0 ")
    assert line.endswith(f" → {cast(list[str], undone['summaries'])[0]}")


# states


@pytest.mark.parametrize("thread_id", ["talk", "fork", "back"])
async def test_the_state_is_that_of_the_engine(browser: Browser, engine: Engine, thread_id: str) -> None:
    """At every tenth seq: the same chunks in the same order, in pages, and totals over all of them."""
    thread = engine.thread(thread_id)
    for seq in range(0, (await thread.info()).events + 1, 10):
        placed = list((await thread.state(at=seq)).placed())
        given = {"thread": thread_id, "seq": seq, "limit": 4}
        found = [await get(browser, "state", {**given, "offset": n}) for n in range(0, len(placed) + 1, 4)]
        shown = [row for page in found for row in rows(page, "chunks")]
        assert [(p.chunk.id, p.container, p.chunk.text, p.chunk.tokens) for p in placed] == [
            (row["id"], row["container"], row["text"], row["tokens"]) for row in shown
        ]
        sums = rows(found[0], "by_type")
        assert (len(placed), sum(p.chunk.tokens for p in placed)) == (found[0]["total"], found[0]["tokens"])
        assert (found[0]["total"], found[0]["tokens"]) == tuple(
            sum(cast(int, row[name]) for row in sums) for name in ("chunks", "tokens")
        )


async def test_the_context_is_that_of_the_engine(browser: Browser, engine: Engine) -> None:
    """The same messages, choice and tokens, for any budget; one that cannot be kept is a conflict."""
    thread = engine.thread("talk")
    for seq, budget in [(30, None), (60, 300), (120, 800)]:
        built = await (await thread.at(seq)).context(budget)
        given = {"thread": "talk", "seq": seq} | ({"max_tokens": budget} if budget else {})
        found = await get(browser, "context", given)
        assert ([m["role"] for m in built.messages], built.tokens, budget) == (
            [m["role"] for m in rows(found, "messages")], found["tokens"], found["max_tokens"]
        )  # fmt: skip
        assert [m.get("content") or "" for m in built.messages] == [m["content"] for m in rows(found, "messages")]
        assert (list(built.included), list(built.excluded), asdict(built.spent)) == (
            found["included"], found["excluded"], found["spent"]
        )  # fmt: skip
    assert (409, "ContextBudgetError") == await fails(browser, "context", {"thread": "talk", "seq": 9, "max_tokens": 1})


async def test_a_question_lists_what_it_recalls(tmp_path: Path) -> None:
    """The passages of the engine's own context, each with its place, its kind and why it was chosen."""
    path, question = str(tmp_path / "agent.db"), "Which carrier lost parcel 7?"
    async with memory_engine.open(path) as engine:
        chat = await engine.create_thread("chat", policy=CompactionPolicy(enabled=False))
        await chat.dispatch(e.UserMessage(content="Swift lost parcel 7 at the depot.", name="Ann"))
        for n in range(40):
            await chat.dispatch(e.UserMessage(content=f"Line {n} speaks of the weather, of lunch and of nothing else."))
        built = await (await chat.at(41)).context(300, query=question)
    async with memory_engine.open(path, config=READ_ONLY) as engine, inspected(engine, path) as browser:
        given = {"thread": "chat", "seq": 41, "max_tokens": 300}
        found = await get(browser, "context", {**given, "query": question})
        assert [] == (await get(browser, "context", given))["recalled"]
    hits = rows(found, "recalled")
    assert [m.get("content") for m in built.messages] == [m["content"] for m in rows(found, "messages")]
    assert [(hit.seq, hit.kind, hit.why, hit.text) for hit in built.recalled] == [
        (hit["seq"], hit["kind"], hit["why"], hit["text"]) for hit in hits
    ]
    first = hits[0]
    assert (1, "Ann", "") == (first["seq"], first["speaker"], found["recall_failure"])
    assert "words" in str(first["why"])


async def test_a_summary_opens_to_its_originals(browser: Browser, engine: Engine) -> None:
    """One level at a time, in order; each chunk can be read whole."""
    outline = await get(browser, "outline", {"thread": "talk"})
    summary = cast(list[str], rows(outline, "compactions")[0]["summaries"])[0]
    found = await get(browser, "originals", {"thread": "talk", "chunk": summary})
    chunk = await engine.thread("talk").replay.chunk(summary)
    assert (list(chunk.parent_ids), len(chunk.parent_ids)) == (
        [row["id"] for row in rows(found, "chunks")],
        found["total"],
    )
    assert plain(chunk_as_data(chunk)) == await get(browser, "chunk", {"thread": "talk", "id": summary})


async def test_views_are_as_they_were(browser: Browser, engine: Engine) -> None:
    """Those with rows are named; their rows come in pages, by key."""
    tenant = next(info.id for info in await engine.threads(kind="tenant"))
    assert {"views": []} == await get(browser, "views", {"thread": tenant, "seq": 0})
    found = {
        row["name"]: row["rows"] for row in rows(await get(browser, "views", {"thread": tenant, "seq": 1}), "views")
    }
    past = await engine.thread(tenant).at(1)
    expected = {p.name: len(await past.views.read(p.name)) for p in kernel_of(engine).projections}
    assert {name: count for name, count in expected.items() if count} == found
    given = {"thread": tenant, "seq": 1, "name": "agent_md"}
    whole = await get(browser, "view", given)
    assert list(await past.views.read("agent_md")) == [row["key"] for row in rows(whole, "rows")]
    second = await get(browser, "view", {**given, "offset": 1, "limit": 1})
    assert (rows(whole, "rows")[1:2], whole["total"]) == (second["rows"], second["total"])


# replay


async def test_lineage_difference_and_ledger_are_those_of_the_engine(browser: Browser, engine: Engine) -> None:
    """`why`, `diff` in both directions and across a fork, and the cache ledger, as their own data."""
    thread, fork = engine.thread("talk"), engine.thread("fork")
    outline = await get(browser, "outline", {"thread": "talk"})
    summary = cast(list[str], rows(outline, "compactions")[0]["summaries"])[0]
    assert plain((await thread.replay.why(summary)).as_data()) == await get(
        browser, "why", {"thread": "talk", "chunk": summary}
    )
    for a, b in [(10, 60), (60, 10), (60, 60)]:
        expected = (await thread.replay.diff(a, b)).as_data()
        assert plain(expected) == await get(browser, "diff", {"thread": "talk", "a": a, "b": b})
    across = (await diff(handle_of(await thread.at(80)), handle_of(await fork.at(50)))).as_data()
    assert plain(across) == await get(browser, "diff", {"thread": "talk", "a": 80, "b": 50, "other": "fork"})
    ledger = await get(browser, "ledger", {"thread": "talk", "after": 20, "upto": 90})
    expected = (await thread.replay.ledger(after=20, upto=90)).as_data()
    assert plain({"after": 20, "upto": 90, "all_calls": ledger["all_calls"], **expected}) == ledger


# what cannot be answered


@pytest.mark.parametrize(
    ("name", "given", "expected"),
    [
        ("timeline", {}, (400, "WrongQuery")),
        ("timeline", {"thread": "talk", "after": "x"}, (400, "WrongQuery")),
        ("timeline", {"thread": "talk", "after": -1}, (400, "WrongQuery")),
        ("timeline", {"thread": "talk", "after": "\u0661"}, (400, "WrongQuery")),
        ("timeline", {"thread": "talk", "limit": 0}, (400, "WrongQuery")),
        ("timeline", {"thread": "talk", "limit": 1001}, (400, "WrongQuery")),
        ("timeline", {"thread": "talk", "after": "9" * 400}, (400, "WrongQuery")),
        ("timeline", {"thread": "talk", "nonsense": 1}, (400, "WrongQuery")),
        ("timeline", {"thread": "nobody"}, (404, "ThreadNotFound")),
        ("timeline", {"thread": "\x00"}, (404, "ThreadNotFound")),
        ("outline", {"thread": "nobody"}, (404, "ThreadNotFound")),
        ("find", {"thread": "nobody", "q": "x"}, (404, "ThreadNotFound")),
        ("forks", {"thread": "nobody"}, (404, "ThreadNotFound")),
        ("event", {"thread": "talk", "seq": 0}, (404, "SeqNotInLog")),
        ("event", {"thread": "talk"}, (400, "WrongQuery")),
        ("state", {"thread": "talk", "seq": 100_000}, (404, "SeqNotInLog")),
        ("state", {"thread": "nobody", "seq": 0}, (404, "ThreadNotFound")),
        ("context", {"thread": "talk", "seq": 3, "max_tokens": 0}, (400, "WrongQuery")),
        ("chunk", {"thread": "talk", "id": "999.0"}, (404, "UnknownChunk")),
        ("chunk", {"thread": "talk", "id": "../../etc"}, (404, "UnknownChunk")),
        ("chunk", {"thread": "nobody", "id": "1.0"}, (404, "ThreadNotFound")),
        ("originals", {"thread": "talk", "chunk": "x"}, (404, "UnknownChunk")),
        ("why", {"thread": "talk", "chunk": "7.9"}, (404, "UnknownChunk")),
        ("why", {"thread": "nobody", "chunk": "1.0"}, (404, "ThreadNotFound")),
        ("why", {"thread": "talk", "chunk": "view:nonsense/x"}, (404, "UnknownView")),
        ("view", {"thread": "talk", "seq": 1, "name": "nonsense"}, (404, "UnknownView")),
        ("views", {"thread": "talk", "seq": 9_999}, (404, "SeqNotInLog")),
        ("diff", {"thread": "talk", "a": 1}, (400, "WrongQuery")),
        ("diff", {"thread": "talk", "a": 1, "b": 1, "other": "nobody"}, (404, "ThreadNotFound")),
        ("ledger", {"thread": "talk", "after": 50, "upto": 10}, (400, "WrongQuery")),
        ("live", {"thread": "nobody"}, (404, "ThreadNotFound")),
        ("live", {"seq": "1"}, (400, "WrongQuery")),
        ("nonsense", {}, (404, "NotFound")),
        ("", {}, (404, "NotFound")),
    ],
)
async def test_a_question_that_cannot_be_answered_says_why(
    browser: Browser, name: str, given: Mapping[str, object], expected: tuple[int, str]
) -> None:
    """A wrong parameter, a thread, a seq, a chunk that there is not: a status and a type for each."""
    assert expected == await fails(browser, name, given)


@pytest.mark.parametrize("asked", ["thread=talk&thread=talk", "thread=%ff", "thread", "=&=", "%", "thread=talk&%zz=1"])
async def test_a_question_that_cannot_be_read_is_refused(browser: Browser, asked: str) -> None:
    """A parameter given twice, one without a value, bytes that are no UTF-8."""
    answer = await browser.ask(f"/api/timeline?{asked}", {"X-Token": browser.token})
    assert (400, "WrongQuery") == (answer.status, cast(dict[str, Data], answer.data())["error"]["type"])


# hostile content


@pytest.mark.parametrize(
    "thread_id", [*IDS, "a/b?c&d=e#f", "'\"; DROP TABLE threads; --", "é" * 2048, "💥" * 1024, "%2e%2e/"]
)
async def test_any_thread_can_be_asked_about(thread_id: str, tmp_path: Path) -> None:
    """Slashes, quotes, 4,096 bytes: an id is one parameter, whatever it holds."""
    async with memory_engine.open(str(tmp_path / "x.db")) as engine, inspected(engine) as browser:
        thread = await engine.create_thread(thread_id)
        await thread.dispatch(e.UserMessage(content=SCRIPT))
        assert thread_id == rows(await get(browser, "threads"), "threads")[0]["id"]
        found = await get(browser, "event", {"thread": thread_id, "seq": 1})
        assert SCRIPT == cast(Data, found["payload"])["content"]
        for name in ("timeline", "outline", "forks"):
            await get(browser, name, {"thread": thread_id})


async def test_content_cannot_break_out_of_an_answer(browser: Browser) -> None:
    """Markup, controls and a megabyte come through unchanged, in JSON that holds no `<`."""
    answer = await browser.api("timeline", {"thread": "back"})
    (row, *_), said = rows(cast(Data, answer.data()), "events"), answer.body
    assert b"<" not in said
    assert "\x1b" not in str(row["said"])
    assert "\u202e" not in str(row["said"])
    chunk = await get(browser, "chunk", {"thread": "back", "id": "1.0"})
    assert f"line 0 {SCRIPT}" == chunk["text"]


async def test_a_megabyte_is_cut_in_lists_and_whole_alone() -> None:
    """Lists tell how long a text is, and the chunk alone has all of it."""
    text = "<b>" * 400_000
    async with memory_engine.open(":memory:") as engine, inspected(engine) as browser:
        thread = await engine.create_thread("t")
        await thread.dispatch(e.UserMessage(content=text))
        (row,) = rows(await get(browser, "state", {"thread": "t", "seq": 1}), "chunks")
        (message,) = rows(await get(browser, "context", {"thread": "t", "seq": 1}), "messages")
        assert (len(text), 2_000, len(text)) == (row["chars"], len(str(row["text"])), message["chars"])
        assert text == (await get(browser, "chunk", {"thread": "t", "id": "1.0"}))["text"]
        assert len(str(rows(await get(browser, "timeline", {"thread": "t"}), "events")[0]["said"])) <= 200
