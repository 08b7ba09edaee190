"""`thread.promotion`: judges the scratchpad's snippets, decides which to promote, and records why."""

from collections.abc import Sequence

import msgspec

from memory_engine.core.arguments import checked_text
from memory_engine.core.chunks import content_text
from memory_engine.core.events.base import Content
from memory_engine.core.events.delivery import Destination
from memory_engine.core.events.memory import MemoryForget
from memory_engine.core.ids import check_identifier
from memory_engine.core.origins import Speaker, at_least, checked_trust
from memory_engine.core.records import NewEvent, Receipt
from memory_engine.errors import IdempotencyConflict, InvalidArgument, UnknownChunk
from memory_engine.language.secrets import mask_secrets
from memory_engine.projections.outbox import derived_id
from memory_engine.recall.trust import origins_of
from memory_engine.runtime.delivery import Relay
from memory_engine.runtime.eras import era_of
from memory_engine.runtime.handle import ThreadHandle
from memory_engine.runtime.life import forget
from memory_engine.runtime.scoped import ScopeHandle
from memory_engine.views.preferences.view import Preferences
from memory_engine.views.promotion.agent_md import AgentMd
from memory_engine.views.promotion.events import PromotionDecided, PromotionTarget, ReportSaved
from memory_engine.views.promotion.finding import FINDINGS, NotedFinding
from memory_engine.views.promotion.fold import PROMOTION, Verdict
from memory_engine.views.promotion.judge import Judge, Judgement, Owner, Placement, PlacementRoute, route_by_wording
from memory_engine.views.promotion.proposals import Proposals
from memory_engine.views.promotion.scorers import PromotionContext, Scorers
from memory_engine.views.scratchpad.view import Scratchpad, Snippet

ALL = "all"
"""Asks for every snippet."""
ATTEMPTS = 4
"""Attempts to record verdicts: another process may record its own for the same snippets first, which then apply."""
KEPT_CHARS_MAX = 1_000
"""Maximum number of characters kept of a snippet that is not promoted; the log already holds the whole text."""
GONE = "it went while it was judged"
UNTRUSTED = "its origin is lower than asked for"


class Skipped(msgspec.Struct, frozen=True):
    """A snippet without a decision."""

    snippet: str
    reason: str


