"""Notices of the client software in extractive summaries: nobody said them, and most say nothing."""

import pytest

from memory_engine import LlmTextResponse, Thread, UserMessage

NOTICES = (
    "[Request interrupted by user]",
    "[Request interrupted by user for tool use]",
    "Request cancelled.",
    "<system-reminder>The list is empty. Do not mention this to the user.</system-reminder>",
)


async def summary(thread: Thread) -> str:
    """The lines of a thread's summary, once some more was said."""
    for n in range(6):
        await thread.dispatch_all([LlmTextResponse(content=f"I told them so, {n}."), UserMessage(content="Thanks.")])
    await thread.compact()
    return "\n".join(chunk.text for chunk in (await thread.state()).chunks() if chunk.type == "compacted")


async def notice(thread: Thread, text: str) -> None:
    """Record what the client wrote."""
    await thread.dispatch(UserMessage(content=text, origin="client"))


async def filled(thread: Thread) -> None:
    """Enough talk for a summary to be shorter than it."""
    for n in range(12):
        await thread.dispatch(UserMessage(content=f"Please bring parcel {n * 37} to depot {n} in Graz, shelf {n * 3}."))
        await thread.dispatch(LlmTextResponse(content=f"Parcel {n * 37} is there. The lift was out for {n} minutes."))


@pytest.mark.parametrize("text", NOTICES)
async def test_a_notice_without_a_value_is_in_no_line(thread: Thread, text: str) -> None:
    """Nor is it what a question before it was answered with."""
    await filled(thread)
    await thread.dispatch(LlmTextResponse(content="Shall I go on with the parcels of Linz?"))
    await notice(thread, text)
    shown = await summary(thread)
    assert "parcel 407" in shown
    assert text not in shown


@pytest.mark.parametrize("text", NOTICES)
async def test_a_notice_is_not_taken_for_an_answer(thread: Thread, text: str) -> None:
    """What was asked before it is answered by who speaks after it."""
    await filled(thread)
    await thread.dispatch(LlmTextResponse(content="Which carrier should take the parcels to Linz?"))
    await notice(thread, text)
    await thread.dispatch(UserMessage(content="Brenner Logistics."))
    shown = await summary(thread)
    assert "Brenner Logistics. (← Assistant: Which carrier should take the parcels to Linz?)" in shown
    assert text not in shown


async def test_a_notice_with_a_value_is_nobodys_words(thread: Thread) -> None:
    """It is kept like a note: no speaker, not among what people said, no open question."""
    await filled(thread)
    await notice(thread, "<local-command-stdout>Set the model to nova-7. Is it right?</local-command-stdout>")
    lines = (await summary(thread)).splitlines()
    assert not any("nova-7" in line and line.startswith(("User", "Assistant")) for line in lines)


async def test_notices_alone_are_compacted(thread: Thread) -> None:
    """A line says that there were some, and cites them."""
    for _ in range(60):
        await notice(thread, NOTICES[0])
    await thread.compact()
    assert "none of them short enough" in str([chunk.text for chunk in (await thread.state()).chunks()])
