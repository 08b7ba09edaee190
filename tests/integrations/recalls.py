"""The contract of every adapter's `test_recall.py`: what of other conversations its framework's model is given.

A framework comes as a `Talk`: it says something in a conversation, with a model that answers from a script and keeps
what it was given. A turn with `TOOL_TURN` lets the model call the tool `depot` before it answers.
"""

from collections.abc import Awaitable, Callable, Sequence
from itertools import pairwise
from typing import Any, Protocol

from attrs import field, frozen

import memory_engine
from memory_engine import Engine

MARK = "[From memory, not said now]"
FACT = "The gate of the timber yard opens with the code 4711-Birch."
QUESTION = "Which code opens the gate of the timber yard?"
OTHER = "Who repairs the roof of the old chapel in Visby?"
LATE = "The code of the timber yard's gate is 9043-Larch from now on."
DEPOT = "The depot holds nine pallets."
RECALL_TOKENS = 200


@frozen(kw_only=True)
class Turn:
    """Who says what, where, and how the adapter is made. `calls`: how often the model calls its tool first."""

    text: str
    thread: str
    user: str = "ann"
    tenant: str = ""
    agent: str = ""
    calls: int = 0
    meanwhile: "Sequence[Turn]" = ()
    """Turns elsewhere, while the tool runs."""
    options: dict[str, Any] = field(factory=dict)


class Talk(Protocol):
    """A framework with this adapter."""

    def __call__(self, engine: Engine, turn: Turn, /) -> Awaitable[list[list[str]]]:
        """The texts that the model was given, for each of its calls in the turn."""
        ...


@frozen(kw_only=True)
class RecallContract:
    """A framework, and which of the owner's parts it can leave out."""

    talk: Talk
    has_nobody: bool = True
    """Whether it can talk without a user."""
    has_agents: bool = True
    place: Callable[[], str] = lambda: ":memory:"

    async def check(self) -> None:
        """All of it, each in an engine of its own."""
        await self._check_other_conversations()
        await self._check_strangers()
        await self._check_off()
        await self._check_loop()
        await self._check_log()
        await self._check_bounds()

    async def _turn(self, engine: Engine, text: str, thread: str, **of: Any) -> list[list[str]]:
        options = {"recall": True, "recall_tokens": RECALL_TOKENS} | of.pop("options", {})
        return await self.talk(engine, Turn(text=text, thread=thread, options=options, **of))

    async def _check_other_conversations(self) -> None:
        """What was said in one is given in another, once, before the question; and nothing for what was not said."""
        async with memory_engine.open(self.place()) as engine:
            await self._turn(engine, FACT, "first")
            [given] = await self._turn(engine, QUESTION, "second")
            [recalled] = [n for n, text in enumerate(given) if text.startswith(MARK)]
            assert FACT in given[recalled]
            assert QUESTION == given[recalled + 1]
            assert QUESTION not in given[recalled]
            [given] = await self._turn(engine, OTHER, "second")
            assert not [text for text in given if MARK in text]

    async def _check_strangers(self) -> None:
        """Another user, tenant or agent is given nothing; nor is one who names no user, or the wrong one."""
        others: list[dict[str, str]] = [{"user": "ben"}, {"tenant": "acme"}, {"user": "ben", "tenant": "acme"}]
        others += [{"user": ""}, {"user": "", "tenant": "acme"}] if self.has_nobody else []
        others += [{"agent": "thief"}] if self.has_agents else []
        owner = {"agent": "keeper"} if self.has_agents else {}
        async with memory_engine.open(self.place()) as engine:
            await self._turn(engine, FACT, "first", **owner)
            if self.has_nobody:
                await self._turn(engine, FACT, "of nobody", user="")
                await self._turn(engine, FACT, "of nobody at acme", user="", tenant="umbrella")
            for n, other in enumerate(others):
                [given] = await self._turn(engine, QUESTION, f"stranger {n}", **owner | other)
                assert not [text for text in given if MARK in text or "4711" in text], other
            [given] = await self._turn(engine, QUESTION, "second", **owner)
            assert [text for text in given if MARK in text and FACT in text]

    async def _check_off(self) -> None:
        """Without `recall`, a model is given the talk alone."""
        async with memory_engine.open(self.place()) as engine:
            await self._turn(engine, FACT, "first", options={"recall": False})
            [given] = await self._turn(engine, QUESTION, "second", options={"recall": False})
            assert [QUESTION] == given

    async def _check_loop(self) -> None:
        """All calls of a turn are given the same, whatever is said elsewhere meanwhile; the next turn sees that."""
        async with memory_engine.open(self.place()) as engine:
            await self._turn(engine, FACT, "first")
            late = Turn(text=LATE, thread="third", options={"recall": True, "recall_tokens": RECALL_TOKENS})
            given = await self._turn(engine, QUESTION, "second", calls=2, meanwhile=[late])
            assert 3 == len(given)
            for earlier, later in pairwise(given):
                assert earlier == later[: len(earlier)]
            assert all(1 == sum(MARK in text for text in one) for one in given)
            assert "9043" not in str(given)
            [again] = await self._turn(engine, QUESTION, "second")
            assert [text for text in again if MARK in text and "9043-Larch" in text]

    async def _check_log(self) -> None:
        """The thread holds what was said, and neither log, history nor search have what was recalled as said."""
        async with memory_engine.open(self.place()) as engine:
            await self._turn(engine, FACT, "first")
            await self._turn(engine, QUESTION, "second", calls=1)
            [given] = await self._turn(engine, OTHER, "second")
            assert not [text for text in given if MARK in text or "4711" in text], given
            holding = {
                info.id: sum([FACT in str(event.event) async for event in engine.thread(info.id).events()])
                for info in await engine.threads()
            }
            assert 1 == sum(1 for count in holding.values() if count)
            log = [
                str(event.event) for info in await engine.threads() async for event in engine.thread(info.id).events()
            ]
            assert not [text for text in log if MARK in text]
            assert all(report.ok for report in await engine.verify())

    async def _check_bounds(self) -> None:
        """However much was said, what is given stays within `recall_tokens`."""
        async with memory_engine.open(self.place()) as engine:
            for n in range(12):
                said = (
                    f"{FACT} "
                    + f"Gate {n} of the timber yard has a code too, {n * 7919 % 9973}, but nobody uses it. " * 9
                )
                await self._turn(engine, said, f"earlier {n}")
            [given] = await self._turn(engine, QUESTION, "second")
            [recalled] = [text for text in given if MARK in text]
            assert 100 < len(recalled) < RECALL_TOKENS * 6
            [given] = await self._turn(engine, QUESTION, "third", options={"recall_tokens": 2_000})
            assert len(recalled) < max(len(text) for text in given if MARK in text) < 2_000 * 6
