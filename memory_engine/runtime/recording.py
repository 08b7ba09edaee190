"""A model's response, recorded while it streams in."""

import asyncio
from types import TracebackType
from typing import Self

from memory_engine.core.events.base import ToolCall
from memory_engine.core.events.messages import LlmTextResponse
from memory_engine.core.records import Receipt
from memory_engine.errors import InvalidMessage
from memory_engine.formats.detection import Format, checked, of_object, of_stream
from memory_engine.formats.native import to_native
from memory_engine.formats.providers import PROVIDERS
from memory_engine.formats.streams import Assembly
from memory_engine.formats.translation import Messages, interrupted
from memory_engine.formats.values import as_object, plain
from memory_engine.runtime.handle import ThreadHandle
from memory_engine.runtime.messages import record_read
from memory_engine.runtime.threads import OpenThreads

LOOK_S = 0.05
"""Seconds between the looks of a cancelled caller at whether its thread takes events."""
CUT_SHORT = "the stream ended before the response did"


class Recording:
    """A response that streams in. `text` is what it has said so far; its receipts and calls are there at the end."""

    def __init__(self, thread: ThreadHandle, format: Format | None) -> None:
        self.receipts: tuple[Receipt, ...] = ()
        self._thread = thread
        self._format: Format | None = checked(format)
        self._assembly: Assembly | None = None
        self._failure: Exception | None = None

    async def __aenter__(self) -> Self:
        self._thread.check_present("messages")
        self._thread.kernel.check_writable("a recording")
        await self._thread.state()  # so that recording the received part needs nothing that could still be missing
        return self

    def feed(self, chunk: object) -> None:
        """Take the next chunk or event of the stream, as the SDK gives it (`{}`: nothing). Raises `InvalidMessage`."""
        value = as_object(plain(chunk), "a chunk", "$")
        if not value:
            return  # sent to keep the line open
        assembly = self._assembly or PROVIDERS[self._format or of_object(chunk) or of_stream(value)].ASSEMBLY()
        assembly.feed(value)
        self._assembly = assembly

    @property
    def text(self) -> str:
        """The text so far."""
        return self._assembly.text if self._assembly is not None else ""

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The calls that were recorded, for you to run."""
        return tuple(call for receipt in self.receipts for chunk in receipt.chunks for call in chunk.calls)

    async def __aexit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if self._assembly is None:
            return
        await self._to_its_end(self._thread.kernel.tasks.spawn(self._keep(self._assembly, error)), error)
        if self._failure is not None and error is None:
            raise self._failure
        if self._failure is not None and error is not None:
            error.add_note(f"what had come of the response could not be recorded: {self._failure}")

    async def _keep(self, assembly: Assembly, error: BaseException | None) -> None:
        """Record the response, or the received part of it."""
        try:
            self.receipts = await self._recorded(assembly, error)
        except Exception as failure:  # the end of a task: whoever awaits it gets the error
            self._failure = failure

    async def _recorded(self, assembly: Assembly, error: BaseException | None) -> tuple[Receipt, ...]:
        whole = assembly.whole()
        if whole is None:
            return await self._interrupted(assembly, assembly.failure or _failure_reason(error))
        try:
            state = await self._thread.state()
            return await record_read(self._thread, state, lambda: Messages([whole], assembly.format))
        except InvalidMessage as invalid:
            self._failure = invalid
            return await self._interrupted(assembly, invalid.why)

    async def _interrupted(self, assembly: Assembly, why: str) -> tuple[Receipt, ...]:
        messages, around = assembly.so_far()
        name = str(around.get("id") or self._thread.kernel.new_id())
        try:
            events = interrupted(assembly.format, messages, around, why, name)
        except InvalidMessage:  # the provider sent what it does not allow: it is kept as it came
            native = to_native(assembly.format, response={**around, "unfinished": messages})
            text = LlmTextResponse(content=assembly.text, response_id=name, interrupted=why, native=native)
            events = [text]
        return await self._thread.dispatch_all(events)

    async def _to_its_end(self, task: "asyncio.Task[None]", error: BaseException | None) -> None:
        """Wait until it is recorded; but no cancelled caller waits for a blocked thread: the task goes on alone."""
        cancelled: asyncio.CancelledError | None = None
        while not task.done():
            in_a_hurry = cancelled is not None or isinstance(error, asyncio.CancelledError)
            try:
                await asyncio.wait([task], timeout=LOOK_S if in_a_hurry else None)
            except asyncio.CancelledError as again:
                cancelled = again
                continue
            if in_a_hurry and self._is_blocked():
                break
        if cancelled is not None:
            raise cancelled

    def _is_blocked(self) -> bool:
        runtime = self._thread.kernel[OpenThreads].get(self._thread.id)
        return runtime is not None and runtime.queue.blocking_reason is not None


def _failure_reason(error: BaseException | None) -> str:
    if error is None:
        return CUT_SHORT
    if isinstance(error, asyncio.CancelledError):
        return "cancelled"
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
