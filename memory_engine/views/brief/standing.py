"""Decides which statements of a talk still apply, and ranks them.

A statement is spent once events deal with it: its question was answered, the agent used its content in an action, or it
answered the agent's own question and the agent went on. In any language, a statement stays until something deals with
it, and in any case until the agent's final answer: an agent at work repeats the words of its request. The statements
that stay are ranked by how much their loss would hurt: by their form, by how little of their content was used, and by
how rare their words are.
"""

from collections.abc import Iterator, Mapping

import msgspec

from memory_engine.views.brief.statements import is_value
from memory_engine.views.brief.talk import ACK_CHARS_MAX, Key, Ruling, Talk, TalkMessage, TalkStatement

Weights = Mapping[str, float]
"""The terms of a statement, mapped to their rarity."""

SERVED = 0.34
"""A statement is spent once the agent used this share of its content in one turn in which it acted."""
SERVED_BINDING = 0.75
"""The same share for a statement that binds by its form. Using one that forbids never spends it: use would break it."""
SOLICITED = 0.5
"""A statement that repeats this share of what the agent had just said answers the agent or picks one of its options."""
VALUES_MARGIN = 0.15
"""Margin by which the served share may exceed that of the plain words, without paths, numbers and names."""
TERM_LEAST = 0.2
"""Weight of the most common term when shares are computed. The rarest term weighs 1 more."""
WORTH_MIN = 0.45
"""A statement worth less than this is small talk and counts as spent, unless it binds by its form."""
SUPERSEDED_FACTOR = 0.5
"""Factor on the worth of a superseded statement, which contexts show only if there is room."""
FIRST_CHARS = 480
"""The first characters of the first request rank above all other statements; the rest of it ranks by worth."""
STANDING_MAX = 2_000
"""Maximum number of current statements of closed messages that are kept: more than a context has room for."""
UNREVIEWED_MAX = 2 * STANDING_MAX
"""With more current statements than this, all are reviewed at once, however few messages came since the last time."""
SPENT_MAX = 2_000
"""Maximum number of spent statements that are kept, for readers of the whole brief."""
REVIEW_MIN = 16
"""Review all current statements after this many messages at first, later each time their number grew by a quarter."""


def ruling(talk: Talk, one: TalkStatement) -> Ruling:
    """Rule on a statement as of the last event of its talk."""
    if one.empty or one.statement.material:
        return Ruling("spent")
    message = talk.message(one)
    weights = {term: talk.rarity(term) for term in one.terms}
    in_work = talk.is_in_work(message)
    if not in_work and (by := _spent_by(message, one, weights)):
        return Ruling("spent", by)
    worth = _worth(message, one, weights)
    if worth < WORTH_MIN and not (in_work or one.seq == talk.newest or one.force.is_binding):
        return Ruling("spent", message.replied_at)
    return _unless_replaced(one, Ruling("stands", 0, worth))


def _unless_replaced(one: TalkStatement, found: Ruling) -> Ruling:
    if one.said_again_at:
        return Ruling("spent", one.said_again_at)
    if one.corrected_by is None or found.status != "stands":
        return found
    return Ruling("superseded", one.corrected_by[0], SUPERSEDED_FACTOR * found.worth)


def _spent_by(message: TalkMessage, one: TalkStatement, weights: Weights) -> int:
    """Return the seq of the event that spent a statement; 0 if none did. A prohibition is never spent."""
    force = one.force
    if force.forbids:
        return 0
    if one.asks and one.answered_at and not (force.binds and _is_noted(message)):
        return one.answered_at
    if _served(one, weights) >= (SERVED_BINDING if force.is_binding else SERVED):
        return one.taken_at
    return message.replied_at if message.replied_at and _is_solicited(message, one, weights) else 0


def _served(one: TalkStatement, weights: Weights) -> float:
    """Return how much of a statement the agent used, from 0 to 1.

    The share of its plain words, plus `VALUES_MARGIN`, is an upper bound: a call that used a file which the statement
    names has not yet done what the statement says about that file.
    """
    served = _weighted_share(weights, one.taken)
    if not served:
        return 0.0
    words = {term: weight for term, weight in weights.items() if not is_value(term)}
    return min(served, _weighted_share(words, one.taken) + VALUES_MARGIN) if words else served


def _weighted_share(weights: Weights, taken: frozenset[str]) -> float:
    """Return the weighted share of terms that were taken up, from 0 to 1."""
    if not weights or not taken:
        return 0.0
    found = sum(TERM_LEAST + weight for term, weight in weights.items() if term in taken)
    return found / (TERM_LEAST * len(weights) + sum(weights.values()))


def _is_solicited(message: TalkMessage, one: TalkStatement, weights: Weights) -> bool:
    """Return True if the agent had asked for the statement or offered it as an option."""
    if not message.is_reply:
        return False
    return _weighted_share(weights, message.told) >= SOLICITED or bool(message.asked and one.leans)


