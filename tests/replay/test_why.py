"""What is behind a chunk, a view's row or a context: down to the events, through compactions and across threads."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

import memory_engine
from memory_engine import (
    Chunk,
    CompactionPolicy,
    ContextPolicy,
    Engine,
    EngineConfig,
    ImagePart,
    TextPart,
    Thread,
    errors,
)
from memory_engine import events as e
from memory_engine.agents import AgentLifecycle
from memory_engine.compaction.base import CompactionContext, CompactionResult
from memory_engine.context.builder import FRAME
from memory_engine.core.operations import Add
from memory_engine.core.reduction import ReduceContext, Reduction
from memory_engine.core.state import StateView
from memory_engine.errors.effects import Usage
from memory_engine.events import Event, SummaryLine
from memory_engine.plugins import Plugin
from memory_engine.replay import explanation, lineage, trace
from memory_engine.replay.explanation import Why
from memory_engine.replay.why import why
from memory_engine.store import snapshots
from memory_engine.thread import handle_of
from tests.conversations import NEVER, SMALL, call, note, opened, say, turns
from tests.scripted_compactors import Scripted, a_line_each

MERGING = CompactionPolicy(threshold=4, tokens_min=0, keep_recent=0, summary_tokens_max=1)
PLUGIN = Plugin("making")


@PLUGIN.event("why_made")
class Made(Event):
    """A chunk that says that it comes from these."""

    parents: tuple[str, ...]


@PLUGIN.reducer(Made)
def reduce_made(_view: StateView, event: Made, ctx: ReduceContext) -> Reduction:
    """The chunk."""
    chunk = Chunk(id=ctx.new_id(), type="made", content="made", parent_ids=event.parents)
    return Reduction(operations=(Add(chunk.id),), chunks=(chunk,))


def nodes(tree: Why, kind: str) -> list[Why]:
    """The nodes of a kind, in the order of the tree, without those that refer back."""
    return [node for node in tree.walk() if node.kind == kind and not node.facts.get("above")]


def node(tree: Why, node_id: str) -> Why:
    """The one chunk with this id that stands whole in the tree."""
    [found] = [one for one in nodes(tree, "chunk") if one.id == node_id]
    return found


def priced(chunks: Sequence[Chunk], _context: CompactionContext) -> CompactionResult:
    """A summary by a model that costs something."""
    lines = tuple(SummaryLine(section="key_information", text=chunk.text[:5], sources=(chunk.id,)) for chunk in chunks)
    return CompactionResult(lines=lines, model="some-model", usage=Usage(100, 20, 0.25))


# through compactions


async def test_a_summary_leads_to_all_its_events() -> None:
    """Through summaries of summaries, each original once and in order, down to the event that brought it."""
    async with opened(Scripted(), MERGING) as engine:
        thread = await engine.create_thread()
        made = await say(thread, turns(16))
        [summary] = (await thread.state()).chunks()
        tree = await thread.replay.why(summary.id)
        originals = [one for one in nodes(tree, "chunk") if one.facts["type"] != "compacted"]
        assert sorted(made) == sorted(one.id for one in originals)
        said = [event.seq async for event in thread.events() if event.type in ("user_message", "llm_text_response")]
        assert said == sorted(one.seq for one in nodes(tree, "event"))
        assert 4 == len(nodes(tree, "compaction"))
        texts = {one.id: one.text for one in originals}
        assert {chunk_id: (await thread.replay.chunk(chunk_id)).text for chunk_id in made} == texts


async def test_a_compaction_tells_who_made_it_of_what() -> None:
    """Trigger, compactor, model, cost, tokens, when it began and ended; its lines with what they cite."""
    async with opened(Scripted(priced), SMALL) as engine:
        thread = await engine.create_thread()
        made = await say(thread, turns(4))
        tree = await thread.replay.why("6.0")
        [compaction] = tree.children
        facts = compaction.facts
        assert ("auto", "scripted", "some-model") == (facts["trigger"], facts["compactor"], facts["model"])
        assert (0.25, {"input_tokens": 100, "output_tokens": 20}) == (facts["cost_usd"], facts["usage"])
        assert (5, 6) == (facts["started_seq"], facts["completed_seq"])
        before, after = facts["tokens_before"], facts["tokens_after"]
        assert isinstance(before, int)
        assert isinstance(after, int)
        assert before > after > 0
        assert ["reduce_compaction_completed"] == facts["reducers"]
        lines = [child for child in compaction.children if child.kind == "line"]
        assert [([chunk_id], "word") for chunk_id in made] == [(line.facts["cites"], line.text[:4]) for line in lines]
        assert made == [child.id for child in compaction.children if child.kind == "chunk"]


async def test_what_is_not_live_tells_what_took_it_away() -> None:
    """Covered, replaced, removed: the event, and what stands there now; live is what is in the state."""
    async with opened(Scripted(), NEVER) as engine:
        thread = await engine.create_thread()
        await say(thread, [e.TodoSet(items=(e.TodoItem("a", "Call"), e.TodoItem("b", "Write"))), *turns(2)])
        await say(thread, [e.TodoCompleted(id="a"), e.TodoDeleted(id="b"), e.ExternalInject(content="x")])
        await thread.compact()
        gone = {chunk_id: (await thread.replay.why(chunk_id)).facts for chunk_id in ("1.1", "1.2", "2.0", "4.0")}
        assert [("todo_completed", ["4.0"]), ("todo_deleted", None), ("compaction_completed", ["8.0"])] == [
            (facts["removed_by"]["type"], facts.get("replaced_by"))  # type: ignore[index]  # a mapping
            for facts in (gone["1.1"], gone["1.2"], gone["2.0"])
        ]
        assert [False, False, False, True] == [facts["live"] for facts in gone.values()]
        assert (await why(handle_of(await thread.at(2)), "2.0")).facts["live"]


async def test_versions_lead_back_to_the_first() -> None:
    """Each once, also where a version names all that were before it."""
    async with opened(Scripted(), NEVER) as engine:
        thread = await engine.create_thread()
        await say(thread, [e.TodoSet(items=(e.TodoItem("a", "Call"),)), e.TodoUpdated(id="a", text="Write")])
        await say(thread, [e.TodoUpdated(id="a", text="Ring"), e.TodoCompleted(id="a")])
        tree = await thread.replay.why("4.0")
        assert ["4.0", "1.1", "2.0", "3.0"] == [one.id for one in nodes(tree, "chunk")]
        assert ["Ring", "Call", "Write", "Ring"] == [one.text for one in nodes(tree, "chunk")]
        assert {"earlier version"} == {one.facts["relation"] for one in nodes(tree, "chunk")[1:]}


async def test_what_an_undone_compaction_restored() -> None:
    """A new version of the original, which tells that the compaction took it away."""
    async with opened(Scripted(), NEVER) as engine:
        thread = await engine.create_thread()
        made = await say(thread, turns(3))
        await thread.compact()
        await thread.compaction.undo()
        restored = [chunk.id for chunk in (await thread.state()).chunks()]
        tree = await thread.replay.why(restored[0])
        original = node(tree, made[0])
        assert ("earlier version", ["5.0"]) == (original.facts["relation"], original.facts["replaced_by"])
        assert (True, 5) == (tree.facts["live"], original.facts["removed_by"]["seq"])  # type: ignore[index]
        assert restored == (await thread.replay.why("5.0")).facts["replaced_by"]


async def test_shared_nodes_stand_once() -> None:
    """What two chunks come from is whole at the first, and named at the second."""
    async with memory_engine.open(":memory:", plugins=[PLUGIN], config=EngineConfig(compaction=NEVER)) as engine:
        thread = await engine.create_thread()
        await say(thread, [*turns(1), Made(parents=("1.0",)), Made(parents=("1.0", "2.0", "2.0"))])
        tree = await thread.replay.why("3.0")
        again = [one for one in tree.walk() if one.facts.get("above")]
        assert [("chunk", "1.0", "", ())] == [(one.kind, one.id, one.text, one.children) for one in again]
        assert ["3.0", "1.0", "2.0"] == [one.id for one in nodes(tree, "chunk")]


async def test_a_chunk_may_name_any_parent() -> None:
    """What never was is passed over, or named as unread; nothing raises."""
    async with memory_engine.open(":memory:", plugins=[PLUGIN], config=EngineConfig(compaction=NEVER)) as engine:
        thread = await engine.create_thread()
        await thread.dispatch(Made(parents=("x", "", "7.0", "²." + "9" * 5000, "1.0", "0.1", "1.7")))
        tree = await thread.replay.why("1.0")
        assert ["1.0"] == [one.id for one in nodes(tree, "chunk") if not one.facts.get("cut")]
        assert json.dumps(tree.as_data())


@pytest.mark.parametrize("chunk_id", ["99.0", "1.1", "foo", "", "1.0.0", "-1.0", "²", "1." + "9" * 5000, "01.0"])
async def test_what_never_was_is_unknown(chunk_id: str) -> None:
    """A typed error for any other name."""
    async with opened(Scripted(), NEVER) as engine:
        thread = await engine.create_thread()
        await say(thread, turns(2))
        with pytest.raises(errors.UnknownChunk):
            await thread.replay.why(chunk_id)
        with pytest.raises(errors.UnknownChunk):
            await why(handle_of(await thread.at(1)), "2.0")


async def test_deep_and_wide_trees_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where too much lies behind, the tree says so, and where to go on."""
    async with opened(Scripted(), MERGING) as engine:
        thread = await engine.create_thread()
        made = await say(thread, turns(40))
        [summary] = (await thread.state()).chunks()
        monkeypatch.setattr(explanation, "DEPTH_MAX", 4)
        tree, asked = await thread.replay.why(summary.id), 1
        while made[0] not in [one.id for one in tree.walk()]:
            [below] = [one for one in tree.walk() if one.facts.get("cut") and one.facts["type"] == "compacted"]
            tree, asked = await thread.replay.why(below.id), asked + 1
        assert asked > 2
        monkeypatch.setattr(trace, "CHUNKS_MAX", 7)
        few = await thread.replay.why(summary.id)
        assert 7 == len([one for one in nodes(few, "chunk") if "live" in one.facts])


