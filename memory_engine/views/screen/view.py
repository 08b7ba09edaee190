"""Screen context: the person's screen, shown to the agent once a session, with tools run ahead of the question."""

from collections.abc import Mapping, Sequence
from typing import cast

import msgspec
from msgspec.structs import replace

from memory_engine.context.builder import ContextBuilder
from memory_engine.context.rendering import Message, render_all
from memory_engine.core.arguments import checked_list, checked_text
from memory_engine.core.chunks import Chunk, ChunkType, Retention
from memory_engine.core.clock import to_us
from memory_engine.core.events.base import Event, ToolCall
from memory_engine.core.events.memory import MemoryForget, SessionEnded, SessionStarted
from memory_engine.core.operations import Add
from memory_engine.core.records import RecordedEvent
from memory_engine.core.reduction import ReduceContext, Reduction
from memory_engine.core.state import StateView
from memory_engine.core.tool_calls import cache_key, canonical
from memory_engine.errors import IdempotencyConflict, InvalidParameters
from memory_engine.projections.base import ProjectionMode, ReadableRows, Rows, row_of
from memory_engine.runtime.eras import era_of
from memory_engine.runtime.handle import ThreadHandle
from memory_engine.views.screen.events import ProactiveResult, ScreenInjected, screen_description


class SessionRow(msgspec.Struct, frozen=True, omit_defaults=True, tag="session", gc=False):
    """The current session since the event `seq` (0: since the thread began), and the id of the screen's event."""

    seq: int = 0
    session_id: str = ""
    told: bool = False
    told_as: str = ""


class ScreenRow(msgspec.Struct, frozen=True, omit_defaults=True, tag="screen", gc=False):
    """The screen that the agent has in this session."""

    seq: int
    event_id: str
    content: str
    told_us: int
    session_id: str = ""
    results: tuple[ProactiveResult, ...] = ()


AnyScreenRow = SessionRow | ScreenRow

_SESSION = "session"
_SCREEN = "screen"


class ScreenFold:
    """Remembers the current session and its screen."""

    name = "screen"
    version = 1
    mode: ProjectionMode = "inline"
    lazy = False
    row = cast("type[AnyScreenRow]", AnyScreenRow)  # a union, which msgspec takes as well as a class
    events: tuple[type[Event], ...] = (ScreenInjected, SessionStarted, SessionEnded, MemoryForget)

    def apply(self, rows: Rows[AnyScreenRow], event: RecordedEvent) -> None:
        """Change the rows by one event."""
        match event.event:
            case SessionStarted(session_id=session_id):
                _start(rows, event.seq, session_id)
            case SessionEnded():
                _begin(rows, event.seq, "")
            case ScreenInjected() as injected:
                _tell(rows, event, injected)
            case MemoryForget() as forget:
                screen = screen_of(rows)
                if screen is not None and screen.seq in forget.origins():
                    rows.drop(_SCREEN)


def _start(rows: Rows[AnyScreenRow], seq: int, session_id: str) -> None:
    """A session of the same name continues, also one whose screen came before the log knew of it."""
    session = session_of(rows)
    if session_id and session_id == session.session_id:
        return
    if session_id and not session.session_id and session.told_as == session_id:
        rows.put(_SESSION, replace(session, session_id=session_id))
    else:
        _begin(rows, seq, session_id)


def _begin(rows: Rows[AnyScreenRow], seq: int, session_id: str) -> None:
    rows.put(_SESSION, SessionRow(seq, session_id))
    rows.drop(_SCREEN)


def _tell(rows: Rows[AnyScreenRow], event: RecordedEvent, injected: ScreenInjected) -> None:
    session = session_of(rows)
    rows.put(_SESSION, replace(session, told=True, told_as=injected.session_id))
    screen = ScreenRow(
        seq=event.seq,
        event_id=event.id,
        content=injected.content,
        told_us=to_us(event.recorded_at),
        session_id=injected.session_id,
        results=injected.results,
    )
    rows.put(_SCREEN, screen)


def session_of(rows: ReadableRows[AnyScreenRow]) -> SessionRow:
    """The current session."""
    return row_of(rows, SessionRow, _SESSION) or SessionRow()


