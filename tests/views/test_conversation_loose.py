"""Messages that came by another road than a cycle are in the conversation all the same."""

import memory_engine
from memory_engine import CompactionPolicy, Engine, EngineConfig, Thread
from memory_engine import events as e
from memory_engine.runtime.config import ConversationLimits
from tests.scripted_compactors import Scripted

NEVER = CompactionPolicy(enabled=False)


def said(text: str, name: str = "") -> e.UserMessage:
    """A message of a person."""
    return e.UserMessage(content=text, name=name)


def answer(text: str) -> e.LlmTextResponse:
    """An answer of the agent."""
    return e.LlmTextResponse(content=text)


async def prompt(thread: Thread, question: str) -> list[tuple[object, object]]:
    """The messages of the next call: who says what."""
    return [(one["role"], one["content"]) for one in await thread.conversation.prepare_messages(question)]


async def turn(thread: Thread, question: str, reply: str) -> None:
    """A cycle, with its answer."""
    await thread.conversation.prepare_messages(question)
    await thread.conversation.finalize_cycle(question, reply)


async def test_messages_before_and_between_cycles_are_seen(thread: Thread) -> None:
    """In the order in which they were said, with their speakers; the thread stays sound."""
    await thread.dispatch_all([said("I am allergic to nuts.", "Ann"), answer("Noted.")])
    await turn(thread, "And wine?", "Red.")
    await thread.dispatch(said("Make it white.", "Ann"))
    await thread.dispatch(said("No, rosé."))
    assert [
        ("user", "Ann: I am allergic to nuts."), ("assistant", "Noted."),
        ("user", "And wine?"), ("assistant", "Red."),
        ("user", "Ann: Make it white.\nNo, rosé."), ("assistant", "[no answer]"),
        ("user", "What do we drink?"),
    ] == await prompt(thread, "What do we drink?")  # fmt: skip
    shown = await thread.conversation.exchanges()
    assert ["Ann: I am allergic to nuts.", "And wine?", "Ann: Make it white.\nNo, rosé."] == [x.question for x in shown]
    assert [True, True, False] == [x.is_answered for x in shown]
    assert (await thread.replay.verify()).ok


async def test_the_whole_answer_of_messages_is_what_was_said(thread: Thread) -> None:
    """No event of a cycle holds it."""
    await thread.dispatch_all([said("Which wine?"), answer("Red.")])
    (exchange,) = await thread.conversation.exchanges()
    assert "Red." == await thread.conversation.whole_answer(exchange)


async def test_a_message_while_a_question_is_open_stays(thread: Thread) -> None:
    """It is in the open cycle, and among the exchanges when that is finished; the agent's steps are not."""
    await thread.conversation.prepare_messages("Book a flight")
    await thread.dispatch_all([answer("Let me see."), said("By train, please!")])
    assert "By train, please!" in str(await thread.conversation.messages())
    await thread.dispatch(answer("Booked."))
    await thread.conversation.finalize_cycle("Book a flight", "Booked.")
    assert ["Book a flight", "By train, please!"] == [x.question for x in await thread.conversation.exchanges()]
    assert "Let me see." not in str(await thread.conversation.messages())


async def test_a_question_that_was_dispatched_is_not_said_twice(thread: Thread) -> None:
    """The cycle takes up the message that stands last; forgetting that forgets the exchange."""
    receipt = await thread.dispatch(said("Which wine?"))
    assert [("user", "Which wine?")] == await prompt(thread, "Which wine?")
    await thread.conversation.finalize_cycle("Which wine?", "Red.")
    assert 1 == len(await thread.conversation.exchanges())
    await thread.forget(event_ids=[receipt.event_id])
    assert [] == await thread.conversation.exchanges()


async def test_a_forgotten_message_is_gone(thread: Thread) -> None:
    """Now, and as of every moment."""
    receipt = await thread.dispatch(said("My number is 4711."))
    await turn(thread, "And wine?", "Red.")
    await thread.forget(event_ids=[receipt.event_id])
    assert ["And wine?"] == [x.question for x in await thread.conversation.exchanges()]
    assert [] == await thread.conversation.exchanges(at=1)


async def test_the_summary_takes_them_in() -> None:
    """With the exchanges around them, in order, and again where it is made anew after a forgetting."""
    config = EngineConfig(compaction=NEVER, conversation=ConversationLimits(exchanges=2, exchanges_kept=1))
    async with memory_engine.open(":memory:", config=config) as engine:
        thread = await engine.create_thread("t")
        await thread.dispatch(said("I am allergic to nuts."))
        for n in range(3):
            await turn(thread, f"Question {n}?", f"Answer {n}.")
            await thread.dispatch(said(f"Remark {n}."))
        first = await thread.conversation.summary()
        assert first is not None
        assert first.text.index("allergic") < first.text.index("Question 0?")
        brief, *messages = await thread.conversation.messages()
        told = str(messages)
        assert "allergic" in str(brief)
        assert [1] * 4 == [told.count(text) for text in ("allergic", "Remark 0", "Remark 1", "Remark 2")]
        started = [one.id async for one in thread.events() if isinstance(one.event, e.CycleStarted)]
        await thread.forget(event_ids=[started[0]])
        await turn(thread, "Question 3?", "Answer 3.")
        again = str((await thread.conversation.messages())[1:])
        assert [1, 0, 1] == [again.count(text) for text in ("allergic", "Question 0", "Remark 0")]
        assert (await thread.replay.verify()).ok


async def test_what_was_compacted_is_told_by_its_summary() -> None:
    """A summary of the state that stands for such messages is shown; one of finished exchanges alone is not."""
    config = EngineConfig(compaction=NEVER)
    async with memory_engine.open(":memory:", compactor=Scripted(), config=config) as engine:
        thread = await engine.create_thread("t")
        await thread.dispatch_all([said(f"Remark {n}.") for n in range(8)])
        await thread.compact(["1.0", "2.0", "3.0"])
        brief, *told = await thread.conversation.messages()
        assert "Remark 0." in str(brief)
        assert "Summary of earlier conversation" in str(told[0]["content"])
        assert ["Remark 3." in str(told[1]["content"]), "Remark 0." in str(told[1:])] == [True, False]


async def test_a_conversation_of_cycles_alone_is_as_it_was(engine: Engine) -> None:
    """Nothing is loose: not the questions, not the answers, not what an unanswered question was worked on with."""
    thread = await engine.create_thread()
    await turn(thread, "One?", "1")
    await thread.conversation.prepare_messages("Two?")
    await thread.dispatch(answer("Hm."))
    await turn(thread, "Three?", "3")
    assert ["One?", "Two?", "Three?"] == [x.question for x in await thread.conversation.exchanges()]
