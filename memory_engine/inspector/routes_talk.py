"""The route for a thread as a conversation: who said what, calls with their results, summaries as folds."""

from collections.abc import Iterable, Sequence

from memory_engine.core.chunks import Chunk, ChunkType
from memory_engine.core.clock import to_datetime
from memory_engine.core.events.base import Content, FilePart, ImagePart, Part, TextPart
from memory_engine.core.json_form import named
from memory_engine.engine import kernel_of
from memory_engine.inspector.answers import Inspection, Query, Route
from memory_engine.inspector.outlines import call_row
from memory_engine.inspector.states import Seen, turns_of
from memory_engine.inspector.talk_end import last_turns

TURNS_AT_ONCE = 40
TURNS_AT_ONCE_MAX = 200
COVERED_MAX = 2_000
"""How many chunks behind one summary are given."""
TEXT_MAX = 20_000
"""How many characters of a chunk's text are given; `chars` is its length."""
IMAGES_MAX = 4_000_000
"""The most characters of the pictures (`data:` URLs) of one page; of others, only the description is given."""


async def talk(inspection: Inspection, query: Query) -> object:
    """A page of the conversation's turns after the event at a seq: the last, unless `offset` names another.

    With `chunk`, the turns that this summary replaced. With `quick`, a long log's last turns at once: they are
    `partial`, and `total` counts only them.
    """
    past = await inspection.past(query)
    summary = query.text("chunk", "")
    limit = query.number("limit", TURNS_AT_ONCE, least=1, most=TURNS_AT_ONCE_MAX)
    offset = query.number_if_given("offset")
    is_whole = summary or offset is not None or not query.number("quick", 0, most=1)
    if not is_whole and not await inspection.states.is_at_hand(past.id, past.seq):
        last = await last_turns(kernel_of(inspection.engine).reader, past.id, past.seq, limit)
        if last is not None:
            return {
                **await _page(inspection, past, last),
                "total": len(last),
                "offset": 0,
                "partial": True,
                "limit": limit,
            }
    if summary:
        covering = await inspection.engine.thread(past.id).replay.chunk(summary)
        behind = await inspection.states.chunks(past.id, covering.parent_ids[:COVERED_MAX])
        turns = turns_of(behind.values())
    else:
        turns = (await past.laid()).turns
    if offset is None:
        offset = max(0, (len(turns) - 1) // limit * limit)
    page = await _page(inspection, past, turns[offset : offset + limit])
    return {**page, "total": len(turns), "offset": offset, "limit": limit, "partial": False}


async def _page(inspection: Inspection, past: Seen, page: Sequence[Sequence[str]]) -> dict[str, object]:
    """Some turns, line by line."""
    chunks = await inspection.states.chunks(past.id, [chunk_id for turn in page for chunk_id in turn])
    times = await _times(inspection, past.id, chunks.values())
    room = _Room(IMAGES_MAX)
    return {
        "seq": past.seq,
        "turns": [[_talk_line(chunks[one], times, room) for one in turn if one in chunks] for turn in page],
    }


async def _times(inspection: Inspection, thread_id: str, chunks: Iterable[Chunk]) -> dict[int, str]:
    """When the events that first brought the chunks were recorded, by seq."""
    seqs = sorted({chunk.said_at for chunk in chunks})
    found = await kernel_of(inspection.engine).store.read_at(thread_id, seqs)
    return {stored.seq: to_datetime(stored.recorded_at_us).isoformat() for stored in found}


class _Room:
    """How many characters of pictures still fit on a page."""

    def __init__(self, left: int) -> None:
        self._left = left

    def takes(self, url: str) -> bool:
        """Whether a picture fits; if so, its room is taken."""
        if len(url) > self._left:
            return False
        self._left -= len(url)
        return True


def _talk_line(chunk: Chunk, times: dict[int, str], room: _Room) -> dict[str, object]:
    parts = _talk_parts(chunk.text if chunk.lines else chunk.content, room)
    return {
        **named(chunk, "id type tokens status label name call_id"),
        "seq": chunk.said_at,
        "at": times.get(chunk.said_at),
        "parts": parts,
        "chars": len(chunk.text),
        "covers": len(chunk.parent_ids) if chunk.type == ChunkType.COMPACTED else 0,
        "calls": [call_row(call) for call in chunk.calls],
    }


def _talk_parts(content: Content, room: _Room) -> list[dict[str, object]]:
    """The texts, pictures and files of a content in order; the texts have at most `TEXT_MAX` characters together."""
    parts: Sequence[Part] = (TextPart(content),) if isinstance(content, str) else content
    rows: list[dict[str, object]] = []
    left = TEXT_MAX
    for part in parts:
        match part:
            case TextPart():
                rows.append({"text": part.text[:left], "chars": len(part.text)})
                left -= min(left, len(part.text))
            case ImagePart():
                url = part.url if room.takes(part.url) else ""
                rows.append({"image": url, "alt": part.alt or part.file_id or part.media_type})
            case FilePart():
                rows.append({"file": part.name or part.file_id or part.media_type, "text": part.text[:left]})
                left -= min(left, len(part.text))
    return [row for row in rows if row.get("text") != "" or "file" in row]


TALK_ROUTES = (Route.of("talk", "thread seq chunk offset limit quick", talk),)