async def test_levels_are_read_as_they_are_opened() -> None:
    """A tree of few chunks is the whole one as far as it goes, and what it leaves is there when it is asked for."""
    async with opened(Scripted(), MERGING) as engine:
        thread = await engine.create_thread()
        await say(thread, turns(40))
        [summary] = (await thread.state()).chunks()
        whole = {one.id: one for one in nodes(await thread.replay.why(summary.id), "chunk")}
        few = nodes(await thread.replay.why(summary.id, chunks_max=12), "chunk")
        assert 12 == len([one for one in few if one == whole[one.id] or one.facts == whole[one.id].facts])
        left = [one for one in few if "cut" in one.facts]
        assert left
        for one in left:
            opened_later, inside = await thread.replay.why(one.id), whole[one.id]
            of_relation = {**opened_later.facts, "relation": inside.facts["relation"]}
            assert (inside.title, inside.text, inside.facts) == (opened_later.title, opened_later.text, of_relation)


@pytest.mark.parametrize("scanned", [0, 4, 1_024])
async def test_when_a_chunk_went_is_found_however_far_away(monkeypatch: pytest.MonkeyPatch, scanned: int) -> None:
    """By halving alone, by snapshots and by looking through the events: each time the event that took it away."""
    monkeypatch.setattr(lineage, "SCANNED", scanned)
    monkeypatch.setattr(snapshots, "EVERY", 5)
    async with opened(Scripted(), MERGING) as engine:
        thread = await engine.create_thread()
        await thread.dispatch(e.TodoSet(items=(e.TodoItem("ship", "Ship order 17"), e.TodoItem("call", "Call back"))))
        made = [*await say(thread, turns(12)), "1.0", "1.1"]
        await thread.dispatch(e.ThreadCleared(reason="done"))
        seen = {seq: await thread.state(at=seq) for seq in range(await handle_of(thread).last_seq() + 1)}
        gone = {one: min(seq for seq in seen if seq > int(one.split(".")[0]) and seen[seq].get(one) is None)
                for one in made if seen[max(seen)].get(one) is None}  # fmt: skip
        assert len(gone) > 12
        assert gone == await lineage.removed_at(handle_of(await thread.at(max(seen))), list(gone))


