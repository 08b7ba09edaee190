"""The calls of a conversation store that name a scope: each goes to the store as that scope's."""

# pyright: reportMissingImports=false
# pydantic-ai is in the environment of its tests alone

from abc import abstractmethod
from typing import Any, Self

from memory_engine.errors import MissingExtra

try:
    from pydantic_ai.conversation import Conversation
    from pydantic_ai.conversation_store import ConversationEntry, ConversationStore
    from pydantic_ai.run import AgentRunResult
except ImportError:
    raise MissingExtra("Pydantic AI's conversations", "pydantic-ai") from None


class ScopedCalls(ConversationStore):
    """A `ConversationStore` whose own methods, such as `read_record`, know the scope of the call that they serve.

    The framework passes the scope to none of them, and compares it with the record's afterwards, or not at all.
    """

    @abstractmethod
    def _of(self, scope: str | None) -> Self:
        """This store for the length of one call, which names a scope, or none."""
        ...

    async def load(
        self, conversation_id: str, *, limit: int | None = None, scope: str | None = None
    ) -> Conversation | None:
        """A conversation, or its last `limit` messages; `None` if the scope has none of its id."""
        return await ConversationStore.load(self._of(scope), conversation_id, limit=limit, scope=scope)

    async def load_entries(
        self, conversation_id: str, *, limit: int | None = None, scope: str | None = None
    ) -> list[ConversationEntry] | None:
        """The entries of a conversation, or its last `limit` ones; `None` if the scope has none of its id."""
        return await ConversationStore.load_entries(self._of(scope), conversation_id, limit=limit, scope=scope)

    async def save(
        self, conversation: Conversation | AgentRunResult[Any], *, scope: str | None = None
    ) -> list[ConversationEntry]:
        """Save a conversation or a run, and return the new entries. Raises `ConversationConflict`."""
        return await ConversationStore.save(self._of(scope), conversation, scope=scope)

    async def branch(
        self,
        conversation_id: str,
        *,
        at: int | None = None,
        from_entry: str | None = None,
        expected_revision: str | None,
        scope: str | None = None,
    ) -> Conversation:
        """Continue a conversation from an earlier point. Raises `UserError`, `ConversationConflict`."""
        return await ConversationStore.branch(
            self._of(scope),
            conversation_id,
            at=at,
            from_entry=from_entry,
            expected_revision=expected_revision,
            scope=scope,
        )

    async def fork(  # noqa: PLR0913 - those of the base class
        self,
        conversation_id: str,
        *,
        at: int | None = None,
        from_entry: str | None = None,
        new_conversation_id: str | None = None,
        scope: str | None = None,
        source_scope: str | None = None,
    ) -> Conversation:
        """Start a conversation of `scope` from one of `source_scope`. Raises `UserError`, `ConversationConflict`."""
        return await ConversationStore.fork(
            self._of(source_scope),
            conversation_id,
            at=at,
            from_entry=from_entry,
            new_conversation_id=new_conversation_id,
            scope=scope,
            source_scope=source_scope,
        )

    async def delete(self, conversation_id: str, *, scope: str | None = None) -> None:
        """Destroy a conversation of the scope, and everything derived from it."""
        await ConversationStore.delete(self._of(scope), conversation_id, scope=scope)
