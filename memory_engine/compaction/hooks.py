"""Hooks that run before a compaction: they may record what must not be lost, or say what a summary should keep."""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import wraps
from typing import Literal, TypeVar

import msgspec

from memory_engine.core.cancellation import in_time
from memory_engine.core.chunks import Chunk
from memory_engine.core.state import Tally
from memory_engine.language.masking import without_secrets

_log = logging.getLogger("memory_engine.compaction")
T = TypeVar("T")
NOTE_CHARS_MAX = 300
"""Maximum number of characters of a hook's failure in the log."""


class UpcomingCompaction(msgspec.Struct, frozen=True, kw_only=True):
    """A compaction that is about to begin: why, and how many chunks and (estimated) tokens may be compacted.

    `focus` is what the caller of `Thread.compact` asked for.
    """

    thread_id: str
    trigger: Literal["auto", "manual", "hard"]
    chunks: int
    tokens: int
    focus: str = ""

    @classmethod
    def of(
        cls, thread_id: str, trigger: Literal["auto", "manual", "hard"], tally: Tally, focus: str
    ) -> "UpcomingCompaction":
        """Return the upcoming compaction of a state with these counters."""
        chunks, tokens = tally.compactable, tally.compactable_tokens
        return cls(thread_id=thread_id, trigger=trigger, chunks=chunks, tokens=tokens, focus=focus)

    @classmethod
    def of_chunks(cls, thread_id: str, chunks: Sequence[Chunk]) -> "UpcomingCompaction":
        """Return an upcoming compaction of these chunks that a caller asked for."""
        tokens = sum(chunk.tokens for chunk in chunks)
        return cls(thread_id=thread_id, trigger="manual", chunks=len(chunks), tokens=tokens)


class Wishes(msgspec.Struct, frozen=True, kw_only=True):
    """Instructions for a compactor: what summaries should keep, and what this summary should focus on.

    `note` says which hooks before the compaction failed, and how.
    """

    instructions: str = ""
    focus: str = ""
    note: str = ""

    @classmethod
    def of(cls, *instructions: Iterable[str], focus: str = "", note: str = "") -> "Wishes":
        """Return the instructions of several sources, one per line."""
        told = (text.strip() for source in instructions for text in source)
        return cls(instructions="\n".join(filter(None, told)), focus=focus.strip(), note=note)


Hook = Callable[[UpcomingCompaction], Awaitable[str | None] | str | None]
"""Callable that runs before a compaction. The text that it returns is added to the compaction's instructions."""


class CompactionHooks(msgspec.Struct):
    """Hooks of an engine, which share a time limit of `timeout_s` seconds."""

    timeout_s: float
    _hooks: list[Hook] = msgspec.field(default_factory=list)
    _running: set[str] = msgspec.field(default_factory=set)

    def __bool__(self) -> bool:
        return bool(self._hooks)

    def add(
        self, hook: Callable[[T, UpcomingCompaction], Awaitable[str | None] | str | None], handle: Callable[[str], T]
    ) -> Callable[[], None]:
        """Run a hook, with a handle of the thread, before each compaction. Return a function that removes it."""

        @wraps(hook)
        def called(upcoming: UpcomingCompaction) -> Awaitable[str | None] | str | None:
            return hook(handle(upcoming.thread_id), upcoming)

        self._hooks.append(called)

        def stop() -> None:
            if called in self._hooks:
                self._hooks.remove(called)

        return stop

    def are_running(self, thread_id: str) -> bool:
        """Return True if hooks are running before a compaction of this thread."""
        return thread_id in self._running

    async def run(self, upcoming: UpcomingCompaction) -> tuple[list[str], str]:
        """Return what the hooks want summaries to keep, and a note of hooks that failed or timed out. Never raises."""
        said: list[str] = []
        notes: list[str] = []
        if not self._hooks:
            return said, ""
        until_s = asyncio.get_running_loop().time() + self.timeout_s
        self._running.add(upcoming.thread_id)
        try:
            for hook in list(self._hooks):
                note = await self._one(hook, upcoming, until_s, said)
                if note:
                    _log.warning("thread %r: a hook before a compaction failed: %s", upcoming.thread_id, note)
                    notes.append(note)
        finally:
            self._running.discard(upcoming.thread_id)
        return said, "\n".join(notes)

    async def _one(self, hook: Hook, upcoming: UpcomingCompaction, until_s: float, said: list[str]) -> str:
        """Run one hook and add what it returns to `said`. Return why it failed, or `""`."""
        name = str(getattr(hook, "__name__", type(hook).__name__))
        try:
            outcome = hook(upcoming)
            if inspect.isawaitable(outcome):
                outcome = await in_time(outcome, until_s - asyncio.get_running_loop().time())
        except TimeoutError:
            return f"{name}: no end within {self.timeout_s:g} s"
        except Exception as error:  # boundary to user code: a compaction does not depend on it
            _log.info("the hook %s raised", name, exc_info=True)
            why = without_secrets(f"{name}: {type(error).__name__}: {error}")
            return why[:NOTE_CHARS_MAX].encode("utf-8", "replace").decode()
        returned: object = outcome
        if not isinstance(returned, str | None):
            return f"{name}: it returned a {type(returned).__name__}; return a text or None"
        if returned:
            said.append(returned.encode("utf-8", "replace").decode())
        return ""
