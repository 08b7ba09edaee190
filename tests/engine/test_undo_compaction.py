"""Compactions undone: the originals come back where they stood, as what they were."""

import msgspec
import pytest

from memory_engine import (
    CompactionCompleted,
    CompactionPolicy,
    Event,
    Replacement,
    Retention,
    SessionEnded,
    UserMessage,
)
from memory_engine import events as e
from memory_engine.errors import (
    CompactionNotLive,
)
from memory_engine.events import SummaryLine
from tests.conversations import LONG, NEVER, call, log, note, opened, say, texts, turns
from tests.engine.undoing import MERGING, Boxed, rows, shape, undone_as_before, with_boxes
from tests.scripted_compactors import Scripted, a_line_each


async def test_the_originals_come_back_where_the_summary_stood() -> None:
    """Same texts, order, tokens and counts as before the compaction; each leads back to the original."""
    async with opened(Scripted(), NEVER) as engine:
        thread = await engine.create_thread()
        said = [note("rule", "critical"), *turns(2), *call("a"), *turns(1, start=3), note("aside", "disposable")]
        made = await say(thread, said)
        await undone_as_before(thread)
        restored = [chunk for chunk in (await thread.state()).chunks() if chunk.parent_ids]
        assert [(chunk_id,) for chunk_id in made[1:]] == [chunk.parent_ids for chunk in restored]


async def test_every_field_comes_back() -> None:
    """Calls, labels, response ids, statuses, mixed content: all that a chunk was."""
    async with opened(Scripted(), NEVER) as engine:
        thread = await engine.create_thread()
        image = e.ImagePart("data:image/png;base64,AA==", "image/png", "a cat")
        await say(
            thread,
            [
                UserMessage(content=(e.TextPart("look" + LONG), image), name="Ann"),
                e.LlmThinking(content="hm" + LONG, response_id="r1", signature="sig", native='{"anthropic":{}}'),
                e.LlmToolCall(calls=(e.ToolCall("c1", "look"), e.ToolCall("c2", "wait")), response_id="r1"),
                e.ToolResult(call_id="c1", content="part", name="look", final=False),
                e.ToolResult(call_id="c1", content=(e.FilePart("data:application/pdf;base64,AA=="),), name="look"),
                e.ToolError(call_id="c2", content="no", name="wait"),
                e.LlmTextResponse(content="so", response_id="r2", name="bot"),
                *turns(2),
            ],
        )
        await undone_as_before(thread)


async def test_what_came_meanwhile_stays_behind() -> None:
    """Events after the compaction keep their place after what comes back."""
    async with opened(Scripted(), NEVER) as engine:
        thread = await engine.create_thread()
        await say(thread, turns(3))
        await thread.compact()
        await say(thread, turns(2, start=4))
        await thread.compaction.undo()
        assert ["word1", "word2", "word3", "word4", "word5"] == await texts(thread)


@pytest.mark.parametrize("count", [63, 64, 65, 66, 129, 1_000])
async def test_many_come_back_in_their_order(count: int) -> None:
    """However many they are, in the old order, under order keys that stay short."""
    async with opened(Scripted(), NEVER) as engine:
        thread = await engine.create_thread()
        await thread.dispatch_all([*turns(count), note("rule", "critical")])
        await undone_as_before(thread)
        assert max(len(placed.key) for placed in (await thread.state()).placed()) <= 12


async def test_originals_stand_around_what_was_kept() -> None:
    """A CRITICAL chunk in the middle stays in the middle."""
    async with opened(Scripted(), NEVER) as engine:
        thread = await engine.create_thread()
        made = await say(thread, turns(5))
        await thread.compaction.mark_critical(made[2])
        await undone_as_before(thread)
        assert ["word1", "word2", "word3", "word4", "word5"] == await texts(thread)


async def test_the_pieces_of_several_compactors_come_back_between_each_other() -> None:
    """Where each compactor made a summary of its own, the old order comes back, not one piece after the other."""
    tools = Scripted(name="tools", takes=lambda chunk: bool(chunk.calls or chunk.call_id))
    async with opened(Scripted(name="words"), NEVER) as engine:
        engine.register_compactor(tools)
        thread = await engine.create_thread()
        await say(thread, [*turns(1), *call("a"), *turns(1, start=2), *call("b")])
        await undone_as_before(thread)


