"""Industry patterns: what a tenant lets out, who decides, what others see of it, and how it is taken back."""

import pytest

import memory_engine
from memory_engine import Engine, errors
from memory_engine import events as e
from memory_engine.engine import kernel_of
from memory_engine.errors import InvalidEvent, InvalidPattern, NotJoined, UnknownLine, UnknownPattern
from memory_engine.events import Destination
from memory_engine.runtime.scoped import ScopeHandle
from memory_engine.testing import ManualClock
from memory_engine.views.patterns.redaction import EmbeddedRedactor, Redacted
from memory_engine.views.patterns.view import Patterns
from tests.patterns import approved, joined, promoted, texts

LINE = "Returns double after the discounts of Acme, ask ann@acme.example"
REDACTED = "Returns double after the discounts of [name], ask [email]"


async def test_S8_a_promoted_line_leaves_redacted_when_a_person_approves_it(engine: Engine) -> None:
    """Proposed, nothing leaves; approved, another tenant of the industry reads it, and not whose it is."""
    await joined(engine, "acme", "globex")
    acme, globex = engine.tenant("acme").patterns, engine.tenant("globex").patterns
    (line,) = await promoted(engine, "acme", LINE)
    proposal = await acme.propose(line)
    assert (REDACTED, LINE, line) == (proposal.text, proposal.original, proposal.line)
    assert [("name", "Acme"), ("email", "ann@acme.example")] == [
        (one.kind, LINE[one.start : one.end]) for one in proposal.found
    ]
    assert ((proposal,), ()) == (await acme.review(), await globex.list())
    assert [] == await engine.threads(kind="industry")
    published = await acme.approve(proposal.id, by="ann")
    (seen,) = await globex.list()
    assert (published, REDACTED, 1, False, True) == (seen.id, seen.text, seen.tenants, seen.own, seen.recalled)
    assert () == await acme.review()
    assert [True] == [pattern.own for pattern in await acme.list("retail")]


async def test_S8_only_promoted_lines_can_be_proposed(engine: Engine) -> None:
    """By id or by their words; what people wrote, and what is no line, is refused with nothing written."""
    await joined(engine, "acme")
    tenant = engine.tenant("acme")
    await tenant.agent_md.upload("Margins are low.\n")
    (line,) = await promoted(engine, "acme", "Returns double after discounts")
    before = (await tenant.info()).events
    with pytest.raises(InvalidPattern, match="no promoted line"):
        await tenant.patterns.propose("Margins are low.")
    with pytest.raises(UnknownLine):
        await tenant.patterns.propose(line + 1)
    assert before == (await tenant.info()).events
    by_words = await tenant.patterns.propose("returns double  after discounts.")
    assert by_words == await tenant.patterns.propose(line)
    assert before + 1 == (await tenant.info()).events


async def test_S8_a_line_of_nothing_but_names_is_not_proposed(engine: Engine) -> None:
    """What says nothing when it is redacted cannot be shared, at the proposal nor at the approval."""
    await joined(engine, "acme")
    lines = await promoted(engine, "acme", "Walmart 48213", "Returns double")
    with pytest.raises(InvalidPattern, match="nothing is left"):
        await engine.tenant("acme").patterns.propose(lines[0])
    proposal = await engine.tenant("acme").patterns.propose(lines[1])
    with pytest.raises(InvalidPattern, match="nothing is left"):
        await engine.tenant("acme").patterns.approve(proposal.id, "Walmart", by="ann")


async def test_S8_what_a_person_writes_anew_is_redacted_too(engine: Engine) -> None:
    """An edited text leaves without its names; a decision needs somebody who made it."""
    await joined(engine, "acme", "globex")
    (line,) = await promoted(engine, "acme", LINE)
    patterns = engine.tenant("acme").patterns
    proposal = await patterns.propose(line)
    with pytest.raises(InvalidPattern, match="needs a name"):
        await patterns.approve(proposal.id, by=" ")
    await patterns.approve(proposal.id, "Returns double after discounts, says Bob of Acme.", by="ann")
    assert ["Returns double after discounts, says [name]."] == await texts(engine, "globex")


