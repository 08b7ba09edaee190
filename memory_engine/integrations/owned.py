"""The one way from an id to a thread for adapters: it asks whose the thread is."""

from collections.abc import Mapping
from contextlib import suppress

from attrs import field, frozen

from memory_engine.core.threads import ThreadInfo
from memory_engine.engine import Engine, kernel_of
from memory_engine.errors import ThreadDiffers
from memory_engine.runtime.scoped import check_scoped, is_there
from memory_engine.thread import Thread

KIND = "conversation"
"""The kind of the threads that adapters open."""


@frozen(kw_only=True)
class OwnedThreads:
    """The conversations of one user in one tenant. Another owner's is refused by id, and not listed.

    The user and the tenant must be exactly the thread's: leave one out for threads that have none. An agent must be the
    thread's if you name one. `metadata` is that of new threads, and listed ones have it; `parent_id` is that of new
    threads. Methods raise `ScopeRequired` if the engine requires a user or a tenant and none is given.
    """

    engine: Engine
    user_id: str = ""
    tenant_id: str = ""
    agent_id: str = ""
    parent_id: str = ""
    metadata: Mapping[str, str] = field(factory=dict)

    async def find(self, thread_id: str) -> Thread | None:
        """The thread with this id, or `None`. Raises `ThreadDiffers` for another owner's."""
        kernel, thread = kernel_of(self.engine), self.engine.thread(thread_id)
        check_scoped(kernel, f"thread {thread_id!r} was not opened", self.user_id, self.tenant_id)
        wanted = {"kind": KIND, "user_id": self.user_id, "tenant_id": self.tenant_id}
        if self.agent_id:
            wanted["agent_id"] = self.agent_id
        return thread if await is_there(kernel, thread_id, wanted) else None

    async def open(self, thread_id: str) -> Thread:
        """The thread with this id, created if missing. Raises `ThreadDiffers`, and as `create_thread` does."""
        while (found := await self.find(thread_id)) is None:
            with suppress(ThreadDiffers):  # another task or process was first: `find` says if that matters
                return await self.engine.open_thread(
                    thread_id,
                    kind=KIND,
                    user_id=self.user_id,
                    tenant_id=self.tenant_id,
                    agent_id=self.agent_id,
                    parent_id=self.parent_id,
                    metadata=self.metadata,
                )
        return found

    async def list(self, *, every_user: bool = False, limit: int | None = None) -> list[ThreadInfo]:
        """The threads, in order of creation; with `every_user`, those of all users of the tenant, and of none."""
        user_id = None if every_user else self.user_id
        check_scoped(kernel_of(self.engine), "threads were not listed", user_id, self.tenant_id)
        return await self.engine.threads(
            kind=KIND,
            user_id=user_id,
            tenant_id=self.tenant_id,
            agent_id=self.agent_id or None,
            metadata=self.metadata,
            limit=limit,
        )
