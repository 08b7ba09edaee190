"""The contract of every adapter's `test_scopes.py`: each public method asks whose the thread is.

A table says how each method is called. A method that is not in it fails the test.
"""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from itertools import product
from typing import Any, Generic, Literal, TypeVar

from attrs import field, frozen

import memory_engine
from memory_engine import Engine
from memory_engine.errors import ThreadDiffers

H = TypeVar("H")
Owner = tuple[str, str]
"""A user and a tenant; empty where a handle, or a thread, has none."""
Logs = dict[str, tuple[int, str, str]]
"""Each thread with the number of its events, its last hash, and its status."""
OWNERS: tuple[Owner, ...] = tuple(product(("", "ann"), ("", "acme")))
ASKERS: tuple[Owner, ...] = tuple(product(("", "ann", "bob"), ("", "acme", "umbrella")))
THREAD = "heron-talk"
SECRET = "The spare key of the observatory hangs behind locker 17."


@frozen
class Asked(Generic[H]):
    """One way to call a method. `shows`: the owner's own call gives the secret.

    `refused`: another's thread raises `ThreadDiffers`. `hidden`: the call knows nothing of it, and may raise `errors`.
    Either way it gives no secret and leaves the thread as it was.
    """

    call: Callable[[H], Awaitable[object]]
    how: Literal["refused", "hidden"] = "refused"
    shows: bool = False
    errors: tuple[type[Exception], ...] = ()


@frozen
class Apart:
    """Why a method is not asked: it touches no thread."""

    why: str


Table = dict[str, Sequence[Asked[H]] | Apart]


def public(kind: type, *beyond: type) -> set[str]:
    """The public methods of a class, but for those that other classes have too."""
    known = {name for one in beyond for name in dir(one)}
    return {name for name in dir(kind) if name[0] != "_" and name not in known and callable(getattr(kind, name))}


@frozen(kw_only=True)
class Contract(Generic[H]):
    """An adapter, as it is made for an owner, with a thread that it fills, and how its methods are called."""

    methods: set[str]
    make: Callable[[Engine, str, str], H]
    seed: Callable[[H], Awaitable[object]]
    table: Table[H]
    place: Callable[[], str] = field(default=lambda: ":memory:")
    shared: Callable[[str], bool] = field(default=lambda _thread_id: False)
    """Whether a thread serves several users, who all write to it."""
    owners: Sequence[Owner] = OWNERS
    askers: Sequence[Owner] = ASKERS
    served: Callable[[H], AbstractAsyncContextManager[object]] = nullcontext
    """What an asker's calls run within: a connection, where opening one costs more than a call."""

    async def check(self) -> None:
        """Every method has an entry; no asker but the owner gets anything; the owner is served."""
        assert self.methods == self.table.keys()
        for owner in self.owners:
            await self._check_strangers(owner)
        for name, asked in self._calls():
            await self._check_owner(self.owners[-1], name, asked)

    def _calls(self) -> list[tuple[str, Asked[H]]]:
        entries = [(name, entry) for name, entry in self.table.items() if not isinstance(entry, Apart)]
        return [(name, asked) for name, entry in entries for asked in entry]

    async def _check_strangers(self, owner: Owner) -> None:
        async with memory_engine.open(self.place()) as engine:
            await self.seed(self.make(engine, *owner))
            before = {one: log for one, log in (await logs(engine)).items() if not self.shared(one)}
            assert before
            for asker in self.askers:
                if asker == owner:
                    continue
                handle = self.make(engine, *asker)
                async with self.served(handle):
                    await self._check_stranger(engine, handle, before, f"{asker} on a thread of {owner}")

    async def _check_stranger(self, engine: Engine, handle: H, before: Logs, who: str) -> None:
        for name, asked in self._calls():
            where = f"{name} as {who}"
            said, raised = await _outcome(asked, handle)
            assert raised if asked.how == "refused" else not raised, where
            assert SECRET not in said, where
            assert raised or not any(thread_id in said for thread_id in before), where
            after = await logs(engine)
            assert before == {one: log for one, log in after.items() if one in before}, where

    async def _check_owner(self, owner: Owner, name: str, asked: Asked[H]) -> None:
        async with memory_engine.open(self.place()) as engine:
            handle = self.make(engine, *owner)
            await self.seed(handle)
            said = repr(await asked.call(handle))
            assert SECRET in said if asked.shows else True, name


async def _outcome(asked: Asked[H], handle: H) -> tuple[str, bool]:
    """What a call said, and whether it was refused."""
    try:
        return repr(await asked.call(handle)), False
    except ThreadDiffers as error:
        return str(error), True
    except asked.errors as error:
        return str(error), False


async def logs(engine: Engine) -> Logs:
    """What every thread is like."""
    return {info.id: (info.events, info.head_hash, info.status) for info in await engine.threads()}


async def all_of(found: Any) -> list[Any]:
    """What an asynchronous iterator gives."""
    return [one async for one in found]
