"""Who is served by the inspector and who is not, what it leaves behind, its news, and its end."""

import asyncio
import hashlib
import json
import logging
import re
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.types import Message

import memory_engine
from memory_engine import Chunk, EngineConfig, Plugin, UserMessage
from memory_engine.cli import main
from memory_engine.engine import kernel_of
from memory_engine.inspector import CannotServe, create_app, serving
from memory_engine.inspector import live as news
from memory_engine.inspector.answers import encode
from memory_engine.runtime.threads import OpenThreads
from tests.inspecting import Answer, Browser, Headers, inspected, served

SAMPLE = Path(memory_engine.__file__).parent / "cli" / "sample"
ROOT = Path(memory_engine.__file__).parent.parent
READ_ONLY = EngineConfig(read_only=True)
TOUR = (
    ("store", ""), ("glance", ""), ("threads", "q=x&limit=1"), ("forks", "thread=coding"),
    ("timeline", "thread=coding"),
    ("outline", "thread=coding"), ("find", "thread=coding&q=pytest"), ("event", "thread=coding&seq=23"),
    ("state", "thread=coding&seq=40"), ("context", "thread=coding&seq=40&max_tokens=800"),
    ("talk", "thread=coding&seq=44"), ("recall", "thread=coding&seq=0&query=claim"),
    ("brief", "thread=coding&seq=20"),
    ("chunk", "thread=coding&id=23.0"), ("originals", "thread=coding&chunk=23.0"), ("views", "thread=coding&seq=44"),
    ("view", "thread=coding&seq=44&name=screen"), ("why", "thread=coding&chunk=39.0"),
    ("diff", "thread=coding&a=3&b=40"), ("ledger", "thread=coding"), ("tokens", "thread=coding"),
    ("time", "thread=coding"), ("waterfall", "thread=coding&seq=30"),
    ("options", "thread=coding"), ("what_if", 'thread=coding&upto=44&change={"edits":[{"do":"skip","seq":30}]}'),
)  # fmt: skip
"""Every route of the page, each with a question that it answers."""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A store with a recorded conversation, which the tests only look at."""
    path = str(tmp_path_factory.mktemp("served") / "agent.db")
    assert 0 == main(["ingest", str(SAMPLE / "coding.jsonl"), "--db", path])
    return path


@pytest.fixture
async def browser(path: str) -> AsyncIterator[Browser]:
    """A client of the store's inspector."""
    async with memory_engine.open(path, config=READ_ONLY) as engine, inspected(engine, path) as browser:
        yield browser


def kind(answer: Answer) -> tuple[int, str]:
    """The status, and the type of what went wrong."""
    return answer.status, str(cast(dict[str, dict[str, object]], answer.data())["error"]["type"])


# who may ask


async def test_only_who_knows_the_token_is_told_anything(browser: Browser) -> None:
    """Every route wants it, in the header or in the address; a wrong one beside the right one counts as wrong."""
    names = [*(name for name, _ in TOUR), "live"]
    assert {(403, "WrongToken")} == {kind(await browser.ask(f"/api/{name}")) for name in names}
    wrong: list[tuple[str, Headers]] = [
        ("", {"X-Token": ""}),
        ("", {"X-Token": browser.token[:-1]}),
        ("", {"X-Token": browser.token + "x"}),
        ("?token=", {}),
        ("?token=%C3%A9", {}),
        ("?token=x", {"X-Token": browser.token}),
        (f"?token={browser.token}&token=x", {}),
    ]
    for query, headers in wrong:
        assert (403, "WrongToken") == kind(await browser.ask(f"/api/store{query}", headers))
    assert 200 == (await browser.ask(f"/api/store?token={browser.token}")).status
    assert 200 == (await browser.ask("/api/store", {"x-token": browser.token})).status


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "localhost", "0.0.0.0:{port}", "",
     "[::1]:{port}", "127.0.0.1:{port}.evil.example", "127.0.0.1:{port}:{port}", "LOCALHOST.:{port}"],
)  # fmt: skip
async def test_a_request_by_another_name_is_refused(browser: Browser, host: str) -> None:
    """Not even the page's own files: a name that somebody else points at this machine gets nothing."""
    for target in ("/", "/api/store"):
        answer = await browser.ask(target, {"Host": host.format(port=browser.port), "X-Token": browser.token})
        assert (421, "WrongHost") == kind(answer)


