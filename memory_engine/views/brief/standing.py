"""What of a talk still stands, in which order it matters, and what is spent, superseded or worth nothing.

A statement is spent by what happened: the question was answered, the agent took up what the statement says when it
acted, the agent had asked for it and went on. What nothing has served stands, in any language. Among those that stand,
one ranks by how much its loss would hurt: by its form, by how little of it was served, by how rare its words are.
"""

from collections.abc import Iterator, Mapping

import msgspec

from memory_engine.views.brief.ruling import Ruling
from memory_engine.views.brief.talk import ACK_CHARS_MAX, Talk, TalkMessage, TalkStatement
from memory_engine.views.brief.terms import is_value

Weights = Mapping[str, float]
"""The terms of a statement, each with its rarity."""

SERVED = 0.34
"""A statement is spent once so much of what it says was taken up in one turn in which the agent acted."""
SERVED_BINDING = 0.75
"""The same of a statement that binds by its form. One that forbids is never spent by use: what uses it breaks it."""
SOLICITED = 0.5
"""A statement that says so much of what the agent had just said answers it or chooses from it."""
VALUES_MARGIN = 0.15
"""How much further the values of a statement may be served than its words."""
TERM_LEAST = 0.2
"""What the commonest term counts where shares are taken; the rarest counts 1 more."""
WORTH_MIN = 0.45
"""A statement that nothing served, but that says less than this, is small talk; not one that binds by its form."""
SUPERSEDED_FACTOR = 0.5
"""What is left of the worth of a statement that its speaker replaced: it is shown where there is room."""
FIRST_CHARS = 480
"""The characters of the first request that rank above all else that stands; the rest of it ranks by its worth."""
STANDING_MAX = 2_000
"""Standing statements of closed messages that are kept: more than a context has room for."""
SPENT_MAX = 2_000
"""Spent ones that are kept, for who asks."""
REVIEW_MIN = 16
"""Messages after which what stands is weighed anew, at first; then after a quarter more each."""


def ruling(talk: Talk, one: TalkStatement) -> Ruling:
    """What became of a statement as of the last event of its talk."""
    if one.empty or one.statement.material:
        return Ruling("spent")
    weights = {term: talk.rarity(term) for term in one.terms}
    if by := _spent_by(one, weights):
        return Ruling("spent", by)
    worth = _worth(one, weights)
    if worth < WORTH_MIN and one.message is not talk.newest and not one.force.is_binding:
        return Ruling("spent", one.message.replied_at)
    return _unless_replaced(one, Ruling("stands", 0, worth))


def _unless_replaced(one: TalkStatement, found: Ruling) -> Ruling:
    if one.corrected_by is None or found.status != "stands":
        return found
    return Ruling("superseded", one.corrected_by.message.seq, SUPERSEDED_FACTOR * found.worth)


def _spent_by(one: TalkStatement, weights: Weights) -> int:
    """The seq of the event that spent a statement; 0: nothing has. One that forbids is not spent by what happens."""
    force, message = one.force, one.message
    if force.forbids:
        return 0
    if one.asks and one.answered_at and not (force.binds and _is_noted(message)):
        return one.answered_at
    if _served(one, weights) >= (SERVED_BINDING if force.is_binding else SERVED):
        return one.taken_at
    return message.replied_at if message.replied_at and _is_solicited(one, weights) else 0


def _served(one: TalkStatement, weights: Weights) -> float:
    """How much of a statement was served: of all that it says, and of its words beside paths, numbers and names.

    That a call used a file which a statement names does not serve what the statement says about it.
    """
    served = _share(weights, one.taken)
    if not served:
        return 0.0
    words = {term: weight for term, weight in weights.items() if not is_value(term)}
    return min(served, _share(words, one.taken) + VALUES_MARGIN) if words else served


def _share(weights: Weights, taken: frozenset[str]) -> float:
    """How much of what some terms say was taken up, from 0 to 1."""
    if not weights or not taken:
        return 0.0
    found = sum(TERM_LEAST + weight for term, weight in weights.items() if term in taken)
    return found / (TERM_LEAST * len(weights) + sum(weights.values()))


