"""The brief as one text, for frameworks that build the request of their model themselves."""

import pytest

from memory_engine import Engine, LlmTextResponse, LlmToolCall, Thread, ToolCall, ToolResult, UserMessage, errors
from memory_engine.integrations.brief import brief_text

RULE = "Never touch the table ledger_2019 without asking me."


async def talked(thread: Thread) -> None:
    """A rule, a pin, and a request that is being worked on."""
    await thread.dispatch_all([UserMessage(content=RULE), LlmTextResponse(content="Noted.")])
    await thread.pin("Releases are on Mondays.")
    await thread.dispatch(UserMessage(content="Count the parcels of the depot in Graz."))


async def test_it_says_what_the_request_does_not(thread: Thread) -> None:
    """Pins are always in it; nothing of the thread is written."""
    await talked(thread)
    before = (await thread.info()).events
    text = await brief_text(thread, beside=["Count the parcels  of the depot in Graz.", "And more."])
    assert text.startswith("[Brief] What the user said and what still holds of it")
    assert [f"- {RULE}", "- Pinned: Releases are on Mondays."] == text.splitlines()[1:]
    assert RULE not in await brief_text(thread, beside=[f"Hello. {RULE}", "Count the parcels of the depot in Graz."])
    assert before == (await thread.info()).events


async def test_it_fits_its_room(thread: Thread) -> None:
    """The most important statements are in it."""
    for n in range(40):
        await thread.dispatch(UserMessage(content=f"Never ship crate {n}-{n * 7} before inspector {n * 31} signs it."))
    text = await brief_text(thread, max_tokens=200)
    assert 100 < len(text) < 1_200
    assert "Never ship crate" in text


async def test_without_anything_said_it_is_empty(engine: Engine, thread: Thread) -> None:
    """A thread that is not there is an error."""
    assert "" == await brief_text(thread)
    with pytest.raises(errors.ThreadNotFound):
        await brief_text(engine.thread("nowhere"))


async def test_its_heading_names_everybody_whose_words_are_below_it(thread: Thread) -> None:
    """The agent too, from its first report or pin on: its words do not stand as what the user said."""
    await thread.dispatch(UserMessage(content=RULE))
    assert "What the user said and what still holds of it, in their words:" in await brief_text(thread)
    for n in range(12):
        call = ToolCall(id=f"c{n}", name="count", arguments="{}")
        await thread.dispatch_all([LlmToolCall(calls=(call,)), ToolResult(call_id=call.id, content=f"{n} parcels")])
    await thread.dispatch(LlmTextResponse(content="The depot in Graz holds 4,711 parcels, 12 of them damaged."))
    text = await brief_text(thread)
    assert "You said: The depot in Graz holds 4,711 parcels" in text
    assert text.startswith("[Brief] What the user and you said and what still holds of it, in these words:")


async def test_what_an_agent_pinned_is_not_what_people_said(thread: Thread) -> None:
    """Nor among several speakers."""
    await thread.dispatch_all(
        [UserMessage(content=RULE, name="Ann"), UserMessage(content="Never sell it.", name="Ben")]
    )
    await thread.pin("The audit is in May.", by_agent=True)
    assert (await brief_text(thread)).startswith("[Brief] What Ann, Ben and you said")
