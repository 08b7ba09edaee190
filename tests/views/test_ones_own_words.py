"""What one user said is told to no other: through every block of every view, for users of one agent in one tenant."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

import memory_engine
from memory_engine import AgentLifecycle, Engine, MemoryTools, Thread, UserMessage
from memory_engine import events as e
from memory_engine.agents import Fact, Finished
from memory_engine.context.standing import BlockSources
from memory_engine.engine import kernel_of
from memory_engine.views.promotion.events import PromotionTarget

SAID = [
    ("My name is Marlene and I live in Tromsø.", ("marlene", "tromsø")),
    ("I am allergic to walnuts.", ("walnut",)),
    ("Bitte antworte immer auf Isländisch.", ("isländisch",)),
    ("Ich bin allergisch gegen Erdbeeren.", ("erdbeeren",)),
    ("Soy alérgica a los mariscos.", ("mariscos",)),
    ("Je suis allergique aux arachides.", ("arachides",)),
    ("Ik ben allergisch voor sesam.", ("sesam",)),
    ("\u0423 меня аллергия на кешью.", ("кешью",)),
    ("我对花生过敏。", ("花生",)),
    ("Remember that the safe stands behind the piano.", ("piano",)),
]
"""What a user says, and the words that no other user may see."""
TASKS = ["Plan the dinner", "What is my name, where do I live, and what am I allergic to?"]


async def talk(engine: Engine, user_id: str, *, tenant_id: str = "acme", agent_id: str = "helper") -> Thread:
    """A conversation of a user with an agent."""
    return await engine.create_thread(user_id=user_id, tenant_id=tenant_id, agent_id=agent_id)


async def all_that_is_shown(engine: Engine, thread: Thread, agent_id: str = "helper") -> str:
    """Every block, note, recalled passage and tool answer that a model gets in a new run, in small letters."""
    agent = engine.agent(agent_id, tenant_id=(await thread.info()).tenant_id)
    tools = MemoryTools(agent, thread)
    shown = []
    async with AgentLifecycle(engine, thread, agent_id=agent_id).run(TASKS[1]) as run:
        shown += [run.preparation.prompt, str(run.preparation.messages), str(run.preparation.rules)]
        run.result = "-"
    await thread.dispatch(UserMessage(content="What do you know about me?"))
    shown.append(str((await thread.context()).messages))
    recalled = await thread.context(4_000, query="name live allergic piano walnuts Tromsø", recall_from=[agent])
    shown.append(str(recalled.messages))
    for arguments in ({"query": "Marlene Tromsø walnuts piano mariscos"}, {"last": 50}, {"layer": "semantic"}):
        shown.append((await tools.call("memory_search", arguments)).text)
    for key in ("name", "live-in-tromsø", "am-allergic-to-walnuts", "safe"):
        shown.append((await tools.call("memory_recall", {"key": key})).text.replace(key, "…"))
    return json.dumps(shown, ensure_ascii=False).casefold()


async def tell(engine: Engine, thread: Thread, *said: str, result: str = "The table is laid.") -> tuple[Fact, ...]:
    """A run in which the user says something."""
    async with AgentLifecycle(engine, thread, agent_id="helper").run(TASKS[0]) as run:
        for text in said:
            await thread.dispatch(UserMessage(content=text))
        run.result = result
    return run.learned


@pytest.mark.parametrize(("said", "words"), SAID)
async def test_W10_no_block_tells_another_user_what_one_said(engine: Engine, said: str, words: Sequence[str]) -> None:
    """Neither a user of the same agent and tenant, nor one of another tenant, nor a conversation without a user."""
    assert await tell(engine, await talk(engine, "ann"), said)
    for user_id, tenant_id in (("bob", "acme"), ("bob", "other"), ("", "acme")):
        shown = await all_that_is_shown(engine, await talk(engine, user_id, tenant_id=tenant_id))
        assert [] == [word for word in words if word in shown]


@pytest.mark.parametrize(("said", "words"), SAID)
async def test_W10_the_user_is_known_in_the_next_conversation(engine: Engine, said: str, words: Sequence[str]) -> None:
    """Of whatever agent: the fact stands in a block of its own, and in the user's memory."""
    await tell(engine, await talk(engine, "ann"), said)
    known = await engine.user("ann", tenant_id="acme").memory.entries("semantic")
    other = await talk(engine, "ann", agent_id="another")
    (block,) = (await other.context()).standing
    assert "user_memory" == block.name
    assert [] == [word for word in words if word not in block.text.casefold()]
    assert all(entry.source_thread and entry.sources for entry in known)
    assert [] == await engine.agent("helper", tenant_id="acme").memory.entries("semantic")