def _is_solicited(one: TalkStatement, weights: Weights) -> bool:
    """Whether the agent had asked for it, or offered it."""
    if not one.message.told:
        return False
    return _share(weights, one.message.told) >= SOLICITED or bool(one.message.asked and one.leans)


def _worth(one: TalkStatement, weights: Weights) -> float:
    """How likely it hurts to lose it: above 0, comparable within a talk."""
    rare = sum(weights.values())
    unserved = 1 - 0.6 * _share(weights, one.taken)
    unasked = 1 - 0.6 * _share(weights, one.message.told)
    worth = rare / (1.5 + rare) * one.force.factor * unserved * unasked if weights else 0.1
    if _is_noted(one.message):
        worth *= 1.3
    if one.statement.buried:
        worth *= 0.5
    if one.asks:
        worth *= 0.6 if one.force.binds else 0.4
    if one.repeated_at:
        worth *= 1.2
    if one.courteous:
        worth *= 0.5
    if one.message.thanked_at and not one.force.is_binding and not _is_noted(one.message):
        worth *= 0.7
    return worth


def _is_noted(message: TalkMessage) -> bool:
    """Whether the agent only took note: it did nothing and said little before the next person spoke."""
    return not message.calls and 0 < message.replied_chars <= ACK_CHARS_MAX


class Judged(msgspec.Struct, frozen=True, gc=False):
    """A statement with its ruling. `first`: of the task's first request. `request`: of the one in work."""

    said: TalkStatement
    ruling: Ruling
    first: bool = False
    request: bool = False


def settle(talk: Talk) -> None:
    """Rule on the statements of messages that were just closed, and now and then again on all that stand.

    What is spent stays so. What stands is weighed anew as the talk grows, and of a very long talk what is worth least
    is dropped; both at points that follow from the log, so that every reader comes to the same result.
    """
    for message in talk.closing:
        for one in message.statements:
            if not one.empty:
                one.ruling = ruling(talk, one)
                (talk.spent if one.ruling.status == "spent" else talk.closed)[one.key] = one
    if talk.closing:
        talk.closing.clear()
        talk.version += 1
        while len(talk.spent) > SPENT_MAX:
            del talk.spent[next(iter(talk.spent))]
    if talk.messages >= talk.reviewed + max(REVIEW_MIN, talk.reviewed // 4):
        _review(talk)


def _review(talk: Talk) -> None:
    talk.reviewed = talk.messages
    talk.version += 1
    for key, one in list(talk.closed.items()):
        one.ruling = ruling(talk, one)
        if one.ruling.status == "spent":
            talk.spent[key] = talk.closed.pop(key)
    if len(talk.closed) > STANDING_MAX:
        ranked = sorted(talk.closed.values(), key=lambda one: (-_of(one).worth, one.key))
        talk.closed = {one.key: one for one in sorted(ranked[:STANDING_MAX], key=lambda one: one.key)}


def closed_of(talk: Talk) -> Iterator[Judged]:
    """The statements of closed messages that are not spent, in no order."""
    for one in talk.closed.values():
        yield Judged(one, _of(one), _is_first(talk, one), one.message is talk.newest)


def open_of(talk: Talk) -> Iterator[Judged]:
    """The statements of messages that are still open, as things are now."""
    for message in (*talk.closing, *talk.open):
        for one in message.statements:
            yield Judged(one, ruling(talk, one), _is_first(talk, one), message is talk.newest)


def spent_of(talk: Talk) -> Iterator[Judged]:
    """The newest statements of closed messages that are spent."""
    for one in talk.spent.values():
        yield Judged(one, _of(one), _is_first(talk, one))


def _of(one: TalkStatement) -> Ruling:
    """The ruling on a statement of a closed message: a later word of its speaker counts at once."""
    return _unless_replaced(one, one.ruling or Ruling("spent"))


def _is_first(talk: Talk, one: TalkStatement) -> bool:
    return one.message is talk.first and one.statement.start < FIRST_CHARS