# what was forgotten


@pytest.mark.parametrize("count", [2, 4, 8])
async def test_what_was_forgotten_is_named_and_not_told(count: int) -> None:
    """By chunk or by event, in summaries and older versions of them: no word of it is in the tree."""
    async with opened(Scripted(a_line_each), MERGING) as engine:
        thread = await engine.create_thread()
        made = await say(thread, turns(count))
        [first] = [event.id async for event in thread.events(upto=1)]
        await thread.forget(chunk_ids=[made[1]], reason="asked to")
        await thread.forget(event_ids=[first])
        trees = [await thread.replay.why(chunk.id) for chunk in (await thread.state()).chunks()]
        trees += [await thread.replay.why(made[1]), await thread.why(await thread.context())]
        assert not [word for tree in trees for word in ("word1", "word2") if word in _texts(tree)]
        assert "asked to" == (await thread.replay.why(made[1])).facts["forgotten"]["reason"]  # type: ignore[index]
        assert count == 2 or any(one.facts.get("redacted") for tree in trees for one in tree.walk())


def _texts(tree: Why) -> str:
    return " ".join(one.text for one in tree.walk() if one.id)


# links


async def test_causes_in_the_thread_and_elsewhere() -> None:
    """The event that caused one, also in another thread; one that is nowhere is said to be missing."""
    async with opened(Scripted(), NEVER) as engine:
        parent, child = await engine.create_thread("p"), await engine.create_thread("c")
        asked = await parent.dispatch(e.UserMessage(content="go"), correlation_id="run")
        await child.dispatch(e.TaskStarted(goal="do"), causation_id=asked.event_id, correlation_id="run")
        done = await child.dispatch(e.TaskStarted(goal="do it"), event_id="two")
        await child.dispatch(e.UserMessage(content="x"), causation_id=done.event_id)
        await child.dispatch(e.UserMessage(content="y"), causation_id="nowhere")
        facts = nodes(await child.replay.why("1.0"), "fact")
        assert [("p", 1, "caused by")] == [(one.thread_id, one.seq, one.facts["relation"]) for one in facts]
        assert [("p", 1)] == [place for place in (await child.replay.why("1.0")).events() if place[0] == "p"]
        assert ["made by", "caused by"] == [
            one.facts["relation"] for one in nodes(await child.replay.why("3.0"), "event")
        ]
        assert [None, "nowhere"] == [
            one.facts.get("missing") and one.id for one in nodes(await child.replay.why("4.0"), "event")
        ]


