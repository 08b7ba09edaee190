"""Off-loading: large results leave the context but for their beginning, and are read on from the log.

Nothing is copied: the log holds the whole text under the chunk's id, which is the reference. The reducers for this,
and for memory that is put before the model, are here.
"""

import msgspec

from memory_engine.core.arguments import checked_text, checked_type
from memory_engine.core.aside import aside
from memory_engine.core.chunks import RECALLED, Category, Chunk, ChunkType, Retention, content_text
from memory_engine.core.events.base import Content, Part, TextPart
from memory_engine.core.lazy import regex
from memory_engine.core.operations import Operation, Update
from memory_engine.core.origins import RESULTS
from memory_engine.core.records import Receipt
from memory_engine.core.reduction import ReduceContext, Reduction, appended
from memory_engine.core.state import StateView
from memory_engine.errors import ForgottenChunk, InvalidMemory
from memory_engine.runtime.handle import ThreadHandle
from memory_engine.views.layers.events import MemoryRecalled, ResultsOffloaded

_RESULTS = RESULTS | {ChunkType.EXTERNAL, ChunkType.SUBAGENT_MESSAGE, ChunkType.RECALLED}
"""Types of chunks that were brought in, not said: a person's own words are never cut."""
_REFERENCE = regex(r'\[… [\d,]+ more characters: open\("(?P<id>\d+\.\d+)"\)\]')
_CALL = regex(r'\s*open\(\s*["\']?(?P<id>\d+\.\d+)["\']?\s*\)\s*')


class Opened(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of a text: the characters from `start` on, of `total_chars`; `next_start` is where the next begins."""

    reference: str
    text: str
    start: int
    total_chars: int
    next_start: int | None


async def offload(thread: ThreadHandle, *, min_chars: int, keep_chars: int) -> Receipt | None:
    """Shorten results of `min_chars` characters and more in the state; `None` without any.

    CRITICAL chunks stay whole. Raises `InvalidMemory` where nothing would get shorter.
    """
    checked_type("keep_chars", keep_chars, int, give="a number of characters")
    checked_type("min_chars", min_chars, int, give="a number of characters")
    if not 0 <= keep_chars < min_chars:
        raise InvalidMemory("keep_chars", keep_chars, f"it is at least 0 and below min_chars, {min_chars}")
    thread.kernel.check_writable("off-loading")
    state = await thread.state()
    large = await aside(
        lambda: tuple(chunk.id for chunk in state.everything() if _is_large(chunk, min_chars)), items=len(state)
    )
    if not large:
        return None
    return await thread.dispatch(ResultsOffloaded(chunk_ids=large, keep_chars=keep_chars))


def _is_large(chunk: Chunk, min_chars: int) -> bool:
    if chunk.type not in _RESULTS or chunk.category is not Category.WORKING_FLOW:
        return False
    return chunk.retention is not Retention.CRITICAL and len(_plain_chunk_text(chunk)) >= min_chars


def _plain_chunk_text(chunk: Chunk) -> str:
    """The text alone: images and files stay in the context."""
    if isinstance(chunk.content, str):
        return chunk.content or chunk.text
    return "\n".join(part.text for part in chunk.content if isinstance(part, TextPart))


async def open_reference(thread: ThreadHandle, reference: str, *, start: int, chars: int) -> Opened:
    """A piece of the text behind a reference: a chunk's id, which its note names. A call is its name and arguments.

    Raises `UnknownChunk` for one that is not in the log, `ForgottenChunk`, `InvalidMemory` for bounds that are not
    possible.
    """
    checked_text("reference", reference)
    for what, count in (("start", start), ("chars", chars)):
        checked_type(what, count, int, give="a number of characters")
    if start < 0:
        raise InvalidMemory("start", start, "it counts characters from the beginning: 0 or more")
    if chars < 1:
        raise InvalidMemory("chars", chars, "it is a number of characters: 1 or more")
    chunk = await _original(thread, _id_of(reference))
    calls = (f"{call.name} {call.arguments}" for call in chunk.calls)
    text = "\n".join(part for part in (_plain_chunk_text(chunk), *calls) if part)
    end = min(len(text), start + chars)
    return Opened(
        reference=chunk.id,
        text=text[start:end],
        start=start,
        total_chars=len(text),
        next_start=end if end < len(text) else None,
    )


def _id_of(reference: str) -> str:
    """The chunk id in what a model may write: `12.0`, `open("12.0")`, or the whole note."""
    found = _CALL.fullmatch(reference) or _REFERENCE.search(reference)
    return found["id"] if found is not None else reference.strip().strip("\"'")


async def _original(thread: ThreadHandle, chunk_id: str) -> Chunk:
    """The chunk before it was shortened."""
    ids = [chunk_id]
    chunk = await thread.chunk(chunk_id)
    while (left := _REFERENCE.search(_plain_chunk_text(chunk)[-200:])) is not None and left["id"] in chunk.parent_ids:
        chunk = await thread.chunk(left["id"])
        ids.append(chunk.id)
    ids += chunk.parent_ids
    if len(await thread.kernel.reader.shown(thread.id, ids)) < len(set(ids)):
        raise ForgottenChunk("open", chunk_id)
    return chunk


def reduce_memory_recalled(_view: StateView, event: MemoryRecalled, ctx: ReduceContext) -> Reduction:
    """A note that says it comes out of memory: the first to go, and nothing is learned from it again."""
    return appended(
        Chunk(
            id=ctx.new_id(),
            type=ChunkType.RECALLED,
            content=event.content,
            retention=Retention.DISPOSABLE,
            status=RECALLED,
        )
    )


def reduce_results_offloaded(view: StateView, event: ResultsOffloaded, ctx: ReduceContext) -> Reduction:
    """A beginning and a reference in place of each text. A short chunk, or one outside the state, does not change."""
    operations: list[Operation] = []
    chunks: list[Chunk] = []
    for chunk_id in dict.fromkeys(event.chunk_ids):
        chunk = view.get(chunk_id)
        if chunk is None:
            continue
        shorter = _shortened(chunk, event.keep_chars)
        if len(content_text(shorter)) < len(content_text(chunk.content)):
            kept = msgspec.structs.replace(chunk, id=ctx.new_id(), content=shorter, parent_ids=())
            chunks.append(kept)
            operations.append(Update(chunk_id, kept.id))
    return Reduction(operations=tuple(operations), chunks=tuple(chunks))


def _shortened(chunk: Chunk, keep_chars: int) -> Content:
    """The beginning of the text with where to read on; images and files stay."""
    kept: tuple[Part, ...] = ()
    if isinstance(chunk.content, str):
        text = chunk.content
    else:
        text = "\n".join(part.text for part in chunk.content if isinstance(part, TextPart))
        kept = tuple(part for part in chunk.content if not isinstance(part, TextPart))
    left = len(text) - max(0, keep_chars)
    if left <= 0:
        return chunk.content
    beginning = f'{text[: max(0, keep_chars)]}\n[… {left:,} more characters: open("{chunk.id}")]'
    return (TextPart(beginning), *kept) if kept else beginning
