"""The interface of compactors: what they get, and what they return."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec

from memory_engine.core.arguments import with_tuples
from memory_engine.core.chunks import Category, Chunk
from memory_engine.core.events.base import SummaryLine
from memory_engine.core.slices import Pause, let_others
from memory_engine.core.threads import CompactionPolicy
from memory_engine.core.tokens import estimate_text
from memory_engine.errors.effects import Usage

if TYPE_CHECKING:
    from memory_engine.runtime.handle import ThreadHandle


class CompactionContext(msgspec.Struct, frozen=True, kw_only=True):
    """The facts that a compactor gets besides the chunks.

    `budget_tokens` is what the summary may take (estimated tokens). `chunks` given to `compact` are the originals, read
    back from the log where earlier summaries cover them; `earlier` are the lines of summaries whose originals were too
    many to read. `recorded_at` maps a chunk's id to the ISO time of its event.

    `current_request` is the message that is being worked on, word for word, or else the last one of a person that
    stays; `brief` are the statements of people that contexts show beside a summary, so that yours need not hold them;
    `todos` are the to-dos that are not done. `instructions` say what summaries of this thread should keep, `focus` what
    this one should go into most: both are data from outside, and take nothing away from what a summary must hold.

    A compactor that computes for longer than a millisecond awaits `pause()` in between: it returns the seconds to
    compute before the next pause. `count` counts the tokens of a text as contexts do.
    """

    thread_id: str
    budget_tokens: int
    task_goal: str = ""
    progress_summary: str = ""
    system_context: str = ""
    current_request: str = ""
    brief: tuple[str, ...] = ()
    todos: tuple[str, ...] = ()
    instructions: str = ""
    focus: str = ""
    earlier: tuple[SummaryLine, ...] = ()
    recorded_at: dict[str, str] = {}
    deadline_s: float = 120.0
    pause: Pause = let_others
    count: Callable[[str], int] = estimate_text


async def _no_statements(_thread: "ThreadHandle", _seq: int) -> Sequence[str]:
    return ()


class StandingStatements(msgspec.Struct, frozen=True):
    """Reads what people said in a thread and still holds at a seq, as contexts show it beside summaries.

    A setting that the plug-in of the brief provides.
    """

    read: "Callable[[ThreadHandle, int], Awaitable[Sequence[str]]]" = _no_statements


class CompactionResult(msgspec.Struct, frozen=True, kw_only=True):
    """A summary in lines, each with the ids of the chunks it came from (empty: all of them). Lists work too."""

    lines: tuple[SummaryLine, ...]
    model: str = ""
    usage: Usage = Usage()

    def __post_init__(self) -> None:
        given: Iterable[object] = self.lines
        lines = tuple(with_tuples(one, "sources") if isinstance(one, SummaryLine) else one for one in given)
        msgspec.structs.force_setattr(self, "lines", lines)


class Compactor(Protocol):
    """Turns chunks into fewer tokens. It changes nothing itself; it may be slow and may raise.

    If yours asks a model, declare `calls_model = True`: what-ifs and comparisons then run it only if you allow them to.
    If it takes chunks outside the working flow, declare the `categories` that it takes, such as `categories =
    ("environment",)`; the default is the working flow alone. If it needs nothing but its input, and takes milliseconds,
    you may declare `works_ahead = True`: an automatic compaction then has its result ready before it starts, and the
    thread's events wait only while it is written.
    """

    @property
    def name(self) -> str:
        """A short name, recorded with every result."""
        ...

    def can_compact(self, chunks: Sequence[Chunk]) -> bool:
        """Whether the compactor can handle these chunks together, which are what `compact` would get. Pure."""
        ...

    async def compact(self, chunks: Sequence[Chunk], context: CompactionContext) -> CompactionResult:
        """Return the summary of the chunks, in order. It may raise anything: the originals then stay."""
        ...


def calls_model(compactor: Compactor) -> bool:
    """Whether a compactor declares that it asks a model."""
    return bool(getattr(compactor, "calls_model", False))


def blocks_whole(policy: CompactionPolicy, compactors: Iterable[Compactor]) -> bool:
    """Return whether events wait while one of these works. By default they do not wait for a model."""
    if policy.blocking == "auto":
        return not any(map(calls_model, compactors))
    return policy.blocking == "whole"


def works_ahead(compactor: Compactor) -> bool:
    """Whether a compactor declares that it needs only milliseconds, and nothing but its input."""
    return bool(getattr(compactor, "works_ahead", False))


def categories_of(compactor: object) -> frozenset[str]:
    """The categories of chunks that a compactor takes."""
    declared: object = getattr(compactor, "categories", (Category.WORKING_FLOW,))
    if isinstance(declared, str) or not isinstance(declared, Iterable):
        declared = (declared,)
    return frozenset(map(str, declared))
