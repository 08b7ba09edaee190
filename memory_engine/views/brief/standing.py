"""What of a talk still stands, in which order it matters, and what is spent, superseded or worth nothing.

A statement is spent by what happened: the question was answered, the agent took up what the statement says when it
acted, the agent had asked for it and went on. What nothing has served stands, in any language. Among those that stand,
one ranks by how much its loss would hurt: by its form, by how little of it was served, by how rare its words are.
"""

from collections.abc import Iterator
from typing import Literal

import msgspec

from memory_engine.views.brief.talk import ACK_CHARS_MAX, KEPT_MAX, SPARE, TalkMessage, TalkStatement, Talk

Status = Literal["stands", "spent", "superseded"]
SERVED = 0.34
"""A statement is spent once so much of what it says was taken up in one turn in which the agent acted."""
SERVED_BINDING = 0.75
"""The same of a statement that binds by its form. One that forbids is never spent by use: what uses it breaks it."""
SOLICITED = 0.5
"""A statement that says so much of what the agent had just said answers it or chooses from it."""
WORTH_MIN = 0.45
"""A statement that nothing served, but that says less than this, is small talk. What binds by its form stands anyway."""
FIRST_TOKENS = 120
"""The tokens of the first request that rank above all else that stands; the rest of it ranks by its worth."""


class Ruling(msgspec.Struct, frozen=True, gc=False):
    """What became of a statement, by which event, and its worth (0: none)."""

    status: Status
    by: int = 0
    worth: float = 0.0


def verdict(talk: Talk, one: TalkStatement) -> Ruling:
    """What became of a statement as of the last event of its talk."""
    if one.empty or one.statement.material:
        return Ruling("spent")
    force, message = one.force, one.message
    if one.corrected_by is not None:
        return Ruling("superseded", one.corrected_by.message.seq, 0.5 * _worth(talk, one))
    if one.asks and not force.forbids and one.answered_at:
        return Ruling("spent", one.answered_at)
    served = share_of(talk, one, one.taken)
    least = SERVED_BINDING if force.binds or force.corrects else SERVED
    if not force.forbids and served >= least:
        return Ruling("spent", one.taken_at)
    if not force.forbids and _is_solicited(talk, one) and message.replied_at:
        return Ruling("spent", message.replied_at)
    worth = _worth(talk, one)
    is_small_talk = worth < WORTH_MIN and message.replied_at and not (force.forbids or force.binds or force.corrects)
    return Ruling("spent", message.replied_at) if is_small_talk else Ruling("stands", 0, worth)


def share_of(talk: Talk, one: TalkStatement, terms: frozenset[str]) -> float:
    """How much of what a statement says these terms say, from 0 to 1."""
    whole = sum(0.2 + talk.rarity(term) for term in one.terms)
    return sum(0.2 + talk.rarity(term) for term in one.terms & terms) / whole if whole else 0.0


def _is_solicited(talk: Talk, one: TalkStatement) -> bool:
    if not one.message.told:
        return False
    if share_of(talk, one, one.message.told) >= SOLICITED:
        return True
    return bool(one.message.asked) and one.leans


def _worth(talk: Talk, one: TalkStatement) -> float:
    """How likely it hurts to lose it: above 0, comparable within a talk."""
    rarities = [talk.rarity(term) for term in one.terms]
    says = sum(rarities) / (1.5 + sum(rarities)) if rarities else 0.1
    form = (
        2.2
        if one.force.forbids
        else 1.7
        if one.force.binds or one.force.corrects
        else 1.4
        if one.force.prefers
        else 1.0
    )
    unserved = 1 - 0.6 * share_of(talk, one, one.taken)
    unasked = 1 - 0.6 * share_of(talk, one, one.message.told)
    worth = says * form * unserved * unasked
    if _is_noted(one.message):
        worth *= 1.3
    if one.statement.buried:
        worth *= 0.5
    if one.asks:
        worth *= 0.4
    if one.repeated_at:
        worth *= 1.2
    return worth


def _is_noted(message: TalkMessage) -> bool:
    """Whether the agent only took note: it did nothing and said little before the next person spoke."""
    return not message.calls and 0 < message.replied_chars <= ACK_CHARS_MAX


class Judged(msgspec.Struct, frozen=True, gc=False):
    """A statement with its verdict. `first`: of the task's first request. `request`: of the one in work."""

    said: TalkStatement
    verdict: Ruling
    first: bool = False
    request: bool = False


def judged(talk: Talk) -> list[Judged]:
    """The statements of a talk that may be needed, in order of rank: the request in work, the first, then by worth."""
    found = list(_judged(talk))
    found.sort(key=_rank)
    return found


def _judged(talk: Talk) -> Iterator[Judged]:
    first_chars = 0
    for one in talk.said():
        request, first = one.message is talk.newest, one.message is talk.first
        first_chars += len(one.statement.text) if first else 0
        yield Judged(one, verdict(talk, one), first and first_chars <= 4 * FIRST_TOKENS, request)


def _rank(one: Judged) -> tuple[bool, bool, bool, float, int, int]:
    seq, n = one.said.key
    return not one.request, not one.first, one.verdict.status == "superseded", -one.verdict.worth, -seq, n


def prune(talk: Talk) -> None:
    """Drop what is spent, and of a very long talk what is worth least. Done at points that follow from the log."""
    if len(talk.closed) < KEPT_MAX + SPARE:
        return
    ranked = sorted(
        (Judged(one, verdict(talk, one), one.message is talk.first) for one in talk.closed.values()), key=_rank
    )
    talk.keep(sorted((one.said for one in ranked[:KEPT_MAX]), key=lambda said: said.key))
