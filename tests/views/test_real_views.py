"""Recorded conversations, driven through the views as an agent's loop would drive them.

The recordings are not part of the project; without them these tests are skipped and say so.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence

import msgspec
import pytest
from attrs import field, frozen

import memory_engine
from memory_engine import Engine, LlmToolCall, Thread, ToolCall, ToolResult
from memory_engine.events import PlaybookCall
from memory_engine.thread import handle_of
from tests.engine.test_real_conversations import RECORDINGS, ROOT, faults, recorded

TALKS = ROOT.parent / "shared" / "data" / "locomo" / "dev.json"
DRIVEN = 10
VIEWS = ("conversation", "tool_cache", "flows", "layers", "episodic", "playbooks", "preferences", "agent_md")
MAX_TOKENS = 4_000
UNANSWERABLE = 5
"""The category of questions that have no answer in the talk."""

talks = pytest.mark.skipif(not TALKS.is_file(), reason=f"the recordings are not at {TALKS}")


class Function(msgspec.Struct):
    """What a recorded call calls."""

    name: str
    arguments: str


class Call(msgspec.Struct):
    """A recorded call."""

    id: str
    function: Function


class Message(msgspec.Struct):
    """A recorded message."""

    role: str
    content: str | None = None
    tool_calls: list[Call] | None = None
    tool_call_id: str = ""


class Recording(msgspec.Struct):
    """A recorded conversation of an agent."""

    traj: list[Message]


class Turn(msgspec.Struct):
    """What one of two people said."""

    dia_id: str
    speaker: str
    text: str


class Question(msgspec.Struct):
    """A question about a talk; `evidence` names the turns that answer it."""

    question: str
    category: int
    evidence: list[str] = []


class Talk(msgspec.Struct):
    """A recorded talk of two people: its sessions stand among other facts."""

    conversation: dict[str, list[Turn] | str]
    qa: list[Question]

    def turns(self) -> Iterator[Turn]:
        """All turns, in order."""
        sessions = [name for name in self.conversation if re.fullmatch(r"session_\d+", name)]
        for name in sorted(sessions, key=lambda name: int(name[8:])):
            said = self.conversation[name]
            yield from said if isinstance(said, list) else ()


@frozen
class Seen:
    """What the views of a conversation showed at a seq."""

    thread_id: str
    seq: int
    views: Mapping[str, object]
    messages: Sequence[Mapping[str, object]]
    snippets: Sequence[str]


@frozen
class Driven:
    """The database that the drive made, what was seen on the way, and what was wrong with it."""

    db: str
    seen: list[Seen] = field(factory=list)
    wrong: list[str] = field(factory=list)


async def seen(thread: Thread, at: int | None = None) -> Seen:
    """The views of a conversation, as they are or were."""
    views = {name: await thread.views.read(name, at=at) for name in VIEWS}
    seq = (await thread.info()).events if at is None else at
    said = await thread.conversation.messages(at=at)
    return Seen(thread.id, seq, views, said, [snippet.text for snippet in await thread.scratchpad.read(at=at)])


class Loop:
    """An agent's loop over one recording: its messages are what person, model and tools say."""

    def __init__(self, thread: Thread, driven: Driven) -> None:
        self._thread = thread
        self._driven = driven
        self._question = ""
        self._calls: list[PlaybookCall] = []

    async def run(self, messages: Sequence[Message]) -> None:
        """Drive the whole recording."""
        for place, message in enumerate(messages):
            if message.role == "user":
                self._question, self._calls = message.content or "", []
                self._check(await self._thread.conversation.prepare_messages(self._question), place)
            elif message.tool_calls:
                for call in message.tool_calls:
                    await self._call(call, place, messages[place + 1 :])
                self._check(await self._thread.conversation.messages(), place)
            elif message.role == "assistant" and self._question:
                await self._answer(message.content or "")
                await self._check_limits(place)

    async def _call(self, call: Call, place: int, later: Sequence[Message]) -> None:
        """Make a call through the cache; the recording knows its result."""
        name, arguments = call.function.name, call.function.arguments
        result = next(m.content for m in later if m.tool_call_id == call.id)
        call_id = f"{call.id}-{place}"  # ids of one recording repeat

        async def tool() -> str:
            return result or ""

        parameters = json.loads(arguments)
        made = await self._thread.tool_cache.cached_call(name, parameters, tool, duration=3, call_id=call_id)
        await self._thread.dispatch_all(
            [
                LlmToolCall(calls=(ToolCall(id=call_id, name=name, arguments=arguments),)),
                ToolResult(call_id=call_id, content=made.result, name=name),
            ]
        )
        self._calls.append(PlaybookCall(name, parameters))

    async def _answer(self, answer: str) -> None:
        """Close the exchange, and the flow if there was one."""
        thread, question, self._question = self._thread, self._question, ""
        await thread.conversation.finalize_cycle(question, answer)
        await thread.memory.append("episodic", f"{question}\n{answer}")
        if self._calls:
            flow = self._calls[-1].tool_id
            await thread.views.flows.completed(flow, user_query=question, tool_calls=self._calls, outcome=answer[:300])
            await thread.scratchpad.write(answer[:300], flow=flow)

    def _check(self, messages: Sequence[Mapping[str, object]], place: int) -> None:
        self._driven.wrong.extend(f"{self._thread.id} at {place}: {fault}" for fault in faults(messages))

    async def _check_limits(self, place: int) -> None:
        limits = handle_of(self._thread).kernel.config.conversation
        exchanges = await self._thread.conversation.exchanges()
        summary = await self._thread.conversation.summary()
        held = {
            "exchanges": (len(exchanges), limits.exchanges),
            "answer": (max(len(x.answer.encode()) for x in exchanges), limits.answer_bytes_max),
            "summary": (len(summary.text.encode()) if summary is not None else 0, limits.summary_bytes_max),
            "snippets": (len(await self._thread.scratchpad.read()), 64),
        }
        self._driven.wrong.extend(
            f"{self._thread.id} at {place}: {is_} of {what}, at most {most}"
            for what, (is_, most) in held.items()
            if is_ > most
        )
        self._driven.seen.append(await seen(self._thread))