async def test_S8_a_rejected_line_stays_and_may_be_proposed_again(engine: Engine) -> None:
    """It leaves the review with its reason in the log, and nothing goes anywhere."""
    await joined(engine, "acme", "globex")
    (line,) = await promoted(engine, "acme", LINE)
    patterns = engine.tenant("acme").patterns
    proposal = await patterns.propose(line)
    await patterns.reject(proposal.id, by="ann", reason="too much")
    assert ((), []) == (await patterns.review(), await texts(engine, "globex"))
    for decide in (patterns.approve(proposal.id, by="ann"), patterns.reject(proposal.id, by="ann")):
        with pytest.raises(UnknownPattern, match=f"proposal {proposal.id}"):
            await decide
    assert proposal.id < (await patterns.propose(line)).id


async def test_S8_a_proposal_is_decided_once(engine: Engine) -> None:
    """Whoever decides otherwise at the same time is told that it waits no more."""
    await joined(engine, "acme", "globex")
    (line,) = await promoted(engine, "acme", LINE)
    patterns = engine.tenant("acme").patterns
    proposal = await patterns.propose(line)
    other = e.PatternRejected(proposal=proposal.id, by="bob")
    original = patterns._decide

    async def late(event: e.Event, proposal_id: int) -> None:
        await engine.tenant("acme").dispatch(other, event_id=f"pattern-decision:{proposal_id}")
        await original(event, proposal_id)

    patterns._decide = late  # type: ignore[method-assign]  # bob was first
    with pytest.raises(UnknownPattern):
        await patterns.approve(proposal.id, by="ann")
    assert [] == await texts(engine, "globex")


async def test_S8_reading_and_sharing_are_for_those_who_joined(engine: Engine) -> None:
    """A tenant that has not joined, or joined another industry, neither reads nor proposes."""
    await joined(engine, "acme")
    await engine.tenant("other").patterns.join("health")
    await approved(engine, "acme", "Returns double after discounts")
    for tenant in ("nobody", "other"):
        patterns = engine.tenant(tenant).patterns
        for read in (patterns.list("retail"), patterns.search("returns", industry="retail")):
            with pytest.raises(NotJoined, match="retail"):
                await read
        assert ((), ()) == (await patterns.list(), await patterns.search("returns"))
    (line,) = await promoted(engine, "nobody", "Returns double")
    with pytest.raises(NotJoined, match="no industry"):
        await engine.tenant("nobody").patterns.propose(line)


async def test_S8_joining_twice_changes_nothing(engine: Engine) -> None:
    """Not the secret nor the log; another threshold is refused."""
    patterns = engine.tenant("acme").patterns
    await patterns.join("retail", by="ann")
    await patterns.join("retail")
    assert (("retail",), 1) == (await patterns.joined(), (await engine.tenant("acme").info()).events)
    for wrong in (2, 0):
        with pytest.raises(InvalidPattern, match="min_tenants"):
            await patterns.join("retail", min_tenants=wrong)
    with pytest.raises(errors.InvalidIdentifier):
        await patterns.join("")


async def test_S8_a_tenant_in_two_industries_names_the_one(engine: Engine) -> None:
    """A line may go to both, under names that have nothing in common."""
    patterns = engine.tenant("acme").patterns
    await patterns.join("retail")
    await patterns.join("fashion")
    (line,) = await promoted(engine, "acme", "Returns double")
    with pytest.raises(InvalidPattern, match="fashion, retail"):
        await patterns.propose(line)
    for industry in await patterns.joined():
        await patterns.approve((await patterns.propose(line, industry=industry)).id, by="ann")
    assert ["fashion", "retail"] == [pattern.industry for pattern in await patterns.list()]
    names = [(await engine.industry(name).replay.latest(1))[0].event.share for name in ("retail", "fashion")]  # type: ignore[union-attr]
    assert 2 == len(set(names))
    assert 2 == len(await patterns.trace((await patterns.shared())[0].id))


async def test_S8_the_same_words_of_several_tenants_are_counted(engine: Engine) -> None:
    """Once for each tenant, however many lines of it say so."""
    await joined(engine, "a", "b", "c")
    for tenant, said in (("a", "Returns double"), ("a", "Returns double in Paris"), ("b", "returns double.")):
        await approved(engine, tenant, said, text="Returns double")
    assert [("Returns double", 2)] == [(p.text, p.tenants) for p in await engine.tenant("c").patterns.list()]
    (own,) = await engine.tenant("a").patterns.shared()
    assert (True, 2) == (own.own, own.tenants)


