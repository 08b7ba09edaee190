"""The turns of a context, in no provider's form.

They keep the rules of all providers: every call is directly followed by its result, the calls of one response are
together, ids are of letters that all take and none comes twice, arguments are JSON objects, and nothing is empty.
Rules of a single provider are in `memory_engine.formats`, with all else of the provider.
"""

import re
from collections.abc import Collection, Container, Iterator, Sequence
from hashlib import sha256

import msgspec
from msgspec.structs import replace

from memory_engine.context.rendering import (
    DEFAULT_RENDERERS,
    Message,
    RenderedChunk,
    assemble,
    message_part,
    render_chunk,
)
from memory_engine.context.thinking import is_recorded
from memory_engine.core.chunks import Chunk, ChunkType
from memory_engine.core.events.base import FilePart, ImagePart, Part, TextPart
from memory_engine.core.origins import SPOKEN
from memory_engine.formats.native import from_native
from memory_engine.formats.turns import EMPTY, NO_OUTPUT, Block, FormCall, FormTurn, Result, Speech, Thought, Zone

CALL_ID_CHARS_MAX = 40
"""The longest id that all providers take (OpenAI's chat completions: 40)."""
TOOL_NAME_CHARS_MAX = 64
RAW_ARGUMENTS = "arguments"
_FOREIGN = re.compile(r"[^a-zA-Z0-9_-]")
_OF_FIELDS = frozenset({"anthropic", "langchain"})
"""Forms whose messages need no `native` to be told from a text of their fields."""
_MODELS = frozenset({ChunkType.THINKING, ChunkType.AGENT_RESPONSE, ChunkType.AGENT_ACTION})


class _Making:
    """A turn under way: the places of its pieces, and how the turn is so far."""

    def __init__(self, turn: FormTurn, place: int) -> None:
        self.turn = turn
        self.places = [place]

    def add(self, later: FormTurn, place: int) -> None:
        """Take what the same response says further."""
        self.turn = replace(self.turn, blocks=(*self.turn.blocks, *later.blocks))
        self.places.append(place)


def turns_of(
    pieces: Sequence[RenderedChunk], trailing: int, carried: Collection[str], form: str = ""
) -> list[FormTurn]:
    """The turns of a context. The last `trailing` pieces change in place; `carried` are the ids of thinking to show.

    `form` names the form that they are for: a response of its provider stays as it came.
    """
    shown = [_with_own(piece, carried, form) for piece in pieces]
    origins = {id(message): (n, piece) for n, piece in enumerate(shown) for message in piece.messages}
    newest = _newest_turn(shown)
    ids = _Ids()
    made: list[_Making] = []
    waiting: list[str] = []
    zone: Zone = 0
    for message in assemble(shown):
        n, piece = origins.get(id(message), (-1, None))
        if message.get("role") == "tool":
            whole = piece.chunk if piece is not None and not piece.shortened else None
            answer = Result(waiting.pop(0), _result_parts(message, piece), _has_failed(piece), whole)
            made[-1].turn = replace(made[-1].turn, results=(*made[-1].turn.results, answer))
            continue
        if n >= 0:
            zone = 2 if n >= len(shown) - trailing else 1 if n >= newest else 0
        turn = _turn(message, piece, zone, ids)
        if turn is None:
            continue
        waiting = [call.id for call in turn.calls]
        if made and (_continues(made[-1].turn, turn) or _is_next(made[-1], turn, n, shown)):
            made[-1].add(turn, n)
        else:
            made.append(_Making(turn, n))
    _keep_own(made, shown, form)
    settled = (_settled(one.turn) for one in made)
    return _with_running_thoughts([turn for turn in settled if turn is not None])


def _is_next(made: _Making, later: FormTurn, place: int, shown: Sequence[RenderedChunk]) -> bool:
    """Whether a turn goes on with the response before it: of its id, and nothing was said in between."""
    is_same = bool(later.response_id) and later.response_id == made.turn.response_id
    return (
        is_same and place > made.places[-1] >= 0 and not any(one.messages for one in shown[made.places[-1] + 1 : place])
    )


def _keep_own(made: Sequence[_Making], shown: Sequence[RenderedChunk], form: str) -> None:
    """Mark the responses that go back to the form's provider as they came, with their own ids of calls."""
    named = [one for one in made if one.turn.response_id and -1 not in one.places] if form else []
    if not named or not any(is_recorded(piece.chunk) for piece in shown):
        return
    taken = {call.id for one in made for call in one.turn.calls}
    for one in named:
        pieces = [shown[n] for n in sorted({*one.places, *_of_response(one, shown)})]
        own = _own_chunks([piece for piece in pieces if piece.messages], form)
        ids = _own_ids(own, one.turn.calls, taken) if own else None
        if ids is not None:
            results = tuple(
                result if ids[result.call_id] == result.call_id else replace(result, call_id=ids[result.call_id])
                for result in one.turn.results
            )
            one.turn = replace(one.turn, own=own, results=results, whole=all(piece.messages for piece in pieces))


