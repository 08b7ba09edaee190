"""LangGraph's store in this memory: items in namespaces, each change an event, with search.

    from memory_engine.integrations.langgraph_store import MemoryEngineStore

    async with memory_engine.open("agent.db") as engine:
        graph = builder.compile(store=MemoryEngineStore(engine))

Needs the extra `langgraph`.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from memory_engine.engine import Engine, kernel_of
from memory_engine.errors import InvalidArgument, MissingExtra
from memory_engine.integrations.home import HomeLoop
from memory_engine.runtime.handle import ThreadHandle
from memory_engine.runtime.scoped import ScopeHandle, check_scoped
from memory_engine.thread import Thread, handle_of
from memory_engine.views.items import view
from memory_engine.views.items.events import WHOLE, ItemName, ItemPut
from memory_engine.views.items.view import Items, Value

try:
    from langgraph.store.base import (
        BaseStore,
        GetOp,
        Item,
        ListNamespacesOp,
        MatchCondition,
        Op,
        PutOp,
        Result,
        SearchItem,
        SearchOp,
        TTLConfig,
    )
except ImportError:
    raise MissingExtra("LangGraph's store", "langgraph") from None

_MINUTE_US = 60_000_000


class MemoryEngineStore(BaseStore):
    """Keeps the items of graphs in a thread of an engine. Make it on the event loop that the engine was opened on.

    Await it on any event loop, or call it without `await` from any thread but the engine's own.
    The thread is of the kind `store`, one per tenant, or the given one (such as `engine.user("ann")`). `fields`
    are the paths of the texts that a search finds if `put` names none in `index`; vectors are used if the
    engine has an embedder. The puts and deletions of a batch are one commit, after its reads. Raises `InvalidArgument`
    for a thread and a tenant together, and `ScopeRequired` for neither, if the engine requires a scope.
    """

    supports_ttl = True

    def __init__(
        self,
        engine: Engine,
        *,
        thread: Thread | ThreadHandle | None = None,
        tenant_id: str = "",
        fields: Sequence[str] = (WHOLE,),
        ttl: TTLConfig | None = None,
    ) -> None:
        if thread is None:
            check_scoped(kernel_of(engine), "no store was opened", "", tenant_id)
        elif tenant_id:
            raise InvalidArgument("tenant_id", tenant_id, "the given thread has its own tenant; leave one of them out")
        self.ttl_config = ttl
        self.items = Items(
            ScopeHandle(kernel_of(engine), "store", "langgraph", tenant_id) if thread is None else handle_of(thread)
        )
        self._fields = tuple(fields)
        self._home = HomeLoop()

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """See `abatch`."""
        return self._home.wait(self._batch(list(ops)))

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """The results of operations, in their order. Reads see the state before the batch."""
        return await self._home.run(self._batch(list(ops)))

    def sweep_ttl(self) -> int:
        """See `asweep_ttl`."""
        return self._home.wait(self.items.sweep())

    async def asweep_ttl(self) -> int:
        """Delete expired items, and return their number. Reads never show them."""
        return await self._home.run(self.items.sweep())

    async def _batch(self, ops: Sequence[Op]) -> list[Result]:
        results: list[Result] = []
        used: list[view.Item] = []
        for op in ops:
            match op:
                case GetOp():
                    found = await self.items.get(op.namespace, op.key)
                    results.append(None if found is None else _store_item(found))
                    used += [found] if found is not None and op.refresh_ttl else []
                case SearchOp():
                    items = await self._search(op)
                    results.append([_search_item(item) for item in items])
                    used += items if op.refresh_ttl else []
                case ListNamespacesOp():
                    results.append(await self._namespaces(op))
                case PutOp():
                    results.append(None)
                case _:
                    raise InvalidArgument("ops", op, "give operations of langgraph.store.base")
        await self.items.use(used)
        await self.items.change(self._change(op) for op in ops if isinstance(op, PutOp))
        return results

    def _change(self, op: PutOp) -> ItemPut | ItemName:
        if op.value is None:
            return ItemName(tuple(op.namespace), op.key)
        index = () if op.index is False else self._fields if op.index is None else tuple(op.index)
        ttl_us = round((op.ttl or 0) * _MINUTE_US)
        return ItemPut(namespace=tuple(op.namespace), key=op.key, value=op.value, index=index, ttl_us=ttl_us)

    async def _search(self, op: SearchOp) -> Sequence[view.Item]:
        prefix, where = tuple(op.namespace_prefix), _where(op.filter) if op.filter else None
        if op.query and op.query.strip():
            return await self.items.search(op.query, prefix, where=where, limit=op.limit, offset=op.offset)
        return await self.items.list(prefix, where=where, limit=op.limit, offset=op.offset)

    async def _namespaces(self, op: ListNamespacesOp) -> list[tuple[str, ...]]:
        conditions = op.match_conditions or ()
        plain = [_literal_prefix(one.path) for one in conditions if one.match_type == "prefix"]
        found = await self.items.namespaces(max(plain, key=len, default=()))
        matching = {one[: op.max_depth] for one in found if all(_namespace_matches(each, one) for each in conditions)}
        return sorted(matching)[op.offset : op.offset + op.limit]


def _store_item(item: view.Item) -> Item:
    return Item(
        value=item.value,
        key=item.key,
        namespace=item.namespace,
        created_at=item.created,
        updated_at=item.changed,
    )


def _search_item(item: view.Item) -> SearchItem:
    return SearchItem(item.namespace, item.key, item.value, item.created, item.changed, item.score)


def _literal_prefix(path: Sequence[str]) -> tuple[str, ...]:
    """The labels of a path before its first wildcard."""
    path = tuple(path)
    return path[: path.index("*")] if "*" in path else path


def _namespace_matches(condition: MatchCondition, namespace: tuple[str, ...]) -> bool:
    path = tuple(condition.path)
    if condition.match_type not in ("prefix", "suffix"):
        raise InvalidArgument("match_type", condition.match_type, 'give "prefix" or "suffix"')
    if len(namespace) < len(path):
        return False
    labels = namespace[: len(path)] if condition.match_type == "prefix" else namespace[len(namespace) - len(path) :]
    return all(wanted in ("*", label) for wanted, label in zip(path, labels, strict=True))


# filters


def _where(filter: Mapping[str, Any]) -> Callable[[Value], bool]:
    """Whether a value matches all fields of a filter. Raises `InvalidArgument` for an unknown operator."""
    for wanted in filter.values():
        _check_operators(wanted)
    return lambda value: all(_filter_matches(_field(value, name), wanted) for name, wanted in filter.items())


def _check_operators(wanted: object) -> None:
    if isinstance(wanted, Mapping):
        is_operators = any(str(name).startswith("$") for name in wanted)
        for name, inner in wanted.items():
            if is_operators and name not in _OPERATORS:
                raise InvalidArgument("filter", name, f"the operators are {', '.join(_OPERATORS)}")
            _check_operators(inner)


def _field(value: object, name: str) -> object:
    """A field of a value, or, if none has that name, a nested field: `user.name`."""
    if not isinstance(value, Mapping) or name in value:
        return value.get(name) if isinstance(value, Mapping) else None
    first, dot, rest = name.partition(".")
    return _field(value.get(first), rest) if dot else None


def _filter_matches(value: object, wanted: object) -> bool:
    if isinstance(wanted, Mapping):
        if any(str(name).startswith("$") for name in wanted):
            return all(_OPERATORS[name](value, one) for name, one in wanted.items())
        return isinstance(value, Mapping) and all(_filter_matches(value.get(name), one) for name, one in wanted.items())
    if isinstance(wanted, list | tuple):
        return (
            isinstance(value, list | tuple)
            and len(value) == len(wanted)
            and all(_filter_matches(one, each) for one, each in zip(value, wanted, strict=True))
        )
    return value == wanted


def _compared(value: Any, wanted: Any) -> int | None:
    """-1, 0 or 1, as a value is less than, equal to or greater than another: as numbers, else as texts; else `None`."""
    try:
        one, other = float(value), float(wanted)
    except (TypeError, ValueError, OverflowError):
        if not (isinstance(value, str) and isinstance(wanted, str)):
            return None
        return (value > wanted) - (value < wanted)
    return None if math.isnan(one) or math.isnan(other) else (one > other) - (one < other)


def _ordered(signs: tuple[int, ...], value: object, wanted: object) -> bool:
    return _compared(value, wanted) in signs


_OPERATORS: Mapping[str, Callable[[object, object], bool]] = {
    "$eq": lambda value, wanted: value == wanted,
    "$ne": lambda value, wanted: value != wanted,
    "$gt": partial(_ordered, (1,)),
    "$gte": partial(_ordered, (0, 1)),
    "$lt": partial(_ordered, (-1,)),
    "$lte": partial(_ordered, (-1, 0)),
}
