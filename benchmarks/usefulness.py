"""The share of the names in an agent's next actions that is in its context.

Recorded sessions of coding agents (`agent_sessions.py`) are recorded message by message, and a context is asked for
before each response, as a loop does. At many of these points the names in the next actions are looked up in it: the
paths, identifiers and numbers that have occurred in the session, but not within its newest 4,000 tokens, which every
method shows.
"""

import re
from collections.abc import Sequence
from statistics import fmean
from time import perf_counter_ns

from attrs import define, field, frozen

import memory_engine
from benchmarks.agent_sessions import TICKETS, Session, sessions
from benchmarks.figures import Bar, Figure, Reference
from benchmarks.setting import Setting, say
from benchmarks.truncation import Shown, newest, text_of, tokens_of
from memory_engine import CompactionPolicy, Thread
from memory_engine.files.facts import stands_in

BUDGETS = (8_000, 16_000, 32_000)
SESSIONS = 6
ACTIONS = 10
NEAR_TOKENS = 4_000
EVERY = 8
"""Contexts are judged after every one in this number of responses with calls."""
NAME = re.compile(
    r"(?:[\w.-]+/)+[\w.-]*\w"  # a path
    r"|[A-Za-z]\w*_\w+"  # an identifier of several words
    r"|[A-Z][a-z]+[A-Z]\w+"
    r"|[A-Z]{2,}-\d+"  # a ticket
    r"|\d[\d.]*\d\d|\d\d\d+"  # a number
)
WAYS = ("in a loop, compaction on", "in a loop, compaction off", "asked for once, compaction on")
"""A loop asks before each response, and its window moves in steps; a context that is asked for once is filled."""
TRUNCATED = "the newest messages that fit"
SENTENCE_END = re.compile(r"(?<=[.!?])\s+")


@frozen
class Cut:
    """A moment of a session of a number of tokens: the names that come next and are far back, and two requests."""

    tokens: int
    far: frozenset[str]
    first: str
    current: str


@define
class Tally:
    """The results of one way of making contexts, over all cuts of all sessions."""

    names: int = 0
    far: int = 0
    first: list[float] = field(factory=list)
    current: list[float] = field(factory=list)
    cuts: int = 0
    tokens: int = 0

    def add(self, cut: Cut, shown: Sequence[Shown]) -> None:
        """Look a cut's names and requests up in the messages of a context."""
        text = text_of(shown)
        self.names += sum(stands_in(name, text) for name in cut.far)
        self.far += len(cut.far)
        self.first.append(said(cut.first, text))
        self.current.append(said(cut.current, text))
        self.cuts += 1
        self.tokens += tokens_of(shown)


def said(request: str, text: str) -> float:
    """Return the share of a request's sentences that are in a text, word for word."""
    flat = " ".join(text.split())
    return fmean(" ".join(sentence.split()) in flat for sentence in SENTENCE_END.split(request))


def cuts(session: Session) -> dict[int, Cut]:
    """Return the cuts of a session by the index of the response that comes next."""
    messages = session.messages
    acting = [n for n, message in enumerate(messages) if message.get("tool_calls")]
    found = {}
    for number in range(EVERY, len(acting) - 1, EVERY):
        at = acting[number]
        history, near = text_of(messages[:at]), text_of(newest(messages[:at], NEAR_TOKENS))
        ahead = text_of([messages[n] | {"content": ""} for n in acting[number : number + ACTIONS]])
        names = frozenset(NAME.findall(ahead))
        far = frozenset(name for name in names if stands_in(name, history) and not stands_in(name, near))
        asked = [n for n in session.requests if n < at]
        first, current = (str(messages[n]["content"]) for n in (asked[0], asked[-1]))
        found[at] = Cut(tokens_of(messages[:at]), far, first, current)
    return found


@define
class Outcome:
    """The results at one budget: a tally for each way, and the nanoseconds of all recorded messages."""

    tallies: dict[str, Tally] = field(factory=lambda: {way: Tally() for way in (*WAYS, TRUNCATED)})
    on_ns: int = 0
    off_ns: int = 0
    messages: int = 0