class PromotionReport(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of an evaluation: verdicts (also earlier ones of the same trigger), and the snippets it left."""

    trigger: str
    verdicts: tuple[Verdict, ...] = ()
    skipped: tuple[Skipped, ...] = ()

    @property
    def promoted(self) -> tuple[Verdict, ...]:
        """The verdicts that promoted a snippet."""
        return tuple(verdict for verdict in self.verdicts if verdict.promoted)


class _Judging(msgspec.Struct, frozen=True, kw_only=True):
    """The snippets to judge, and the trigger. The ids of the verdicts are made of `name` and the snippet."""

    trigger: str
    name: tuple[str, ...]
    requested: tuple[str, ...] | None = None
    placement: Placement | None = None
    min_trust: Speaker | None = None

    def event_id(self, snippet: Snippet) -> str:
        return derived_id("promotion", *self.name, snippet.id)

    def concerns(self, snippet: Snippet) -> bool:
        return self.requested is None or snippet.id in self.requested


class Promotion:
    """Promotes snippets of one conversation. `route` chooses where to."""

    def __init__(self, thread: ThreadHandle, *, route: PlacementRoute = route_by_wording) -> None:
        self._thread = thread
        self._route = route

    async def report_saved(
        self, title: str, content: Content = "", *, flow: str = "", event_id: str = ""
    ) -> PromotionReport:
        """Record that a report was saved, and judge every snippet.

        With your own `event_id`, calling again completes what a crash interrupted.
        """
        checked_text("event_id", event_id)
        receipt = await self._thread.dispatch(ReportSaved(title=title, content=content, flow=flow), event_id=event_id)
        return await self.evaluate(trigger=receipt.event_id)

    async def request(
        self,
        *snippet_ids: str,
        target: PromotionTarget | None = None,
        key: str = "",
        min_trust: str | None = None,
    ) -> PromotionReport:
        """Promote snippets on request: by id, or `"all"`. Recalled and promoted ones stay.

        `min_trust` skips those of a lower origin: with "agent", what was written after reading a tool's output.

        `target` overrides the route, `key` names the preference. Raises `UnknownChunk` for an id that the scratchpad
        does not hold, before anything is written.
        """
        checked_text("key", key)
        found = tuple(snippet.id for snippet in await Scratchpad(self._thread).read())
        wanted = found if ALL in snippet_ids else snippet_ids
        for snippet_id in wanted:
            if snippet_id not in found:
                raise UnknownChunk("promote", snippet_id)
        if target is None and key:
            target = "preferences"
        placement = Placement(target, key, "as was asked") if target is not None else None
        name = ("request", target or "", key)
        return await self._evaluate_retrying(
            _Judging(trigger="request", name=name, requested=wanted, placement=placement, min_trust=_trust(min_trust))
        )

    async def evaluate(self, *, trigger: str = "", min_trust: str | None = None) -> PromotionReport:
        """Judge every snippet. `trigger` names what asks for it, such as the id of an event; `min_trust` is as above.

        Snippets already judged under this trigger are not judged again. Without one, everything is judged again. Raises
        `InvalidIdentifier` for a trigger that cannot be an id, and a scorer's errors; then nothing is recorded.
        """
        checked_text("trigger", trigger)
        trigger = check_identifier("trigger", trigger or self._thread.kernel.new_id())
        return await self._evaluate_retrying(
            _Judging(trigger=trigger, name=("trigger", trigger), min_trust=_trust(min_trust))
        )

    async def propose(self, seq: int | None = None, text: str = "") -> tuple[Verdict, ...]:
        """Propose what the user wants from now on ("always answer in French") as their preference.

        Reads all their messages in the state, or only the message at `seq`; `text` picks one part of a message. A
        proposal takes effect only with `accept`. Proposing the same again changes nothing. Returns those of these
        proposals that wait for an answer; none if the conversation has no user. Raises `InvalidArgument` if no person
        said that.
        """
        return await Proposals(self._thread).make(seq, text)

    async def proposals(self, *, at: int | None = None) -> tuple[Verdict, ...]:
        """Return the proposals without an answer, oldest first."""
        return await Proposals(self._thread).waiting(at=at)

    async def accept(self, proposal_id: str, *, key: str = "", by: str = "") -> Verdict:
        """Make a proposal (by its `event_id`) the user's preference, under `key` or one made from the text.

        Raises `EventNotFound` for one that does not wait.
        """
        return await Proposals(self._thread).answer(proposal_id, accepted=True, by=by, key=key, reason="")

    async def reject(self, proposal_id: str, *, by: str = "", reason: str = "") -> Verdict:
        """Turn a proposal down. Raises `EventNotFound` for one that does not wait."""
        return await Proposals(self._thread).answer(proposal_id, accepted=False, by=by, key="", reason=reason)

    async def verdicts(self, *, at: int | None = None) -> tuple[Verdict, ...]:
        """Return every verdict, oldest first."""
        return tuple(verdict for _, verdict in (await self._thread.rows(PROMOTION, at=at)).items())

    async def _evaluate_retrying(self, asked: _Judging) -> PromotionReport:
        for _ in range(ATTEMPTS - 1):
            try:
                return await self._evaluate(asked)
            except IdempotencyConflict:
                continue
        return await self._evaluate(asked)

    async def _evaluate(self, asked: _Judging) -> PromotionReport:
        seen_at = (await self._thread.state()).seq
        snippets = [snippet for snippet in await Scratchpad(self._thread).read() if asked.concerns(snippet)]
        snippets, untrusted = await self._trusted(snippets, asked.min_trust)
        recorded = await self._recorded(asked, snippets)
        judgements = await self._judge(asked, [snippet for snippet in snippets if snippet.id not in recorded])
        skipped = [*untrusted, *(Skipped(j.snippet.id, j.skipped) for j in judgements if j.skipped)]
        # judging may have taken a model's time: snippets that went meanwhile are not promoted
        live = {snippet.id for snippet in await Scratchpad(self._thread).read()}
        skipped += [Skipped(j.snippet.id, GONE) for j in judgements if not j.skipped and j.snippet.id not in live]
        decided = [j for j in judgements if not j.skipped and j.snippet.id in live]
        receipts = await self._record(asked, decided)
        skipped += await self._take_back(decided, receipts, seen_at)
        await self._thread.kernel[Relay].deliver(self._thread.id)
        wanted = {*recorded.values(), *(receipt.event_id for receipt in receipts)}
        verdicts = tuple(verdict for verdict in await self.verdicts() if verdict.event_id in wanted)
        return PromotionReport(trigger=asked.trigger, verdicts=verdicts, skipped=tuple(skipped))

    async def _trusted(
        self, snippets: list[Snippet], least: Speaker | None
    ) -> tuple[list[Snippet], tuple[Skipped, ...]]:
        if least is None:
            return snippets, ()
        found = await origins_of(self._thread.kernel, self._thread.id, [snippet.seq for snippet in snippets])
        low = {one.id for one in snippets if not at_least(found.get(one.seq, Speaker.TOOL), least)}
        trusted = [one for one in snippets if one.id not in low]
        return trusted, tuple(Skipped(one.id, UNTRUSTED) for one in snippets if one.id in low)

    async def _recorded(self, asked: _Judging, snippets: Sequence[Snippet]) -> dict[str, str]:
        """Return the snippets that have a verdict of this trigger, mapped to the id of its event."""
        era = await era_of(self._thread)
        ids = {asked.event_id(snippet) + era: snippet.id for snippet in snippets}
        found = await self._thread.kernel.store.find(self._thread.id, list(ids))
        return {ids[stored.id]: stored.id for stored in found}

    async def _judge(self, asked: _Judging, snippets: Sequence[Snippet]) -> list[Judgement]:
        if not snippets:
            return []
        context = PromotionContext(
            snippets=await Scratchpad(self._thread).read(),
            trigger=asked.trigger,
            requested=frozenset(asked.requested or ()),
            promoted=await self._standing(),
            elsewhere=await self._elsewhere(),
            report=await self._report(asked.trigger),
        )
        promoted = {verdict.snippet: verdict.content for verdict in await self.verdicts() if verdict.promoted}
        kernel = self._thread.kernel
        judge = Judge(kernel.made(Scorers).scorers, timeout_s=kernel.config.call_timeout_s)
        return await judge.judge(snippets, context, promoted)

    async def _standing(self) -> list[str]:
        """Return the texts promoted earlier for this conversation's tenant and user, from any conversation."""
        owner, kernel = await self._owner(), self._thread.kernel
        texts = []
        if owner.tenant_id:
            texts += [line.text for line in await AgentMd(ScopeHandle(kernel, "tenant", owner.tenant_id)).lines()]
        if owner.user_id:
            preferences = await Preferences(ScopeHandle(kernel, "user", owner.user_id, owner.tenant_id)).all()
            texts += [str(found.value) for found in preferences.values() if found.origin == "promotion"]
        return texts

    async def _elsewhere(self) -> list[NotedFinding]:
        """Return what the user's other conversations found and did not promote, oldest first."""
        owner = await self._owner()
        if not owner.user_id:
            return []
        user = ScopeHandle(self._thread.kernel, "user", owner.user_id, owner.tenant_id)
        return [f for _, f in (await user.rows(FINDINGS)).items() if f.source_thread != self._thread.id]

    async def _owner(self) -> Owner:
        info = await self._thread.info()
        return Owner(user_id=info.user_id, tenant_id=info.tenant_id)

    async def _report(self, trigger: str) -> str:
        """Return the title and text of the report whose saving is the trigger; empty for other triggers."""
        found = await self._thread.kernel.store.find(self._thread.id, [trigger])
        for stored in found:
            event = self._thread.kernel.reader.decode(self._thread.id, stored).event
            if isinstance(event, ReportSaved):
                return f"{event.title}\n{content_text(event.content)}"
        return ""

    async def _record(self, asked: _Judging, judgements: Sequence[Judgement]) -> tuple[Receipt, ...]:
        """Record all verdicts, or none."""
        owner = await self._owner()
        seqs = sorted({judgement.snippet.seq for judgement in judgements})
        sources = dict(zip(seqs, await self._thread.kernel.reader.ids_at(self._thread.id, seqs), strict=True))
        era = await era_of(self._thread)
        noted = {verdict.snippet for verdict in await self.verdicts() if verdict.noted}  # once a conversation
        events = []
        for judgement in judgements:
            event = self._decided(asked, judgement, owner, sources[judgement.snippet.seq])
            if judgement.snippet.id not in noted and _is_noted(judgement, owner):
                event = msgspec.structs.replace(event, noted=Destination("user", owner.user_id, owner.tenant_id))
            events.append(NewEvent(event, id=asked.event_id(judgement.snippet) + era))
        return await self._thread.dispatch_all(events)

    def _decided(self, asked: _Judging, judgement: Judgement, owner: Owner, source: str) -> PromotionDecided:
        snippet, reason = judgement.snippet, judgement.reason
        placement, destination = Placement(""), None
        if judgement.rises:
            placement, destination = owner.choose_destination(asked.placement or self._route(snippet), snippet)
            reason = f"{reason}; {placement.target or 'nowhere'}: {placement.reason}"
        return PromotionDecided(
            snippet=snippet.id,
            content=snippet.text if placement.target else mask_secrets(snippet.text)[:KEPT_CHARS_MAX],
            trigger=asked.trigger,
            scores=judgement.scores,
            target=placement.target,
            key=placement.key,
            reason=reason,
            destination=destination,
            source_thread=self._thread.id,
            sources=(source,),
        )

    async def _take_back(
        self, decided: Sequence[Judgement], receipts: Sequence[Receipt], seen_at: int
    ) -> list[Skipped]:
        """Forget verdicts on snippets that were forgotten before the verdict was written."""
        if not receipts:
            return []
        state = await receipts[-1].state.load()
        gone = {
            j.snippet: r.event_id for j, r in zip(decided, receipts, strict=True) if state.get(j.snippet.id) is None
        }
        if not gone:
            return []
        chunk_ids: set[str] = set()
        seqs: set[int] = set()
        async for event in self._thread.events(after=seen_at, upto=receipts[0].seq):
            if isinstance(event.event, MemoryForget):
                chunk_ids.update(event.event.chunk_ids)
                seqs.update(event.event.seqs)
        forgotten = {s: event_id for s, event_id in gone.items() if s.id in chunk_ids or s.seq in seqs}
        if forgotten:
            await forget(self._thread, event_ids=list(forgotten.values()), reason="its snippet was forgotten")
        return [Skipped(snippet.id, GONE) for snippet in forgotten]


def _trust(origin: str | None) -> Speaker | None:
    try:
        return checked_trust(origin)
    except ValueError as error:
        raise InvalidArgument("min_trust", origin, str(error)) from None


def _is_noted(judgement: Judgement, owner: Owner) -> bool:
    """Return True if the user's thread keeps a snippet that was not promoted. A long one would not be found again."""
    return judgement.worth_noting and bool(owner.user_id) and len(judgement.snippet.text) <= KEPT_CHARS_MAX
