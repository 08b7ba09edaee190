"""How the page gets to a browser: fast at the first time, and from what the browser keeps at the next."""

import re
import socket
from collections.abc import AsyncIterator

import pytest

import memory_engine
from memory_engine.inspector.server import listening
from tests.inspecting import Browser, inspected


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    """A client of an empty store's inspector."""
    async with memory_engine.open(":memory:") as engine, inspected(engine) as browser:
        yield browser


async def test_files_that_never_change_may_be_kept(browser: Browser) -> None:
    """Those of the package, under the digest of all of them; none by its bare name or another digest."""
    page = (await browser.ask("/")).body.decode()
    [script] = re.findall(r'<script type="module" src="([^"]+)"', page)
    kept, bare = await browser.ask(f"/{script}"), await browser.ask("/app.js")
    assert (200, kept.body) == (bare.status, bare.body)
    assert ("public, max-age=31536000, immutable", "no-store") == (
        kept.headers["cache-control"], bare.headers["cache-control"]
    )  # fmt: skip
    digest = script.partition("/")[0]
    for other in ("0" * 16, digest[:-1], "", f"{digest}/{digest}"):
        assert 404 == (await browser.ask(f"/{other}/app.js")).status


async def test_every_module_is_asked_for_at_once(browser: Browser) -> None:
    """The page names all that its modules import, or a browser would come upon them one after the other."""
    page = (await browser.ask("/")).body.decode()
    named = {name.rpartition("/")[2] for name in re.findall(r'(?:src|href)="([^"]+\.js)"', page)}
    waiting, found = ["app.js"], {"theme.js"}
    while waiting:
        name = waiting.pop()
        found.add(name)
        text = (await browser.ask(f"/{name}")).body.decode()
        waiting += set(re.findall(r'^import .* from "\./(.+)";$', text, re.MULTILINE)) - found
    assert found == named


def test_an_answer_is_sent_at_once() -> None:
    """A body does not wait for the receipt of its headers: on a socket without this option that takes 40 ms."""
    with listening("the inspector", "127.0.0.1", 0) as listener:
        assert socket.IPPROTO_TCP == listener.proto