async def test_localhost_is_this_machine_too(browser: Browser) -> None:
    """In any case, as names of hosts are."""
    for host in ("localhost", "LocalHost"):
        answer = await browser.ask("/api/store", {"Host": f"{host}:{browser.port}", "X-Token": browser.token})
        assert 200 == answer.status


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "BREW"])
async def test_nothing_but_looking_is_allowed(browser: Browser, method: str) -> None:
    """Whatever else is asked, of data or of files, is refused and says what is allowed."""
    for target in ("/", "/api/store", "/nowhere"):
        answer = await browser.ask(target, {"X-Token": browser.token}, method)
        assert ((405, "MethodNotAllowed"), "GET, HEAD") == (kind(answer), answer.headers["allow"])


async def test_head_says_how_long_and_sends_nothing(browser: Browser) -> None:
    """For data, files and news: the headers of the answer alone, and at once."""
    for target in ("/", "/api/store", "/api/timeline?thread=coding", "/api/live"):
        answer = await browser.ask(target, {"X-Token": browser.token}, "HEAD")
        assert (200, b"") == (answer.status, answer.body)


async def test_every_answer_keeps_the_page_to_itself(browser: Browser) -> None:
    """Data, page, errors and refusals: nothing is loaded from elsewhere, kept, framed, guessed or passed on."""
    asked = [
        await browser.ask("/"),
        await browser.ask("/app.js"),
        await browser.ask("/nowhere"),
        await browser.ask("/api/store"),
        await browser.ask("/api/store", {"X-Token": browser.token}),
        await browser.ask("/api/timeline", {"X-Token": browser.token}),
        await browser.ask("/api/live", {"X-Token": browser.token}, "HEAD"),
        await browser.ask("/", {"Host": "evil.example"}),
        await browser.ask("/", {}, "POST"),
    ]
    for answer in asked:
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:;")
        assert ("nosniff", "no-store", "no-referrer", "DENY") == tuple(
            answer.headers[name]
            for name in ("x-content-type-options", "cache-control", "referrer-policy", "x-frame-options")
        )
        assert "server" not in answer.headers


async def test_the_page_brings_its_own_files_and_no_others(browser: Browser) -> None:
    """Each without the token; the page asks nothing of other machines and runs no inline script."""
    page = (await browser.ask("/")).body.decode()
    assert (await browser.ask("/index.html")).body.decode() == page
    assert not re.search(r"<script(?![^>]*\bsrc=)|\bon\w+=|<style|https?://", page)
    for name in re.findall(r'(?:src|href)="([^":]+)"', page):
        answer = await browser.ask(f"/{name}")
        assert (200, True) == (answer.status, answer.headers["content-type"].startswith("text/"))


@pytest.mark.parametrize(
    "target",
    ["/page/index.html", "/../app.py", "/..%2fapp.py", "/%2e%2e/server.py", "//etc/passwd", "/page/../../app.py",
     "/index.html/", "/index.html%00.js", "/..", "/%2e", "/__init__.py", "/app.js?x", "/C:\\Windows\\win.ini",
     "/INDEX.HTML"],
)  # fmt: skip
async def test_no_path_leads_out_of_the_page(browser: Browser, target: str) -> None:
    """A name is compared with those that there are; a query behind a file's name is no part of it."""
    answer = await browser.ask(target)
    assert 200 == answer.status if target == "/app.js?x" else (404, "NotFound") == kind(answer)


