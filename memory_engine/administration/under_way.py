"""Acts that are under way: each is carried out once, to its end, whether or not the caller who asked for it stays."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from memory_engine.core.cancellation import fail
from memory_engine.runtime.kernel import Kernel

T = TypeVar("T")

_log = logging.getLogger("memory_engine")


class ActsUnderWay(Generic[T]):
    """The acts that one engine carries out now, by id. Their tasks are the engine's, which ends with them."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._outcomes: dict[str, asyncio.Future[T]] = {}
        kernel.home.moved.append(self._outcomes.clear)

    def now(self) -> dict[str, "asyncio.Future[T]"]:
        """Running work, for `waited_for`: also work that has ended meanwhile."""
        return dict(self._outcomes)

    async def outcome(self, act_id: str, work: Callable[[], Awaitable[T]]) -> T:
        """Do this, or wait for whoever does it already. Raises what it raises."""
        under_way = self._outcomes.get(act_id)
        if under_way is None:
            under_way = self._outcomes[act_id] = asyncio.get_running_loop().create_future()
            self._kernel.tasks.spawn(self._carry_out(act_id, work, under_way))
        return await self.waited_for(under_way)

    async def waited_for(self, under_way: "asyncio.Future[T]") -> T:
        """Wait for one. It goes on though its callers are cancelled; then its failure is logged."""
        try:
            return await asyncio.shield(under_way)
        except asyncio.CancelledError:
            under_way.add_done_callback(_log_failure)
            raise

    async def _carry_out(self, act_id: str, work: Callable[[], Awaitable[T]], outcome: "asyncio.Future[T]") -> None:
        try:
            outcome.set_result(await work())
        except BaseException as error:  # whatever it is, it is the outcome of the act
            fail(outcome, error)
            if not isinstance(error, Exception):
                raise
        finally:
            self._outcomes.pop(act_id, None)


def _log_failure(outcome: "asyncio.Future[T]") -> None:
    if not outcome.cancelled() and (error := outcome.exception()) is not None:
        _log.warning("an act whose caller was cancelled is not finished: %s", error)