async def promoted(engine: Engine) -> Thread:
    """A conversation whose snippets rose to the user's preferences and to the tenant's `agent.md`."""
    thread = await engine.create_thread("t", user_id="u", tenant_id="acme")
    await thread.dispatch(e.UserMessage(content="How was the week?"))
    await thread.scratchpad.write("Revenue dips every Sunday")
    await thread.scratchpad.write("The user prefers short answers")
    await thread.promotion.report_saved("r")
    await thread.views.delivered()
    return thread


async def test_facts_lead_to_the_thread_that_they_came_from(engine: Engine) -> None:
    """A preference and a line of `agent.md`: the delivery, the verdict, the snippet that was judged."""
    await promoted(engine)
    user, tenant = engine.user("u", tenant_id="acme"), engine.tenant("acme")
    [key] = await user.views.read("preferences")
    [line] = await tenant.views.read("agent_md")
    for owner, row in ((user, f"view:preferences/{key}"), (tenant, f"view:agent_md/{line}")):
        tree = await owner.replay.why(row)
        assert ("row", row) == (tree.kind, tree.id)
        assert {"t"} == {one.thread_id for one in nodes(tree, "fact")}
        types = [one.facts["type"] for one in nodes(tree, "event")]
        assert {"promotion_decided", "scratchpad_written"} <= set(types)
        [snippet] = [one for one in nodes(tree, "chunk") if one.facts["type"] == "snippet"]
        assert snippet.text in ("Revenue dips every Sunday", "The user prefers short answers")
        assert snippet.facts["live"]


async def test_a_playbook_leads_to_its_flow(engine: Engine) -> None:
    """From the user's row to the conversation in which the flow ran."""
    thread = await engine.create_thread("t", user_id="u")
    await thread.views.flows.completed(flow_dact="compare", user_query="Compare", tool_calls=[])
    await thread.views.flows.feedback(satisfied=True)
    await thread.views.delivered()
    user = engine.user("u")
    [key] = await user.views.read("playbooks")
    tree = await user.replay.why(f"view:playbooks/{key}")
    assert {("t", "flow_completed")} <= {(one.thread_id, one.facts["type"]) for one in nodes(tree, "event")}