@pytest.mark.parametrize("scrap", [0, 1, 2])
async def test_what_was_dropped_comes_back_too(scrap: int) -> None:
    """DISPOSABLE chunks that left nothing behind stand where they stood, also first of all and alone."""
    async with opened(Scripted(), CompactionPolicy(threshold=4, tokens_min=0, keep_recent=0)) as engine:
        thread = await engine.create_thread()
        events: list[Event] = [note("a", "critical"), note("b", "compressible")]
        events.insert(scrap, note("scrap", "disposable"))
        await say(thread, events)
        scraps = [chunk.id for chunk in (await thread.state()).chunks() if chunk.retention is Retention.DISPOSABLE]
        before = shape(await thread.state())
        assert () == (await thread.compact(scraps)).covered
        assert ["a", "b"] == await texts(thread)
        await thread.compaction.undo()
        assert before == shape(await thread.state())


async def test_a_dropped_chunk_that_stood_alone_comes_back_first() -> None:
    """Where nothing of the old state stands any more, it precedes all that came since."""
    async with opened(Scripted(), NEVER) as engine:
        thread = await engine.create_thread()
        await say(thread, [note("scrap", "disposable")])
        await thread.compact()
        await say(thread, turns(2))
        await thread.compaction.undo()
        assert ["scrap", "word1", "word2"] == await texts(thread)


async def test_singles_come_back_one_by_one() -> None:
    """Several summaries of one compaction, each of one chunk, are all undone."""
    async with opened(Scripted(a_line_each), NEVER) as engine:
        thread = await engine.create_thread()
        await say(thread, [note(f"note{n}", "compressible") for n in range(3)])
        await undone_as_before(thread)


async def test_undoing_all_in_reverse_order_gives_all_originals() -> None:
    """Summaries of summaries come back as summaries first, then as what they cover."""
    async with opened(Scripted(), MERGING) as engine:
        thread, plain = await engine.create_thread(), await engine.create_thread()
        for start in (1, 4, 7):
            await say(thread, turns(3, start=start))
            await say(plain, turns(3, start=start))
            await thread.compact()
        for n in (2, 1, 0):
            assert "compacted" in [chunk.type for chunk in (await thread.state()).chunks()]
            await thread.compaction.undo()
            assert [f"word{m}" for m in range(3 * n + 1, 10)] == (await texts(thread))[-9 + 3 * n :]
        assert shape(await plain.state()) == shape(await thread.state())
        with pytest.raises(CompactionNotLive, match="no compaction of this thread stands"):
            await thread.compaction.undo()


async def test_a_summary_comes_back_as_the_summary_that_it_was() -> None:
    """Undoing a merge puts the earlier summary back, and its originals are found as before."""
    async with opened(Scripted(), MERGING) as engine:
        thread = await engine.create_thread()
        made = await say(thread, turns(3))
        first = await thread.compact()
        made += await say(thread, turns(3, start=4))
        await thread.compact()
        await thread.compaction.undo()
        [earlier, *rest] = (await thread.state()).chunks()
        assert first.new_chunks == earlier.parent_ids
        assert made[:3] == [chunk.id for chunk in await thread.compaction.originals(earlier.id)]
        assert ["word4", "word5", "word6"] == [chunk.text.partition(" ")[0] for chunk in rest]


async def test_originals_of_a_later_summary_are_the_very_first() -> None:
    """What came back and was compacted again leads to the events that said it, in order."""
    async with opened(Scripted(), NEVER) as engine:
        thread = await engine.create_thread()
        made = await say(thread, turns(4))
        await thread.compact(made[:2])
        await thread.compaction.undo()
        await thread.compact()
        await thread.compaction.undo()
        report = await thread.compact()
        assert made == [chunk.id for chunk in await thread.compaction.originals(report.new_chunks[0])]


async def test_a_compactor_is_given_what_came_back_in_its_old_order_and_time() -> None:
    """A merge of what came back reads it in the order of the state, dated by the original events."""
    compactor = Scripted()
    async with opened(compactor, MERGING) as engine:
        thread = await engine.create_thread()
        made = await say(thread, turns(4))
        await thread.compact(made[:2])
        await thread.compaction.undo()
        await thread.compact()
        await say(thread, turns(2, start=5))
        await thread.compact()
        given, context = compactor.given[-1], compactor.contexts[-1]
        assert [f"word{n}" for n in range(1, 7)] == [chunk.text.partition(" ")[0] for chunk in given]
        times = [recorded.recorded_at.isoformat() for recorded in await log(thread) if recorded.seq <= 4]
        assert times == [context.recorded_at[chunk.id] for chunk in given[:4]]