async def test_S8_a_pattern_waits_for_as_many_tenants_as_its_own_wants(engine: Engine) -> None:
    """Below that nobody sees it, in no read; a share that is content with fewer is seen without the others."""
    for tenant, least in (("a", 3), ("b", 1), ("c", 2), ("d", 1)):
        await engine.tenant(tenant).patterns.join("retail", min_tenants=least)
    reader = engine.tenant("d").patterns
    seen: list[list[tuple[str, int]]] = []
    for tenant in "abc":
        await approved(engine, tenant, "Returns double" if tenant != "a" else "Returns double!")
        seen.append([(p.text, p.tenants) for p in await reader.list()])
        assert [p.pattern for p in await reader.search("returns double")] == list(await reader.list())
    assert [[], [("Returns double", 1)], [("Returns double!", 3)]] == seen


async def test_S8_a_search_finds_each_pattern_once_and_marks_it(engine: Engine) -> None:
    """Best first, as recalled, with nothing of where it is from; hidden and withdrawn ones are not found."""
    await joined(engine, "a", "b")
    await engine.tenant("shy").patterns.join("retail", min_tenants=2)
    for tenant in ("a", "b"):
        await approved(engine, tenant, "Returns double after discounts")
    await approved(engine, "a", "Churn is lowest in spring")
    await approved(engine, "shy", "Returns are highest on Mondays")
    hits = await engine.tenant("b").patterns.search("what do discounts do to returns?")
    best = hits[0].pattern
    assert ("Returns double after discounts", 2, True) == (best.text, best.tenants, hits[0].recalled)
    assert len({hit.pattern.id for hit in hits}) == len(hits)
    assert [] == [hit for hit in hits if "Mondays" in hit.pattern.text]
    assert {"pattern", "score", "why", "recalled"} == set(type(hits[0]).__struct_fields__)


# Where it is from


async def test_S8_a_tenant_traces_its_own_to_the_events(engine: Engine) -> None:
    """To the line, its promotion, the conversation it was drawn from and the approval; of others, how many."""
    await joined(engine, "acme", "globex")
    thread = await engine.create_thread("talk", user_id="u1", tenant_id="acme")
    snippet = await thread.dispatch(e.ScratchpadWritten(content="Returns double after discounts"))
    await thread.promotion.request(snippet.chunks[-1].id, target="agent_md")
    tenant = engine.tenant("acme")
    (line,) = await tenant.agent_md.lines()
    proposal = await tenant.patterns.propose(line.id)
    pattern_id = await tenant.patterns.approve(proposal.id, by="ann")
    (trace,) = await tenant.patterns.trace(pattern_id)
    (origin,) = trace.origins
    assert (line.id, line.text, "talk", "ann") == (
        origin.line, origin.text, origin.source_thread, origin.approved_by
    )  # fmt: skip
    assert snippet.event_id in origin.sources
    assert line.promotions[0].event_id == origin.promotion
    (foreign,) = await engine.tenant("globex").patterns.trace(pattern_id)
    assert ((), "industry pattern of 'retail', shared by 1 tenant") == (foreign.origins, str(foreign))
    with pytest.raises(UnknownPattern):
        await engine.tenant("globex").patterns.trace("0" * 32)


# What an industry's thread takes


@pytest.mark.parametrize(
    "event",
    [
        e.MemoryShared(destination=Destination("industry", "retail"), layer="episodic", content="secret"),
        e.MemoryForget(seqs=(1,), reach=(e.Reach(Destination("industry", "retail"), (1,)),)),
        e.PromotionDecided(
            snippet="1.0",
            content="secret",
            trigger="t",
            target="agent_md",
            destination=Destination("industry", "retail"),
        ),
        e.PlaybookPromoted(
            flow_id="f", flow_dact="d", user_query="q", outcome="o", destination=Destination("industry", "retail")
        ),
    ],
    ids=lambda event: event.event_type,
)
async def test_S8_no_other_fact_goes_to_an_industry(engine: Engine, event: e.Event) -> None:
    """It is refused before anything is written, from a conversation and from the tenant's own thread."""
    thread = await engine.create_thread(tenant_id="acme")
    for sender in (thread, engine.tenant("acme")):
        with pytest.raises(InvalidEvent, match="approved patterns"):
            await sender.dispatch(event)
    assert 0 == (await thread.info()).events
    assert [] == await engine.threads(kind="industry")


