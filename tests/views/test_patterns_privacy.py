"""Industry patterns keep tenants apart: nothing raw of one is found from another, by any call."""

from collections.abc import Sequence

import pytest
from attrs import frozen
from hypothesis import given, settings
from hypothesis import strategies as st

import memory_engine
from memory_engine import Engine, Thread
from memory_engine import events as e
from memory_engine.errors import InvalidPattern
from tests.patterns import everything, promoted, told

IDS = st.sampled_from(
    (
        "zqx", "zqx%", "zqx*", "zqx/", "zqx/b", "zqx'", 'zqx"', "zqx' OR '1'='1", "ZQX", "zqx\u0301", "zqxé",
        "zqx:retail", "industry:zqx", "../zqx", "zqx\nb", "zqx🦊", "zqx retail", "_zqx", "[zqx]", "retail-zqx",
        "zqx\\", "%zqx%",
    )
)  # fmt: skip
"""Ids with something that is nowhere else, some the beginning of others."""
WORDS = st.sampled_from("returns double after discounts and orders of churn drop on with the in stores, shoes".split())
MARKERS = ("number", "email", "name", "phone", "token", "url", "user", "tenant")
GLUE = st.sampled_from((" ", " ", " ", ", ", ". ", " (", ") ", ' "', "; ", "\n", " - ", ": "))


@frozen
class Company:
    """A tenant with things that are its own and recognised in any text."""

    id: str
    number: int

    @property
    def user(self) -> str:
        """A user that the tenant knows."""
        return f"kimqzw{self.number}"

    def marker(self, kind: str) -> str:
        """Something that names this tenant alone."""
        n = self.number
        return {
            "number": f"73418{n}9",
            "email": f"kim.{n}@zorb{n}.example",
            "name": f"Zorblatt{'abcd'[n]}",
            "phone": f"+49 170 556677{n}",
            "token": f"qk{n}7x9zpl",
            "url": f"https://zorb{n}.example/kim",
            "user": self.user,
            "tenant": self.id,
        }[kind]

    def secrets(self) -> list[str]:
        """All of these, and a word that is in what it never shares."""
        return [*(self.marker(kind) for kind in MARKERS), self.unshared]

    @property
    def unshared(self) -> str:
        """A word of its talks, lines and documents."""
        return f"zyzzyva{'abcd'[self.number]}"


LINES = st.lists(st.tuples(st.one_of(WORDS, WORDS, st.sampled_from(MARKERS)), GLUE), min_size=2, max_size=9)


def written(company: Company, line: Sequence[tuple[str, str]]) -> str:
    """A line in which markers stand among everyday words."""
    return "".join((company.marker(word) if word in MARKERS else word) + glue for word, glue in line).strip()


async def lived(engine: Engine, company: Company, lines: Sequence[str]) -> Thread:
    """A tenant that talks, remembers, writes and shares; the conversation."""
    secret = f"{company.unshared} {' '.join(company.marker(kind) for kind in MARKERS)}"
    tenant = engine.tenant(company.id)
    await tenant.patterns.join("retail", by=company.user)
    thread = await engine.create_thread(user_id=company.user, tenant_id=company.id)
    await thread.dispatch_all([e.UserMessage(content=secret), e.LlmTextResponse(content=secret)])
    await thread.scratchpad.write(secret)
    await engine.user(company.user, tenant_id=company.id).preferences.update("note", secret)
    await tenant.memory.append("episodic", secret)
    await tenant.agent_md.upload(secret)
    patterns = tenant.patterns
    (unshared,) = await promoted(engine, company.id, f"Returns double after {secret}")
    await patterns.propose(unshared)
    (rejected,) = await promoted(engine, company.id, f"Orders drop after {secret}")
    await patterns.reject((await patterns.propose(rejected)).id, by=company.user, reason=secret)
    for n, line in enumerate(lines):
        (number,) = await promoted(engine, company.id, line)
        try:
            pattern_id = await patterns.approve((await patterns.propose(number)).id, by=company.user)
        except InvalidPattern:  # there was nothing in it but names
            continue
        if n == 1:
            await patterns.revoke(pattern_id, by=company.user, reason=secret)
    return thread