async def test_recalled_memory_leads_to_its_entries(engine: Engine) -> None:
    """A note that an agent was given: to the entries, in the agent's own thread."""
    await engine.agent("analyst").memory.learn("dataset-format", "CSV, semicolon-delimited")
    thread = await engine.create_thread("t", user_id="u1")
    await AgentLifecycle(engine, thread, agent_id="analyst").start("Import the dataset of May")
    [recalled] = [chunk for chunk in (await thread.state()).chunks() if chunk.type == "recalled"]
    tree = await thread.replay.why(recalled.id)
    assert {"memory_appended"} <= {one.facts["type"] for one in nodes(tree, "event")}
    assert "agent:analyst" in {one.thread_id for one in nodes(tree, "fact")}


async def test_no_other_tenant_is_read(engine: Engine) -> None:
    """Whatever thread an event names: that of another tenant is not opened, and its event is missing."""
    secret = await engine.create_thread("secret", tenant_id="globex")
    told = await secret.dispatch(e.UserMessage(content="the code is swordfish"), correlation_id="c")
    thread = await engine.create_thread("t", tenant_id="acme", user_id="u")
    entry = e.MemoryAppended(layer="semantic", content="x", key="k", source_thread="secret", sources=(told.event_id,))
    await thread.dispatch(entry, causation_id=told.event_id, correlation_id="c")
    await thread.dispatch(e.UserMessage(content="x"), causation_id=told.event_id, correlation_id="c")
    trees = [await thread.replay.why("2.0")]
    trees += [await thread.replay.why(f"view:layers/{key}") for key in await thread.views.read("layers")]
    assert 2 == len(trees)
    for tree in trees:
        assert "swordfish" not in json.dumps(tree.as_data())
        assert any(one.facts.get("missing") for one in tree.walk())


async def test_rows_that_are_not_there(thread: Thread) -> None:
    """An unknown view, an unknown key."""
    await say(thread, turns(1))
    with pytest.raises(errors.UnknownView, match="there is no view 'nothing'"):
        await thread.replay.why("view:nothing/x")
    with pytest.raises(errors.UnknownRow, match="has no row 'a/b'"):
        await thread.replay.why("view:preferences/a/b")


# contexts


async def test_each_block_of_a_context_is_explained() -> None:
    """In order, with roles, tokens that add up, what is pinned, and what is behind: containers with what is inside."""
    async with opened(Scripted(), SMALL) as engine:
        thread = await engine.create_thread()
        await say(thread, [e.SessionStarted(content="You help."), *turns(4), e.LlmThinking(content="hm"), *turns(1)])
        await say(thread, [e.TodoSet(items=(e.TodoItem("a", "Call"),)), note("rule", "critical")])
        await thread.scratchpad.write("x is y")
        mixed = (TextPart("look"), ImagePart("http://x/y.png"))
        await say(thread, [e.UserMessage(content=mixed)])
        context = await thread.context(policy=ContextPolicy(blocks=()))
        tree = await thread.replay.why(context)
        blocks = tree.children
        assert list(context.included) == sorted((b.id for b in blocks), key=context.included.index)
        assert context.tokens == FRAME + sum(_int(block.facts["tokens"]) for block in blocks)
        roles = [role for block in blocks for role in _list(block.facts["roles"])]
        assert [message["role"] for message in context.messages] == roles
        pinned = {(await thread.replay.chunk(b.id)).type for b in blocks if b.facts["pinned"]}
        assert {"system", "external", "todo_list", "scratchpad"} == pinned
        inside = [one.facts["type"] for one in tree.walk() if one.facts.get("relation") == "inside"]
        assert {"todo_item", "snippet"} == set(inside)
        [hidden] = [block for block in blocks if block.facts.get("hidden")]
        assert "thinking" == hidden.children[0].facts["type"]


async def test_originals_that_a_summary_covers_are_explained_where_a_context_shows_them() -> None:
    """Each leads to its event, next to the summary that covers it."""
    async with opened(Scripted(), NEVER) as engine:
        thread = await engine.create_thread()
        await say(thread, turns(12))
        await thread.compact()
        covered = set[str]()
        for budget in (150, 250, 10_000):
            context = await thread.context(budget)
            covered = set(context.included) - {chunk.id for chunk in (await thread.state()).chunks()}
            tree = await thread.replay.why(context)
            assert set(context.included) <= {block.id for block in tree.children}
            said = {block.id: block.seq for block in tree.children if block.id in covered}
            assert {one: int(one.partition(".")[0]) for one in covered} == said
        assert covered