@pytest.fixture(scope="module")
async def driven(tmp_path_factory: pytest.TempPathFactory) -> Driven:
    """Drive a handful of recordings, each to a saved report."""
    done = Driven(str(tmp_path_factory.mktemp("views") / "views.db"))
    recordings = msgspec.json.decode(RECORDINGS.read_bytes(), type=list[Recording])[:DRIVEN]
    async with memory_engine.open(done.db) as engine:
        for number, recording in enumerate(recordings):
            thread = await engine.create_thread(f"t{number}", user_id=f"u{number % 3}", tenant_id="air")
            await Loop(thread, done).run(recording.traj)
            await thread.promotion.report_saved("What was done", event_id=f"report-{number}")
        await engine.settle()
    return done


async def conversations(engine: Engine) -> list[Thread]:
    """The threads that were driven."""
    return [engine.thread(f"t{number}") for number in range(DRIVEN)]


@recorded
async def test_recorded_conversations_stay_valid_and_within_their_limits(driven: Driven) -> None:
    """What the agent receives at each step would be taken by a strict provider; nothing outgrows its bounds."""
    assert [] == driven.wrong
    assert len(driven.seen) > 5 * DRIVEN


@recorded
async def test_contexts_of_driven_conversations_are_valid(driven: Driven) -> None:
    """With scratchpad and all, a context keeps to its budget, and every call has its result right after it."""
    async with memory_engine.open(driven.db) as engine:
        for thread in await conversations(engine):
            context = await thread.context(max_tokens=MAX_TOKENS)
            assert [] == faults(context.messages)
            assert context.tokens <= MAX_TOKENS


@recorded
async def test_views_of_the_past_are_what_they_were(driven: Driven) -> None:
    """Each conversation's views, messages and snippets at earlier seqs equal those that were seen then."""
    async with memory_engine.open(driven.db) as engine:
        for then in driven.seen[::7]:
            assert then == await seen(engine.thread(then.thread_id), at=then.seq)


@recorded
async def test_driven_threads_verify_and_rebuild_to_the_same_rows(driven: Driven) -> None:
    """Conversations, users and the tenant: the log gives what is stored, and gives it again."""
    async with memory_engine.open(driven.db) as engine:
        assert all(report.ok for report in await engine.verify())
        infos = await engine.threads()
        assert {f"t{number}" for number in range(DRIVEN)} < {info.id for info in infos}  # and their users
        for info in infos:
            thread = engine.thread(info.id)
            before = await seen(thread)
            await thread.replay.rebuild()
            assert before == await seen(thread)
        assert all(report.ok for report in await engine.verify())


@recorded
async def test_flows_of_recorded_conversations_are_judged(driven: Driven) -> None:
    """What the person says next decides: each flow but the last of a talk has a verdict with its reason."""
    async with memory_engine.open(driven.db) as engine:
        judged = [flow for thread in await conversations(engine) for flow in await thread.views.flows.all()]
    assert {"promoted", "rejected"} <= {flow.status for flow in judged}
    assert all(flow.reason for flow in judged if flow.status != "completed")


def evidence(texts: Sequence[str]) -> set[str]:
    """The turns that a question's notes on its evidence name."""
    return {f"D{int(a)}:{int(b)}" for text in texts for a, b in re.findall(r"D:?\s*(\d+)\s*:\s*(\d+)", text)}


@talks
async def test_questions_about_a_long_talk_find_their_evidence() -> None:
    """Of the turns that answer a question, the ten best hits of a search without any model hold over 58 %."""
    shares: list[float] = []
    async with memory_engine.open(":memory:") as engine:
        for number, talk in enumerate(msgspec.json.decode(TALKS.read_bytes(), type=list[Talk])):
            memory = (await engine.create_thread(f"talk{number}")).memory
            for turn in talk.turns():
                await memory.append("episodic", f"{turn.speaker}: {turn.text}", id=turn.dia_id)
            known = {turn.dia_id for turn in talk.turns()}
            for question in (one for one in talk.qa if one.category != UNANSWERABLE):
                gold = evidence(question.evidence) & known
                if gold:
                    hits = await memory.search("episodic", question.question, 10)
                    shares.append(len(gold & {hit.entry.id for hit in hits}) / len(gold))
    assert len(shares) > 300
    assert sum(shares) / len(shares) > 0.58
