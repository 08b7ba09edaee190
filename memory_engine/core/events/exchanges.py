"""Conversation memory: exchanges, the cycle under way, the rolling summary."""

from typing import Annotated

from memory_engine.core.events.base import Event, event
from memory_engine.core.events.roles import (
    Id,
    Reference,
    Role,
    Seq,
    SeqBound,
    Source,
    SourceChunkId,
    SourceSeq,
    SourceSeqBack,
)
from memory_engine.errors.effects import Usage


@event("cycle_started", tracked=True, role="memory", chunks="none")
class CycleStarted(Event):
    """A question opens a cycle. An open, unanswered one becomes an exchange without an answer.

    `question_at` says which event holds the question in the user's own words: -1 the one directly before this, 0 none.
    Forgetting that event forgets the exchange.
    """

    question: str
    question_at: Annotated[int, Role(reference=Reference.BACK, source=Source.WORDS)] = 0


@event("exchange_finished", tracked=True, role="memory", chunks="none")
class ExchangeFinished(Event):
    """A question and its final answer. `short` replaces an answer that is too long; `method` made it.

    Each finished exchange spends one of every cached tool result's exchanges. `cycle` is the seq of the
    `cycle_started` that it ends (0: the open one of this question, if there is one). `answer_at` says which event
    holds the answer as the agent's own words: its seq, -1 the one directly before this, 0 none. `failure`
    is why a model was of no use.
    """

    question: str
    answer: str
    short: str = ""
    method: Id = ""
    model: Id = ""
    usage: Usage | None = None
    cycle: SourceSeq = 0
    answer_at: SourceSeqBack = 0
    failure: str = ""


@event("summary_rolled", tracked=True, role="memory", chunks="none")
class SummaryRolled(Event):
    """The oldest exchanges (`covers`, by their seqs) fold into the summary, which replaces the one of seq `base`.

    Where the exchanges or the base have changed meanwhile, or something was forgotten since the
    `memory_forget` of seq `forgotten`, it changes nothing: its sources are no longer valid.
    `compressed`: the text was over its limit and was made shorter, by `method`. `insights` are the
    snippets (chunk ids) that it took up, `insights_upto` is the seq of the newest that it looked at,
    `exchanges` is the number that it summarises by now. `failure` is why a model was of no use.
    """

    content: str
    covers: tuple[SourceSeq, ...] = ()
    base: SourceSeq = 0
    forgotten: Seq = 0
    exchanges: int = 0
    method: Id = ""
    compressed: bool = False
    insights: tuple[SourceChunkId, ...] = ()
    insights_upto: SeqBound = 0
    model: Id = ""
    usage: Usage | None = None
    failure: str = ""
