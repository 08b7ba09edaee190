"""Statements: which ones are replaced by later ones, as a model decides and people correct."""

from collections import deque
from collections.abc import Sequence

import msgspec

from memory_engine.core.arguments import checked_count, checked_text, checked_type
from memory_engine.core.events.memory import MemoryForget
from memory_engine.core.records import Receipt
from memory_engine.errors import EventNotFound, IdempotencyConflict, InvalidArgument, ModelError
from memory_engine.errors.effects import Usage
from memory_engine.llm.base import LanguageModel, MemoryModel
from memory_engine.projections.outbox import derived_id
from memory_engine.recall.hits import Hit
from memory_engine.recall.service import checked_query, searched_questions
from memory_engine.runtime.eras import era_of
from memory_engine.runtime.handle import ThreadHandle
from memory_engine.runtime.life import forget
from memory_engine.views.statements.asking import ABOUT_THE_PAIR, PROMPT_VERSION, ask_verdict
from memory_engine.views.statements.events import StatementsCompared, Verdict
from memory_engine.views.statements.fold import STATEMENTS, PairRow, PairRuling, pair_key
from memory_engine.views.statements.pairs import Pair, pairs_of

PAIRS_MAX = 20
"""Maximum number of pairs about which a run asks, unless you say otherwise."""


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """What was last decided of a pair of statements: by `model`, or by a person, `by`, in the event `event_id`.

    `older` and `newer` are the seqs of their events, `older_n` and `newer_n` say which passage of each.
    """

    event_id: str
    seq: int
    verdict: Verdict
    older: int
    newer: int
    older_n: int = 0
    newer_n: int = 0
    model: str = ""
    by: str = ""


