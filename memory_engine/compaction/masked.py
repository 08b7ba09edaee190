"""The input of a compactor that may send texts to a model: placeholders for secrets, which its lines bring back."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import cast

from msgspec.structs import replace

from memory_engine.compaction.base import CompactionContext, CompactionResult, Compactor, works_ahead
from memory_engine.core.aside import aside
from memory_engine.core.chunks import Chunk
from memory_engine.core.events.base import Content, FilePart, ImagePart, Part, SummaryLine, TextPart
from memory_engine.errors import CompactorFailed
from memory_engine.language.masking import CHARS_AN_ITEM, Mask, Placeholders

Hide = Callable[[str], str]
_TEXTS = (
    "task_goal", "progress_summary", "system_context", "current_request", "instructions", "focus",
)  # fmt: skip
_LISTS = ("brief", "todos")


async def compacted(
    compactor: Compactor, chunks: Sequence[Chunk], context: CompactionContext, mask: Mask | None
) -> CompactionResult:
    """Return a compactor's result. One that works ahead sends its input nowhere, and gets it unmasked.

    A line with a placeholder that the compactor was not given is left out, as any value that it made up. Raises
    `CompactorFailed` if no other is left.
    """
    if mask is None or works_ahead(compactor):
        return await compactor.compact(chunks, context)
    texts = list(_maskable_texts(chunks, context))
    hidden = await aside(partial(Placeholders, mask, texts), items=sum(map(len, texts)) // CHARS_AN_ITEM)
    if not hidden:
        return await compactor.compact(chunks, context)
    result: object = await compactor.compact(
        [_chunk(chunk, hidden.hide) for chunk in chunks], _context(context, hidden.hide)
    )
    if not isinstance(result, CompactionResult) or not all(map(_is_line, result.lines)):
        return cast("CompactionResult", result)  # the caller refuses it
    true = [line for line in result.lines if not hidden.invented(line.text)]
    if result.lines and not true:
        why = f"its lines name {hidden.invented(result.lines[0].text)[0]}, which it was not given"
        raise CompactorFailed(compactor.name, "invalid", why, result.usage)
    return replace(result, lines=tuple(replace(line, text=hidden.restore(line.text)) for line in true))


def _is_line(line: object) -> bool:
    return isinstance(line, SummaryLine)


def _maskable_texts(chunks: Sequence[Chunk], context: CompactionContext) -> Iterator[str]:
    """Yield every text that is to be hidden, by hiding nothing."""
    said: list[str] = []

    def seen(text: str) -> str:
        said.append(text)
        return text

    for chunk in chunks:
        _chunk(chunk, seen)
    _context(context, seen)
    yield from said


def _chunk(chunk: Chunk, hide: Hide) -> Chunk:
    return replace(
        chunk,
        content=_mask_content(chunk.content, hide),
        calls=tuple(replace(call, arguments=hide(call.arguments)) for call in chunk.calls),
        lines=_mask_lines(chunk.lines, hide),
        native=hide(chunk.native) if chunk.native else "",
    )


def _mask_content(content: Content, hide: Hide) -> Content:
    return hide(content) if isinstance(content, str) else tuple(_mask_part(part, hide) for part in content)


def _mask_part(part: Part, hide: Hide) -> Part:
    match part:
        case TextPart():
            return replace(part, text=hide(part.text))
        case ImagePart():
            return replace(part, alt=hide(part.alt), url=_address(part.url, hide))
        case FilePart():
            return replace(part, text=hide(part.text), name=hide(part.name), url=_address(part.url, hide))


def _address(url: str, hide: Hide) -> str:
    return url if url.startswith("data:") else hide(url)


def _mask_lines(lines: Sequence[SummaryLine], hide: Hide) -> tuple[SummaryLine, ...]:
    return tuple(replace(line, text=hide(line.text)) for line in lines)


def _context(context: CompactionContext, hide: Hide) -> CompactionContext:
    texts = {name: hide(getattr(context, name)) for name in _TEXTS}
    lists = {name: tuple(map(hide, getattr(context, name))) for name in _LISTS}
    return replace(context, earlier=_mask_lines(context.earlier, hide), **texts, **lists)
