"""The talk of a thread: what people said in it, and how the agent dealt with each statement, read event by event.

This module only records facts: which words of a statement the agent used when it acted or answered, whether the agent
had asked for the statement, whether it replied, and whether the same person repeated or corrected it. Module `standing`
judges them. The same events in the same order give the same talk. Results of tools are not read.
"""

from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

from memory_engine.core.chunks import content_text
from memory_engine.core.events.base import Event, ToolCall, UnknownEvent
from memory_engine.core.events.exchanges import CycleStarted, ExchangeFinished
from memory_engine.core.events.memory import MemoryForget, ThreadCleared
from memory_engine.core.events.messages import (
    LlmClarification,
    LlmSkillCall,
    LlmSubagentMessage,
    LlmSubagentSpawn,
    LlmTextResponse,
    LlmToolCall,
    ParentAgentMessage,
    UserMessage,
)
from memory_engine.language.phrases import is_courteous, says_something
from memory_engine.language.rough import QUESTION_MARKS
from memory_engine.language.sentences import clean, spans, words
from memory_engine.views.brief.force import Force, force_of, terms_of_form
from memory_engine.views.brief.statements import MessageStatement, is_value, statements_of, terms_of
from memory_engine.views.brief.turn import AgentTurn, calls_of

OPEN_MESSAGES = 8
"""Number of newest messages that stay open. Only statements of open messages can still be dealt with."""
ACK_CHARS_MAX = 240
"""A reply of at most this many characters, without a call, only takes note; it deals with no statement."""
COURTEOUS_WORDS_MAX = 12
"""Maximum number of words of a courtesy: a sentence that begins with a courteous word."""
LEANS_WORDS_MAX = 3
"""A first sentence of at most this many words needs the message it replies to in order to make sense."""
ASKED_CHARS_MAX = 240
"""Maximum number of characters that are shown of the question that a reply answers."""
VOCABULARY = 0.4
"""Weight by which each turn in which the agent used a term lowers the term's rarity."""
COMMON_MIN = 64
"""A term that occurs in more messages than this is not used to find statements on the same subject."""
ALIKE_MAX = 16
"""A new statement is compared with at most this many statements per term, the newest ones."""
TERMS_MAX = 20_000
"""Maximum number of terms that are counted besides those of the statements that are kept."""
CYCLES_MAX = 20_000
"""Maximum number of cycles and exchanges that are remembered with their questions, while those are not all kept."""
LATER_CHARS_MAX = 160
"""Maximum number of characters that are kept of the statement that corrects another."""
WORK_CALLS = 10
"""After this many calls since a person's last message, the agent's texts count as reports of its work and are kept."""
REPORTS_MAX = 8
"""Maximum number of the agent's reports that are kept, the newest ones."""
REPORT_STATEMENTS_MAX = 8
REPORT_CHARS_MAX = 400
QUESTION_CHARS = 600
"""Number of characters at the end of a reply that are searched for a question."""

TYPES: tuple[type[Event], ...] = (
    UserMessage,
    ParentAgentMessage,
    LlmTextResponse,
    LlmToolCall,
    LlmSkillCall,
    LlmSubagentSpawn,
    LlmSubagentMessage,
    LlmClarification,
    CycleStarted,
    ExchangeFinished,
    ThreadCleared,
    MemoryForget,
)
"""The types of events that a talk is built from."""


Status = Literal["stands", "spent", "superseded"]
"""Whether a statement still applies, was dealt with, or was replaced by a later statement of its speaker."""
Key = tuple[int, int]
"""The key of a statement: the seq of its message, and its number within it."""


