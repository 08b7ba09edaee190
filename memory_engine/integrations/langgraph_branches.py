"""The messages of a LangGraph checkpoint as events of its thread: new ones, rewritten ones, and those of a branch."""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from memory_engine.core.events.memory import MemoryForget
from memory_engine.core.records import NewEvent
from memory_engine.errors import InvalidMessage, MissingExtra
from memory_engine.integrations.langgraph_messages import message_version_name, openai_of
from memory_engine.runtime.handle import ThreadHandle
from memory_engine.runtime.life import forget, forgetting
from memory_engine.runtime.messages import as_events, first_id, recorded_ids
from memory_engine.views.checkpoints.branches import Branch, branch
from memory_engine.views.checkpoints.packing import MSGPACK, Form
from memory_engine.views.checkpoints.view import Checkpoints, Draft

try:
    from langchain_core.messages import BaseMessage
except ImportError:
    raise MissingExtra("LangGraph's checkpoints", "langgraph") from None

LEFT = "the graph left this branch"
"""The reason of forgettings whose messages come back if the graph returns to them."""
_THREADS_MAX = 256
_log = logging.getLogger("memory_engine.integrations.langgraph")

_Said = dict[bytes, BaseMessage]
"""Messages by their digests."""


class LeftEvents:
    """The ids of the events that were forgotten when graphs left their branches, remembered for some threads."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[tuple[int, int], frozenset[str]]] = {}

    async def of(self, thread: ThreadHandle) -> frozenset[str]:
        """Those of a thread."""
        reader = thread.kernel.reader
        forgotten = await reader.forgotten(thread.id)
        at = thread.kernel.store.generation, forgotten.mark
        known, ids = self._known.get(thread.id, (None, frozenset[str]()))
        if known != at:
            acts = [one.event for one in forgotten.events]
            seqs = {seq for act in acts if isinstance(act, MemoryForget) and act.reason == LEFT for seq in act.seqs}
            ids = frozenset(await reader.ids_at(thread.id, seqs)) if seqs else frozenset()
            if len(self._known) >= _THREADS_MAX:
                self._known.clear()
            self._known[thread.id] = at, ids
        return ids


class GraphMessages:
    """The messages of one checkpoint that is about to be saved, in a channel of it."""

    def __init__(
        self, checkpoints: Checkpoints, draft: Draft, channel: str, loads: Callable[[Form], Any], left: "LeftEvents"
    ) -> None:
        self._checkpoints = checkpoints
        self._thread = checkpoints.thread
        self._draft = draft
        self._channel = channel
        self._loads = loads
        self._left_events, self._left = left, frozenset[str]()
        self._rewriting: set[str] = set()

    async def events(self, parent: str, messages: object) -> Sequence[NewEvent]:
        """The events of what is new in a list of messages.

        A checkpoint that goes on from an earlier one forgets the messages after that, and records again those that
        were forgotten so when the graph left them.
        """
        begun = await branch(self._checkpoints, self._draft, parent, self._channel)
        self._left = await self._left_events.of(self._thread)
        given = messages if isinstance(messages, list) else []
        new = {digest: given[place] for place, digest in self._draft.new.get(self._channel, ())}
        said: _Said = {digest: one for digest, one in new.items() if isinstance(one, BaseMessage)}
        self._rewriting = {one.id for one in said.values() if one.id}
        gone = None
        if begun is not None:
            said = {**self._returning(begun, given), **said}
            gone = await self._forgetting(begun)
        events = await self._recorded(said, gone)
        return [*([] if gone is None else [NewEvent(gone)]), *events]

    async def forget_rewritten(self) -> None:
        """Forget the events of messages that the graph has rewritten under their ids."""
        if not self._rewriting:
            return
        old = self._messages(await self._checkpoints.gone_items(self._draft, self._channel))
        names = [self._name(message, digest) for digest, message in old.items() if message.id in self._rewriting]
        event_ids = await recorded_ids(self._thread, names)
        if event_ids:
            await forget(self._thread, event_ids=event_ids, reason="the graph has rewritten it")

    def _name(self, message: BaseMessage, digest: bytes) -> str:
        """The name of a message: another one after each time that the graph has left it."""
        name, count = message_version_name(message, digest), 0
        while first_id(self._thread, f"{name} {count}" if count else name) in self._left:
            count += 1
        return f"{name} {count}" if count else name

    def _returning(self, begun: Branch, given: Sequence[object]) -> _Said:
        """The messages that were forgotten with a branch, and are on the one that the graph is on now."""
        if not self._left or len(begun.kept) != len(given):
            return {}
        said = {n: one for n, one in zip(begun.kept, given, strict=True) if isinstance(one, BaseMessage)}
        return {n: one for n, one in said.items() if first_id(self._thread, message_version_name(one, n)) in self._left}

    async def _forgetting(self, begun: Branch) -> MemoryForget | None:
        names = [self._name(message, digest) for digest, message in self._messages(begun.left).items()]
        event_ids = await recorded_ids(self._thread, names)
        return await forgetting(self._thread, event_ids=event_ids, reason=LEFT) if event_ids else None

    async def _recorded(self, said: _Said, gone: MemoryForget | None) -> Sequence[NewEvent]:
        """Messages as events; one that is not a chat message is kept in its checkpoint only."""
        if not said:
            return ()
        names = [self._name(message, digest) for digest, message in said.items()]
        try:
            messages = [openai_of(message) for message in said.values()]
            return await as_events(self._thread, messages, names, format="openai.chat", after=gone)
        except InvalidMessage as error:
            _log.warning("messages of thread %r are kept in their checkpoint only: %s", self._thread.id, error)
            return ()

    def _messages(self, items: Mapping[bytes, bytes]) -> _Said:
        read = {digest: self._loads((MSGPACK, item)) for digest, item in items.items()}
        return {digest: message for digest, message in read.items() if isinstance(message, BaseMessage)}