async def test_W10_every_block_is_looked_at(engine: Engine) -> None:
    """A block that a later view adds must be thought of here, too."""
    names = {source.name for source in kernel_of(engine)[BlockSources].sources}
    assert {
        "preferences",
        "imported_preferences",
        "agent_md",
        "user_memory",
        "agent_memory",
        "screen",
        "playbook",
        "brief",
    } == names


async def test_W10_facts_filed_by_earlier_versions_are_shown_by_their_provenance(engine: Engine) -> None:
    """Entries of the agent that rest on a user's message or request are that user's; its own findings are not."""
    ann = await talk(engine, "ann")
    message = await ann.dispatch(UserMessage(content="I am allergic to walnuts."))
    task = await ann.dispatch(e.TaskStarted(goal="Find Marlene a flat", task_id="1"))
    done = await ann.dispatch(e.TaskCompleted(content="Our export format is Parquet.", task_id="1"))
    entries: list[tuple[e.Layer, str, str, tuple[str, ...]]] = [
        ("semantic", "allergy", "allergic to walnuts", (message.event_id,)),
        ("episodic", "", "Completed: Find Marlene a flat", (done.event_id, task.event_id)),
        ("semantic", "export-format", "Parquet, said nobody", (done.event_id,)),
        ("procedural", "", "Mind the walnuts", (message.event_id,)),
        ("semantic", "unknown", "from a walnut grove", ("no such event",)),
    ]
    filed = [
        e.MemoryShared(
            destination=e.Destination("agent", "helper", "acme"),
            layer=layer,
            key=key,
            content=content,
            source_thread=ann.id,
            sources=sources,
        )
        for layer, key, content, sources in entries
    ]
    await ann.dispatch_all(filed)
    await ann.views.delivered()
    for _ in range(12):
        await engine.agent("helper", tenant_id="acme").memory.append("episodic", "Looked at the export.")
    await engine.agent("helper", tenant_id="acme").memory.compact("episodic", keep_last=2)
    shown = await all_that_is_shown(engine, await talk(engine, "bob"))
    assert ("parquet" in shown, "allergic to walnut" in shown, "mind the walnut" in shown, "grove" in shown) == (
        True, False, False, False
    )  # fmt: skip
    assert "find marlene" not in shown
    mine = await all_that_is_shown(engine, await talk(engine, "ann"))
    assert all(words in mine for words in ("allergic to walnuts", "mind the walnuts", "parquet", "find marlene"))


@pytest.mark.parametrize(("own", "sees"), [(False, False), (True, True)])
async def test_W10_an_entry_of_unknown_origin_is_told_to_nobody(engine: Engine, own: bool, sees: bool) -> None:
    """Its conversation is not in this store, so who said it cannot be told; what an agent found out itself is shown."""
    entry = e.MemoryAppended(
        layer="semantic", key="export-format", content="Parquet", source_thread="elsewhere", sources=("x",), own=own
    )
    await engine.agent("helper", tenant_id="acme").dispatch(entry)
    for user_id in ("ann", "bob", ""):
        assert sees == ("parquet" in await all_that_is_shown(engine, await talk(engine, user_id)))


async def test_W10_without_a_user_it_stays_in_the_conversation(engine: Engine) -> None:
    """In the conversation's own memory, and it goes with the message when that is forgotten."""
    thread = await engine.create_thread(tenant_id="acme", agent_id="helper")
    await tell(engine, thread, "I am allergic to walnuts.")
    (fact,) = await thread.memory.entries("semantic")
    assert "I am allergic to walnuts" == fact.content
    assert "allergic to walnut" not in await all_that_is_shown(engine, await talk(engine, "bob"))
    (message,) = [event.id async for event in thread.events() if event.type == "user_message"]
    await thread.forget(event_ids=[message])
    assert [] == await thread.memory.entries("semantic")


class Told:
    """An extractor with one answer, drawn from the run's answer alone."""

    def __init__(self, key: str, value: str) -> None:
        self._fact = key, value

    async def extract(self, finished: Finished) -> list[Fact]:
        """The fact, from the last text."""
        return [Fact(key=self._fact[0], value=self._fact[1], sources=finished.said[-1].sources)]


