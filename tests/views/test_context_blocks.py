"""Standing blocks: what holds for the user, the tenant and the agent stands in every context of theirs."""

import json

import pytest

import memory_engine
from memory_engine import Context, ContextPolicy, EngineConfig, Plugin, Thread
from memory_engine import events as e
from memory_engine.context.standing import Situation, StandingBlock, StandingLine
from memory_engine.thread import handle_of

ASKED = "Where is the parcel for the Millers?"


def text(context: Context) -> str:
    """All that the messages say."""
    return json.dumps(context.messages, ensure_ascii=False)


async def talk(engine: memory_engine.Engine, user_id: str = "", tenant_id: str = "", agent_id: str = "") -> Thread:
    """A conversation with one question."""
    thread = await engine.create_thread("t", user_id=user_id, tenant_id=tenant_id, agent_id=agent_id)
    await thread.dispatch_all([e.SessionStarted(content="Be kind."), e.UserMessage(content=ASKED)])
    return thread


async def test_preferences_of_the_user_are_in_every_context() -> None:
    """They stand after the instructions, as instructions, with the value that holds now."""
    async with memory_engine.open(":memory:") as engine:
        thread = await talk(engine, user_id="u1", tenant_id="acme")
        preferences = engine.user("u1", tenant_id="acme").preferences
        await preferences.update("verbosity", "verbose")
        await preferences.update("tone", "formal", reason="asked for it twice")
        await preferences.update("verbosity", "concise")
        context = await thread.context(1_000)
        said = "Preferences of the user, to be followed:\n- tone: formal (asked for it twice)\n- verbosity: concise"
        assert [("system", "Be kind."), ("system", said), ("user", ASKED)] == [
            (m["role"], m["content"]) for m in context.messages
        ]
        assert (["preferences"], True) == ([block.name for block in context.standing], context.spent.standing > 10)
        other = await engine.create_thread("o", user_id="u2", tenant_id="acme")
        assert "concise" not in text(await other.context())


async def test_a_past_context_has_the_preferences_of_then() -> None:
    """A thread as it was is shown with the other threads as they were."""
    async with memory_engine.open(":memory:") as engine:
        thread = await talk(engine, user_id="u1")
        preferences = engine.user("u1").preferences
        await preferences.update("verbosity", "verbose")
        await thread.dispatch(e.LlmTextResponse(content="In Dyer Street."))
        seq = await handle_of(thread).last_seq()
        await preferences.update("verbosity", "concise")
        await thread.dispatch(e.UserMessage(content="Thanks"))
        assert "verbose" in text(await (await thread.at(seq)).context())
        assert "verbosity" not in text(await thread.context(at=1))
        assert "concise" in text(await thread.context())


async def test_the_tenants_agent_md_and_the_agents_memory_are_in() -> None:
    """Both in order, what changes less often first."""
    async with memory_engine.open(":memory:") as engine:
        thread = await talk(engine, user_id="u1", tenant_id="acme", agent_id="support")
        await engine.tenant("acme").agent_md.upload("# House rules\n\nNever promise a day of delivery.\n")
        memory = engine.agent("support", tenant_id="acme").memory
        await memory.learn("carrier", "Parcels of the Millers go with Swift.")
        await memory.append("procedural", "Ask for the order number.", condition="a parcel is sought")
        context = await thread.context(1_000)
    assert ["agent_md", "agent_memory"] == [block.name for block in context.standing]
    assert "From agent.md:\n# House rules\nNever promise a day of delivery." == context.messages[1]["content"]
    known = "- carrier: Parcels of the Millers go with Swift.\n- a parcel is sought: Ask for the order number."
    assert str(context.messages[2]["content"]).endswith(f"What you know and go by:\n{known}")


async def test_a_playbook_that_fits_stands_before_the_question() -> None:
    """It is found by the message that is being worked on."""
    async with memory_engine.open(":memory:") as engine:
        thread = await talk(engine, user_id="u1")
        await engine.user("u1").playbooks.save("find_parcel", user_query="Where is the parcel for the Smiths?")
        await engine.user("u1").playbooks.save("bake", user_query="Please bake a cake with cherries")
        messages = (await thread.context(1_000)).messages
    assert "Playbook for the flow find_parcel" in str(messages[-2]["content"])
    assert ASKED == messages[-1]["content"]
    assert "bake" not in str(messages)