def _own_ids(own: Sequence[Chunk], calls: Sequence[FormCall], taken: Container[str]) -> dict[str, str] | None:
    """The response's own ids of its calls, by those of the form; `None` if the calls cannot go back as they came."""
    asked = [call for chunk in own for call in chunk.calls]
    if len(asked) != len(calls):
        return None
    for call, ours in zip(asked, calls, strict=True):
        if call.id != ours.id and call.id in taken:
            return None
        is_same = (call.id, call.name, call.arguments) == (ours.id, ours.name, ours.arguments)
        if not is_same and not any(chunk.native for chunk in own):
            return None
    return {ours.id: call.id for call, ours in zip(asked, calls, strict=True)}


def _of_response(one: _Making, shown: Sequence[RenderedChunk]) -> Iterator[int]:
    """The places of a response, also of its thinking that is not shown: right before the others, or among them."""
    first = one.places[0]
    while first and shown[first - 1].chunk.response_id == one.turn.response_id:
        first -= 1
    for n in range(first, len(shown)):
        if shown[n].chunk.response_id == one.turn.response_id:
            yield n
        elif n > one.places[-1]:
            return


def _own_chunks(pieces: Sequence[RenderedChunk], form: str) -> tuple[Chunk, ...]:
    """Return the chunks of a response that goes back as it came; none for one that cannot."""
    chunks = tuple(piece.chunk for piece in pieces)
    if not chunks or not chunks[0].response_id or not is_recorded(chunks[-1]):
        return ()
    begin, shows_form = f'{{"{form}"', form in _OF_FIELDS
    for piece in pieces:
        chunk = piece.chunk
        is_of_form = not chunk.native or chunk.native.startswith(begin)
        is_one = chunk.response_id == chunks[0].response_id and chunk.type in _MODELS
        if not (is_of_form and is_one) or _is_otherwise(piece):
            return ()
        shows_form = shows_form or bool(chunk.native)
    return chunks if shows_form else ()


def _is_otherwise(piece: RenderedChunk) -> bool:
    """Whether a chunk is shown shortened, or by a renderer of one's own."""
    if piece.shortened:
        return True
    if piece.messages == tuple(render_chunk(piece.chunk, DEFAULT_RENDERERS)):
        return False
    return any(message.get("content") is not None or message.get("tool_calls") for message in piece.messages)


def _has_own_blocks(chunk: Chunk, form: str) -> bool:
    """Return whether a chunk that shows nothing holds blocks of the form's provider."""
    is_kept = form != "openai.chat" or is_recorded(chunk)
    return chunk.type == ChunkType.AGENT_RESPONSE and is_kept and bool(from_native(chunk.native, form).get("message"))