class ComparedStatements(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a run: its decisions, and how many pairs `remain` for the next one.

    `failure` says why the model was asked no further; the pairs without an answer remain.
    """

    decisions: tuple[Decision, ...] = ()
    remain: int = 0
    usage: Usage = Usage()
    failure: str = ""

    @property
    def replaced(self) -> tuple[Decision, ...]:
        """The decisions by which a statement is replaced."""
        return tuple(one for one in self.decisions if one.verdict == "replaced")


class Statements:
    """Decides which of a thread's statements later ones replace. Searches use what is decided."""

    def __init__(self, thread: ThreadHandle) -> None:
        self._thread = thread

    async def compare(
        self, *questions: str, pairs_max: int = PAIRS_MAX, model: LanguageModel | None = None
    ) -> ComparedStatements:
        """Ask a model about pairs of statements that questions raise, each pair once, and record each answer.

        Without questions it takes those that this process has searched the thread for lately. Asks `model`, or the
        engine's memory model, about at most `pairs_max` pairs; call again for the rest. An answer that is not a
        verdict is recorded as `unclear`. If the model fails, the run ends and says why. No search waits for this.

        Raises `InvalidArgument` without a model, and what `dispatch` raises.
        """
        asked = [checked_query(question) for question in questions]
        self._thread.check_present("decision")
        checked_count("pairs_max", pairs_max)
        if model is not None and not hasattr(model, "complete"):
            raise InvalidArgument("model", model, "give a language model")
        model = model or self._thread.kernel[MemoryModel].model
        if model is None:
            raise InvalidArgument("model", None, "open the engine with Models(memory=…), or give a model here")
        waiting = await self._waiting(asked or list(searched_questions(self._thread.kernel, self._thread.id)))
        return await _Comparing(self._thread, model).decide(waiting, pairs_max)

    async def decisions(self, *, at: int | None = None) -> tuple[Decision, ...]:
        """Return what is decided of each pair, oldest decision first. `at`: as of an earlier seq."""
        rows = await self._thread.rows(STATEMENTS, at=at)
        found = [_decision(row, ruling) for _, row in rows.items() if (ruling := row.ruling()) is not None]
        return tuple(sorted(found, key=lambda one: one.seq))

    async def still_holds(self, decision: Decision | Hit | str, *, by: str = "") -> Receipt:
        """Overrule a decision: the earlier statement still holds. No model decides about this pair again.

        Give the decision, the id of its event, or a hit that is superseded. Raises `EventNotFound` if there is no such
        decision.
        """
        checked_type("decision", decision, (Decision, Hit, str), give="a decision, a hit, or an event's id")
        checked_text("by", by)
        event_id = decision if isinstance(decision, str) else ""
        event_id = decision.event_id if isinstance(decision, Decision) else event_id
        event_id = decision.decided_by if isinstance(decision, Hit) else event_id
        rows = await self._thread.rows(STATEMENTS)
        found = {key: row for key, row in rows.items() if any(one.event_id == event_id for one in row.rulings)}
        for row in found.values():
            event = StatementsCompared(
                older=row.older, newer=row.newer, older_n=row.older_n, newer_n=row.newer_n, verdict="holds", by=by
            )
            return await self._thread.dispatch(event)
        raise EventNotFound(self._thread.id, event_id)

    async def _waiting(self, questions: Sequence[str]) -> list[Pair]:
        """Return the pairs of these questions that nobody has decided about, those of each question in turn."""
        queues = [deque(await pairs_of(self._thread, question)) for question in dict.fromkeys(questions)]
        rows = await self._thread.rows(STATEMENTS)
        known = set(rows.keys())
        waiting: list[Pair] = []
        while any(queues):
            for queue in filter(None, queues):
                pair = queue.popleft()
                if (key := pair_key(*pair.place)) not in known:
                    known.add(key)
                    waiting.append(pair)
        return waiting


class _Comparing:
    """One run of questions to a model."""

    def __init__(self, thread: ThreadHandle, model: LanguageModel) -> None:
        self._thread = thread
        self._model = model
        self._usage = Usage()

    async def decide(self, waiting: Sequence[Pair], pairs_max: int) -> ComparedStatements:
        """Decide about at most `pairs_max` pairs, and say how many remain."""
        decisions: list[Decision] = []
        failure, done = "", 0
        for pair in waiting[:pairs_max]:
            try:
                decision = await self._decided(pair)
            except ModelError as error:
                self._usage = self._usage.plus(error.usage)
                failure = str(error)
                break
            done += 1
            if decision is not None:
                decisions.append(decision)
        return ComparedStatements(
            decisions=tuple(decisions), remain=len(waiting) - done, usage=self._usage, failure=failure
        )

    async def _decided(self, pair: Pair) -> Decision | None:
        """Ask about a pair and record the answer; `None` if a statement was forgotten, or another run was first."""
        seen_at = await self._thread.last_seq()
        event = await self._answered(pair)
        purpose = derived_id("statements", pair.older.event_id, pair.newer.event_id, *map(str, pair.place))
        try:
            receipt = await self._thread.dispatch(event, event_id=purpose + await era_of(self._thread))
        except IdempotencyConflict:
            return None
        if await self._is_forgotten(pair, seen_at, receipt.seq):
            await forget(self._thread, event_ids=[receipt.event_id], reason="a statement of it was forgotten")
            return None
        row = (await self._thread.rows(STATEMENTS)).get(pair_key(*pair.place))
        ruling = row.ruling() if row is not None else None
        return _decision(row, ruling) if row is not None and ruling is not None else None

    async def _answered(self, pair: Pair) -> StatementsCompared:
        """Return the model's answer as an event. Raises `ModelError` if it failed for reasons other than this pair."""
        failure, name = "", self._model.name
        verdict: Verdict = "unclear"
        usage = Usage()
        try:
            timeout_s = self._thread.kernel.config.memory_model_timeout_s
            answer = await ask_verdict(self._model, pair.older, pair.newer, timeout_s=timeout_s)
            verdict, failure, usage, name = answer.verdict, answer.failure, answer.usage, answer.model
        except ModelError as error:
            if error.reason not in ABOUT_THE_PAIR:
                raise
            failure, usage = error.reason, error.usage
        self._usage = self._usage.plus(usage)
        older, older_n, newer, newer_n = pair.place
        return StatementsCompared(
            older=older,
            older_n=older_n,
            newer=newer,
            newer_n=newer_n,
            verdict=verdict,
            model=name,
            prompt=PROMPT_VERSION,
            usage=usage,
            failure=failure,
        )

    async def _is_forgotten(self, pair: Pair, after: int, upto: int) -> bool:
        """Return True if one of the statements was forgotten while the model was asked."""
        gone: set[int] = set()
        async for event in self._thread.events(after=after, upto=upto):
            if isinstance(event.event, MemoryForget):
                gone |= event.event.origins()
        return not gone.isdisjoint((pair.older.seq, pair.newer.seq))


def _decision(row: PairRow, ruling: PairRuling) -> Decision:
    return Decision(
        event_id=ruling.event_id,
        seq=ruling.seq,
        verdict=ruling.verdict,
        older=row.older,
        newer=row.newer,
        older_n=row.older_n,
        newer_n=row.newer_n,
        model=ruling.model,
        by=ruling.by,
    )
