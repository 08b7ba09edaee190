"""The interface of compactors: their input and their result."""

from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec

from memory_engine.core.arguments import checked_list, with_tuples
from memory_engine.core.chunks import Category, Chunk
from memory_engine.core.events.base import SummaryLine
from memory_engine.core.slices import Pause, let_others
from memory_engine.core.threads import CompactionPolicy
from memory_engine.core.tokens import estimate_text
from memory_engine.errors.effects import Usage

if TYPE_CHECKING:
    from memory_engine.runtime.handle import ThreadHandle


class CompactionContext(msgspec.Struct, frozen=True, kw_only=True):
    """Facts that a compactor receives in addition to the chunks.

    `budget_tokens` is the maximum size of the summary (estimated tokens). The `chunks` passed to `compact` are
    originals: chunks that earlier summaries cover are read back from the log. `earlier` contains the lines of summaries
    whose originals were too large to read. `recorded_at` maps a chunk's id to the ISO time of its event.

    `current_request` is the verbatim message that is being worked on, or else the last message of a person that is not
    compacted. `brief` contains the statements of people that contexts show next to a summary, so the summary need not
    repeat them. `todos` are the to-dos that are not done. `instructions` say what summaries of this thread should keep,
    and `focus` says what this summary should cover in most detail. Both are external data and do not relax the
    requirements on a summary.

    A compactor that computes for longer than a millisecond awaits `pause()` in between; `pause()` returns the seconds
    to compute before the next pause. `count` counts the tokens of a text as contexts do.
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
    """Reader of people's statements in a thread that are still valid at a seq, as contexts show them next to summaries.

    The plug-in of the brief provides this setting.
    """

    read: "Callable[[ThreadHandle, int], Awaitable[Sequence[str]]]" = _no_statements


class CompactionResult(msgspec.Struct, frozen=True, kw_only=True):
    """Summary as lines, each with the ids of its source chunks (empty: all chunks). Lists are accepted too."""

    lines: tuple[SummaryLine, ...]
    model: str = ""
    usage: Usage = Usage()

    def __post_init__(self) -> None:
        given: Iterable[object] = self.lines
        lines = tuple(with_tuples(one, "sources") if isinstance(one, SummaryLine) else one for one in given)
        msgspec.structs.force_setattr(self, "lines", lines)


class Compactor(Protocol):
    """Turns chunks into fewer tokens. A compactor changes no state itself; it may be slow and may raise.

    If your compactor calls a model, declare `calls_model = True`: what-ifs and comparisons then run it only if you
    allow them to. It is asked about chunks of the working flow and, apart from these, about those of the environment;
    declare `categories = ("working_flow",)` or `("environment",)` to be asked about these alone. If it uses nothing
    but its input and takes only milliseconds, you may declare `works_ahead = True`: an automatic compaction then has
    its result ready before it starts, and the thread's events wait only while the result is written.

    A compactor that does not work ahead may send its input to a model. So it gets placeholders such as `[secret-1:key]`
    for secrets (`mask` of `memory_engine.open`), and the values return to their places in its lines.
    """

    @property
    def name(self) -> str:
        """Short name, recorded with every result."""
        ...

    def can_compact(self, chunks: Sequence[Chunk]) -> bool:
        """Return True if the compactor can handle the chunks together, which `compact` would receive. Must be pure."""
        ...

    async def compact(self, chunks: Sequence[Chunk], context: CompactionContext) -> CompactionResult:
        """Return the summary of the chunks, which are in order. If it raises any exception, the originals stay."""
        ...


def chunk_ids_of(chunks: Collection[str | Chunk]) -> list[str]:
    """Return the ids of chunks that are given by id or as they are. Raises `InvalidArgument` for anything else."""
    given = checked_list("chunk_ids", chunks, (str, Chunk), each="chunks, or their ids")
    return [one.id if isinstance(one, Chunk) else one for one in given]


def calls_model(compactor: Compactor) -> bool:
    """Return True if a compactor declares that it calls a model."""
    return bool(getattr(compactor, "calls_model", False))


def blocks_whole(policy: CompactionPolicy, compactors: Iterable[Compactor]) -> bool:
    """Return True if events wait while one of the compactors works. By default, events do not wait for a model."""
    if policy.blocking == "auto":
        return not any(map(calls_model, compactors))
    return policy.blocking == "whole"


def works_ahead(compactor: Compactor) -> bool:
    """Return True if a compactor declares that it takes only milliseconds and uses nothing but its input."""
    return bool(getattr(compactor, "works_ahead", False))


DECLARABLE = frozenset({Category.WORKING_FLOW, Category.ENVIRONMENT})
"""Categories that a compactor may declare. The engine and its views maintain the other categories."""


def categories_of(compactor: object) -> frozenset[str]:
    """Return the categories of chunks that a compactor is asked about: the declared ones, or all `DECLARABLE`."""
    declared: object = getattr(compactor, "categories", DECLARABLE)
    if isinstance(declared, str) or not isinstance(declared, Iterable):
        declared = (declared,)
    return frozenset(map(str, declared))