async def test_the_token_stays_out_of_every_log(
    path: str, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """Served, refused, failed: no record and no output names it."""
    caplog.set_level(logging.DEBUG)
    async with memory_engine.open(path, config=READ_ONLY) as engine, inspected(engine, path) as browser:
        for target in ("/", "/api/store", "/api/timeline", "/api/nonsense", "/api/live", "/x"):
            await browser.ask(f"{target}?token={browser.token}", method="HEAD")
            await browser.ask(f"{target}?token={browser.token}", {"Host": "evil.example"})
        assert 400 == (await browser.ask(f"/api/store?a&token={browser.token}")).status
        token = browser.token
    said = capfd.readouterr()
    assert token not in "".join([said.out, said.err, *(str(vars(record)) for record in caplog.records)])


async def test_two_stores_have_two_tokens(path: str) -> None:
    """What opens one inspector opens no other."""
    async with (
        memory_engine.open(path, config=READ_ONLY) as engine,
        memory_engine.open(":memory:") as other,
        inspected(engine) as one,
        inspected(other) as two,
    ):
        assert one.token != two.token
        assert 403 == (await two.ask("/api/store", {"X-Token": one.token})).status
        answers = await asyncio.gather(one.api("threads"), two.api("threads"))
        assert [1, 0] == [cast(dict[str, int], answer.data())["total"] for answer in answers]


async def test_an_application_may_stand_below_another(path: str) -> None:
    """Mounted under a path of somebody's own server it wants its token all the same."""
    async with memory_engine.open(path, config=READ_ONLY) as engine:
        whole = Starlette(routes=[Mount("/memory", create_app(engine, token="secret", hosts=("testserver",)))])
        for target, expected in [
            ("/memory/", 200),
            ("/memory/api/store", 403),
            ("/memory/api/store?token=secret", 200),
        ]:
            assert expected == await _status(whole, target)


async def _status(app: Starlette, target: str) -> int:
    """What an application answers, asked without a network."""
    said: list[Message] = []
    route, _, query = target.partition("?")
    scope = {
        "type": "http",
        "method": "GET",
        "path": route,
        "root_path": "",
        "query_string": query.encode(),
        "headers": [(b"host", b"testserver")],
    }

    async def receive() -> Message:
        await asyncio.Event().wait()
        return {}

    async def send(message: Message) -> None:
        said.append(message)

    await app(scope, receive, send)
    return int(said[0]["status"])


async def test_an_application_needs_a_token() -> None:
    """An empty one would let everybody in."""
    async with memory_engine.open(":memory:") as engine:
        with pytest.raises(ValueError, match="token"):
            create_app(engine, token="")


# what it leaves behind


def fingerprint(path: str) -> dict[str, str]:
    """The bytes of every file beside the database, and which there are; but for the index of the write-ahead log."""
    files = [file for file in Path(path).parent.rglob("*") if file.is_file() and not file.name.endswith("-shm")]
    return {str(file): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


@pytest.mark.parametrize("is_live", [False, True])
async def test_looking_at_everything_writes_nothing(tmp_path: Path, *, is_live: bool) -> None:
    """After a tour through every route, at many seqs, each file is as it was: at rest, and beside a live writer."""
    path = str(tmp_path / "agent.db")
    await asyncio.to_thread(main, ["ingest", str(SAMPLE / "coding.jsonl"), "--db", path])
    writer = memory_engine.open(path)
    if is_live:
        agent = await writer.__aenter__()
        await agent.thread("coding").dispatch(UserMessage(content="one more"))
    try:
        async with memory_engine.open(path, config=READ_ONLY) as engine, inspected(engine, path) as browser:
            before = fingerprint(path)
            assert {name for name, _ in TOUR} == _routes()
            for name, asked in TOUR:
                assert 200 == (await browser.ask(f"/api/{name}?{asked}", {"X-Token": browser.token})).status, name
            for seq in range(1, 44, 5):
                for name in ("event", "state", "context", "brief", "views"):
                    assert 200 == (await browser.api(name, {"thread": "coding", "seq": seq})).status
            assert before == fingerprint(path)
            assert [] == kernel_of(engine)[OpenThreads].all()
    finally:
        if is_live:
            await writer.__aexit__(None, None, None)


def _routes() -> set[str]:
    from memory_engine.inspector.app import ROUTES

    return {route.name for route in ROUTES}


# news


class Listener:
    """A reader of news, an event at a time."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader

    async def next(self) -> tuple[str, dict[str, object]]:
        """The next event's kind and data; a comment is of the kind ""."""
        while not (line := (await self._reader.readuntil(b"\n")).rstrip()).startswith((b"event: ", b":")):
            continue
        if line.startswith(b":"):
            return "", {}
        data = await self._reader.readuntil(b"\n")
        return line.decode().removeprefix("event: "), json.loads(data.removeprefix(b"data: "))


@asynccontextmanager
async def listening(browser: Browser, asked: str = "") -> AsyncIterator[Listener]:
    """The news of a thread, or of the store."""
    async with browser.connection() as (reader, writer):
        target = f"/api/live?token={browser.token}{asked}"
        writer.write(f"GET {target} HTTP/1.1\r\nHost: localhost:{browser.port}\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        assert b"200 OK" in head
        assert b"text/event-stream" in head
        yield Listener(reader)


async def test_news_come_at_once_and_whenever_the_log_grows(tmp_path: Path) -> None:
    """The head now, and after each commit of anybody; what another process writes too."""
    path = str(tmp_path / "agent.db")
    async with memory_engine.open(path) as writer:
        thread = await writer.create_thread("t/1 ?")
        await thread.dispatch(UserMessage(content="Hello"))
        async with (
            memory_engine.open(path, config=READ_ONLY) as engine,
            inspected(engine) as browser,
            listening(browser, "&thread=t%2F1%20%3F") as listener,
        ):
            assert ("head", {"head": 1, "status": "active"}) == await listener.next()
            await thread.dispatch(UserMessage(content="and again"))
            assert ("head", {"head": 2, "status": "active"}) == await listener.next()
            await thread.admin.pause()
            assert ("head", {"head": 3, "status": "paused"}) == await listener.next()
            await thread.admin.delete()
            assert "end" == (await listener.next())[0]


async def test_news_of_the_store_tell_of_every_thread(tmp_path: Path) -> None:
    """How many threads there are, and how many events they have together."""
    path = str(tmp_path / "agent.db")
    async with (
        memory_engine.open(path) as writer,
        memory_engine.open(path, config=READ_ONLY) as engine,
        inspected(engine) as browser,
        listening(browser) as listener,
    ):
        assert ("threads", {"total": 0, "events": 0}) == await listener.next()
        await (await writer.create_thread("t")).dispatch(UserMessage(content="Hello"))
        while ("threads", {"total": 1, "events": 1}) != await listener.next():
            pass


async def test_a_connection_without_news_says_that_it_lives(browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    """A comment now and then, which is no event."""
    monkeypatch.setattr(news, "HEARTBEAT_S", 0.01)
    async with listening(browser, "&thread=coding") as listener:
        assert ["head", "", ""] == [(await listener.next())[0] for _ in range(3)]


async def test_who_has_gone_is_asked_about_no_more(path: str) -> None:
    """With the client, its polling and its questions end: no task is left behind."""
    async with memory_engine.open(path, config=READ_ONLY) as engine, inspected(engine) as browser:
        before = len(asyncio.all_tasks())
        for _ in range(5):
            async with listening(browser, "&thread=coding") as listener:
                await listener.next()
            async with browser.connection() as (_, writer):
                asked = f"/api/diff?thread=coding&a=0&b=44&token={browser.token}"
                writer.write(f"GET {asked} HTTP/1.1\r\nHost: localhost:{browser.port}\r\n\r\n".encode())
        while len(asyncio.all_tasks()) > before or "memory-engine-inspector" in _threads():  # noqa: ASYNC110 - both end
            await asyncio.sleep(0.01)


def _threads() -> set[str]:
    return {thread.name for thread in threading.enumerate()}


async def test_many_ask_at_once(browser: Browser) -> None:
    """Forty clients with every question get each the answer that one alone gets."""
    targets = [f"/api/{name}?{asked}" for name, asked in TOUR if name != "store"]
    alone = {target: await browser.ask(target, {"X-Token": browser.token}) for target in targets}
    asked = (targets * 3)[:40]
    answers = await asyncio.gather(*(browser.ask(target, {"X-Token": browser.token}) for target in asked))
    assert [(200, alone[target].body) for target in asked] == [(answer.status, answer.body) for answer in answers]


# begin and end


async def test_the_end_comes_at_once_with_listeners_there(path: str) -> None:
    """Who listens is told, and the port is free again."""
    async with memory_engine.open(path, config=READ_ONLY) as engine, AsyncExitStack() as stack:
        async with serving(engine) as address:
            browser = Browser(address)
            listener = await stack.enter_async_context(listening(browser, "&thread=coding"))
            await listener.next()
        assert "end" == (await listener.next())[0]
        async with serving(engine, port=browser.port, token="again") as address:
            assert f"http://127.0.0.1:{browser.port}/?token=again" == address


async def test_an_address_that_cannot_be_had_is_named(path: str) -> None:
    """A port that is taken, one that is none, and a host that is more than this machine."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        async with memory_engine.open(path, config=READ_ONLY) as engine:
            for host, number in [
                ("127.0.0.1", port),
                ("127.0.0.1", 70_000),
                ("0.0.0.0", 0),
                ("::", 0),
                ("example.com", 0),
            ]:
                with pytest.raises(CannotServe, match=re.escape(host)):
                    async with serving(engine, port=number, host=host):
                        raise AssertionError("it is served")


@pytest.mark.parametrize("host", ["localhost", "127.0.0.2", "::1"])
async def test_other_names_of_this_machine_may_be_served(path: str, host: str) -> None:
    """The address that is given works, whatever the token holds."""
    named = f"[{host}]" if ":" in host else host
    async with memory_engine.open(path, config=READ_ONLY) as engine, AsyncExitStack() as stack:
        try:
            address = await stack.enter_async_context(serving(engine, host=host, token="a&b=c #é"))
        except CannotServe as error:
            pytest.skip(str(error))
        assert address.startswith(f"http://{named}:")
        store = address.replace("/?", "/api/store?")
        with await asyncio.to_thread(urllib.request.urlopen, store) as answer:
            assert 200 == answer.status


def test_a_thread_of_its_own_serves_browsers(path: str) -> None:
    """The fixture of the page's tests: an address to open while the block runs, and none after it."""
    with served(path) as address, urllib.request.urlopen(address) as answer:
        assert 200 == answer.status
    with pytest.raises(urllib.error.URLError, match="refused"):
        urllib.request.urlopen(address)


# answers as such


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
)  # fmt: skip


@given(VALUES)
def test_any_value_comes_through(value: object) -> None:
    """Also half a surrogate pair; and no answer holds a `<`."""
    encoded = encode(value)
    assert value == json.loads(encoded)
    assert b"<" not in encoded


def test_depth_is_no_limit() -> None:
    """A tree that is deeper than Python's stack is told all the same."""
    value: object = []
    for _ in range(5_000):
        value = {"children": [value, "<"]}
    encoded = encode(value)
    assert (5_000, 10_001) == (encoded.count(b"children"), encoded.count(b"[") * 2 - 1)


async def test_a_store_that_is_closed_is_an_answer(path: str, caplog: pytest.LogCaptureFixture) -> None:
    """It has a status and a type; the server goes on, and nothing is logged that was foreseen."""
    async with memory_engine.open(path, config=READ_ONLY) as engine, inspected(engine) as browser:
        await engine.close()
        assert (503, "EngineClosed") == kind(await browser.api("store"))
        assert (503, "EngineClosed") == kind(await browser.api("live"))
        assert 200 == (await browser.ask("/")).status
    assert [] == [record for record in caplog.records if record.levelno >= logging.ERROR]


async def test_what_nobody_foresaw_is_told_and_logged(path: str, caplog: pytest.LogCaptureFixture) -> None:
    """A renderer of one's own that fails: the page is told its type, the log has the place."""

    def broken(_chunk: Chunk) -> list[dict[str, object]]:
        raise LookupError("no such <glyph>")

    plugin = Plugin("broken", renderers=[("system", broken)])
    async with (
        memory_engine.open(path, config=READ_ONLY, plugins=[plugin]) as engine,
        inspected(engine) as browser,
    ):
        assert (500, "LookupError") == kind(await browser.api("context", {"thread": "coding", "seq": 5}))
    assert ["LookupError"] == [type(r.exc_info[1]).__name__ for r in caplog.records if r.exc_info]