class _Ids:
    """Ids for calls: those of the model where every provider takes them and none had it before."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def take(self, asked: str, place: str) -> str:
        """An id that was not taken, the same each time for the same calls. `place` tells equal ones apart."""
        fitting = _FOREIGN.sub("_", asked)
        if not 0 < len(fitting) <= CALL_ID_CHARS_MAX:
            fitting = _made_id(asked)
        again = 0
        while fitting in self._taken:
            fitting = _made_id(f"{place} {again} {asked}")
            again += 1
        self._taken.add(fitting)
        return fitting


def _made_id(text: str) -> str:
    return f"call_{sha256(text.encode()).hexdigest()[:24]}"


def _with_own(piece: RenderedChunk, carried: Collection[str], form: str) -> RenderedChunk:
    """A place in the order for thinking that is carried, and for a response of nothing but the provider's own blocks.

    A renderer of one's own shows them in its own way instead.
    """
    if piece.messages or piece.shortened:
        return piece
    if piece.chunk.id not in carried and not (form and _has_own_blocks(piece.chunk, form)):
        return piece
    return replace(piece, messages=({"role": "assistant", "content": None},))


def _newest_turn(pieces: Sequence[RenderedChunk]) -> int:
    """The position of the first piece that a new question changes: what was recalled for it, else the question."""
    spoken = (n for n in range(len(pieces) - 1, -1, -1) if pieces[n].chunk.type in SPOKEN)
    recalled = (n for n, piece in enumerate(pieces) if piece.chunk.type == ChunkType.RECALLED)
    newest = next(spoken, next(recalled, len(pieces)))
    while newest and _belongs_to_turn(pieces[newest - 1]):
        newest -= 1
    return newest


def _belongs_to_turn(piece: RenderedChunk) -> bool:
    """Whether a piece before the newest message is there for it: recalled passages, or a standing block."""
    return piece.position < 0 or piece.chunk.type == ChunkType.RECALLED


def _turn(message: Message, piece: RenderedChunk | None, zone: Zone, ids: _Ids) -> FormTurn | None:
    """The turn of one message; `None` for one without words or calls, which means nothing."""
    chunk = piece.chunk if piece is not None else None
    if message.get("role") == "assistant":
        blocks = _turn_blocks(message, piece, ids)
        return (
            FormTurn("agent", zone, (), blocks, (), chunk.response_id if chunk is not None else "") if blocks else None
        )
    parts = _message_parts(message.get("content"), chunk)
    if message.get("role") in ("system", "developer"):
        return FormTurn("system", zone, parts, chunk=chunk) if parts else None
    whole = chunk if piece is not None and not piece.shortened else None
    return FormTurn("user", zone, parts or (TextPart(EMPTY),), chunk=whole)


def _turn_blocks(message: Message, piece: RenderedChunk | None, ids: _Ids) -> tuple[Block, ...]:
    chunk = piece.chunk if piece is not None else None
    whole = chunk if piece is not None and not piece.shortened else None
    calls = message.get("tool_calls")
    is_own = chunk is not None and chunk.type in (ChunkType.THINKING, ChunkType.AGENT_RESPONSE)
    if chunk is not None and is_own and message.get("content") is None and not calls:
        return (Thought(chunk),)
    blocks: list[Block] = []
    parts = _message_parts(message.get("content"), chunk)
    if parts:
        blocks.append(Speech(parts, whole))
    for n, call in enumerate(calls if isinstance(calls, list) else ()):
        function = call["function"]
        wire_id = ids.take(str(call["id"]), f"{chunk.id if chunk is not None else ''}.{n}")
        blocks.append(FormCall(wire_id, _tool_name(function["name"]), _object(function["arguments"]), chunk=whole))
    return tuple(blocks)


def _tool_name(name: str) -> str:
    return _FOREIGN.sub("_", name)[:TOOL_NAME_CHARS_MAX] or "unnamed"


def _object(arguments: str) -> str:
    """Arguments as they were written, if that is a JSON object; else an object that holds them."""
    try:
        if isinstance(msgspec.json.decode(arguments), dict):
            return arguments
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        pass
    return msgspec.json.encode({RAW_ARGUMENTS: arguments} if arguments.strip() else {}).decode()


def _message_parts(content: object, chunk: Chunk | None) -> tuple[Part, ...]:
    """The parts of a message that are not empty, with images and files as their chunk has them."""
    if isinstance(content, str):
        return (TextPart(content),) if content.strip() else ()
    media: list[Part] = []
    if chunk is not None and not isinstance(chunk.content, str):
        media = [part for part in chunk.content if not isinstance(part, TextPart)]
    found = (_typed_part(part, media) for part in content) if isinstance(content, list) else ()
    return tuple(part for part in found if not isinstance(part, TextPart) or part.text.strip())


def _typed_part(part: Message, media: Sequence[Part]) -> Part:
    """A part of a message as a value. It is one of the chunk's if it looks as that one is rendered."""
    for known in media:
        if message_part(known) == part:
            return known
    match part:
        case {"type": "text", "text": str(text)}:
            return TextPart(text)
        case {"type": "image_url", "image_url": {"url": str(url), **more}}:
            return ImagePart(url, detail=str(more.get("detail", "")))
        case {"type": "file", "file": dict(file)}:
            known_as = {key: str(file.get(key, "")) for key in ("file_data", "filename", "file_id")}
            return FilePart(known_as["file_data"], name=known_as["filename"], file_id=known_as["file_id"])
    return TextPart(f"[{part.get('type', 'part')}]")


def _result_parts(message: Message, piece: RenderedChunk | None) -> tuple[Part, ...]:
    parts = _message_parts(message.get("content"), piece.chunk if piece is not None else None)
    return parts or (TextPart(NO_OUTPUT),)


def _has_failed(piece: RenderedChunk | None) -> bool:
    return piece is not None and piece.chunk.type == ChunkType.ERROR


def _continues(turn: FormTurn, later: FormTurn) -> bool:
    """Whether two turns are parts of one response: by its id; without one, thinking or words before calls."""
    if turn.role != "agent" or later.role != "agent":
        return False
    if all(map(_is_thought, turn.blocks)):
        return not later.response_id or not turn.response_id or later.response_id == turn.response_id
    begins_anew = isinstance(later.blocks[0], Thought)
    if later.response_id and later.response_id == turn.response_id:
        return not (begins_anew and turn.calls)
    return not (begins_anew or turn.calls or later.response_id or turn.response_id) and bool(later.calls)


def _with_running_thoughts(turns: list[FormTurn]) -> list[FormTurn]:
    """The turns as they are if the agent's last one calls; else its loop has ended, and all thinking goes."""
    last = next((turn for turn in reversed(turns) if turn.role == "agent"), None)
    if last is None or last.calls:
        return turns
    return [turn if turn.own else _without_thoughts(turn) for turn in turns]


def _without_thoughts(turn: FormTurn) -> FormTurn:
    blocks = tuple(block for block in turn.blocks if not _is_thought(block))
    return turn if len(blocks) == len(turn.blocks) else replace(turn, blocks=blocks)


def _is_thought(block: Block) -> bool:
    return isinstance(block, Thought) and block.chunk.type == ChunkType.THINKING


def _settled(turn: FormTurn) -> FormTurn | None:
    """The turn without thinking that nothing follows, which providers refuse; `None` if nothing else is in it."""
    if turn.role != "agent" or turn.own:
        return turn
    blocks = turn.blocks
    while blocks and _is_thought(blocks[-1]):
        blocks = blocks[:-1]
    if not blocks:
        return None
    return turn if blocks is turn.blocks else replace(turn, blocks=blocks)
