"""What the tests of industry patterns do again and again: lines promoted, shared, and all that can be read of them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import cast

import msgspec
from attrs import AttrsInstance, fields, has

from memory_engine import Engine, Thread
from memory_engine import events as e
from memory_engine.engine import kernel_of

APART = "\x1f"


async def joined(engine: Engine, *tenants: str, industry: str = "retail") -> None:
    """Tenants that are in an industry."""
    for tenant in tenants:
        await engine.tenant(tenant).patterns.join(industry)


async def promoted(engine: Engine, tenant: str, *said: str) -> Sequence[int]:
    """Lines in a tenant's `agent.md`, by their ids."""
    for text in said:
        await engine.tenant(tenant).dispatch(e.AgentMdPromoted(content=text))
    lines = await engine.tenant(tenant).agent_md.lines()
    return [next(line.id for line in lines if any(one.text == text for one in line.promotions)) for text in said]


async def approved(engine: Engine, tenant: str, said: str, *, text: str | None = None, industry: str = "") -> str:
    """A pattern's id: of a line that was promoted, proposed and approved."""
    (line,) = await promoted(engine, tenant, said)
    patterns = engine.tenant(tenant).patterns
    proposal = await patterns.propose(line, industry=industry or (await patterns.joined())[-1])
    return await patterns.approve(proposal.id, text, by="a person")


async def texts(engine: Engine, tenant: str) -> list[str]:
    """The patterns that a tenant reads."""
    return [pattern.text for pattern in await engine.tenant(tenant).patterns.list()]


async def told(engine: Engine, industry: str, *, queries: Sequence[str] = ()) -> str:
    """All that an industry's thread holds or answers: its events with their envelopes, rows of views, what it is."""
    thread = engine.industry(industry)
    if not await engine.threads(kind="industry"):
        return ""
    return APART.join([*await _read(engine, thread), *[_plain((await thread.search(query)).hits) for query in queries]])


async def everything(engine: Engine, tenant_id: str, user_id: str, thread: Thread, queries: Sequence[str]) -> str:
    """All that a tenant's people and agents can read: of its conversation, its user, itself, and its industries.

    What a search gives back of its query is left out.
    """
    tenant, user = engine.tenant(tenant_id), engine.user(user_id, tenant_id=tenant_id)
    parts: list[object] = [await engine.threads(tenant_id=tenant_id)]
    for one in (tenant, user, thread):
        parts += await _read(engine, one)
        for query in queries:
            parts += [(await one.search(query)).hits]
    parts += [await user.preferences.get("note"), await thread.scratchpad.read(), await tenant.agent_md.read()]
    patterns = tenant.patterns
    parts += [await patterns.list(), await patterns.shared(), await patterns.review(), await patterns.joined()]
    parts += [await patterns.trace(pattern.id) for pattern in await patterns.list()]
    for query in (*queries, "returns double after discounts"):
        parts += [await patterns.search(query), (await engine.search(query, tenant_id=tenant_id)).hits]
    return APART.join(map(_plain, parts))


async def _read(engine: Engine, thread: Thread) -> list[str]:
    parts: list[object] = [await thread.info(), str(await thread.views.report()), (await thread.context()).messages]
    parts += [event async for event in thread.events()]
    parts += list(await kernel_of(engine).store.read(thread.id, after=0, upto=10_000, limit=10_000))
    parts += [await thread.views.read(projection.name) for projection in kernel_of(engine).projections]
    return [_plain(part) for part in parts]


def _plain(value: object) -> str:
    """Every text in a value, whatever it is made of, apart from each other and without anybody's quotation marks."""
    return APART.join(_texts_in(value))


def _texts_in(value: object) -> Iterator[str]:
    match value:
        case str():
            yield value
        case bytes() | msgspec.Raw():
            try:
                yield from _texts_in(msgspec.json.decode(bytes(value)))
            except (msgspec.DecodeError, UnicodeDecodeError):
                yield from (bytes(value).decode(errors="replace"), bytes(value).hex())
        case Mapping():
            for key, inner in value.items():
                yield from (*_texts_in(key), *_texts_in(inner))
        case list() | tuple() | set() | frozenset():
            for inner in value:
                yield from _texts_in(inner)
        case msgspec.Struct():
            yield from _texts_in([getattr(value, name) for name in value.__struct_fields__])
        case _ if has(type(value)):
            known = fields(cast("type[AttrsInstance]", type(value)))
            yield from _texts_in([getattr(value, field.name) for field in known])
        case _:
            yield str(value)