@settings(max_examples=25)
@given(
    st.lists(IDS, min_size=2, max_size=3, unique=True),
    st.lists(LINES, min_size=1, max_size=3),
    st.sampled_from(MARKERS),
)
async def test_S8_nothing_raw_of_one_tenant_is_found_from_another(
    ids: list[str], lines: list[list[tuple[str, str]]], asked: str
) -> None:
    """Whatever they are called, wrote and shared; the industry's thread names none of them, in no byte."""
    companies = [Company(name, n) for n, name in enumerate(ids)]
    async with memory_engine.open(":memory:") as engine:
        threads = {
            one.id: await lived(engine, one, [written(one, line) for line in lines if line]) for one in companies
        }
        await engine.settle()
        pool = await told(engine, "retail", queries=[one.marker(asked) for one in companies])
        for one in companies:
            assert [] == [secret for secret in one.secrets() if secret in pool]
            assert [] == [trail for trail in await trails(engine, one, threads[one.id]) if trail in pool]
        for reader in companies:
            others = [one for one in companies if one is not reader]
            queries = [secret for one in others for secret in one.secrets()]
            seen = await everything(engine, reader.id, reader.user, threads[reader.id], queries)
            for one in others:
                own = [*reader.secrets(), engine.user(reader.user, tenant_id=reader.id).id]
                assert [] == [secret for secret in one.secrets() if secret in seen and not _within(secret, own)]


def _within(secret: str, own: Sequence[str]) -> bool:
    """Whether it is part of what the reader has itself: its id may begin with the other's, a key be made of it."""
    return any(secret in said or secret in said.casefold() for said in own)


async def trails(engine: Engine, company: Company, thread: Thread) -> list[str]:
    """What the tenant's threads are known by: their ids, their events' ids and hashes, its industry's secret."""
    tenant = engine.tenant(company.id)
    events = [*[event async for event in tenant.events()], *[event async for event in thread.events()]]
    secrets = [event.event.secret for event in events if isinstance(event.event, e.PatternsJoined)]
    hashes = [event.hash[:length] for event in events for length in (16, 32, 64)]
    return [tenant.id, thread.id, *secrets, *hashes, *(event.id for event in events)]


async def test_S8_shares_of_one_tenant_have_nothing_in_common() -> None:
    """Two texts of one tenant, and one text of two, bear names from which nobody can tell."""
    async with memory_engine.open(":memory:") as engine:
        for tenant in ("a", "b"):
            await engine.tenant(tenant).patterns.join("retail")
            for said in ("Returns double", "Churn is seasonal"):
                (line,) = await promoted(engine, tenant, said)
                patterns = engine.tenant(tenant).patterns
                await patterns.approve((await patterns.propose(line)).id, by="p")
        published = [event.event async for event in engine.industry("retail").events()]
        assert 4 == len({one.share for one in published if isinstance(one, e.PatternPublished)})


@pytest.mark.parametrize("industry", ["retail", "%", "*", "a/b", "tenant:acme", "' OR 1=1", "é", "user:u1", "acme"])
async def test_S8_an_industry_is_no_tenant_whatever_it_is_called(industry: str) -> None:
    """Its thread belongs to nobody, and one of another name or of a tenant's own holds nothing of it."""
    async with memory_engine.open(":memory:") as engine:
        await engine.tenant("acme").patterns.join(industry)
        await engine.tenant("other").patterns.join(f"{industry}x")
        (line,) = await promoted(engine, "acme", "Returns double")
        await engine.tenant("acme").patterns.approve((await engine.tenant("acme").patterns.propose(line)).id, by="p")
        (info,) = await engine.threads(kind="industry")
        assert ("", "", "") == (info.tenant_id, info.user_id, info.agent_id)
        assert () == await engine.tenant("other").patterns.list()
        assert [] == [one for one in await engine.threads(tenant_id=industry) if one.kind == "industry"]


async def test_S8_a_search_over_a_tenants_threads_finds_no_pool() -> None:
    """Neither a tenant's nor one over threads of no tenant: patterns are found through the tenants' handles."""
    async with memory_engine.open(":memory:") as engine:
        for tenant in ("acme", "globex"):
            await engine.tenant(tenant).patterns.join("retail", min_tenants=2)
        (line,) = await promoted(engine, "acme", "Returns double after discounts")
        await engine.tenant("acme").patterns.approve((await engine.tenant("acme").patterns.propose(line)).id, by="p")
        for where in ("", "globex"):
            assert () == (await engine.search("returns discounts", tenant_id=where)).hits
        assert () == await engine.tenant("globex").patterns.search("returns discounts")