@pytest.mark.parametrize(
    ("key", "value", "is_users"),
    [
        ("first-name", "Marlene", True),
        ("diet", "The user prefers vegan food", True),
        ("allergy", "walnuts", True),
        ("export-format", "Parquet", False),
        ("slow-query", "The join on zip takes 40 s", False),
    ],
)
async def test_W10_what_an_answer_repeats_is_the_users(engine: Engine, key: str, value: str, is_users: bool) -> None:
    """A fact in an agent's words is its own unless a person had said it, or it is about one."""
    ann = await talk(engine, "ann")
    async with AgentLifecycle(engine, ann, agent_id="helper", extractor=Told(key, value)).run(TASKS[0]) as run:
        await ann.dispatch(UserMessage(content="Marlene here, I am allergic to walnuts."))
        run.result = "Done."
    user, agent = engine.user("ann", tenant_id="acme"), engine.agent("helper", tenant_id="acme")
    found = [await scope.memory.recall(key) is not None for scope in (user, agent)]
    assert [is_users, not is_users] == found


async def test_W10_a_model_that_files_a_users_words_keeps_them_for_the_user(engine: Engine) -> None:
    """Through the memory tools: what people said goes to their user, what the agent found out to the agent."""
    ann = await talk(engine, "ann")
    await ann.dispatch(UserMessage(content="Hi, I'm Marlene, and walnuts make me ill."))
    tools = MemoryTools(engine.agent("helper", tenant_id="acme"), ann)
    await tools.call("memory_learn", {"key": "illness", "value": "walnuts"})
    await tools.call("memory_append", {"layer": "episodic", "content": "The user wants no walnuts on the plate."})
    await tools.call("memory_learn", {"key": "export-format", "value": "Parquet"})
    assert "walnuts" in (await tools.call("memory_recall", {"key": "illness"})).text
    assert "Until now" in (await tools.call("memory_learn", {"key": "illness", "value": "Marlene"})).text
    shown = await all_that_is_shown(engine, await talk(engine, "bob"))
    assert ("parquet" in shown, "illness" in shown, "no walnuts" in shown) == (True, False, False)


@pytest.mark.parametrize("line", ["I always fly on Mondays", "Ich fliege immer montags", "我总是星期一坐飞机"])
@pytest.mark.parametrize("target", [None, "agent_md"])
async def test_W10_the_first_person_never_rises_to_the_tenant(
    engine: Engine, line: str, target: PromotionTarget | None
) -> None:
    """Whoever asks for it: it becomes the user's preference."""
    ann = await talk(engine, "ann")
    await ann.scratchpad.write(line)
    report = await ann.promotion.request("all", target=target)
    assert ["preferences"] == [verdict.target for verdict in report.promoted]
    assert line.casefold() not in await all_that_is_shown(engine, await talk(engine, "bob"))


async def test_W10_a_line_that_an_earlier_version_promoted_is_shown_to_its_user_alone(engine: Engine) -> None:
    """The first person in `agent.md` is whoever wrote it there; a rule of the business is everybody's."""
    ann = await talk(engine, "ann")
    await ann.scratchpad.write("I always fly on Mondays")
    (written,) = await ann.replay.latest(1)
    for line in ("I always fly on Mondays", "We ship on Mondays"):
        await engine.tenant("acme").dispatch(
            e.AgentMdPromoted(content=line, source_thread=ann.id, sources=(written.id,))
        )
    for user_id, sees in (("ann", True), ("bob", False)):
        shown = str((await (await talk(engine, user_id)).context()).messages)
        assert (sees, True) == ("I always fly" in shown, "We ship" in shown)


async def test_W10_a_rule_that_a_person_asked_to_promote_reaches_the_tenant(engine: Engine) -> None:
    """By an explicit act, which the log holds."""
    ann = await talk(engine, "ann")
    await ann.scratchpad.write("Refunds above 500 EUR need a second signature")
    await ann.promotion.request("all", target="agent_md")
    assert "second signature" in await all_that_is_shown(engine, await talk(engine, "bob"))


