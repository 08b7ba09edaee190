"""Laws of rewinds: they hold for any log, and are tested with many."""

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, suppress

from hypothesis import given, settings
from hypothesis import strategies as st

import memory_engine
from memory_engine import Engine, EngineConfig, Thread, errors
from memory_engine import events as e
from memory_engine.store.snapshots import is_rewindable
from memory_engine.testing import ManualClock, SequentialIds
from tests.engine.test_laws import EVENTS
from tests.engine.undoing import MERGING, shape
from tests.scripted_compactors import Scripted, a_line_each

SAY, NOTE, KEEP, FILE, PIN, ASK, CLEAR, COMPACT, UNDO, SEARCH, REWIND, REDO = range(12)
KINDS = (SAY, SAY, NOTE, KEEP, FILE, PIN, ASK, CLEAR, COMPACT, UNDO, SEARCH, REWIND, REWIND, REDO)
NUMBERS = st.integers(0, 40)
STEPS = st.lists(st.tuples(st.sampled_from(KINDS), NUMBERS), min_size=4, max_size=16)
PLAIN = EVENTS.filter(lambda one: not isinstance(one, e.MemoryForget | e.MemoryMarkCritical))


def opened(path: str = ":memory:") -> AbstractAsyncContextManager[Engine]:
    """An engine that compacts only when it is asked to, and whose time and ids are the same in every run."""
    return memory_engine.open(
        path,
        compactor=Scripted(a_line_each),
        config=EngineConfig(compaction=MERGING),
        clock=ManualClock(),
        ids=SequentialIds(),
    )


async def picture(thread: Thread) -> Mapping[str, object]:
    """What a thread shows: its state but for ids, its context, brief, search, and the rows of every view."""
    views = {
        one.name: dict((await thread.rows(one)).encoded())
        for one in thread.kernel.projections
        if is_rewindable(one.name)
    }
    found = await thread.search("word", limit=50)
    return {
        "state": shape(await thread.state()),
        "context": str((await thread.context()).messages),
        "brief": [one.text for one in (await thread.brief.read()).statements],
        "found": sorted(hit.text for hit in found.hits),
        "files": [(one.path, one.seq) for one in await thread.memory_files.history()],
        "views": {name: rows for name, rows in views.items() if rows},
    }


class Story:
    """A thread in which things are said and taken back, and what it showed at each of its moments."""

    def __init__(self, thread: Thread) -> None:
        self.thread = thread
        self.pictures: dict[int, Mapping[str, object]] = {}
        self.said = 0

    async def step(self, kind: int, number: int) -> None:
        """Do one thing, if it can be done, and look at what the thread shows after it."""
        before = await self.thread.last_seq()
        expected = None
        with suppress(errors.CompactionError, errors.CannotRewind, errors.BriefFull):
            expected = await self._do(kind, number, before)
        after = await self.thread.last_seq()
        if after > before:
            self.pictures[after] = await picture(self.thread)
        if expected is not None:
            assert self.pictures[expected] == self.pictures[after]

    async def _do(self, kind: int, number: int, head: int) -> int | None:
        self.said += 1
        text, thread = f"The word {self.said} is {'apple pear plum'.split()[number % 3]}.", self.thread
        match kind:
            case 0:
                await thread.dispatch(e.UserMessage(content=text))
            case 1:
                await thread.scratchpad.write(text)
            case 2:
                await thread.memory.append("episodic", text)
            case 3:
                with suppress(errors.MemoryFileExists):
                    await thread.memory_files.create(f"notes/{number % 3}.md", text)
            case 4:
                await thread.pin(text)
            case 5:
                await thread.conversation.prepare_messages(f"Is {text}?")
                await thread.conversation.finalize_cycle(f"Is {text}?", f"Yes, word {self.said}.")
            case 6:
                await thread.clear()
            case 7:
                await thread.compact()
            case 8:
                await thread.undo_compaction()
            case 10:
                moments = [seq for seq in self.pictures if seq < head]
                if moments:
                    chosen = moments[number % len(moments)]
                    assert (await thread.rewind(chosen)).to == chosen
                    return chosen
            case 11:
                report = await thread.rewind(redo=True)
                return report.to
        return None


