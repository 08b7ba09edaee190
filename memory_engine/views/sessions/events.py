"""Sessions of a framework for agents: its events as it gave them, and the state that they set.

A framework's event holds more than its messages. It is kept whole, in the commit of its messages; a text that one
of these holds already is not repeated. State that several sessions share lives in the thread of the user or the agent
that it is of, and gets there through the outbox.
"""

from collections.abc import Iterable
from typing import Annotated

import msgspec

from memory_engine.core.events.base import Event, event
from memory_engine.core.events.delivery import Delivery, Destination
from memory_engine.core.events.roles import Id, JsonText, SeqBack

Number = Annotated[int, msgspec.Meta(ge=0)]


class SharedState(msgspec.Struct, frozen=True, gc=False):
    """State of an app (a JSON object) that all sessions of a user, or of the app, have in common."""

    destination: Destination
    app: Id
    state: JsonText
    source_thread: Id


class QuotedText(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A text in the `content` of an earlier event, by its CRC-32. `pointer` says where an entry holds it."""

    pointer: Id
    back: SeqBack
    check: Number


@event("session_begun", tracked=True, chunks="none", delivers="tenant")
class SessionBegun(Event):
    """A session begins, with the state (a JSON object) that it was given.

    `timestamp` is in seconds since 1970, as its framework says.
    """

    timestamp: float
    state: JsonText = "{}"
    shared: tuple[SharedState, ...] = ()

    def in_few_words(self) -> str:
        """The state that it begins with."""
        return f"state {self.state}{_shared_states(self.shared)}"

    def deliveries(self) -> tuple[Delivery, ...]:
        """The shared state, for the threads that it lives in."""
        return _deliveries(self.shared)


@event("session_entry_kept", tracked=True, chunks="none", delivers="tenant")
class SessionEntryKept(Event):
    """A framework's event (`entry`, JSON) and the state that it sets; the `messages` events before it are its messages.

    The entry lacks the texts that are quoted and the state.
    """

    id: Id
    entry: JsonText
    timestamp: float
    invocation: Id = ""
    messages: Number = 0
    quoted: tuple[QuotedText, ...] = ()
    state: JsonText = "{}"
    shared: tuple[SharedState, ...] = ()

    def in_few_words(self) -> str:
        """The source of an entry: the messages before it, else its own text; and the state that it sets."""
        count = self.messages
        what = f"the {count} events before it" if count > 1 else "the event before it" if count else self.entry
        state = "" if self.state == "{}" else f", state {self.state}"
        return f"{what}{state}{_shared_states(self.shared)}"

    def deliveries(self) -> tuple[Delivery, ...]:
        """The shared state, for the threads that it lives in."""
        return _deliveries(self.shared)


@event("shared_state_set", tracked=True, chunks="none")
class SharedStateSet(Event):
    """State of an app (a JSON object) that a session has set; without a `source_thread`, that outlived its session."""

    app: Id
    state: JsonText
    source_thread: Id = ""

    def in_few_words(self) -> str:
        """The app, and the state."""
        return f"{self.app}: {self.state}"


def _shared_states(shared: Iterable[SharedState]) -> str:
    return "".join(f", {one.destination.kind}'s state {one.state}" for one in shared)


def _deliveries(shared: Iterable[SharedState]) -> tuple[Delivery, ...]:
    return tuple(
        Delivery(one.destination, SharedStateSet(app=one.app, state=one.state, source_thread=one.source_thread))
        for one in shared
    )
