"""What `print()` shows of the answers about a log: a few plain lines, however much there is."""

from memory_engine import Engine, LlmTextResponse, Thread, UserMessage
from memory_engine.replay import Divergence, VerifyReport
from memory_engine.replay.what_if import Change, SkipEvent, try_change
from memory_engine.reports import LINES_MAX, WIDTH
from memory_engine.thread import Past, handle_of
from tests.conversations import NEVER

HOSTILE = "\x1b[31mred\x1b[0m \u202eback\u202c"


async def trip(engine: Engine, stops: int = 300) -> Thread:
    """A long conversation, compacted once, that would play tricks on a terminal."""
    thread = await engine.create_thread("trip", policy=NEVER)
    for n in range(1, stops + 1):
        stop = f"Stop {n}: town {n}. {HOSTILE} " + "We like it there. " * 40
        await thread.dispatch_all([UserMessage(content=stop), LlmTextResponse(content=f"Noted: stop {n}.")])
    await thread.compact()
    return thread


async def test_every_answer_is_printed_in_a_few_plain_lines(engine: Engine) -> None:
    """Each at once readable, none wider than a window, nothing that moves a cursor."""
    thread = await trip(engine)

    async def is_late(past: Past) -> bool:
        return past.seq >= 500

    for answer, says in (
        (await thread.replay.why(await thread.context(query="town 7")), "context of thread trip"),
        (await thread.replay.why("602.0"), "compaction of 600 chunks by embedded"),
        (await thread.replay.diff(20), "trip, event 20 → event 602: 20 → 1 chunk"),
        (await thread.replay.ledger(), "trip: 300 model calls, "),
        (await thread.replay.verify(), "trip: 602 events: every hash, operation and state is as recorded"),
        (await thread.search("town 7", explain=True), "10 found for “town 7” (lexical)"),
        (await thread.replay.bisect(is_late), "it holds from event 500 on: llm_text_response"),
        (await try_change(handle_of(thread), Change(edits=[SkipEvent(3)])), "trip up to event 602: 1 edit"),
        (
            await thread.replay.what_if(Change(edits=[SkipEvent(3)]), fork_id="f"),
            "trip up to event 602 → fork f: 1 edit",
        ),
    ):
        lines = str(answer).split("\n")
        assert says in "\n".join(lines[:5])
        assert len(lines) <= LINES_MAX + 1
        assert max(map(len, lines)) <= WIDTH
        assert str(answer).replace("\n", "").isprintable()


async def test_what_is_cut_is_said(engine: Engine) -> None:
    """Of long lists the first and how many more there are; nothing found and nothing changed are said too."""
    thread = await trip(engine, stops=30)
    assert "├─ … 56 more" not in str(await thread.replay.why("62.0"))
    assert "… 56 more" in str(await thread.replay.why("62.0"))
    assert "  … 25 more" in str(await thread.replay.diff(30)).split("\n")
    assert "0 found for “zyzzyva” (lexical)" == str(await thread.search("zyzzyva"))
    assert "nothing differs" == str(await thread.replay.diff(62)).split("\n")[1]


def test_a_divergence_is_printed_with_what_differs() -> None:
    """The report of a thread that diverges says where and how, as `memory-engine verify` does."""
    differs = ("chunk 5.0 content: 'Hello' → 'Hi'", "chunk 5.0 tokens: 2 → 1")
    found = Divergence(thread_id="t", seq=5, kind="operations", event_type="user_message", difference=differs)
    report = VerifyReport(thread_id="t", events=4, head_seq=9, head_hash="", divergence=found, redacted=1)
    title, *lines, redacted = str(report).split("\n")
    assert "thread 't', seq 5 (user_message): operations differ" == title
    assert [f"  {one}" for one in differs] == lines
    assert redacted.startswith("1 event redacted")
