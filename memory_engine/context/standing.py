"""Standing blocks: content that applies to every call, in addition to what was said in the thread.

The preferences of the thread's user, the tenant's `agent.md`, the agent's memory, the screen, a playbook: each is a
block of lines that a view contributes (`Plugin.context_block`). A policy selects the blocks, their order, and their
shares of the budget. Blocks that rarely change come after the instructions, so that a provider's prompt cache holds;
blocks that depend on the question come before the newest turn.
"""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Literal

import msgspec
from msgspec.structs import replace

from memory_engine.core.chunks import RECALLED, Category, Chunk, Retention
from memory_engine.core.lazy import lazy_module
from memory_engine.core.state import State
from memory_engine.core.tokens import TokenCounter
from memory_engine.runtime.handle import ThreadHandle
from memory_engine.runtime.scoped import ScopeHandle
from memory_engine.store.reader import seq_of

if TYPE_CHECKING:
    from memory_engine.context import shortening
else:
    shortening = lazy_module("memory_engine.context.shortening")

Place = Literal["first", "turn"]
"""Place of a block. `first`: after the instructions. `turn`: before the newest turn."""


class StandingLine(msgspec.Struct, frozen=True):
    """A line of a standing block and the event that it comes from. Its text may have any length.

    An item of the brief keeps the line breaks of its message. `is_part`: the event may say more than the line, so a
    question can still recall the rest of it.
    """

    text: str
    thread_id: str = ""
    seq: int = 0
    is_part: bool = False


class StandingBlock(msgspec.Struct, frozen=True, kw_only=True):
    """A block as shown in a context. `left_out` is the number of lines that did not fit into its share."""

    name: str
    heading: str
    lines: tuple[StandingLine, ...]
    left_out: int = 0

    @property
    def text(self) -> str:
        """The heading, a note on the number of lines left out, and the lines."""
        left_out = [shortening.LINES_LEFT_OUT.format(self.left_out)] if self.left_out else []
        return "\n".join([self.heading, *left_out, *(line.text for line in self.lines)])

    def chunk(self, seq: int) -> Chunk:
        """Return the block as a chunk that belongs to no state; the chunk's type is the block's name."""
        return Chunk(
            id=f"{seq}.{self.name}",
            type=self.name,
            content=self.text,
            retention=Retention.DISPOSABLE,
            category=Category.ENVIRONMENT,
            status=RECALLED,
        )


class Situation(msgspec.Struct, frozen=True, kw_only=True):
    """The input for reading a block: a thread, now or at an earlier time, and the question being worked on.

    `moment` is the time of that state (`None`: now). `is_asked`: the question was given with the call, so an embedder
    may be used for it.
    """

    thread: ThreadHandle
    state: State
    user_id: str
    tenant_id: str
    agent_id: str
    question: str = ""
    is_asked: bool = False
    moment: datetime | None = None

    async def user(self) -> ScopeHandle | None:
        """Return the thread of the user as of the same time, or `None` without one."""
        return await self._scope("user", self.user_id, self.tenant_id)

    async def tenant(self) -> ScopeHandle | None:
        """Return the thread of the tenant as of the same time, or `None` without one."""
        return await self._scope("tenant", self.tenant_id, "")

    async def agent(self) -> ScopeHandle | None:
        """Return the thread of the agent as of the same time, or `None` without one."""
        return await self._scope("agent", self.agent_id, self.tenant_id)

    async def _scope(self, kind: str, scope_id: str, tenant_id: str) -> ScopeHandle | None:
        if not scope_id:
            return None
        scope = ScopeHandle(self.thread.kernel, kind, scope_id, tenant_id)
        if not await scope.exists():
            return None
        if self.moment is not None:
            scope.as_of = await seq_of(scope.kernel.store, scope.id, self.moment)
        return scope


ReadBlock = Callable[[Situation], Coroutine[object, object, StandingBlock | None]]
"""Function that reads a block, or returns `None` if there is nothing to show. The lines are ordered oldest first; if
there are too many, the newest are shown."""


class BlockSource(msgspec.Struct, frozen=True, kw_only=True):
    """A block that a plug-in contributes: its name, its place, and the function that reads it.

    It may take `share` of a budget, or `least` tokens if that is more.
    """

    name: str
    read: ReadBlock
    place: Place = "first"
    share: float = 0.1
    least: int = 96

    def room(self, max_tokens: int | None, share: float | None = None) -> int | None:
        """Return the tokens that the block may take of a budget; `None`: any number."""
        if max_tokens is None:
            return None
        return max(self.least, int(max_tokens * (self.share if share is None else share)))


class BlockSources(msgspec.Struct, frozen=True):
    """The blocks of one engine, in the order in which they are shown."""

    sources: tuple[BlockSource, ...] = ()

    def chosen(self, blocks: Sequence[str] | Mapping[str, float] | None) -> list[tuple[BlockSource, float | None]]:
        """Return the blocks that a policy names, in its order and with its shares; `None`: all of them.

        Raises `ValueError` for a name that no plug-in contributes.
        """
        if blocks is None:
            return [(source, None) for source in self.sources]
        known = {source.name: source for source in self.sources}
        unknown = [name for name in blocks if name not in known]
        if unknown:
            raise ValueError(f"there is no block {unknown[0]!r}; there are {', '.join(known) or 'none'}")
        shares = blocks if isinstance(blocks, Mapping) else dict.fromkeys(blocks)
        return [(known[name], share) for name, share in shares.items()]


class OfferedBlock(msgspec.Struct, frozen=True):
    """A block that was read for a context, its source, and its share of a budget (`None`: the source's share)."""

    block: StandingBlock
    source: BlockSource
    share: float | None

    def within(self, max_tokens: int | None, counter: TokenCounter) -> StandingBlock:
        """Return the block with the newest of its lines that fit into its share."""
        block, room = self.block, self.source.room(max_tokens, self.share)
        if room is None:
            return block
        shown = shortening.last_lines([line.text for line in block.lines], room - counter.count(block.heading), counter)
        left_out = len(block.lines) - len(shown)
        lines = [replace(line, text=text) for line, text in zip(block.lines[left_out:], shown, strict=True)]
        return replace(block, lines=tuple(lines), left_out=left_out)
