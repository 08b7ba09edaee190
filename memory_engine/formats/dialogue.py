"""The effect of earlier messages on the next: which calls wait for results, any instructions, who speaks."""

from collections.abc import Iterable, Mapping

from memory_engine.core.events.base import Content, Event, ToolCall
from memory_engine.core.events.memory import ExternalInject, SessionStarted
from memory_engine.errors import InvalidMessage
from memory_engine.formats.origin import Hearing


class Dialogue:
    """Binds calls to their results. `waiting`: the calls without a result, id to name.

    A call's id may come again once it was answered: some models restart their numbering in each turn. It may also come
    again after a later message: a cancelled run leaves calls without answers.
    `hearing` is what was heard of the thread, by which it is decided who wrote the next message of the user role.
    """

    def __init__(
        self,
        *,
        has_instructions: bool = False,
        waiting: Mapping[str, str] | None = None,
        hearing: Hearing | None = None,
    ) -> None:
        self.has_instructions = has_instructions
        self.waiting = dict(waiting or {})
        self.spoken_over: set[str] = set()
        self.hearing = hearing or Hearing()

    def copy(self) -> "Dialogue":
        """Return a copy whose changes leave this one untouched."""
        heard = self.hearing.copy()
        copied = Dialogue(has_instructions=self.has_instructions, waiting=self.waiting, hearing=heard)
        copied.spoken_over |= self.spoken_over
        return copied

    def spoken(self) -> None:
        """Somebody speaks: the ids of the calls that wait may come again."""
        self.spoken_over.update(self.waiting)

    def instructed(self, content: Content) -> Event:
        """The event of a system message: the first starts the session, none of the later ones may be compacted."""
        if self.has_instructions:
            return ExternalInject(content=content, source="system", retention="critical")
        self.has_instructions = True
        return SessionStarted(content=content)

    def asked(self, calls: Iterable[ToolCall], where: str = "$") -> None:
        """Add calls that wait for results. Raises `InvalidMessage` if an id waits already."""
        for call in calls:
            if call.id in self.waiting and call.id not in self.spoken_over:
                raise InvalidMessage(where, f"the call id {call.id!r} is used twice before its result")
            self.spoken_over.discard(call.id)
            self.waiting[call.id] = call.name

    def asked_again(self, calls: Iterable[ToolCall]) -> None:
        """Add the calls of a response that may be known already, or of another part of it: those that are new wait."""
        for call in calls:
            self.waiting.setdefault(call.id, call.name)

    def answered(self, call_id: str, where: str = "$", *, named: str = "") -> None:
        """Remove an answered call. Raises `InvalidMessage` if it does not wait; `named` says what was looked for."""
        if call_id not in self.waiting:
            why = f"a result without its call: none that waits has the id {call_id or named!r}"
            raise InvalidMessage(where, f"{why}; record the model's message with the call first")
        del self.waiting[call_id]

    def waits(self, call_id: str) -> bool:
        """Return whether a call waits for its result."""
        return call_id in self.waiting

    def waits_under(self, name: str) -> str:
        """Return the id of the first waiting call of this name; empty without one."""
        return next((call_id for call_id, called in self.waiting.items() if called == name), "")


class Unbound(Dialogue):
    """Binds nothing: for messages whose calls and results were bound when they were recorded."""

    def asked(self, calls: Iterable[ToolCall], where: str = "$") -> None:
        """Accept any calls."""

    def answered(self, call_id: str, where: str = "$", *, named: str = "") -> None:
        """Accept any answer."""

    def waits(self, call_id: str) -> bool:
        """Return False: nothing is bound."""
        return False


class Returning(Unbound):
    """Binds the calls of a response that comes again, or goes on, where they are new to a dialogue."""

    def __init__(self, dialogue: Dialogue) -> None:
        super().__init__(hearing=dialogue.hearing)
        self._dialogue = dialogue

    def asked(self, calls: Iterable[ToolCall], where: str = "$") -> None:
        """Add those that are new."""
        self._dialogue.asked_again(calls)