def _worth(message: TalkMessage, one: TalkStatement, weights: Weights) -> float:
    """Estimate how much losing a statement would hurt: above 0, comparable within one talk."""
    rare = sum(weights.values())
    unserved = 1 - 0.6 * _weighted_share(weights, one.taken)
    unasked = 1 - 0.6 * _weighted_share(weights, message.told)
    worth = rare / (1.5 + rare) * one.force.factor * unserved * unasked if weights else 0.1
    if _is_noted(message):
        worth *= 1.3
    if one.statement.buried:
        worth *= 0.5
    if one.asks:
        worth *= 0.6 if one.force.binds else 0.4
    if one.repeated_at:
        worth *= 1.2
    if one.courteous:
        worth *= 0.5
    if message.thanked_at and not one.force.is_binding and not _is_noted(message):
        worth *= 0.7
    return worth


def _is_noted(message: TalkMessage) -> bool:
    """Return True if the agent only took note: it called nothing and replied briefly before the next person spoke."""
    return not message.calls and 0 < message.replied_chars <= ACK_CHARS_MAX


class Judged(msgspec.Struct, frozen=True, gc=False):
    """A statement with its ruling. `first`: part of the task's first request. `request`: part of the current one."""

    said: TalkStatement
    ruling: Ruling
    first: bool = False
    request: bool = False


def settle(talk: Talk) -> None:
    """Rule on the statements of messages that were just closed, and from time to time again on all current ones.

    A spent statement stays spent. As the talk grows, current statements are ruled on again, and those of least worth
    are dropped from a very long talk. Both happen at points that depend only on the log, so every reader gets the same
    result.
    """
    for seq in talk.closing:
        _close(talk, talk.heard[seq])
    talk.closing.clear()
    is_due = talk.messages >= talk.reviewed + max(REVIEW_MIN, talk.reviewed // 4)
    if is_due or len(talk.closed) > UNREVIEWED_MAX:
        _review(talk)
    while len(talk.spent) > SPENT_MAX:
        key = next(iter(talk.spent))
        del talk.spent[key]
        talk.drop(key)
    talk.drop_terms()
    talk.drop_cycles()


def _close(talk: Talk, message: TalkMessage) -> None:
    if not message.statements:
        del talk.heard[message.seq]
    for one in list(message.statements.values()):
        if one.empty:
            talk.drop(one.key)
            continue
        one.ruling = ruling(talk, one)
        (talk.spent if one.ruling.status == "spent" else talk.closed)[one.key] = None


def _review(talk: Talk) -> None:
    talk.reviewed = talk.messages
    for key in list(talk.closed):
        one = talk.statement(key)
        one.ruling = ruling(talk, one)
        if one.ruling.status == "spent":
            del talk.closed[key]
            talk.spent[key] = None
    if len(talk.closed) > STANDING_MAX:
        ranked = sorted(talk.closed, key=lambda key: (-_of(talk.statement(key)).worth, key))
        talk.closed = dict.fromkeys(sorted(ranked[:STANDING_MAX]))
        for key in ranked[STANDING_MAX:]:
            talk.drop(key)


def closed_of(talk: Talk) -> Iterator[Judged]:
    """Yield the statements of closed messages that are not spent, in no particular order."""
    return (_judged(talk, key, is_closed=True) for key in talk.closed)


def open_of(talk: Talk) -> Iterator[Judged]:
    """Yield the statements of open messages, with their current rulings."""
    keys = (one.key for seq in (*talk.closing, *talk.open) for one in talk.heard[seq].statements.values())
    return (_judged(talk, key, is_closed=False) for key in keys)


def spent_of(talk: Talk) -> Iterator[Judged]:
    """Yield the newest spent statements of closed messages."""
    return (_judged(talk, key, is_closed=True) for key in talk.spent)


def first_of(talk: Talk) -> Iterator[Judged]:
    """Yield the spent statements at the beginning of the first request: contexts show all of that."""
    if talk.first and talk.first not in talk.open:
        keys = (one.key for one in talk.heard[talk.first].statements.values() if not one.empty)
        judged = (_judged(talk, key, is_closed=True) for key in keys)
        yield from (one for one in judged if one.first and one.ruling.status == "spent")


def _judged(talk: Talk, key: Key, *, is_closed: bool) -> Judged:
    one = talk.statement(key)
    is_first = one.seq == talk.first and one.statement.start < FIRST_CHARS
    return Judged(one, _of(one) if is_closed else ruling(talk, one), is_first, one.seq == talk.newest)


def _of(one: TalkStatement) -> Ruling:
    """Return the ruling on a statement of a closed message. A later correction by its speaker counts at once."""
    return _unless_replaced(one, one.ruling or Ruling("spent"))
