"""The talk of a thread: what people said in it, and how the agent dealt with each statement, read event by event.

This module only records facts: which words of a statement the agent used when it acted or answered, whether the agent
had asked for the statement, whether it replied, and whether the same person repeated or corrected it. Module `standing`
judges them. The same events in the same order give the same talk. Results of tools are not read.
"""

from collections.abc import Sequence

import msgspec
from attrs import Factory, define

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
from memory_engine.language.sentences import QUESTION_MARKS, clean, spans, words
from memory_engine.views.brief.force import Force, force_of
from memory_engine.views.brief.ruling import Ruling
from memory_engine.views.brief.statements import MessageStatement, statements_of
from memory_engine.views.brief.terms import is_value, terms_of

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


@define(eq=False)
class TalkMessage:
    """A message of a person, or of the agent that leads, with what this agent did before the next one.

    `asked` is the agent's last question before it. `told` holds the terms of what the agent said since the previous
    message.
    """

    seq: int
    speaker: str
    by_agent: bool
    chars: int
    asked: str = ""
    told: frozenset[str] = frozenset()
    calls: int = 0
    replied_chars: int = 0
    replied_at: int = 0
    thanked_at: int = 0
    statements: "list[TalkStatement]" = Factory(list)


@define(eq=False)
class TalkStatement:
    """A statement and how the agent dealt with it.

    `taken` holds the terms that the agent used, `taken_at` the seq of the event that last added to them.
    """

    message: TalkMessage
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
    corrected_by: "TalkStatement | None" = None
    ruling: Ruling | None = None
    """The ruling, set once its message is closed (see `standing.settle`)."""

    @property
    def key(self) -> tuple[int, int]:
        """Its key: the seq of the message, and the statement's number within it."""
        return self.message.seq, self.n


class AgentReport(msgspec.Struct, frozen=True, gc=False):
    """The agent's own report of its work, during the work or at its end."""

    seq: int
    statements: tuple[MessageStatement, ...]


