"""The contract of every adapter's `test_contract.py`: what a framework does to a conversation, the memory shows too.

A framework comes as a `Driver`. It opens the engine anew for each step, so each step is a restart. What a framework or
an adapter has no notion of, its driver declares in `lacks`, with the reason.
"""

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from attrs import field, frozen

import memory_engine
from memory_engine.errors import ThreadDiffers
from tests.integrations.scoped import logs

ASK = "How many pallets are in the depots of Visby and Kiel?"
ANSWER = "Nine are in Visby and four in Kiel."
RESULTS = {"Visby": "The depot of Visby holds nine pallets.", "Kiel": "The depot of Kiel holds four pallets."}
SECOND = "Then order a red tractor for Visby."
THIRD = "Paint the tractor with two lanterns."
OTHER = "Order a green canoe for Visby."
NOTED = "Noted."
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
"""An image of one pixel, as base64 of a PNG."""
NEVER = memory_engine.EngineConfig(compaction=memory_engine.CompactionPolicy(enabled=False))


@frozen(kw_only=True)
class Step:
    """What a person says, and what the model does: calls `depot` for both places at once (`calls`), and answers.

    `after`: it continues after that many turns of the session, whatever came after them.
    """

    text: str
    session: str = "first"
    user: str = "ann"
    answer: str = NOTED
    calls: bool = False
    image: bool = False
    streams: bool = False
    after: int | None = None


Turn = Callable[[Path, Step], Awaitable[list[str]]]
"""Does a step; returns the texts that the model is given in its last call, or that the session holds then."""


def depot_of(place: str) -> str:
    """What the tool `depot` gives back."""
    return RESULTS[place]


@frozen(kw_only=True)
class Driver:
    """A framework with its adapter. `thread_id` is the thread of a session of the user `ann`."""

    turn: Turn | None = None
    thread_id: Callable[[str], str] = str
    rewind: Callable[[Path, str], Awaitable[object]] | None = None
    """Takes back the last turn of a session."""
    remove: Callable[[Path, str], Awaitable[object]] | None = None
    """Removes a session."""
    interrupt: Callable[[Path, Step], Awaitable[object]] | None = None
    """Does a step until a person has to allow its calls; returns what the next needs to go on."""
    resume: Callable[[Path, Step, Any], Awaitable[list[str]]] | None = None
    """Allows them, and returns what the model is given then."""
    hides: bool = False
    """Whether another user's session is hidden, or not the same one, where it is not refused."""
    lacks: Mapping[str, str] = field(factory=dict)


async def shown(path: Path, thread_id: str) -> list[dict[str, Any]]:
    """The context of a thread, in another engine."""
    async with memory_engine.open(str(path), config=NEVER) as engine:
        return [dict(message) for message in (await engine.thread(thread_id).context()).messages]


async def found(path: Path, query: str, user: str = "ann") -> str:
    """What a search of a user's conversations finds, as one text."""
    async with memory_engine.open(str(path), config=NEVER) as engine:
        return "\n".join([hit.text for hit in await engine.search(query, kind="conversation", user_id=user)])


async def types(path: Path, thread_id: str) -> list[str]:
    """The types of a thread's events, without those in which the framework's own items are kept."""
    kept = ("session", "checkpoint", "item", "thread", "compaction")
    async with memory_engine.open(str(path), config=NEVER) as engine:
        return [event.type async for event in engine.thread(thread_id).events() if not event.type.startswith(kept)]


