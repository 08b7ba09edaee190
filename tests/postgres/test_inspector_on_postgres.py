"""The inspector of a store on a server: every route answers, what others write appears, and acts are done there."""

import asyncio
import json
import subprocess
import urllib.error
import urllib.parse
import urllib.request

import memory_engine
from memory_engine import CompactionPolicy, EngineConfig, UserMessage
from memory_engine.testing import FakeCompactor
from tests.interruptible import python
from tests.patience import PATIENCE_S
from tests.postgres_server import new_url


async def make(url: str) -> None:
    """A thread with a compaction."""
    config = EngineConfig(compaction=CompactionPolicy(threshold=6, tokens_min=0, keep_recent=2))
    async with memory_engine.open(url, config=config, compactor=FakeCompactor("Short.")) as engine:
        thread = await engine.create_thread("talk", user_id="ann")
        for n in range(9):
            await thread.dispatch(UserMessage(content=f"word {n} and so on " * 9))
            await thread.compaction.settle()
        await thread.search("word")


TOUR = (
    "store", "glance", "threads", "forks?thread=talk", "timeline?thread=talk", "outline?thread=talk",
    "find?thread=talk&q=word", "event?thread=talk&seq=3", "state?thread=talk&seq=9", "context?thread=talk&seq=9",
    "context?thread=talk&seq=9&query=word", "talk?thread=talk&seq=9", "recall?thread=talk&seq=9&query=word",
    "views?thread=talk&seq=9", "diff?thread=talk&a=2&b=9", "ledger?thread=talk", "tokens?thread=talk",
    "time?thread=talk", "waterfall?thread=talk&seq=3", "options?thread=talk", "why?thread=talk&chunk=1.0",
)  # fmt: skip


def test_a_store_on_a_server_is_inspected() -> None:
    """Named by its URL, without a word more; the password is shown nowhere."""
    url = new_url()
    asyncio.run(make(url))
    with subprocess.Popen(
        python("-m", "memory_engine", "inspect", url, "--port", "0", "--json", "--write"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as child:
        try:
            assert child.stdout is not None
            line = child.stdout.readline()
            assert line, child.stderr and child.stderr.read()
            address = urllib.parse.urlsplit(json.loads(line)["address"])
            token = urllib.parse.parse_qs(address.query)["token"][0]

            def ask(target: str, body: object = None) -> dict[str, object]:
                data = json.dumps(body).encode() if body is not None else None
                headers = {"X-Token": token, "Content-Type": "application/json"}
                asked = urllib.request.Request(f"http://{address.netloc}/api/{target}", data, headers)
                try:
                    with urllib.request.urlopen(asked, timeout=PATIENCE_S) as answer:
                        found: dict[str, object] = json.load(answer)
                except urllib.error.HTTPError as error:
                    found = json.load(error)
                return found

            for target in TOUR:
                found = ask(target)
                assert "error" not in found, (target, found)
            head = ask("timeline?thread=talk")["head"]
            change = urllib.parse.quote(json.dumps({"edits": [{"do": "skip", "seq": 2}]}))
            assert ask(f"what_if?thread=talk&upto={head}&change={change}")["shared"] == 1
            compactions = ask("options?thread=talk")["compactions"]
            assert isinstance(compactions, list)
            undone = ask("undo", {"thread": "talk", "compaction": compactions[-1]["compaction_id"]})
            assert ask("timeline?thread=talk")["head"] == undone["seq"]
        finally:
            child.kill()
