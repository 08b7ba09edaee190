"""What a record becomes: events with ids that are the same whenever the file is read again."""

import uuid
from collections.abc import Sequence
from typing import Protocol

from attrs import frozen

from memory_engine.records import NewEvent

NAMESPACE = uuid.UUID("6b0c1f0e-3c56-5d4e-9a53-0f1a7c2d8e41")
"""Event ids are version 5 UUIDs in here. Never to be changed: what is known would be ingested as new."""


class Unusable(Exception):
    """A record that cannot become an event; the text says why."""


@frozen
class Reading:
    """The events of one record. `seq`: the place in its log that the record claims, if it claims one."""

    events: Sequence[NewEvent]
    seq: int | None = None


class Reader(Protocol):
    """Turns the records of one thread, in their order, into events."""

    def read(self, value: object, number: int) -> Reading:
        """The events of record `number` (from 1). Raises `Unusable`, and then has not taken the record."""
        ...

    def refused(self) -> None:
        """Forget the record read last: the engine has not taken its events."""
        ...


def event_id(thread_id: str, number: int, part: int = 0) -> str:
    """The id of what record `number` of a thread gives: the same whenever the file is ingested again.

    `part` 0 is the message itself, 1 the reasoning before it.
    """
    return str(uuid.uuid5(NAMESPACE, f"{number}.{part} {thread_id}"))


def kind_of(value: object) -> str:
    """What a JSON value is, in words."""
    kinds = {dict: "an object", list: "a list", str: "a text", bool: "a truth value", type(None): "null"}
    return kinds.get(type(value), "a number")