def screen_of(rows: ReadableRows[AnyScreenRow]) -> ScreenRow | None:
    """The screen that the agent has in this session."""
    return row_of(rows, ScreenRow, _SCREEN)


SCREEN = ScreenFold()


class ProactiveTool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool that was run before anyone asked. With a `duration` its result is cached for that many exchanges."""

    tool: str
    parameters: Mapping[str, object] = {}
    result: str = ""
    duration: int = 0
    call_id: str = ""


class Screen:
    """The screen of one thread's session."""

    def __init__(self, thread: ThreadHandle) -> None:
        self._thread = thread

    async def inject(
        self, content: str, results: Sequence[ProactiveTool] = (), *, session_id: str = ""
    ) -> list[Message]:
        """Tell the agent about the screen: an assistant message, then a call and its result for each tool.

        Once a session: a second call returns `[]`, also after a restart, and so does one of two concurrent calls. A
        session ends with `SessionEnded` or with a `SessionStarted` of another id; `session_id` names one that the log
        does not know. Raises `InvalidParameters` for parameters without a canonical form, and for two results under one
        call id.
        """
        checked_text("session_id", session_id)
        recorded = _recorded(checked_list("results", results, ProactiveTool, each="ProactiveTool"))
        session = session_of(await self._thread.rows(SCREEN))
        if session.told and session_id in ("", session.told_as, session.session_id):
            return []
        session_id = session_id or session.session_id
        event = ScreenInjected(
            content=content, results=recorded, session_id=session_id, claim=self._thread.kernel.new_id()
        )
        try:
            event_id = f"screen:{session.seq}:{session_id}{await era_of(self._thread)}"
            receipt = await self._thread.dispatch(event, event_id=event_id)
        except IdempotencyConflict:  # another sender was first
            return []
        return render_all(receipt.chunks, self._thread.kernel[ContextBuilder].renderers)

    async def is_injected(self, *, at: int | None = None) -> bool:
        """Whether the agent has the screen in this session (or that of an earlier seq)."""
        return session_of(await self._thread.rows(SCREEN, at=at)).told

    async def current(self, *, at: int | None = None) -> ScreenRow | None:
        """The screen that the agent has in this session, if any and not forgotten since."""
        return screen_of(await self._thread.rows(SCREEN, at=at))


def _recorded(results: Sequence[ProactiveTool]) -> tuple[ProactiveResult, ...]:
    """The results as the event holds them; a call without an id gets one that follows from its place and content."""
    recorded: list[ProactiveResult] = []
    seen: set[str] = set()
    for n, given in enumerate(results):
        text = canonical(given.tool, given.parameters)
        call_id = given.call_id or f"screen_{n}_{cache_key(given.tool, text)[:20]}"
        if call_id in seen:
            raise InvalidParameters(given.tool, "call_id", f"{call_id!r} stands for another result already")
        seen.add(call_id)
        recorded.append(
            ProactiveResult(
                tool=given.tool, parameters=text, result=given.result, call_id=call_id, duration=given.duration
            )
        )
    return tuple(recorded)


def reduce_screen_injected(_view: StateView, event: ScreenInjected, ctx: ReduceContext) -> Reduction:
    """The screen in the agent's own words, then a call and its result for each proactive tool.

    The words hold for this session only and are removed with it; the results are ordinary results.
    """
    chunks = [
        Chunk(
            id=ctx.new_id(),
            type=ChunkType.AGENT_RESPONSE,
            content=screen_description(event.content),
            retention=Retention.EPHEMERAL,
        )
    ]
    for result in event.results:
        call = ToolCall(id=result.call_id, name=result.tool, arguments=result.parameters)
        chunks.append(Chunk(id=ctx.new_id(), type=ChunkType.AGENT_ACTION, calls=(call,)))
        chunks.append(
            Chunk(
                id=ctx.new_id(),
                type=ChunkType.ACTION_RESULT,
                content=result.result,
                label=result.tool,
                call_id=result.call_id,
            )
        )
    return Reduction(operations=tuple(Add(chunk.id) for chunk in chunks), chunks=tuple(chunks))