class Contract:
    """The aspects, each a method."""

    def __init__(self, driver: Driver, folder: Path) -> None:
        self.driver = driver
        self.path = folder / "agent.db"

    async def check(self, aspect: str) -> None:
        """Check one of `ASPECTS`, or skip it for the reason that the driver declares."""
        if aspect in self.driver.lacks:
            pytest.skip(self.driver.lacks[aspect])
        await getattr(self, aspect)()
        async with memory_engine.open(str(self.path)) as engine:
            assert all(report.ok for report in await engine.verify())

    async def _turn(self, text: str, **of: Any) -> list[str]:
        assert self.driver.turn is not None
        return await self.driver.turn(self.path, Step(text=text, **of))

    async def _shown(self, session: str = "first") -> str:
        return str(await shown(self.path, self.driver.thread_id(session)))

    async def parallel_calls(self) -> None:
        """Calls at once are one turn of the model's, each with its result; the next turn is given them."""
        await self._turn(ASK, calls=True, answer=ANSWER)
        messages = await shown(self.path, self.driver.thread_id("first"))
        self._check_pairs(messages)
        assert ANSWER in str(messages)
        given = await self._turn(SECOND)
        assert all(any(text in one for one in given) for text in (ASK, *RESULTS.values(), ANSWER, SECOND)), given

    def _check_pairs(self, messages: list[dict[str, Any]]) -> None:
        calls = [call["id"] for message in messages for call in message.get("tool_calls") or ()]
        results = {
            message["tool_call_id"]: str(message["content"]) for message in messages if message["role"] == "tool"
        }
        assert 2 == len(calls) == len(set(calls))
        assert set(calls) == results.keys()
        assert all(any(text in result for result in results.values()) for text in RESULTS.values())

    async def images(self) -> None:
        """An image is in the context, and the turn is kept."""
        await self._turn(ASK, image=True, answer=ANSWER)
        [said, *_] = await shown(self.path, self.driver.thread_id("first"))
        assert PIXEL in str(said)
        assert ASK in str(said)
        assert any(ASK in one for one in await self._turn(SECOND))

    async def streaming(self) -> None:
        """A streamed turn leaves the events that one in a piece leaves."""
        await self._turn(ASK, session="whole", calls=True, answer=ANSWER)
        await self._turn(ASK, session="first", calls=True, answer=ANSWER, streams=True)
        whole, streamed = [await types(self.path, self.driver.thread_id(one)) for one in ("whole", "first")]
        assert whole == streamed
        assert ANSWER in await self._shown()

    async def branch(self) -> None:
        """Going on from an earlier turn takes what came after it out of the context and of search."""
        for text in (ASK, SECOND, THIRD):
            await self._turn(text)
        given = await self._turn(OTHER, after=1)
        assert not any(SECOND in one or THIRD in one for one in given)
        context = await self._shown()
        assert ASK in context
        assert OTHER in context
        assert "red tractor" not in context
        assert "two lanterns" not in context
        assert "red tractor" not in await found(self.path, "which tractor was ordered?")
        assert "green canoe" in await found(self.path, "which canoe was ordered?")

    async def rewind(self) -> None:
        """A turn that is taken back is in neither; the one before it is in both."""
        assert self.driver.rewind is not None
        for text in (ASK, SECOND):
            await self._turn(text)
        await self.driver.rewind(self.path, "first")
        assert "red tractor" not in await self._shown()
        assert ASK in await self._shown()
        assert "red tractor" not in await found(self.path, "which tractor was ordered?")
        given = await self._turn(OTHER)
        assert not any("red tractor" in one for one in given)

    async def taken_back(self) -> None:
        """What `Thread.rewind` takes back the framework does not go on with, in a new process."""
        await self._turn(ASK)
        async with memory_engine.open(str(self.path)) as engine:
            moment = (await engine.thread(self.driver.thread_id("first")).info()).events
        await self._turn(SECOND)
        async with memory_engine.open(str(self.path)) as engine:
            await engine.thread(self.driver.thread_id("first")).rewind(moment)
        assert "red tractor" not in await self._shown()
        given = await self._turn(OTHER)
        assert not any("red tractor" in one for one in given)
        assert any(ASK in one for one in given)
        assert "red tractor" not in await found(self.path, "which tractor was ordered?")
        assert "green canoe" in await self._shown()

    async def remove(self) -> None:
        """A session that is removed is in neither; another one of the user stays, and the name is free."""
        assert self.driver.remove is not None
        await self._turn(SECOND)
        await self._turn(OTHER, session="second")
        await self.driver.remove(self.path, "first")
        assert "red tractor" not in await found(self.path, "which tractor was ordered?")
        assert "green canoe" in await self._shown("second")
        given = await self._turn(ASK)
        assert not any("red tractor" in one for one in given)
        assert ASK in await self._shown()

    async def interrupt(self) -> None:
        """A run that waits for a person goes on in another process: its calls and results are there once.

        A framework may ask by calls of its own, and give results after it has answered that it asks.
        """
        assert self.driver.interrupt is not None
        assert self.driver.resume is not None
        step = Step(text=ASK, calls=True, answer=ANSWER)
        token = await self.driver.interrupt(self.path, step)
        waiting = await self._shown()
        assert not any(text in waiting for text in RESULTS.values())
        given = await self.driver.resume(self.path, step, token)
        assert all(any(text in one for one in given) for text in RESULTS.values()), given
        messages = await shown(self.path, self.driver.thread_id("first"))
        calls = [call for message in messages for call in message.get("tool_calls") or ()]
        answered = [message["tool_call_id"] for message in messages if message["role"] == "tool"]
        assert 2 == sum(call["function"]["name"] == "depot" for call in calls)
        assert sorted({call["id"] for call in calls}) == sorted(answered)
        assert [1, 1] == [str(messages).count(text) for text in RESULTS.values()]
        assert 1 == sum(ASK in str(message["content"]) for message in messages if message["role"] == "user")
        assert ANSWER in str(messages)

    async def second_session(self) -> None:
        """Of the same user: its own context, and both are found by the user's search."""
        await self._turn(SECOND)
        given = await self._turn(OTHER, session="second")
        assert not any("red tractor" in one for one in given)
        assert "red tractor" not in await self._shown("second")
        assert "green canoe" not in await self._shown()
        assert "red tractor" in await found(self.path, "which tractor was ordered?")
        assert "green canoe" in await found(self.path, "which canoe was ordered?")
        assert "" == await found(self.path, "which canoe was ordered?", user="ben")

    async def by_id(self) -> None:
        """By its id alone a session opens for its owner, in a new engine; for another user it does not."""
        await self._turn(SECOND)
        given = await self._turn(ASK)
        assert any("red tractor" in one for one in given)
        async with memory_engine.open(str(self.path)) as engine:
            assert "red tractor" in str((await engine.thread(self.driver.thread_id("first")).context()).messages)
            before = (await logs(engine))[self.driver.thread_id("first")]
        if self.driver.hides:
            given = await self._turn(ASK, user="ben")
            assert not any("red tractor" in one for one in given)
        else:
            with pytest.raises(ThreadDiffers):
                await self._turn(ASK, user="ben")
        async with memory_engine.open(str(self.path)) as engine:
            assert before == (await logs(engine))[self.driver.thread_id("first")]


ASPECTS = (
    "parallel_calls",
    "images",
    "streaming",
    "branch",
    "rewind",
    "taken_back",
    "remove",
    "interrupt",
    "second_session",
    "by_id",
)