class Talk:
    """What people have said up to an event, and how the agent dealt with it.

    `open` holds the newest messages, whose statements may still be dealt with; `closing` those just closed, for
    `standing.settle`; `closed` and `spent` the statements of older messages. `version` grows with every change to
    these, except when the agent uses terms of open messages.
    """

    def __init__(self) -> None:
        self.seq = self.version = 0
        self._begin()

    def _begin(self) -> None:
        self.first: TalkMessage | None = None
        self.newest: TalkMessage | None = None
        self.messages = 0
        self.speakers: dict[str, None] = {}
        self.counts: dict[str, int] = {}
        self.vocabulary: dict[str, int] = {}
        self.open: list[TalkMessage] = []
        self.closing: list[TalkMessage] = []
        self.closed: dict[tuple[int, int], TalkStatement] = {}
        self.spent: dict[tuple[int, int], TalkStatement] = {}
        self.reports: list[AgentReport] = []
        self.version += 1
        self.reviewed = 0
        self._by_term: dict[str, list[TalkStatement]] = {}
        self._asked_in: dict[int, int] = {}
        self._asked = ""
        self._told: frozenset[str] = frozenset()
        self._done: frozenset[str] = frozenset()

    def take(self, seq: int, event: Event | UnknownEvent) -> None:
        """Update the talk with the next event."""
        self.seq = max(self.seq, seq)
        match event:
            case UserMessage(origin=""):
                self._hear(TalkMessage(seq, event.name, False, 0), content_text(event.content))
            case ParentAgentMessage():
                self._hear(TalkMessage(seq, event.agent_id, True, 0), content_text(event.content))
            case LlmTextResponse():
                self._reply(seq, content_text(event.content))
            case LlmClarification():
                self._reply(seq, event.content)
                self._asked = _last_sentence(event.content)
            case LlmToolCall():
                self._act(seq, event.calls, event.content)
            case LlmSkillCall():
                self._act(seq, (ToolCall(event.call_id, event.name, event.arguments),))
            case LlmSubagentSpawn():
                self._act(seq, (ToolCall(event.call_id, event.agent_id, event.task),))
            case LlmSubagentMessage():
                self._act(seq, (ToolCall("", event.agent_id, content_text(event.content)),))
            case CycleStarted(question_at=at) if at:
                self._asked_in[seq] = seq + at if at < 0 else at
            case ExchangeFinished(cycle=cycle) if cycle in self._asked_in:
                self._asked_in[seq] = self._asked_in[cycle]
            case ThreadCleared():
                self._begin()
            case MemoryForget():
                seqs = event.origins()
                self._forget(seqs | {self._asked_in[one] for one in seqs if one in self._asked_in})

    # people

    def _hear(self, message: TalkMessage, text: str) -> None:
        message.chars = len(text)
        message.asked, message.told = self._asked, self._told
        self._asked, self._told, self._done = "", frozenset(), frozenset()
        for n, statement in enumerate(statements_of(text)):
            message.statements.append(_read(message, n, statement))
        self.messages += 1
        self.version += 1
        self.speakers.setdefault(message.speaker)
        for term in frozenset[str]().union(*(one.terms for one in message.statements)):
            self.counts[term] = self.counts.get(term, 0) + 1
        for one in message.statements:
            self._compare(one)
        self._thank(message)
        self.first = self.first or (message if any(not one.empty for one in message.statements) else None)
        self.newest = message
        self.open.append(message)
        if len(self.open) > OPEN_MESSAGES:
            self.closing.append(self.open.pop(0))

    def _thank(self, message: TalkMessage) -> None:
        """Mark the messages that a thank-you closes: those since which the agent has called something."""
        if not all(one.empty or one.courteous for one in message.statements):
            return
        calls = 0
        for earlier in reversed(self.open):
            calls += earlier.calls
            if calls:
                earlier.thanked_at = earlier.thanked_at or message.seq

    def _compare(self, later: TalkStatement) -> None:
        """Mark the earlier statements of the same speaker that this one repeats or corrects, then index its terms."""
        if later.statement.material or later.empty:
            return
        shared: dict[tuple[int, int], tuple[TalkStatement, set[str]]] = {}
        for term in later.terms:
            for earlier in self._by_term.get(term, ()) if self.counts[term] <= COMMON_MIN else ():
                if earlier.message.speaker == later.message.speaker and earlier.message is not later.message:
                    shared.setdefault(earlier.key, (earlier, set()))[1].add(term)
        for earlier, terms in shared.values():
            self._relate(earlier, later, terms)
        for term in later.terms:
            known = self._by_term.setdefault(term, [])
            known.append(later)
            if len(known) > ALIKE_MAX:
                del known[0]

    def _relate(self, earlier: TalkStatement, later: TalkStatement, terms: set[str]) -> None:
        alike = len(terms) / len(earlier.terms)
        if not (later.force.corrects or alike >= 0.6):
            return
        named = any(is_value(term) for term in terms) or bool(terms & earlier.names & later.names)
        if later.force.corrects and (named or alike >= 0.4):
            earlier.corrected_by = later
        elif alike >= 0.6 and not later.asks:
            earlier.repeated_at = later.message.seq

    def _forget(self, seqs: frozenset[int]) -> None:
        self.version += 1
        self.open = [one for one in self.open if one.seq not in seqs]
        self.closing = [one for one in self.closing if one.seq not in seqs]
        self.closed, self.spent = (
            {key: one for key, one in found.items() if key[0] not in seqs} for found in (self.closed, self.spent)
        )
        self.reports = [one for one in self.reports if one.seq not in seqs]
        self._by_term = {
            term: [one for one in found if one.message.seq not in seqs] for term, found in self._by_term.items()
        }
        for one in (*self.closed.values(), *(one for message in self.open for one in message.statements)):
            if one.corrected_by is not None and one.corrected_by.message.seq in seqs:
                one.corrected_by = None
        if self.first is not None and self.first.seq in seqs:
            self.first = None
        if self.newest is not None and self.newest.seq in seqs:
            self.newest = self.open[-1] if self.open else None

    # the agent

    def _reply(self, seq: int, text: str) -> None:
        """Process a text of the agent: it deals with statements if calls came before it or if it is no mere note."""
        if not text.strip():
            return
        newest = self.newest
        if newest is None:
            self._asked, self._told = _last_question(text), self._told | terms_of(text, parts=True)
            return
        newest.replied_chars += len(text)
        newest.replied_at = newest.replied_at or seq
        terms = terms_of(text, parts=True)
        for term in terms - self._told:
            self.vocabulary[term] = self.vocabulary.get(term, 0) + 1
        self._asked = _last_question(text) or self._asked
        if newest.calls >= WORK_CALLS and (report := _report(seq, text)) is not None:
            self.reports = [*self.reports[1 - REPORTS_MAX :], report]
        self._told |= terms
        self._done |= terms
        acted = 0
        for message in reversed(self.open):
            acted += message.calls
            if acted or len(text) > max(ACK_CHARS_MAX, 3 * message.chars):
                self._take_up(message, seq)
            if message is newest:
                for one in message.statements:
                    one.answered_at = one.answered_at or seq

    def _act(self, seq: int, calls: Sequence[ToolCall], text: str = "") -> None:
        newest = self.newest
        if newest is None:
            return
        newest.calls += len(calls)
        newest.replied_at = newest.replied_at or seq
        terms = terms_of(" ".join([*(f"{call.name} {call.arguments}" for call in calls), text]), parts=True)
        self._done |= terms
        for message in self.open:
            self._take_up(message, seq)

    def _take_up(self, message: TalkMessage, seq: int) -> None:
        """Record the terms of a message's statements that the agent used in this turn, if they are more than before."""
        for one in message.statements:
            found = one.terms & self._done
            if len(found) > len(one.taken):
                one.taken, one.taken_at = found, seq

    # weights

    def rarity(self, term: str) -> float:
        """Return a term's rarity: near 0 if every message has it, up to 1 if only one does."""
        said = self.counts.get(term, 0)
        own = (self.messages + 2 - said) / (self.messages + 1) / max(said, 1)
        return own / (1 + VOCABULARY * self.vocabulary.get(term, 0))


def _read(message: TalkMessage, n: int, statement: MessageStatement) -> TalkStatement:
    text = statement.text
    said = words(text)
    terms = frozenset[str]() if statement.material else terms_of(text)
    force, asks = force_of(text), text.rstrip("\"'”’»)]*_」』 ").endswith(QUESTION_MARKS)
    is_short = 0 < len(said) <= COURTEOUS_WORDS_MAX and not asks and not force.is_binding
    return TalkStatement(
        message,
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
    """Return the sentences of a report that name a value or state a decision; `None` if there are none."""
    telling = []
    for one in statements_of(text)[:REPORT_STATEMENTS_MAX]:
        names_something = any(is_value(term) for term in terms_of(one.text)) or force_of(one.text).binds
        if names_something and not one.material and len(one.text) <= REPORT_CHARS_MAX:
            telling.append(one)
    return AgentReport(seq, tuple(telling)) if telling else None


def _last_sentence(text: str) -> str:
    return clean(text)[-ASKED_CHARS_MAX:]