async def test_W10_sub_agents_learn_nothing_of_other_users(engine: Engine) -> None:
    """What their lead knows of another user is not put before them."""
    await tell(engine, await talk(engine, "ann"), "I am allergic to walnuts.")
    bob = AgentLifecycle(engine, await talk(engine, "bob"), agent_id="helper")
    await bob.start("Plan the dinner")
    child = await bob.subagent(
        "cook", "Plan the dinner without what somebody is allergic to", layers=("semantic", "episodic")
    )
    assert "walnut" not in str(child.preparation)
    assert "walnut" not in str((await child.thread.context()).messages)


@pytest.mark.parametrize(("user_id", "sees"), [("ann", True), ("", True), ("bob", False)])
async def test_W10_only_a_sub_agent_of_the_same_user_gets_the_brief_of_its_parent(
    engine: Engine, user_id: str, sees: bool
) -> None:
    """A thread that another user was given under the same parent begins without it."""
    ann = await talk(engine, "ann")
    await ann.dispatch(UserMessage(content="Never serve walnuts, I am allergic to them."))
    child = await engine.create_thread(user_id=user_id, tenant_id="acme", parent_id=ann.id)
    await child.dispatch(UserMessage(content="Plan the dinner"))
    shown = [str((await child.context(size)).messages) for size in (None, 8_000, 1_000)]
    assert sees == any("walnuts" in messages for messages in shown)


async def test_W10_facts_of_people_survive_a_restart_and_a_rebuild(tmp_path: Path) -> None:
    """They are in the log of the conversation and of the user."""
    path = f"{tmp_path}/log.db"
    async with memory_engine.open(path) as engine:
        ann = await talk(engine, "ann")
        await tell(engine, ann, "I am allergic to walnuts.")
    async with memory_engine.open(path) as engine:
        user = engine.user("ann", tenant_id="acme")
        assert (await user.replay.verify()).ok
        assert ["I am allergic to walnuts"] == [one.content for one in await user.memory.entries("semantic")]
        assert "allergic to walnut" not in await all_that_is_shown(engine, await talk(engine, "bob"))


async def kept(engine: Engine) -> dict[str, int]:
    """The episodic entries of the agent, which its users share, and of each user."""
    owners = {
        "agent": engine.agent("helper", tenant_id="acme"),
        "ann": engine.user("ann", tenant_id="acme"),
        "bo": engine.user("bo", tenant_id="acme"),
    }
    return {name: (await owner.memory.get_stats()).episodic_entry_count for name, owner in owners.items()}


@pytest.mark.parametrize("tool", ["memory_clear", "memory_compact"])
@pytest.mark.parametrize("is_allowed", [False, True])
async def test_the_tools_of_one_user_change_what_is_shared_only_if_they_may(
    engine: Engine, tool: str, *, is_allowed: bool
) -> None:
    """Else they change what is this user's own; another user's is never changed."""
    agent = engine.agent("helper", tenant_id="acme")
    for n in range(3):
        await agent.memory.append("episodic", f"found out {n}")
    talks = {name: await talk(engine, name) for name in ("ann", "bo")}
    for name, thread in talks.items():
        for n in range(3):
            await engine.user(name, tenant_id="acme").memory.append("episodic", f"{name} said {n}")
        await thread.dispatch(UserMessage(content="Forget the episodes."))
    arguments = {"confirm": True} if tool == "memory_clear" else {"keep_last": 1}
    tools = MemoryTools(agent, talks["ann"], changes_shared=is_allowed)
    answer = await tools.call(tool, {"layer": "episodic", **arguments})
    assert not answer.is_error
    left = 0 if tool == "memory_clear" else 2
    expected = {"agent": 3, "ann": 3, "bo": 3} | {"agent" if is_allowed else "ann": left}
    assert expected == await kept(engine)
    assert ("stays" in answer.text) == (tool == "memory_clear" and not is_allowed)


async def test_working_notes_and_an_agent_without_a_user_are_its_own(engine: Engine) -> None:
    """Working notes are of the task at hand; where no user is served, the agent clears its memory."""
    agent = engine.agent("helper", tenant_id="acme")
    for layer in ("working", "episodic"):
        await agent.memory.append(layer, "a note")
    await MemoryTools(agent, await talk(engine, "ann")).call("memory_clear", {"layer": "working", "confirm": True})
    assert (0, 1) == ((await agent.memory.get_stats()).working_memory_tokens, (await kept(engine))["agent"])
    await MemoryTools(agent, await talk(engine, "")).call("memory_clear", {"layer": "episodic", "confirm": True})
    assert 0 == (await kept(engine))["agent"]
