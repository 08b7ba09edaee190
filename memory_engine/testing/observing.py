"""An observer that remembers what it was told."""

import asyncio

from memory_engine.records import RecordedEvent


class RecordingObserver:
    """Give it to `engine.observe`; `events` then holds every event that became durable, in order."""

    def __init__(self) -> None:
        self.events: list[RecordedEvent] = []
        self._waiting: list[tuple[str, int, asyncio.Future[None]]] = []

    def __call__(self, event: RecordedEvent) -> None:
        """Remember an event, and wake those who wait for it."""
        self.events.append(event)
        for type_, count, future in self._waiting:
            if not future.done() and len(self.of_type(type_)) >= count:
                future.set_result(None)

    @property
    def types(self) -> list[str]:
        """The wire names of the events, in order."""
        return [event.type for event in self.events]

    def of_type(self, type_: str) -> list[RecordedEvent]:
        """The events of one wire name, in order."""
        return [event for event in self.events if event.type == type_]

    async def wait_for(self, type_: str, count: int = 1) -> RecordedEvent:
        """The `count`-th event of a type, as soon as it is there. It may never come: mind a timeout."""
        if len(self.of_type(type_)) < count:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((type_, count, future))
            await future
        return self.of_type(type_)[count - 1]
