"""W3: a request is not spent while the agent works on it, however its responses are delivered."""

import pytest

from memory_engine import Engine, Event, Thread, ToolCall
from memory_engine import events as e
from memory_engine.core.events.messages import MessageOrigin

REQUEST = "Repaint the harbour shed in seagreen before Tuesday."


def said(text: str, origin: MessageOrigin = "") -> e.UserMessage:
    """A message of the user role."""
    return e.UserMessage(content=text, origin=origin)


def parts(n: int, text: str, *, response_id: str = "", thinking: bool = False) -> list[Event]:
    """A response in parts, a text and then its call, and the result. They repeat the words of the request."""
    call = ToolCall.create(f"c{n}", "repaint", {"what": "harbour shed", "colour": "seagreen", "before": "Tuesday"})
    thought: list[Event] = [e.LlmThinking(content="Hm.", response_id=response_id)] if thinking else []
    return [
        *thought,
        e.LlmTextResponse(content=text, response_id=response_id),
        e.LlmToolCall(calls=(call,), response_id=response_id),
        e.ToolResult(call_id=f"c{n}", content="one wall done"),
    ]


def work(steps: int, *, named: bool) -> list[Event]:
    """Steps of work; with `named`, each response has an id, as those of providers have."""
    text = "I repaint the next wall of the harbour shed in seagreen, so that it is done before Tuesday."
    return [
        event
        for n in range(steps)
        for event in parts(n, text, response_id=f"r{n}" if named else "", thinking=bool(n % 2))
    ]


async def statuses(thread: Thread, text: str = REQUEST) -> list[str]:
    """The status of a statement after each event."""
    return [
        one.status
        for seq in range(1, await thread.last_seq() + 1)
        for one in await thread.brief.read(at=seq)
        if one.text == text
    ]


async def test_a_request_stands_after_every_event_of_its_work(engine: Engine) -> None:
    """Whatever part of a response came last; a final answer and the person's next message end the work."""
    thread = await engine.create_thread()
    await thread.dispatch_all([said(REQUEST), *work(6, named=True)])
    answer = e.LlmTextResponse(content="The harbour shed is seagreen, before Tuesday.", response_id="r9")
    await thread.dispatch_all([answer, said("And the jetty?")])
    *working, after = await statuses(thread)
    assert {"stands"} == set(working)
    assert "spent" == after


async def test_without_ids_of_responses_only_a_text_without_calls_after_it_ends_the_work(engine: Engine) -> None:
    """Such a text may be the answer, until a call follows it."""
    thread = await engine.create_thread()
    await thread.dispatch_all([said(REQUEST), *work(4, named=False)])
    ends = [r.seq async for r in thread.events() if not isinstance(r.event, e.LlmTextResponse)]
    found = await statuses(thread)
    assert {"stands"} == {found[seq - 1] for seq in ends}
    await thread.dispatch(e.LlmTextResponse(content="The harbour shed is seagreen, before Tuesday."))
    assert "spent" == (await statuses(thread))[-1]


async def test_a_text_that_its_response_goes_on_after_is_no_answer(engine: Engine) -> None:
    """Calls of a response may be delivered before its text, too, and its blocks without words are none."""
    thread = await engine.create_thread()
    text, call, _ = parts(1, "All of the harbour shed is seagreen before Tuesday.", response_id="r1")
    await thread.dispatch_all([said(REQUEST), call, text, said("Are you there?")])
    assert "stands" == (await statuses(thread))[-1]
    await thread.dispatch_all([e.LlmTextResponse(content="  ", response_id="r2"), said("Hello?")])
    assert "stands" == (await statuses(thread))[-1]


async def test_what_a_person_says_in_between_does_not_end_the_work(engine: Engine) -> None:
    """Both requests stand until the agent answers, and are spent then."""
    thread = await engine.create_thread()
    await thread.dispatch_all([said(REQUEST), *work(3, named=True), said("Also oil the hinges."), *work(3, named=True)])
    assert {"stands"} == set(await statuses(thread))
    answer = "The harbour shed is seagreen before Tuesday, and the hinges are oiled: I did oil each of the hinges."
    await thread.dispatch_all([e.LlmTextResponse(content=answer, response_id="r9"), said("Now the roof, please.")])
    assert "spent" == (await statuses(thread))[-1]
    assert "spent" == (await statuses(thread, "Also oil the hinges."))[-1]


async def test_a_notice_of_the_client_does_not_end_the_work(engine: Engine) -> None:
    """Only a person can take a text for the answer."""
    thread = await engine.create_thread()
    text = e.LlmTextResponse(content="I repaint the harbour shed in seagreen until Tuesday.", response_id="r9")
    await thread.dispatch_all([said(REQUEST), *work(3, named=True), text, said("Reminder: a job ended.", "client")])
    await thread.dispatch_all(work(1, named=True))
    assert {"stands"} == set(await statuses(thread))


async def test_the_actions_of_a_loop_of_texts_are_no_answers(engine: Engine) -> None:
    """Its results come as messages of the user role."""
    thread = await engine.create_thread()
    action = e.LlmTextResponse(content="I repaint the harbour shed in seagreen before Tuesday.\n\nrepaint --wall 2")
    observed = said("The harbour shed: wall 2 done", "tool")
    await thread.dispatch_all([said(REQUEST), action, observed, action, observed, action])
    assert {"stands"} == set((await statuses(thread))[2:])


@pytest.mark.parametrize("approval", [True, False])
async def test_a_question_to_a_person_ends_the_turn_and_a_request_for_permission_does_not(
    engine: Engine, *, approval: bool
) -> None:
    """Work goes on once it is permitted."""
    thread = await engine.create_thread()
    asked = e.LlmClarification(content="May I repaint the shed?", approval=approval, response_id="r9")
    await thread.dispatch_all([said(REQUEST), *work(1, named=True), asked, said("Yes, do.")])
    assert ("stands" if approval else "spent") == (await statuses(thread))[-1]


async def test_a_question_is_answered_by_the_text_that_ends_the_work(engine: Engine) -> None:
    """Not by a text before a call: `by` names the answer."""
    thread = await engine.create_thread()
    question = "Which wall of the harbour shed is still grey?"
    await thread.dispatch_all([said(question), *parts(1, "Let me look at each wall of it.")])
    await thread.dispatch(e.LlmTextResponse(content="The northern one."))
    (found,) = [one for one in await thread.brief.read() if one.text == question]
    assert ("spent", 5) == (found.status, found.by)


async def test_an_exchange_that_is_finished_has_its_answer(engine: Engine) -> None:
    """An agent that says so needs no next message of a person."""
    thread = await engine.create_thread()
    await thread.dispatch_all([said(REQUEST), *work(2, named=True)])
    answer = e.LlmTextResponse(content="The harbour shed is seagreen, before Tuesday.", response_id="r9")
    finished = e.ExchangeFinished(question=REQUEST, answer="It is seagreen.", answer_at=-1)
    await thread.dispatch_all([answer, finished])
    assert ["stands", "spent"] == (await statuses(thread))[-2:]


async def test_a_request_of_long_ago_that_no_answer_followed_is_ruled_by_its_use(engine: Engine) -> None:
    """An agent that never says a word keeps no request open for ever."""
    thread = await engine.create_thread()
    calls = [event for event in work(2, named=True) if not isinstance(event, e.LlmTextResponse)]
    await thread.dispatch_all([said(REQUEST), *calls])
    for n in range(8):
        assert "stands" == (await statuses(thread))[-1]
        await thread.dispatch(said(f"Look after boat {n} then."))
    assert "spent" == (await statuses(thread))[-1]
