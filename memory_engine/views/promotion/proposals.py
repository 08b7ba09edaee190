"""Proposals: a person's "from now on …" that may become their preference once it is accepted.

A proposal is a verdict with a target but no destination: it names the preference, and nothing is delivered. Accepting
it records a verdict that delivers the preference; rejecting it records one without a target. Both have the proposal's
event id as their trigger.
"""

from collections.abc import Sequence
from typing import cast

from memory_engine.core.arguments import checked_count, checked_text
from memory_engine.core.chunks import content_text
from memory_engine.core.events.delivery import Destination
from memory_engine.core.events.messages import UserMessage
from memory_engine.core.origins import PEOPLE
from memory_engine.core.records import NewEvent, RecordedEvent
from memory_engine.core.threads import ThreadInfo
from memory_engine.errors import EventNotFound, InvalidArgument
from memory_engine.language.prose import GAP, sentences
from memory_engine.language.secrets import holds_secret
from memory_engine.projections.outbox import derived_id
from memory_engine.runtime.delivery import Relay
from memory_engine.runtime.eras import era_of
from memory_engine.runtime.handle import ThreadHandle
from memory_engine.runtime.scoped import ScopeHandle
from memory_engine.views.preferences.view import Preferences
from memory_engine.views.promotion.events import PromotionDecided, PromotionTarget
from memory_engine.views.promotion.fold import PROMOTION, Verdict
from memory_engine.views.promotion.judge import preference_key
from memory_engine.views.promotion.wording import is_from_now_on, same_text

TRIGGER = "proposal"
PREFERENCES: PromotionTarget = "preferences"


class Proposals:
    """The proposals of one conversation."""

    def __init__(self, thread: ThreadHandle) -> None:
        self._thread = thread

    async def make(self, seq: int | None, text: str) -> tuple[Verdict, ...]:
        """See `Promotion.propose`."""
        checked_text("text", text)
        owner = await self._owner()
        if not owner.user_id:
            return ()
        user = ScopeHandle(self._thread.kernel, "user", owner.user_id, owner.tenant_id)
        standing = {same_text(str(found.value)) for found in (await Preferences(user).all()).values()}
        wanted = [(said, sentence) for said in await self._messages(seq) for sentence in _lasting_sentences(said, text)]
        proposals = [
            _proposal(said, sentence, self._thread.id)
            for said, sentence in wanted
            if same_text(sentence) not in standing
        ]
        rows = await self._thread.rows(PROMOTION)
        known = {(one.sources, one.content) for _, one in rows.items() if one.trigger == TRIGGER}
        era = await era_of(self._thread)
        events = [
            NewEvent(one, id=derived_id("promotion", TRIGGER, *one.sources, one.content) + era)
            for one in proposals
            if (one.sources, one.content) not in known
        ]
        if events:
            await self._thread.dispatch_all(events)
        asked = {(one.sources, one.content) for one in proposals}
        return tuple(one for one in await self.waiting() if (one.sources, one.content) in asked)

    async def waiting(self, *, at: int | None = None) -> tuple[Verdict, ...]:
        """Return the proposals without an answer, oldest first."""
        verdicts = [verdict for _, verdict in (await self._thread.rows(PROMOTION, at=at)).items()]
        answered = {verdict.trigger for verdict in verdicts}
        return tuple(one for one in verdicts if one.is_proposed and one.event_id not in answered)

    async def answer(self, proposal_id: str, *, accepted: bool, by: str, key: str, reason: str) -> Verdict:
        """Record the answer to a proposal, and deliver it if accepted. Raises `EventNotFound` if it is not waiting."""
        for name, given in (("by", by), ("key", key), ("reason", reason)):
            checked_text(name, given)
        proposal = next((one for one in await self.waiting() if one.event_id == proposal_id), None)
        if proposal is None:
            raise EventNotFound(self._thread.id, proposal_id)
        owner = await self._owner()
        word = "accepted" if accepted else "rejected"
        why = "; ".join(filter(None, (f"{word} by {by}" if by else word, reason)))
        event = PromotionDecided(
            snippet=proposal.snippet,
            content=proposal.content,
            trigger=proposal.event_id,
            target=PREFERENCES if accepted else "",
            key=(key or proposal.key) if accepted else "",
            reason=why,
            destination=Destination("user", owner.user_id, owner.tenant_id) if accepted else None,
            source_thread=self._thread.id,
            sources=proposal.sources,
        )
        event_id = derived_id("promotion", "answer", proposal.event_id) + await era_of(self._thread)
        receipt = await self._thread.dispatch(event, event_id=event_id)
        await self._thread.kernel[Relay].deliver(self._thread.id)
        rows = await self._thread.rows(PROMOTION)
        return next(verdict for _, verdict in rows.items() if verdict.event_id == receipt.event_id)

    async def _owner(self) -> ThreadInfo:
        return await self._thread.info()

    async def _messages(self, seq: int | None) -> list[RecordedEvent]:
        """Return people's messages: the one at `seq`, or all in the state."""
        if seq is None:
            chunks = (await self._thread.state()).everything()
            seqs = sorted({chunk.said_at for chunk in chunks if chunk.type in PEOPLE})
        else:
            seqs = [checked_count("seq", seq)]
        rows = await self._thread.kernel.reader.rows_at(self._thread.id, seqs)
        events = [self._thread.kernel.reader.decode(self._thread.id, row) for row in rows.values()]
        people = [one for one in events if isinstance(one.event, UserMessage) and not one.event.origin]
        if seq is not None and not people:
            raise InvalidArgument("seq", seq, "no person said anything there; take the seq of a message of theirs")
        return people


def _lasting_sentences(said: RecordedEvent, text: str) -> Sequence[str]:
    """Return the sentences of a message that are meant to apply from now on, or `text` if it is given.

    Leaves out secrets. Raises `InvalidArgument` if the message does not contain `text`.
    """
    message = content_text(cast("UserMessage", said.event).content)
    if text:
        if same_text(text) not in same_text(message):
            raise InvalidArgument("text", text, f"the message at seq {said.seq} does not say that")
        return [text] if not holds_secret(text) else []
    return [one for one in sentences(message) if is_from_now_on(one) and GAP not in one and not holds_secret(one)]


def _proposal(said: RecordedEvent, sentence: str, thread_id: str) -> PromotionDecided:
    return PromotionDecided(
        snippet=f"{said.seq}.0",
        content=sentence,
        trigger=TRIGGER,
        target=PREFERENCES,
        key=preference_key(sentence),
        reason="its user said so for all times to come; it is proposed, and holds once it is accepted",
        source_thread=thread_id,
        sources=(said.id,),
    )
