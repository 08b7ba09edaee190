"""Laws of quarantines: they hold for any log, and are tested with many."""

from collections.abc import Mapping
from contextlib import suppress

from hypothesis import given, settings
from hypothesis import strategies as st

from memory_engine import Thread, ToolCall, errors
from memory_engine import events as e
from tests.engine.test_laws import EVENTS
from tests.engine.undoing import shape
from tests.replay.test_rewind_laws import NUMBERS, Story, opened, picture

PLAIN = EVENTS.filter(lambda one: not isinstance(one, e.MemoryForget | e.MemoryMarkCritical))
SOURCES = st.sampled_from(("tool:mail", "tool:web", "origin:tool", "event:2", "event:4", "agent:scout", "everything"))
SECRET = "zebra"
"""A word that every word of the tool `mail` has, and nothing else."""


def from_mail(n: int) -> list[e.Event]:
    """A call of the tool and its result."""
    call = e.LlmToolCall(calls=(ToolCall(f"m{n}", "mail", "{}"),))
    return [call, e.ToolResult(call_id=f"m{n}", name="mail", content=f"{SECRET} says word {n}.")]


@settings(max_examples=40)
@given(st.lists(PLAIN, min_size=1, max_size=10), st.sets(st.integers(0, 9), max_size=3), SOURCES, st.integers(0, 3))
async def test_a_release_gives_back_what_a_quarantine_hid(
    log: list[e.Event], mails: set[int], source: str, compactions: int
) -> None:
    """State, context, views and search are as before, whatever the log holds; it verifies, and rebuilds to the same."""
    async with opened() as engine:
        thread = await engine.create_thread("t")
        for n, event in enumerate(log):
            await thread.dispatch_all([event, *(from_mail(n) if n in mails else [])])
            with suppress(errors.CompactionError):
                if n % 4 < compactions:
                    await thread.compact()
        await thread.dispatch_all([e.UserMessage(content="go on"), *from_mail(77)])
        before = await picture(thread)
        told = await thread.admin.quarantine(source, dry_run=True)
        assert before == await picture(thread)
        done = await thread.admin.quarantine(source)
        assert told.as_data() | {"seq": done.seq} == done.as_data()
        if source in ("tool:mail", "origin:tool", "everything"):
            assert SECRET not in str(await picture(thread))
        await checked(thread)
        await thread.admin.quarantine(source, release=True)
        assert before == await picture(thread)
        await checked(thread)


async def checked(thread: Thread) -> None:
    """The log verifies, and what is made of it anew is the same."""
    assert None is (await thread.verify()).divergence
    shown = await picture(thread)
    await thread.rebuild()
    assert shown == await picture(thread)
    past = await thread.at(await thread.last_seq())
    assert shown["state"] == shape(await past.state())


MAIL, LEARN, QUARANTINE, RELEASE, FORK = 12, 13, 14, 15, 16
STEPS = st.lists(
    st.tuples(st.sampled_from((*range(12), MAIL, MAIL, MAIL, LEARN, QUARANTINE, RELEASE)), NUMBERS),
    min_size=4,
    max_size=18,
)


class Careful(Story):
    """A thread in which a tool speaks, whose words are hidden and shown now and then."""

    is_hidden = False

    async def step(self, kind: int, number: int) -> None:
        """Do one thing, and look for the tool's words in all that the thread shows."""
        head = await self.thread.last_seq()
        with suppress(errors.CompactionError, errors.CannotRewind, errors.BriefFull, errors.CannotQuarantine):
            await self._act(kind, number, head)
        await self.thread.context()  # brings quarantines up to date
        shown: Mapping[str, object] = await picture(self.thread)
        if self.is_hidden:
            assert SECRET not in str(shown)

    async def _act(self, kind: int, number: int, head: int) -> None:
        if kind == MAIL:
            await self.thread.dispatch_all(from_mail(100 + head))
        elif kind == LEARN:
            await self.thread.scratchpad.write(f"{head}: {'A note' if self.is_hidden else SECRET}")
            await self.thread.dispatch(e.UserMessage(content="I see."))
        elif kind == QUARANTINE:
            await self.thread.admin.quarantine("tool:mail", by="a person")
            self.is_hidden = True
        elif kind == RELEASE:
            await self.thread.admin.quarantine("tool:mail", release=True)
            self.is_hidden = False
        elif kind == 10:
            await self.thread.rewind(number % (head + 1))
        else:
            await self._do(kind, number, head)


@settings(max_examples=40)
@given(STEPS)
async def test_what_is_quarantined_is_in_no_reader(steps: list[tuple[int, int]]) -> None:
    """Whatever is said, compacted, undone, cleared and rewound around it, and whatever the tool says later."""
    async with opened() as engine:
        thread = await engine.create_thread("t")
        story = Careful(thread)
        await thread.dispatch_all([e.UserMessage(content="Read my mail."), *from_mail(1)])
        for kind, number in steps:
            if kind == LEARN and story.is_hidden is False:
                await thread.dispatch_all(from_mail(200 + await thread.last_seq()))
            await story.step(kind, number)
        await checked(thread)
        forked = await thread.fork()
        if story.is_hidden:
            assert SECRET not in str(await picture(forked))
