"""Logs for a browser to look at: a recorded agent with compactions and forks, an endless one, a hostile one."""

from importlib import resources

from attrs import frozen

import memory_engine
from memory_engine import CompactionPolicy, Engine, EngineConfig, Event, LlmTextResponse, Thread, UserMessage
from memory_engine.events import CompactionCompleted, ExecutionResume
from memory_engine.ingest import Ingestion, IngestOptions
from memory_engine.testing import FakeCompactor
from memory_engine.thread import handle_of
from tests.browser.timed_log import make_timed

CHATS = 40
QUESTION = "Why is a claim not released when a worker dies?"
"""What the memory of the thread "coding" is asked."""
ENDLESS = 30_000
SHORT = 100
HOSTILE = (
    "<script>window.ran = 1; alert(1)</script>",
    "<img src=x onerror='window.ran = 1'>",
    '"><svg onload=alert(1)><style>*{display:none}</style>',
    "[click](javascript:window.ran=1) {{constructor.constructor('alert(1)')()}}",
    "\x1b[31mred\x1b[0m \x1b]0;title\x07 \x08\x08 bell",
    "abc \u202etxt.exe\u202c \u2066inside\u2069 \ufeff end",
    "https://example.com/picture.png <link rel=stylesheet href=https://example.com/x.css>",
)
HOSTILE_ID = "<img src=x onerror=alert(1)>&thread=coding#\u202e"


@frozen(kw_only=True)
class Facts:
    """What a page must show of the thread "coding", asked from the engine itself. By seq: tokens of the state.

    `recalled` are the seq of a passage that a question brings back, and why it does.
    """

    head: int
    compactions: list[int]
    summary: str
    covers: list[str]
    tokens: dict[int, int]
    context_tokens: int
    forked_at: int
    recalled: tuple[int, str]


async def make_store(path: str) -> Facts:
    """A store in use: two agents, a fork, a trip, a user, many short chats; the agents' threads are the newest."""
    config = EngineConfig(compaction=CompactionPolicy(tokens_min=0))
    async with memory_engine.open(path, config=config) as engine:
        for n in range(1, CHATS + 1):
            chat = await engine.create_thread(f"chat {n:02}", user_id="bob" if n % 2 else "eve", tenant_id="acme")
            await chat.dispatch(UserMessage(content=f"Hello, this is chat {n}"))
        await engine.user("ann", tenant_id="acme").preferences.update("verbosity", "concise")
        await make_timed(engine)
        for name in ("support", "coding"):
            await _ingest(engine, name)
        coding = engine.thread("coding")
        await coding.scratchpad.write("A claim needs an owner and a deadline.", flow="fix")
        facts = await _facts(coding)
        fork = await coding.fork(facts.forked_at, thread_id="coding, without a claim")
        await fork.dispatch(UserMessage(content="Try an advisory lock instead."))
        await fork.dispatch(LlmTextResponse(content="Such a lock ends with its session, so nothing has to expire."))
        return facts


async def _ingest(engine: Engine, name: str) -> None:
    ingestion = Ingestion(engine, IngestOptions(thread_id=name, user_id="ann", tenant_id="acme"))
    with resources.as_file(resources.files("memory_engine.cli") / "sample" / f"{name}.jsonl") as sample:
        assert await ingestion.file(sample), ingestion.report.errors


async def _facts(thread: Thread) -> Facts:
    log = [recorded async for recorded in thread.events()]
    folded = [recorded for recorded in log if isinstance(recorded.event, CompactionCompleted)]
    last = folded[-1]
    return Facts(
        head=log[-1].seq,
        compactions=[recorded.seq for recorded in folded],
        summary=last.chunks[0].id,
        covers=list(last.chunks[0].parent_ids),
        tokens={seq: (await thread.state(at=seq)).tally.tokens for seq in range(1, log[-1].seq + 1)},
        context_tokens=(await thread.context(at=await handle_of(thread).last_seq())).tokens,
        forked_at=folded[0].seq + 3,
        recalled=await _recalled(thread),
    )


async def _recalled(thread: Thread) -> tuple[int, str]:
    """The place of the first passage that a question brings into a context of 600 tokens, and why it was chosen."""
    hit = (await thread.context(600, query=QUESTION)).recalled[0]
    return hit.seq, hit.why


async def make_folds(path: str) -> None:
    """A thread whose summary was itself summed up."""
    policy = CompactionPolicy(threshold=3, tokens_min=0, keep_recent=0, summary_tokens_max=1)
    compactor = FakeCompactor("The first summary", "The summary of summaries")
    async with memory_engine.open(path, compactor=compactor, config=EngineConfig(compaction=policy)) as engine:
        thread = await engine.create_thread("folds")
        for n in range(1, 7):
            await thread.dispatch(LlmTextResponse(content=f"word{n}" + " and so on" * 40))
            await thread.compaction.settle()


async def make_hostile(path: str) -> None:
    """A thread that would like to be more than text, under a name that would too."""
    async with memory_engine.open(path) as engine:
        thread = await engine.create_thread(HOSTILE_ID, user_id="<b>ann</b>", metadata={"<i>": "<script>1</script>"})
        for text in HOSTILE:
            await thread.dispatch(UserMessage(content=text, name="<u>mallory</u>"))
        await thread.scratchpad.write(HOSTILE[0], flow="<b>flow</b>")
        await thread.dispatch(UserMessage(content="<b>" + "x" * 1_000_000 + "the end</b>"))


async def make_endless(path: str) -> int:
    """A thread of 30,000 steps, and one of 100; gives the head of the long one. Every fifth is said, and compacted."""
    policy = CompactionPolicy(threshold=1_000, tokens_min=0, keep_recent=20)
    compactor = FakeCompactor("They counted on.")
    async with memory_engine.open(path, compactor=compactor, config=EngineConfig(compaction=policy)) as engine:
        await (await engine.create_thread("short", user_id="ann")).dispatch_all([_step(n) for n in range(1, SHORT + 1)])
        thread = await engine.create_thread("endless", user_id="ann")
        for first in range(1, ENDLESS + 1, 250):
            await thread.dispatch_all([_step(n) for n in range(first, first + 250)])
        await thread.compaction.settle()
        return (await thread.info()).events


def _step(n: int) -> Event:
    text = f"step {n}"
    match n % 10:
        case 0:
            return UserMessage(content=text)
        case 5:
            return LlmTextResponse(content=text)
    return ExecutionResume(content=text)
