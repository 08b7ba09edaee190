"""A context in no provider's form: turns of the system, of others, and of the agent with calls and results.

Here is what several forms need of them. `memory_engine.context.turns` makes the turns of a context.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

import msgspec
from msgspec.structs import replace

from memory_engine.core import images
from memory_engine.core.chunks import Chunk
from memory_engine.core.events.base import FilePart, ImagePart, Part, TextPart, ToolCall

EMPTY = "[empty message]"
"""Stands for words that are empty: providers refuse them."""
NO_OUTPUT = "[no output]"
"""Stands for the result of a call that has no content."""
GO_ON = "[Go on.]"
"""The user's words where a provider requires some and there are none."""

Zone = Literal[0, 1, 2]
"""How long a turn remains unchanged: 0, until a compaction; 1, the newest turn with its recalled passages; 2, until
it changes in place, at the end."""


class Thought(msgspec.Struct, frozen=True):
    """Content that only its provider reads: reasoning that the running loop carries, or a response of such blocks."""

    chunk: Chunk


class Speech(msgspec.Struct, frozen=True):
    """Words of the agent. `chunk` is whose they are, if it shows them whole."""

    parts: tuple[Part, ...]
    chunk: Chunk | None = None


class FormCall(ToolCall, frozen=True):
    """A call. `id` and `name` are such that every provider takes them; `arguments` is the text of a JSON object."""

    chunk: Chunk | None = None


Block = Thought | Speech | FormCall


class Result(msgspec.Struct, frozen=True):
    """The answer to a call; never without parts."""

    call_id: str
    parts: tuple[Part, ...]
    failed: bool = False
    chunk: Chunk | None = None


class FormTurn(msgspec.Struct, frozen=True):
    """One side's turn. `parts` of the system or of others, never empty; `blocks` of the agent, with the results."""

    role: Literal["system", "user", "agent"]
    zone: Zone
    parts: tuple[Part, ...] = ()
    blocks: tuple[Block, ...] = ()
    results: tuple[Result, ...] = ()
    response_id: str = ""
    chunk: Chunk | None = None
    own: tuple[Chunk, ...] = ()
    """The chunks of a response of the agent that goes back to its provider as it came."""
    whole: bool = True
    """Whether all reasoning of the response is in it."""

    @property
    def calls(self) -> list[FormCall]:
        """The calls, in order; each has its result."""
        return [block for block in self.blocks if isinstance(block, FormCall)]


class RenderOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The dependencies of a request besides its turns.

    `tokens` are those of the context, `thinking_tokens` those of thinking that it does not show. `cache` (anthropic)
    marks where the prompt cache may end, `reasoning_content` (openai.chat) gives thinking back under that name.
    """

    tokens: int
    thinking_tokens: int = 0
    cache: bool = True
    reasoning_content: bool = False


def opening(turns: Sequence[FormTurn]) -> tuple[list[FormTurn], list[FormTurn]]:
    """The instructions before all else, and the other turns."""
    first = next((n for n, turn in enumerate(turns) if turn.role != "system"), len(turns))
    return list(turns[:first]), list(turns[first:])


class ImageLimits(msgspec.Struct, frozen=True):
    """How many images a request may show, and of how many pixels to a side; 0: any.

    In a request of more than `many` images the sides have other limits.
    """

    most: int
    side_px: int = 0
    many: int = 0
    many_side_px: int = 0


OPENAI_IMAGE_LIMITS = ImageLimits(most=500)


def with_images_within(turns: Sequence[FormTurn], limits: ImageLimits) -> Sequence[FormTurn]:
    """The turns with notes for images that no request may show, and for the oldest ones where they are too many."""
    found = [part for turn in turns for part in _shown_parts(turn) if isinstance(part, ImagePart)]
    reasons = _image_omissions(found, limits)
    if not any(reasons):
        return turns
    each = iter(reasons)
    return [_with_notes(turn, each) for turn in turns]


def _shown_parts(turn: FormTurn) -> Iterator[Part]:
    if turn.role == "user":
        yield from turn.parts
    for result in turn.results:
        yield from result.parts


def _image_omissions(found: Sequence[ImagePart], limits: ImageLimits) -> list[str]:
    """Why each image is left out; empty for those that stay.

    The oldest go in steps of a fifth: were it one by one, the prefix would change with every image that comes.
    """
    sides = [max(images.image_size(image.url) or (0,)) if limits.side_px else 0 for image in found]
    reasons = [f"over {limits.side_px} px" if limits.side_px and side > limits.side_px else "" for side in sides]
    fitting = [n for n, reason in enumerate(reasons) if not reason]
    kept = min(len(fitting), limits.most)
    if limits.many and kept > limits.many:
        newest = (count for count, n in enumerate(reversed(fitting)) if sides[n] > limits.many_side_px)
        kept = min(kept, max(limits.many, next(newest, kept)))
    step = max(1, kept // 5)
    over = -(-(len(fitting) - kept) // step) * step
    for n in fitting[:over]:
        reasons[n] = "too many images for one request"
    return reasons


def _with_notes(turn: FormTurn, reasons: Iterator[str]) -> FormTurn:
    """The turn with notes for those of its images that have a reason to be left out."""

    def noted(parts: tuple[Part, ...]) -> tuple[Part, ...]:
        return tuple(_noted(part, next(reasons)) if isinstance(part, ImagePart) else part for part in parts)

    if turn.role == "user":
        parts = noted(turn.parts)
        return turn if parts == turn.parts else replace(turn, parts=parts, chunk=None)
    results = ((result, noted(result.parts)) for result in turn.results)
    shown = (one if parts == one.parts else replace(one, parts=parts, chunk=None) for one, parts in results)
    return replace(turn, results=tuple(shown)) if turn.results else turn


def _noted(image: ImagePart, reason: str) -> Part:
    return TextPart(f"{media_note(image)[:-1]} (left out: {reason})]") if reason else image


def runs(turn: FormTurn) -> list[tuple[Chunk | None, list[Block]]]:
    """The agent's blocks, those of each chunk together."""
    found: list[tuple[Chunk | None, list[Block]]] = []
    for block in turn.blocks:
        if found and found[-1][0] is block.chunk and block.chunk is not None:
            found[-1][1].append(block)
        else:
            found.append((block.chunk, [block]))
    return found


def parts_text(parts: Iterable[Part]) -> str:
    """The texts of parts, with notes for images and files that a form has no place for."""
    return "\n".join(part.text if isinstance(part, TextPart) else media_note(part) for part in parts)


def media_note(part: ImagePart | FilePart) -> str:
    """An image or a file, in words; the text of a file that is one."""
    kind, name = ("image", part.alt) if isinstance(part, ImagePart) else ("file", part.name)
    address = part.url if part.url[:5].casefold() != "data:" else ""
    facts = [fact for fact in (name, part.media_type, address, part.file_id) if fact]
    note = f"[{kind}: {', '.join(facts)}]" if facts else f"[{kind}]"
    text = part.text if isinstance(part, FilePart) else ""
    return f"{note}\n{text}" if text.strip() else note
