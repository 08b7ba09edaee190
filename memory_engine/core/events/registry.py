"""From (type, version) to a class and back: two-stage decoding and upcasting."""

from collections.abc import Callable, Iterable

import msgspec

from memory_engine.core.events.base import ChunkOrigin, Event, EventRole, UnknownEvent
from memory_engine.errors import DuplicateRegistration, EventDecodeError, InvalidArgument, UndeclaredEvent

Upcaster = Callable[[dict[str, object]], dict[str, object]]
"""Pure: the payload of schema v as plain JSON values → the payload of schema v + 1."""


def as_before(field: str) -> Upcaster:
    """The upcaster of events whose reducer does something else from the next version on.

    It sets the `field` by which the reducer knows to do what it did.
    """
    return lambda payload: {**payload, field: True}


class EventRegistry:
    """The event types that one engine knows. Importing a module registers nothing.

    Types that it expects are known by name. Their classes are loaded when one of them is first asked for.
    """

    def __init__(self, classes: Iterable[type[Event]] = ()) -> None:
        self._classes: dict[str, type[Event]] = {}
        self._decoders: dict[tuple[str, int], msgspec.json.Decoder[Event]] = {}
        self.decoders: dict[type[Event], msgspec.json.Decoder[Event]] = {}
        """The decoders for payloads of each known class, in its own version."""
        self._upcasters: dict[tuple[str, int], Upcaster] = {}
        self._expected: dict[str, Callable[[], EventRegistry]] = {}
        self._delivering: dict[str, None] = {}
        for cls in classes:
            self.register(cls)

    def copy(self) -> "EventRegistry":
        """A copy that knows the same types, and can learn more without changing this one."""
        copied = EventRegistry()
        copied._expected.update(self._expected)  # first: another thread may learn some meanwhile
        copied._delivering.update(self._delivering)
        copied._learn(self)
        return copied

    def expect(self, names: Iterable[str], classes: "Callable[[], EventRegistry]", delivering: Iterable[str]) -> None:
        """Know types by their names. `classes` loads them; the `delivering` ones bring facts for other threads.

        Raises `DuplicateRegistration` for a name that is known.
        """
        for name in names:
            if self.has_type(name):
                raise DuplicateRegistration("event type", name)
            self._expected[name] = classes
        self._delivering.update(dict.fromkeys(delivering))

    def load(self, names: Iterable[str]) -> None:
        """Load the classes of those of these types that are expected. Any thread may do so at any time."""
        for classes in dict.fromkeys(map(self._expected.get, names)):
            if classes is not None:
                self._learn(classes())
                for name in [name for name, one in list(self._expected.items()) if one is classes]:
                    self._expected.pop(name, None)

    def awaited(self, names: Iterable[str]) -> frozenset[str]:
        """Those of these types whose classes are not loaded yet."""
        return frozenset(self._expected).intersection(names) if self._expected else frozenset()

    def _learn(self, other: "EventRegistry") -> None:
        self._decoders.update(other._decoders)
        self.decoders.update(other.decoders)
        self._upcasters.update(other._upcasters)
        self._classes.update(other._classes)

    def _class(self, name: str) -> type[Event] | None:
        cls = self._classes.get(name)
        if cls is None:
            self.load((name,))
            cls = self._classes.get(name)  # another thread may have loaded it
        return cls

    def register(self, cls: type[Event]) -> None:
        """Learn a class declared with `@event`.

        Registering the same class again is harmless. Raises `UndeclaredEvent` for a class
        without the decorator, `DuplicateRegistration` for a second class of one name, `InvalidArgument` for no class.
        """
        given: object = cls
        if not isinstance(given, type) or not issubclass(given, Event):
            raise InvalidArgument("the class of an event", cls, "give a class derived from memory_engine.Event")
        name = cls.event_type
        if not name or "event_type" not in cls.__dict__:
            raise UndeclaredEvent(cls.__qualname__)
        if (self._class(name) or cls) is not cls:
            raise DuplicateRegistration("event type", name)
        self._classes[name] = cls
        if cls.event_delivers in ("tenant", "industry"):
            self._delivering[name] = None
        self._decoders[name, cls.event_version] = self.decoders[cls] = msgspec.json.Decoder(cls)

    def register_upcaster(self, name: str, from_version: int, upcaster: Upcaster) -> None:
        """Learn how a payload of `from_version` becomes one of `from_version + 1`."""
        self.load((name,))
        if (name, from_version) in self._upcasters:
            raise DuplicateRegistration("upcaster", f"{name} v{from_version}")
        self._upcasters[name, from_version] = upcaster

    def __contains__(self, cls: object) -> bool:
        return isinstance(cls, type) and self._class(getattr(cls, "event_type", "")) is cls

    def decoder_of(self, cls: type[Event]) -> msgspec.json.Decoder[Event] | None:
        """The decoder for payloads of a class, in its own version; `None` where the class is not known."""
        return self.decoders.get(cls) if cls in self else None

    def classes(self) -> tuple[type[Event], ...]:
        """Every known class."""
        self.load(tuple(self._expected))
        return tuple(self._classes.values())

    def delivering(self) -> tuple[str, ...]:
        """The types that bring facts for other threads."""
        return tuple(self._delivering)

    def packs(self, name: str) -> bool:
        """Whether events of this name have packed content of their own kind."""
        cls = self._class(name)
        return cls is not None and cls.packed_texts is not Event.packed_texts

    def has_type(self, name: str) -> bool:
        """Whether a class of this name is known."""
        return name in self._classes or name in self._expected

    def tracks(self, name: str) -> bool:
        """Whether the head of a thread remembers the latest event of a type."""
        cls = self._class(name)
        return cls is not None and cls.event_tracked

    def is_upkeep(self, name: str) -> bool:
        """Whether events of a type say nothing that a thread holds, only how the engine kept it."""
        cls = self._class(name)
        return cls is not None and cls.event_upkeep

    def role(self, name: str) -> EventRole:
        """How events of a type are grouped; `other` where it is not known."""
        cls = self._class(name)
        return cls.event_role if cls is not None else "other"

    def of_chunks(self, *origins: ChunkOrigin) -> frozenset[str]:
        """The types whose chunks are declared to come from there."""
        return frozenset(cls.event_type for cls in self.classes() if cls.event_chunks in origins)

    def decode(self, name: str, version: int, payload: bytes) -> Event | UnknownEvent:
        """The typed event, upcast where its schema is older; `UnknownEvent` where it is not known.

        Raises `EventDecodeError` for a payload that does not fit its own schema.
        """
        decoder = self._decoders.get((name, version))
        if decoder is None:
            self.load((name,))
            decoder = self._decoders.get((name, version))
        try:
            if decoder is not None:
                return decoder.decode(payload)
            return self._decode_older(name, version, payload)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise EventDecodeError(name, version, str(error)) from error

    def _decode_older(self, name: str, version: int, payload: bytes) -> Event | UnknownEvent:
        cls = self._class(name)
        if cls is None or version > cls.event_version:
            return UnknownEvent(name, version, bytes(payload))
        value = msgspec.json.decode(payload, type=dict[str, object])
        for step in range(version, cls.event_version):
            upcaster = self._upcasters.get((name, step))
            if upcaster is None:
                return UnknownEvent(name, version, bytes(payload))
            try:
                value = upcaster(value)
            except Exception as error:  # the boundary to user code: every error becomes the typed one
                why = f"the upcaster of version {step} raised {type(error).__name__}: {error}"
                raise EventDecodeError(name, version, why) from error
        return msgspec.convert(value, cls)