def _int(value: object) -> int:
    assert isinstance(value, int)
    return value


def _list(value: object) -> list[object]:
    assert isinstance(value, list)
    return value


async def test_what_was_cut_or_left_out_is_told() -> None:
    """A text shortened to fit is shown as it was sent; chunks that did not fit come last."""
    async with opened(Scripted(), NEVER) as engine:
        thread = await engine.create_thread()
        await say(thread, [*turns(6), *call("c1", "found " * 2000)])
        context = await thread.context(400)
        tree = await thread.replay.why(context)
        assert context.shortened
        cut = [block for block in tree.children if block.facts.get("shortened")]
        assert list(context.shortened) == [block.id for block in cut]
        assert all("characters of" in block.text for block in cut)
        left_out = tree.children[-1]
        assert ("excluded", list(context.excluded)) == (left_out.id, left_out.facts["excluded"])
        assert list(context.excluded) == [child.id for child in left_out.children]
        total = sum(_int(block.facts["tokens"]) for block in tree.children if "tokens" in block.facts)
        assert context.tokens == FRAME + total


async def test_recalled_passages_are_explained() -> None:
    """Each with its score and reason, its event and chunk, and the summary that stands for it in the context."""
    async with opened(Scripted(), SMALL) as engine:
        thread = await engine.create_thread()
        told = e.UserMessage(content="My grandmother's parrot is called Archibald" + " and so on" * 40)
        await say(thread, [told, *turns(3), *turns(1, start=9)])
        context = await thread.context(query="What is the parrot called?", policy=ContextPolicy(blocks=()))
        tree = await thread.replay.why(context)
        [block] = [child for child in tree.children if child.title.startswith("recalled")]
        assert ["user"] == block.facts["roles"]
        found = next(one for one in block.children if "Archibald" in one.text)
        assert ("passage", 1) == (found.kind, found.seq)
        assert _float(found.facts["score"]) > 0
        assert found.facts["why"]
        assert ["6.0"] == found.facts["covered_by"]
        assert ["1.0"] == [child.id for child in found.children]


def _float(value: object) -> float:
    assert isinstance(value, float)
    return value


async def test_a_context_of_the_past_and_of_a_fork() -> None:
    """What was live then, of the thread that it is of."""
    async with opened(Scripted(), SMALL) as engine:
        thread = await engine.create_thread("t")
        await say(thread, turns(3))
        fork = await thread.fork(thread_id="f")
        past = await thread.at(3)
        context = await past.context()
        await say(thread, turns(2, start=4))
        assert all(block.children[0].facts["live"] for block in (await why(handle_of(past), context)).children)
        later = (await thread.replay.why(context)).children
        assert [False] * 3 == [block.children[0].facts["live"] for block in later]
        of_fork = await thread.replay.why(await fork.context())
        assert "f" == of_fork.thread_id
        assert [True] * 3 == [block.children[0].facts["live"] for block in of_fork.children]


async def test_nothing_is_written(tmp_path: Path) -> None:
    """Of an archived thread in an engine that only reads, the file stays as it was, byte by byte."""
    path = tmp_path / "m.db"
    async with opened(Scripted(), SMALL, str(path)) as engine:
        thread = await engine.create_thread("t")
        await say(thread, turns(9))
        await thread.admin.archive()
    before = hashlib.sha256(path.read_bytes()).hexdigest()
    async with memory_engine.open(str(path), config=EngineConfig(read_only=True)) as engine:
        past = await engine.thread("t").at(9)
        assert (await why(handle_of(engine.thread("t")), "6.0")).events()
        assert (await why(handle_of(past), await past.context())).events()
    assert before == hashlib.sha256(path.read_bytes()).hexdigest()


async def test_a_recalled_passage_beyond_what_is_read_is_named(engine: Engine) -> None:
    """The summary's originals take all that may be read: the passages' chunks are named, and not held to be missing."""
    thread = await engine.create_thread("t")
    await thread.dispatch_all([e.UserMessage(content=f"town {n}: " + "We like it there. " * 20) for n in range(30)])
    await thread.compact()
    tree = await thread.replay.why(await thread.context(query="town 7"), chunks_max=5)
    parts = [node for node in tree.walk() if node.kind == "chunk" and node.facts["relation"] == "part of"]
    assert parts
    assert any("not read" in str(node.facts.get("cut")) for node in parts)