class Ruling(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The status of a statement, the seq of the event that decided it (0: none), and its worth (0: none)."""

    status: Status
    by: int = 0
    worth: float = 0.0


class TalkStatement(msgspec.Struct, array_like=True):
    """Statement `n` of the message at `seq`, and how the agent dealt with it.

    `taken` holds the terms that the agent used, `taken_at` the seq of the event that last added to them. The same
    person said about the same at `repeated_at`, the very same at `said_again_at`. `corrected_by` is the key of the
    statement that corrects it, `later` the beginning of its text. `ruling` is set once its message is closed (see
    `standing.settle`).
    """

    seq: int
    n: int
    statement: MessageStatement
    terms: frozenset[str]
    force: Force
    asks: bool
    empty: bool
    courteous: bool
    leans: bool
    names: frozenset[str] = frozenset()
    taken: frozenset[str] = frozenset()
    taken_at: int = 0
    answered_at: int = 0
    repeated_at: int = 0
    said_again_at: int = 0
    corrected_by: Key | None = None
    later: str = ""
    ruling: Ruling | None = None

    @property
    def key(self) -> Key:
        """Its key in the talk."""
        return self.seq, self.n


class TalkMessage(msgspec.Struct, array_like=True):
    """A message from a person or the parent agent, and what this agent did before the next one.

    `asked` is the agent's last question before it, of the event at `asked_at`. `is_reply`: the agent said something
    since the message before; `told` are the terms of its statements that the agent used then. `terms` are those of
    all its statements, until it is closed. `statements` are those that are kept, by their number.
    """

    seq: int
    speaker: str
    by_agent: bool
    chars: int
    asked: str = ""
    asked_at: int = 0
    is_reply: bool = False
    told: frozenset[str] = frozenset()
    terms: frozenset[str] = frozenset()
    calls: int = 0
    replied_chars: int = 0
    replied_at: int = 0
    thanked_at: int = 0
    statements: dict[int, TalkStatement] = {}


class AgentReport(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The agent's own report of its work, during the work or at its end."""

    seq: int
    statements: tuple[MessageStatement, ...]


class Talk(msgspec.Struct):
    """People's statements up to the event at `seq`, and the agent's dealings with them. Plain data: it can be stored.

    `heard` holds by seq the messages of which a statement is kept. `open` are the newest of them, whose statements may
    still be dealt with; `closing` those just closed, for `standing.settle`; `closed` and `spent` the statements of
    older messages. A statement that is in neither any more is dropped, but for those of the `first` request: the size
    of a talk does not depend on the length of its log. `by_term` finds the kept statements by their terms. `forgot`:
    something was forgotten, of which `counts` and `vocabulary` may still hold single words. Of the terms that the agent
    used since the newest message, `done`, the `fresh` ones were not yet looked for in all open messages. `turn` tells
    whether it still works on them.
    """

    seq: int = 0
    first: int = 0
    newest: int = 0
    messages: int = 0
    heard: dict[int, TalkMessage] = {}
    speakers: dict[str, None] = {}
    counts: dict[str, int] = {}
    vocabulary: dict[str, int] = {}
    open: list[int] = []
    closing: list[int] = []
    closed: dict[Key, None] = {}
    spent: dict[Key, None] = {}
    reports: list[AgentReport] = []
    reviewed: int = 0
    by_term: dict[str, list[Key]] = {}
    asked_in: dict[int, int] = {}
    asked: str = ""
    asked_at: int = 0
    told: frozenset[str] = frozenset()
    done: frozenset[str] = frozenset()
    fresh: frozenset[str] = frozenset()
    forgot: bool = False
    turn: AgentTurn = msgspec.field(default_factory=AgentTurn)

    def message(self, one: TalkStatement) -> TalkMessage:
        """Return the message of a statement."""
        return self.heard[one.seq]

    def statement(self, key: Key) -> TalkStatement:
        """Return a statement by its key."""
        return self.heard[key[0]].statements[key[1]]

    def is_in_work(self, message: TalkMessage) -> bool:
        """Return True for an open message that the agent has not given its final answer to."""
        return message.seq > self.turn.answered and message.seq in self.open

    def take(self, seq: int, event: Event | UnknownEvent) -> None:
        """Update the talk with the next event."""
        self.seq = max(self.seq, seq)
        match event:
            case UserMessage(origin=""):
                self._hear(TalkMessage(seq, event.name, False, 0), content_text(event.content))
            case ParentAgentMessage():
                self._hear(TalkMessage(seq, event.agent_id, True, 0), content_text(event.content))
            case UserMessage(origin="tool"):
                self.turn.observe()
            case LlmTextResponse():
                self._reply(seq, content_text(event.content))
                self.turn.say(seq, event)
            case LlmClarification():
                self._reply(seq, event.content)
                self.turn.ask(seq, event)
                self.asked, self.asked_at = _last_sentence(event.content), seq
            case LlmToolCall() | LlmSkillCall() | LlmSubagentSpawn() | LlmSubagentMessage():
                self._act(seq, calls_of(event), event.content if isinstance(event, LlmToolCall) else "")
                self.turn.act(event)
            case CycleStarted(question_at=at) if at:
                self.asked_in[seq] = seq + at if at < 0 else at
            case ExchangeFinished(cycle=cycle):
                self.turn.declare()
                if cycle in self.asked_in:
                    self.asked_in[seq] = self.asked_in[cycle]
            case ThreadCleared():
                _refill(self, Talk(seq=self.seq))
            case MemoryForget():
                seqs = event.origins()
                self.forget(seqs | {self.asked_in[one] for one in seqs if one in self.asked_in})

    def forget(self, seqs: frozenset[int]) -> None:
        """Drop the statements and questions of the events at these seqs. Doing it twice changes nothing more."""
        self.forgot = True
        self.open, self.closing = ([seq for seq in found if seq not in seqs] for found in (self.open, self.closing))
        self.closed, self.spent = (
            {key: None for key in found if key[0] not in seqs} for found in (self.closed, self.spent)
        )
        self.reports = [one for one in self.reports if one.seq not in seqs]
        kept = ((term, [key for key in found if key[0] not in seqs]) for term, found in self.by_term.items())
        self.by_term = {term: found for term, found in kept if found}
        self.heard = {seq: message for seq, message in self.heard.items() if seq not in seqs}
        for message in self.heard.values():
            if message.asked_at in seqs:
                message.asked, message.asked_at = "", 0
            for one in message.statements.values():
                if one.corrected_by is not None and one.corrected_by[0] in seqs:
                    one.corrected_by, one.later = None, ""
                if one.said_again_at in seqs:
                    one.said_again_at = 0
        if self.asked_at in seqs:
            self.asked, self.asked_at = "", 0
        if self.first in seqs:
            self.first = 0
        if self.newest in seqs:
            self.newest = self.open[-1] if self.open else 0

    # people

    def _hear(self, message: TalkMessage, text: str) -> None:
        self.turn.end()
        message.chars, message.is_reply = len(text), bool(self.told)
        message.asked, message.asked_at = self.asked, self.asked_at
        message.statements = {n: _talk_statement(message.seq, n, one) for n, one in enumerate(statements_of(text))}
        message.terms = terms = frozenset[str]().union(*(one.terms for one in message.statements.values()))
        message.told = self.told & terms
        self.asked, self.asked_at, self.told, self.done, self.fresh = "", 0, *[frozenset[str]()] * 3
        self.messages += 1
        self.heard[message.seq] = message
        self.speakers.setdefault(message.speaker)
        _count(self.counts, terms)
        for one in message.statements.values():
            self._compare(message, one)
        self._thank(message)
        if not self.first and any(not one.empty for one in message.statements.values()):
            self.first = message.seq
        self.newest = message.seq
        self.open.append(message.seq)
        if len(self.open) > OPEN_MESSAGES:
            self.closing.append(self.open.pop(0))
            self.heard[self.closing[-1]].terms = frozenset()

    def _thank(self, message: TalkMessage) -> None:
        """Mark the messages that a thank-you closes: those since which the agent has called something."""
        if not all(one.empty or one.courteous for one in message.statements.values()):
            return
        calls = 0
        for earlier in self._newest_first():
            calls += earlier.calls
            if calls:
                earlier.thanked_at = earlier.thanked_at or message.seq

    def _newest_first(self) -> Iterator[TalkMessage]:
        return (self.heard[seq] for seq in reversed(self.open))

    def _compare(self, message: TalkMessage, later: TalkStatement) -> None:
        """Mark the earlier statements of the same speaker that this one repeats or corrects, then index its terms."""
        if later.statement.material or later.empty:
            return
        for term in later.terms:
            if self.counts[term] > COMMON_MIN:
                self.by_term.pop(term, None)
        shared: dict[Key, set[str]] = {}
        for term in later.terms:
            for key in self.by_term.get(term, ()):
                if key[0] != message.seq and self.heard[key[0]].speaker == message.speaker:
                    shared.setdefault(key, set()).add(term)
        for key, terms in shared.items():
            _relate(self.statement(key), later, terms)
        for term in later.terms:
            if self.counts[term] > COMMON_MIN:
                continue
            known = self.by_term.setdefault(term, [])
            known.append(later.key)
            if len(known) > ALIKE_MAX:
                del known[0]

    # the agent

    def _reply(self, seq: int, text: str) -> None:
        """Process a text of the agent: it deals with statements if calls came before it or if it is no mere note."""
        if not text.strip():
            return
        newest = self.heard.get(self.newest)
        if newest is None:
            self.told |= terms_of(text, parts=True)
            self.asked, self.asked_at = _last_question(text), seq
            return
        newest.replied_chars += len(text)
        newest.replied_at = newest.replied_at or seq
        terms = terms_of(text, parts=True)
        _count(self.vocabulary, terms - self.told)
        if question := _last_question(text):
            self.asked, self.asked_at = question, seq
        if newest.calls >= WORK_CALLS and (report := _report(seq, text)) is not None:
            self.reports = [*self.reports[1 - REPORTS_MAX :], report]
        self.told |= terms
        self._use(terms)
        acted = 0
        for message in self._newest_first():
            acted += message.calls
            if acted or len(text) > max(ACK_CHARS_MAX, 3 * message.chars):
                self._take_up(message, seq)
            if message is newest:
                for one in message.statements.values():
                    one.answered_at = one.answered_at or seq

    def _act(self, seq: int, calls: Sequence[ToolCall], text: str = "") -> None:
        newest = self.heard.get(self.newest)
        if newest is None:
            return
        newest.calls += len(calls)
        for one in newest.statements.values():
            one.answered_at = 0  # what was said before a call was not the answer
        newest.replied_at = newest.replied_at or seq
        self._use(terms_of(" ".join([*(f"{call.name} {call.arguments}" for call in calls), text]), parts=True))
        for message in self._newest_first():
            self._take_up(message, seq)
        self.fresh = frozenset()

    def _use(self, terms: frozenset[str]) -> None:
        self.fresh |= terms - self.done
        self.done |= terms

    def _take_up(self, message: TalkMessage, seq: int) -> None:
        """Record the terms of a message's statements that the agent used in this turn, if they are more than before."""
        if message.terms.isdisjoint(self.fresh):
            return
        for one in message.statements.values():
            if not one.terms.isdisjoint(self.fresh) and len(found := one.terms & self.done) > len(one.taken):
                one.taken, one.taken_at = found, seq

    # what is kept

    def drop(self, key: Key) -> None:
        """Drop a statement of a closed message, and the message with its last one. The first request is kept whole."""
        seq, n = key
        if seq == self.first:
            return
        message = self.heard[seq]
        for term in message.statements.pop(n).terms:
            known = self.by_term.get(term, [])
            if key in known:
                known.remove(key)
            if not known:
                self.by_term.pop(term, None)
        if not message.statements:
            del self.heard[seq]

    def drop_cycles(self) -> None:
        """Of too many cycles, drop those whose questions are not kept."""
        if len(self.asked_in) > CYCLES_MAX:
            self.asked_in = {cycle: seq for cycle, seq in self.asked_in.items() if seq in self.heard}

    def drop_terms(self) -> None:
        """Of too many counted terms, drop the rarest and oldest quarter, but none of a statement that is kept."""
        for counted in (self.counts, self.vocabulary):
            if len(counted) <= TERMS_MAX + len(self.by_term):
                continue
            free = sorted((term for term in counted if term not in self.by_term), key=counted.__getitem__)
            for term in free[: len(free) - TERMS_MAX * 3 // 4]:
                del counted[term]

    # weights

    def rarity(self, term: str) -> float:
        """Return a term's rarity: near 0 if every message has it, up to 1 if only one does."""
        said = self.counts.get(term, 0)
        own = (self.messages + 2 - said) / (self.messages + 1) / max(said, 1)
        return own / (1 + VOCABULARY * self.vocabulary.get(term, 0))


def _count(counts: dict[str, int], terms: frozenset[str]) -> None:
    for term in sorted(terms):  # the oldest are dropped first: in an order that is the same in every process
        counts[term] = counts.get(term, 0) + 1


def _refill(talk: Talk, other: Talk) -> None:
    for name in talk.__struct_fields__:
        setattr(talk, name, getattr(other, name))


def _relate(earlier: TalkStatement, later: TalkStatement, terms: set[str]) -> None:
    """Mark an earlier statement that a later one on the same subject, by the terms that both have, changes."""
    if clean(later.statement.text).casefold() == clean(earlier.statement.text).casefold():
        earlier.said_again_at = later.repeated_at = later.seq
        return
    if later.force.corrects:
        terms -= terms_of_form("corrects")
    alike = len(terms) / len(earlier.terms)
    if not (later.force.corrects or alike >= 0.6):
        return
    named = any(is_value(term) for term in terms) or bool(terms & earlier.names & later.names)
    if later.force.corrects and (named or alike >= 0.4):
        earlier.corrected_by, earlier.later = later.key, later.statement.text[:LATER_CHARS_MAX]
    elif alike >= 0.6 and not later.asks:
        earlier.repeated_at = later.seq


def _talk_statement(seq: int, n: int, statement: MessageStatement) -> TalkStatement:
    text = clean(statement.text)
    said = words(text)
    terms = frozenset[str]() if statement.material else terms_of(text)
    force, asks = force_of(text), text.rstrip("\"'”’»)]*_」』 ").endswith(QUESTION_MARKS)
    is_short = 0 < len(said) <= COURTEOUS_WORDS_MAX and not asks and not force.is_binding
    return TalkStatement(
        seq,
        n,
        statement,
        terms,
        force,
        asks=asks,
        empty=not says_something(said, frozenset()),
        courteous=is_short and is_courteous(said[0]),
        leans=n == 0 and len(said) <= LEANS_WORDS_MAX,
        names=terms_of(" ".join(word for word in said[1:] if word[0].isupper())),
    )


def _last_question(text: str) -> str:
    end = text[-QUESTION_CHARS:]
    if not any(mark in end for mark in QUESTION_MARKS):
        return ""
    said = [clean(end[start:stop]) for start, stop in spans(end)]
    return [one for one in said if any(mark in one for mark in QUESTION_MARKS)][-1][-ASKED_CHARS_MAX:]


def _report(seq: int, text: str) -> AgentReport | None:
    """Return the sentences of a report that name a value or state a decision; `None` without any."""
    telling = []
    for one in statements_of(text)[:REPORT_STATEMENTS_MAX]:
        names_something = any(is_value(term) for term in terms_of(one.text)) or force_of(one.text).binds
        if names_something and not one.material and len(one.text) <= REPORT_CHARS_MAX:
            telling.append(one)
    return AgentReport(seq, tuple(telling)) if telling else None


def _last_sentence(text: str) -> str:
    return clean(text)[-ASKED_CHARS_MAX:]