async def test_S8_a_pattern_comes_from_a_tenant(engine: Engine) -> None:
    """Threads of no tenant publish nothing."""
    thread = await engine.create_thread()
    event = e.PatternApproved(proposal=1, industry="retail", share="ab", text="x", by="ann")
    with pytest.raises(InvalidEvent, match="approved patterns"):
        await thread.dispatch(event)


async def test_S8_an_industry_takes_patterns_and_nothing_else() -> None:
    """No other event, no cause, no moment, by whichever call; and it is not made by what it refuses."""
    published = e.PatternPublished(share="ab", text="Returns double")
    async with memory_engine.open(":memory:") as engine:
        industry = engine.industry("retail")
        with pytest.raises(InvalidEvent, match="nothing else"):
            await industry.dispatch(e.UserMessage(content="secret"))
        assert [] == await engine.threads()
        await industry.dispatch(published)
        for refused in (
            industry.dispatch(published, causation_id="e1"),
            industry.dispatch(published, correlation_id="e1"),
            industry.dispatch_all([e.PatternWithdrawn(share="ab"), e.ExternalInject(content="secret")]),
            engine.dispatch(industry.id, e.UserMessage(content="secret")),
            industry.memory.append("episodic", "secret"),
            industry.scratchpad.write("secret"),
        ):
            with pytest.raises(InvalidEvent):
                await refused
        assert 1 == (await industry.info()).events


async def test_S8_an_industry_keeps_the_day_and_no_moment() -> None:
    """Of its events and of its making."""
    clock = ManualClock()
    async with memory_engine.open(":memory:", clock=clock) as engine:
        await joined(engine, "acme")
        await approved(engine, "acme", "Returns double")
        (event,) = await engine.industry("retail").replay.latest(1)
        info = await engine.industry("retail").info()
        midnight = {"hour": 0, "minute": 0, "second": 0, "microsecond": 0}
        assert (event.recorded_at, info.created_at) == (
            event.recorded_at.replace(**midnight), info.created_at.replace(**midnight)  # type: ignore[arg-type]
        )  # fmt: skip
        assert ("", "", None) == (event.causation_id, event.correlation_id, event.occurred_at)


# Redactors of one's own


class KnowsParis:
    """The embedded one, to which a city is no name."""

    def redact(self, text: str) -> Redacted:
        """See `Redactor`."""
        return EmbeddedRedactor(allow=("Paris",)).redact(text)


class Lying:
    """Changes a text without saying what."""

    def redact(self, text: str) -> Redacted:
        """See `Redactor`."""
        return Redacted(text.upper())


async def test_S8_a_redactor_can_be_exchanged_but_not_the_tenants_own_names(engine: Engine) -> None:
    """What it leaves standing goes out, but never the ids of the tenant, its users and its agents."""
    await joined(engine, "paris-shoes", "globex")
    await engine.create_thread(user_id="bob.miller", agent_id="zed-1", tenant_id="paris-shoes")
    for tenant, said in (
        ("globex", "Returns double in Paris"),
        ("paris-shoes", "In Paris miller and zed-1 return"),
    ):
        (line,) = await promoted(engine, tenant, said)
        patterns = Patterns(ScopeHandle(kernel_of(engine), "tenant", tenant), KnowsParis())
        await patterns.approve((await patterns.propose(line)).id, by="ann")
    assert ["Returns double in Paris", "In [name] [name] and [name] return"] == await texts(engine, "globex")


async def test_S8_a_redactor_that_changes_more_than_it_says_is_refused(engine: Engine) -> None:
    """A reviewer must see by the findings what became of a line."""
    await joined(engine, "acme")
    (line,) = await promoted(engine, "acme", "Returns double")
    with pytest.raises(InvalidPattern, match="more than it says"):
        await Patterns(ScopeHandle(kernel_of(engine), "tenant", "acme"), Lying()).propose(line)