async def play(session: Session, budget: int, outcome: Outcome) -> None:
    """Record a session twice, with compaction and without, and ask for a context before each response."""
    judged = cuts(session)
    async with memory_engine.open(":memory:") as engine:
        on = await engine.create_thread("on", policy=CompactionPolicy.for_window(budget))
        off = await engine.create_thread("off", policy=CompactionPolicy(enabled=False))
        for n, message in enumerate(session.messages):
            if message["role"] == "assistant":
                shown = [await thread.context(max_tokens=budget) for thread in (on, off)]
                cut = judged.get(n)
                if cut is not None and cut.tokens > budget:
                    (last,) = await on.replay.latest(1)
                    shown.append(await on.context(max_tokens=budget, at=last.seq))
                    for way, context in zip(WAYS, shown, strict=True):
                        outcome.tallies[way].add(cut, context.messages)
                    outcome.tallies[TRUNCATED].add(cut, newest(session.messages[:n], budget))
            outcome.on_ns += await _recorded(on, message)
            outcome.off_ns += await _recorded(off, message)
            outcome.messages += 1


async def _recorded(thread: Thread, message: Shown) -> int:
    """Record a message and wait until what it led to is compacted. Return the nanoseconds."""
    begun = perf_counter_ns()
    await thread.record(message)
    await thread.compaction.settle()
    return perf_counter_ns() - begun


async def usefulness(setting: Setting) -> list[Figure]:
    """Agents' sessions: what the next actions name, and the requests, in contexts and in the newest messages."""
    recordings = list(sessions(setting.size(SESSIONS, 1), tickets=setting.size(TICKETS, 5)))
    outcomes = {budget: Outcome() for budget in BUDGETS[: setting.size(len(BUDGETS), 1)]}
    for budget, outcome in outcomes.items():
        say(f"  contexts of {budget:,} tokens")
        for session in recordings:
            await play(session, budget, outcome)
    found = [_names(way, budget, outcome) for budget, outcome in outcomes.items() for way in WAYS]
    found += [
        _request(which, budget, outcome) for which in ("first", "current") for budget, outcome in outcomes.items()
    ]
    return [*found, *(_taken(budget, outcome) for budget, outcome in outcomes.items())]


def _names(way: str, budget: int, outcome: Outcome) -> Figure:
    tally, truncated = outcome.tallies[way], outcome.tallies[TRUNCATED]
    return _figure(
        f"names used next that stand far back, in {budget:,} tokens, {way}",
        (100 * tally.names / max(1, tally.far), 100 * truncated.names / max(1, truncated.far)),
        {
            "found": tally.names,
            "found_by_truncation": truncated.names,
            "of": tally.far,
            "cuts": tally.cuts,
            "tokens": tally.tokens // max(1, tally.cuts),
            "tokens_of_truncation": truncated.tokens // max(1, truncated.cuts),
        },
    )


def _request(which: str, budget: int, outcome: Outcome) -> Figure:
    shares = {way: tally.first if which == "first" else tally.current for way, tally in outcome.tallies.items()}
    whole = {way: sum(share == 1 for share in some) for way, some in shares.items()}
    count = len(shares[TRUNCATED])
    return _figure(
        f"the {which} request stands in {budget:,} tokens, {WAYS[0]}",
        (100 * whole[WAYS[0]] / max(1, count), 100 * whole[TRUNCATED] / max(1, count)),
        {
            "found": whole[WAYS[0]],
            "found_with_compaction_off": whole[WAYS[1]],
            "of": count,
            "percent_of_its_sentences": 100 * fmean(shares[WAYS[0]]) if count else 0,
        },
        Bar("value", ">=", 100) if which == "current" else None,
    )


def _figure(
    case: str, shares: tuple[float, float], detail: dict[str, float | int | str], bar: Bar | None = None
) -> Figure:
    """Return a figure of two percentages: of our contexts, and of the newest messages that fit."""
    reference = Reference(TRUNCATED, shares[1])
    return Figure(bench="usefulness", case=case, value=shares[0], unit="%", reference=reference, bar=bar, detail=detail)


def _taken(budget: int, outcome: Outcome) -> Figure:
    return Figure(
        bench="usefulness",
        case=f"recording a message and compacting what is due, window of {budget:,} tokens",
        value=outcome.on_ns / outcome.messages / 1e6,
        unit="ms, mean",
        reference=Reference("compaction off", outcome.off_ns / outcome.messages / 1e6),
        detail={"messages": outcome.messages},
    )