@settings(max_examples=25)
@given(STEPS)
async def test_a_rewound_thread_shows_what_it_showed_at_that_moment(steps: list[tuple[int, int]]) -> None:
    """Whatever came between, and also at a moment that was taken back; the log verifies, and rebuilds to the same."""
    async with opened() as engine:
        story = Story(await engine.create_thread("t"))
        for kind, number in steps:
            await story.step(kind, number)
        await checked(engine, story)


async def checked(engine: Engine, story: Story) -> None:
    """Compare the last picture with what is made anew, and each earlier one with its past."""
    head = await story.thread.last_seq()
    report = await story.thread.verify()
    assert None is report.divergence
    for seq, shown in story.pictures.items():
        past = await story.thread.at(seq)
        views = {
            one.name: rows
            for one in past.kernel.projections
            if is_rewindable(one.name) and (rows := dict((await past.rows(one)).encoded()))
        }
        assert (seq, shown["views"], shown["state"]) == (seq, views, shape(await past.state()))
    if story.pictures:
        await story.thread.rebuild()
        assert story.pictures[head] == await picture(story.thread)
        assert None is (await story.thread.verify()).divergence


@settings(max_examples=25)
@given(st.lists(PLAIN, min_size=1, max_size=8), st.lists(PLAIN, min_size=1, max_size=8), st.booleans())
async def test_what_was_taken_back_might_as_well_not_have_been_said(
    first: list[e.Event], tail: list[e.Event], compacts: bool
) -> None:
    """Events of any kind; brought back, all is as before; taken back once more, as after the first time."""
    async with opened() as engine:
        thread, plain = await engine.create_thread("t"), await engine.create_thread("p")
        for one in (thread, plain):
            await one.dispatch_all(first)
        moment = await thread.last_seq()
        await thread.dispatch_all(tail)
        with suppress(errors.CompactionError):
            if compacts:
                await thread.compact()
        said = await picture(thread)
        report = await thread.rewind(moment)
        expected = await picture(plain)
        assert expected == await picture(thread)
        assert None is (await thread.verify()).divergence
        await thread.rewind(redo=True)
        assert said == await picture(thread)
        await thread.rewind(report.to)
        assert expected == await picture(thread)
        assert None is (await thread.verify()).divergence


FORGET = 12
WITH_FORGETTING = st.lists(
    st.tuples(st.sampled_from((SAY, SAY, NOTE, KEEP, ASK, COMPACT, SEARCH, REWIND, REWIND, REDO, FORGET)), NUMBERS),
    min_size=4,
    max_size=16,
)


class Forgetful(Story):
    """The same, with words that are forgotten now and then."""

    def __init__(self, thread: Thread) -> None:
        super().__init__(thread)
        self.gone: list[str] = []

    async def step(self, kind: int, number: int) -> None:
        """Do one thing, and look for forgotten words in all that the thread shows, now and at an earlier moment."""
        head = await self.thread.last_seq()
        with suppress(errors.CompactionError, errors.CannotRewind):
            if kind == FORGET:
                await self._forget(number)
            elif kind == REWIND:
                await self.thread.rewind(number % (head + 1))
            else:
                await self._do(kind, number, head)
        shown = str(await picture(self.thread))
        past = await self.thread.at(number % (await self.thread.last_seq() + 1))
        shown += str([chunk.text for chunk in (await past.state()).everything()])
        for word in self.gone:
            assert word not in shown

    async def _forget(self, number: int) -> None:
        said = [one async for one in self.thread.events() if "word " in str(one.event) and one.type in SAID]
        if said:
            chosen = said[number % len(said)]
            await self.thread.forget(seqs=[chosen.seq])
            self.gone.append(str(chosen.event).split("word ")[1].split()[0].join(("word ", " ")))


SAID = ("user_message", "memory_appended", "scratchpad_written")


@settings(max_examples=25)
@given(WITH_FORGETTING)
async def test_what_is_forgotten_stays_forgotten(steps: list[tuple[int, int]]) -> None:
    """Whatever is taken back and brought back around it."""
    async with opened() as engine:
        story = Forgetful(await engine.create_thread("t"))
        for kind, number in steps:
            await story.step(kind, number)
        assert None is (await story.thread.verify()).divergence
        shown = await picture(story.thread)
        await story.thread.rebuild()
        assert shown == await picture(story.thread)
