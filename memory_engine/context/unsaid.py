"""Detection of the brief's statements that still hold but that a context shows nowhere.

Only statements whose absence matters count: those that bind, those of the request being worked on, and pins. A
statement is shown if the brief holds it, possibly with its middle left out, if its message is shown whole, or if its
words appear elsewhere.
"""

from collections.abc import Iterable, Sequence

from attrs import evolve

from memory_engine.context.brief_block import RankedBlock, Weighed
from memory_engine.context.context import Context
from memory_engine.context.rendering import RenderedChunk
from memory_engine.context.standing import OfferedBlock
from memory_engine.core.chunks import ChunkType

_REPEATING = frozenset({ChunkType.COMPACTED, ChunkType.RECALLED})
"""Types of chunks that repeat words of messages which are not shown themselves."""


def with_unsaid(context: Context, offered: Sequence[OfferedBlock]) -> Context:
    """Return the context with the statements that it must show, as of its seq, and with the missing ones."""
    stood = tuple(one for block in offered for one in _needed(block))
    return evolve(context, stood=stood, unsaid=tuple(_unsaid(context, stood))) if stood else context


def _needed(block: OfferedBlock) -> Iterable[Weighed]:
    """Return the statements of an offered brief that must be in a context, in order of rank."""
    offered = block.block.weighed if isinstance(block.block, RankedBlock) else ()
    return (one for one in offered if one.stands and (one.binds or one.request or one.pinned))


def _unsaid(context: Context, stood: Sequence[Weighed]) -> list[Weighed]:
    """Return the statements that the context shows nowhere, in order."""
    held = {one.place for block in context.standing if isinstance(block, RankedBlock) for one in block.weighed}
    whole = {piece.chunk.said_at for piece in context.pieces if _shows_its_message(piece)}
    left = [one for one in stood if one.place not in held]
    left = [one for one in left if one.pinned or one.thread_id != context.thread_id or one.seq not in whole]
    if not left:
        return []
    words = " ".join(" ".join(_repeated(context.pieces)).split())
    return [one for one in left if " ".join(one.text.split()) not in words]


def _shows_its_message(piece: RenderedChunk) -> bool:
    return bool(piece.messages) and not piece.shortened and piece.chunk.type not in _REPEATING


def _repeated(pieces: Iterable[RenderedChunk]) -> Iterable[str]:
    """Yield the texts of pieces that show a part of a message or repeat one."""
    for piece in pieces:
        if piece.shortened or piece.chunk.type in _REPEATING:
            yield from (str(message.get("content")) for message in piece.messages)