async def test_the_screen_stays_when_its_message_is_out_of_the_window() -> None:
    """Once only: where the message that told of it is in, that is enough."""
    async with memory_engine.open(":memory:", config=EngineConfig(compaction=NEVER)) as engine:
        thread = await engine.create_thread("t")
        await thread.screen.inject("The page of order A-17, with the button Refund.")
        await thread.dispatch(e.UserMessage(content=ASKED))
        assert 1 == text(await thread.context(600)).count("order A-17")
        for n in range(30):
            await thread.dispatch(e.UserMessage(content=f"message {n} " + "x" * 200))
        assert 1 == text(await thread.context(600)).count("order A-17")


NEVER = memory_engine.CompactionPolicy(enabled=False)


async def test_blocks_keep_to_their_shares() -> None:
    """The newest lines are in, and how many are not is said."""
    async with memory_engine.open(":memory:") as engine:
        thread = await talk(engine, user_id="u1")
        for n in range(200):
            await engine.user("u1").preferences.update(f"preference_{n:03}", "x" * 40)
        context = await thread.context(2_000)
        (block,) = context.standing
        assert (True, 200) == (0 < len(block.lines) < 20, len(block.lines) + block.left_out)
        assert (f"{block.left_out} earlier line(s) left out" in text(context), "preference_199" in text(context)) == (
            True,
            True,
        )
        assert context.spent.standing <= 2_000 * 0.1 + 20
        more = await thread.context(2_000, policy=ContextPolicy(blocks={"preferences": 0.5}))
        assert more.spent.standing > 3 * context.spent.standing


async def test_a_policy_says_which_blocks_are_in_and_in_which_order() -> None:
    """By their names; a name that nothing contributes is refused."""
    async with memory_engine.open(":memory:") as engine:
        thread = await talk(engine, user_id="u1", tenant_id="acme")
        await engine.user("u1", tenant_id="acme").preferences.update("verbosity", "concise")
        await engine.tenant("acme").agent_md.upload("Be brief.")
        assert () == (await thread.context(policy=ContextPolicy(blocks=()))).standing
        turned = await thread.context(policy=ContextPolicy(blocks=("agent_md", "preferences")))
        assert ["agent_md", "preferences"] == [block.name for block in turned.standing]
        with pytest.raises(ValueError, match="there is no block 'weather'; there are preferences, agent_md"):
            await thread.context(policy=ContextPolicy(blocks=("weather",)))


async def test_why_leads_each_line_back_to_its_event() -> None:
    """Through the thread that it comes from."""
    async with memory_engine.open(":memory:") as engine:
        thread = await talk(engine, user_id="u1")
        await engine.user("u1").preferences.update("verbosity", "concise")
        why = await thread.replay.why(await thread.context())
        block = next(child for child in why.children if child.title.startswith("standing: preferences"))
        assert [("user:u1", 1)] == [(child.thread_id, child.seq) for child in block.children]


async def test_a_plugin_contributes_a_block() -> None:
    """One function, and it stands in every context."""
    plugin = Plugin("weather")

    @plugin.context_block("weather", place="turn")
    async def weather(situation: Situation) -> StandingBlock:
        return StandingBlock(
            name="weather", heading="Weather:", lines=(StandingLine(f"- rain, asked: {situation.question}"),)
        )

    async with memory_engine.open(":memory:", plugins=[plugin]) as engine:
        thread = await talk(engine)
        messages = (await thread.context(500)).messages
        assert f"[Weather] Weather:\n- rain, asked: {ASKED}" == messages[-2]["content"]
        await engine.user("u1").preferences.update("verbosity", "concise")
        assert () == (await engine.thread("user:u1").context()).standing


async def test_blocks_are_in_a_context_that_recalls() -> None:
    """Their words are not recalled a second time."""
    async with memory_engine.open(":memory:") as engine:
        thread = await talk(engine, user_id="u1")
        await engine.user("u1").preferences.update("parcel_carrier", "Swift, for parcels of the Millers")
        context = await thread.context(800, query=ASKED, recall_from=[engine.user("u1")])
        assert 1 == text(context).count("Swift, for parcels of the Millers")