async def test_the_record_does_not_repeat_the_texts() -> None:
    """The texts of what comes back are in the event once: equal texts, labels and call ids do not lead astray."""
    async with opened(Scripted(), NEVER) as engine:
        thread = await engine.create_thread()
        result = e.ToolResult(call_id="c", content="the same" + LONG, name="look", final=False)
        said = UserMessage(content="the same" + LONG, name="Ann")
        other = UserMessage(content="another" + LONG, name="Ann")
        await say(thread, [said, other, said, call("c")[0], result, msgspec.structs.replace(result, final=True)])
        await undone_as_before(thread)
        [stored] = [row for row in await rows(thread) if row.type == "compaction_undone"]
        assert LONG.encode() not in stored.record


async def test_containers_come_back_whole() -> None:
    """A container comes back with all that stood inside it, in order."""
    async with with_boxes() as engine:
        thread = await engine.create_thread()
        await say(thread, [*turns(1), Boxed(things=("b", "a", "c")), *turns(1, start=2)])
        await undone_as_before(thread)


async def test_what_goes_with_a_session_does_not_outlive_it() -> None:
    """An EPHEMERAL chunk inside a container stays away if the session ended meanwhile, and only then."""
    for ended in (False, True):
        async with with_boxes() as engine:
            thread = await engine.create_thread()
            await say(thread, [Boxed(things=("brief",), retention="ephemeral"), *turns(1)])
            await thread.compact()
            if ended:
                await thread.dispatch(SessionEnded())
            await thread.compaction.undo()
            inside = [chunk.text for chunk in (await thread.state()).everything() if chunk.type == "thing"]
            assert ([] if ended else ["brief"]) == inside


async def test_a_child_that_was_forgotten_stays_away() -> None:
    """A container comes back without the child that was forgotten; not at all if it was forgotten itself."""
    async with with_boxes() as engine:
        thread = await engine.create_thread()
        box, first, _ = await say(thread, [Boxed(things=("one", "two"))])
        await say(thread, turns(1))
        for forgotten, left in ((first, ["box", "two", "word1"]), (box, ["word1"])):
            await thread.compact()
            await thread.forget(chunk_ids=[forgotten])
            await thread.compaction.undo()
            state = await thread.state()
            assert left == [chunk.text.partition(" ")[0] for chunk in state.everything()]


async def test_a_name_that_was_taken_meanwhile_stays_where_it_is() -> None:
    """A chunk whose name another bears by now comes back without it: the newer one keeps being found."""
    async with with_boxes() as engine:
        thread = await engine.create_thread()
        await say(thread, [Boxed(things=(), name="mine"), *turns(1)])
        await thread.compact()
        [newer] = (await thread.dispatch(Boxed(things=(), name="mine"))).chunks
        await thread.compaction.undo()
        state = await thread.state()
        assert newer == state.named("mine")
        assert 2 == sum(chunk.type == "box" for chunk in state.chunks())


async def test_chunks_inside_a_container_come_back_there() -> None:
    """A raw compaction may take what the engine never would: children of a container. They come back inside."""
    async with with_boxes() as engine:
        thread = await engine.create_thread()
        _, *inside = await say(thread, [Boxed(things=("a", "b", "c"))])
        before = shape(await thread.state())
        for name, replaced in (
            ("k1", Replacement((inside[2], inside[0]), (SummaryLine("next_steps", "Go on."),))),
            ("k2", Replacement((inside[1],))),
        ):
            event = CompactionCompleted(compaction_id=name, trigger="manual", replacements=(replaced,), compactor="c")
            await thread.dispatch(event)
        await thread.compaction.undo("k2")
        await thread.compaction.undo("k1")
        assert before == shape(await thread.state())
        assert None is (await thread.replay.verify()).divergence


async def test_what_stood_in_a_container_that_is_gone_stays_away() -> None:
    """A dropped child of a container that was forgotten has nowhere to come back to."""
    async with with_boxes() as engine:
        thread = await engine.create_thread()
        box, *inside = await say(thread, [Boxed(things=("a", "b"))])
        event = CompactionCompleted(
            compaction_id="k", trigger="manual", replacements=(Replacement((inside[0],)),), compactor="c"
        )
        await thread.dispatch(event)
        await thread.forget(chunk_ids=[box])
        assert () == (await thread.compaction.undo()).chunks
