"""The root of the tree, the facts of a class, and the errors of input, threads and dispatching."""

import re
from typing import ClassVar, TypeVar, dataclass_transform


class MemoryEngineError(Exception):
    """Base of all errors of this package.

    Each class declares its facts as fields, and takes them by position or by name. `template` is the message, with the
    facts by their names in it; a class with a message that needs more writes `__str__`. Two errors of one class are
    equal if their facts are. You can pickle an error, so it can cross processes.
    """

    __match_args__: ClassVar[tuple[str, ...]] = ()
    template: ClassVar[str] = ""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "template" in vars(cls):  # a parent may write its own message
            type.__setattr__(cls, "__str__", MemoryEngineError.__str__)

    def __init__(self, *values: object, **named: object) -> None:
        if self.__match_args__ or named:
            values = self._taken(values, named)
        super().__init__(*values)
        vars(self).update(zip(self.__match_args__, values, strict=False))

    def _taken(self, values: tuple[object, ...], named: dict[str, object]) -> tuple[object, ...]:
        """The value of each fact: given by position, by name, or the default of the class."""
        kind, names = type(self), self.__match_args__
        rest = names[len(values) :]
        missing = [name for name in rest if name not in named and not hasattr(kind, name)]
        if len(values) > len(names) or missing or not named.keys() <= set(rest):
            raise TypeError(f"{kind.__name__} takes {', '.join(names) or 'nothing by name'}")
        return *values, *(named[name] if name in named else getattr(kind, name) for name in rest)

    def __str__(self) -> str:
        return self.template.format_map(vars(self)) if self.template else super().__str__()

    def __repr__(self) -> str:
        if not self.__match_args__:
            return super().__repr__()
        told = zip(self.__match_args__, self.args, strict=True)
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in told)})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, MemoryEngineError) or type(self) is not type(other):
            return NotImplemented
        return self.args == other.args

    def __hash__(self) -> int:
        return hash((type(self), self.args))


K = TypeVar("K")


@dataclass_transform(frozen_default=True)
def facts(kind: type[K]) -> type[K]:
    """Let an error be made of the fields that its class declares, after those of the class that it is based on.

    A class of attrs or of `dataclasses` would do the same, but compiles its methods whenever the package is
    imported: sixty errors took a tenth of a start, to be raised rarely.
    """
    inherited: tuple[str, ...] = getattr(kind, "__match_args__", ())
    names = dict.fromkeys((*inherited, *kind.__annotations__))
    type.__setattr__(kind, "__match_args__", tuple(names))  # type checkers make it of the fields
    return kind


@facts
class LineOfFile:
    """What is wrong with a line of a file. Errors of several families say it."""

    path: str
    line: int
    why: str


def cut(text: str) -> str:
    """The value for a message: at most 60 characters of it."""
    return text if len(text) <= 60 else text[:57] + "..."


def is_url(place: str) -> bool:
    """Whether a store's place is a URL rather than a file's path."""
    return "://" in place


def shown_place(text: str) -> str:
    """The place of a store, or a text that names one, for display: without the passwords in URLs.

    What is between a user's name and the last `@`, and parameters such as `password=…`, become `***`.
    """
    if not is_url(text):
        return text
    until = r".*@" if re.match(_SCHEME, text) else r"\S*@"  # in a sentence, what follows a space is not the URL's
    text = re.sub(rf"({_SCHEME}[^\s:@/?#]*:){until}", r"\1***@", text, flags=re.DOTALL)
    return re.sub(r"(?i)((?:password|passwd|passfile)=)[^\s&'\"]+", r"\1***", text)


_SCHEME = r"[A-Za-z][A-Za-z0-9+.-]*://"


class InvalidInput(MemoryEngineError):
    """Refused before anything was written."""


@facts
class InvalidEvent(InvalidInput):
    """The event holds a value that the log could not return unchanged."""

    event_type: str
    where: str
    why: str

    template = "event {event_type!r} cannot be recorded: {why} at {where}; nothing was written"


@facts
class InvalidMessage(InvalidInput):
    """A provider's message that cannot become events. `where` is its place in the input: `$[2].content[0]`."""

    where: str
    why: str

    template = "not recorded: {why} (at {where}); nothing of what was given was written"

    def within(self, place: str) -> "InvalidMessage":
        """The same error for a message that is itself at `place`."""
        return InvalidMessage(place + self.where.removeprefix("$"), self.why)


@facts
class NotContinued(InvalidInput):
    """A list of messages that does not continue what the thread holds, or may continue it at several `places`."""

    thread_id: str
    places: tuple[int, ...] = ()

    def __str__(self) -> str:
        ends, why = f"the last one of thread {self.thread_id!r}", "was the list shortened, or a message changed?"
        if self.places:
            why = f"they repeat each other; the first new one may be $[{'] or $['.join(map(str, self.places))}]."
        which = "several of these messages may be" if self.places else "none of these messages is"
        return f"{which} {ends}: {why} Nothing was written; give only the new messages, and leave `new_only` out"


@facts
class SeqNotInLog(InvalidInput, ValueError):
    """A moment that a thread's history does not have."""

    thread_id: str
    moment: object
    head: int

    def __str__(self) -> str:
        has = f"has seqs 1 to {self.head} (0: before the first)" if self.head else "has no event yet, only seq 0"
        why = "" if isinstance(self.moment, int) else "; give a seq, an event's id, or a time with its zone"
        return f"thread {self.thread_id!r} {has}, not {self.moment!r}{why}"


@facts
class EventTooLarge(InvalidInput):
    """The encoded payload exceeds the hard limit."""

    event_type: str
    bytes: int
    limit: int

    template = (
        "event {event_type!r} takes {bytes} bytes, over the limit of {limit}; "
        "store the body elsewhere and dispatch a reference, or raise `event_bytes_max`"
    )


@facts
class UndeclaredEvent(InvalidInput):
    """A class that is not a declared event."""

    name: str

    template = "{name} has no wire name; declare it with @event('name') above the class"


@facts
class InvalidValue(InvalidInput):
    """A value that is not taken for `what` it was given; `why` says what would be."""

    what: str
    value: object
    why: str


class InvalidIdentifier(InvalidValue):
    """A thread id, event id or scope that cannot be stored or compared safely."""

    def __str__(self) -> str:
        return f"{self.what} {cut(str(self.value))!r} is not usable: {self.why}"


class InvalidArgument(InvalidValue, ValueError, TypeError):
    """An argument with a value or type that its method does not take."""

    def __str__(self) -> str:
        return f"{self.what} cannot be {cut(ascii(self.value))}: {self.why}"


@facts
class DuplicateRegistration(InvalidInput):
    """Two registrations under one name: the later one would silently win."""

    what: str
    name: str

    template = "{what} {name!r} is registered already; register under another name, or replace it by name"


@facts
class UntrackedEvents(InvalidInput):
    """A projection that lists both tracked and untracked events: it would get every event of a thread."""

    projection: str
    untracked: tuple[str, ...]

    def __str__(self) -> str:
        return (
            f"projection {self.projection!r} lists tracked events and untracked ones ({', '.join(self.untracked)}); "
            "declare these with tracked=True, or leave `events` out and let `apply` pick from all events"
        )


@facts
class UnknownEventClass(InvalidInput):
    """An event of a class that the engine was not opened with."""

    event_type: str
    name: str

    template = (
        "this engine does not know {name} ({event_type!r}), and could neither reduce nor show it; "
        "open it with the plug-in that has it: memory_engine.open(..., plugins=[...]) with {name} among its "
        "events; nothing was written"
    )


@facts
class MissingExtra(InvalidInput):
    """A feature needs an optional package."""

    feature: str
    extra: str

    template = "{feature} needs an optional package, extra `{extra}`: in a clone, pip install '.[{extra}]'"


@facts
class InvalidField(InvalidInput):
    """A value that a field of something cannot have."""

    field: str
    value: object
    why: str


@facts
class IngestError(LineOfFile, InvalidInput):
    """A place in a file that is not an event."""

    template = "{path}:{line}: {why}"


class InvalidSearch(InvalidValue):
    """An argument that a search, or a context with recall, cannot take."""

    def __str__(self) -> str:
        return f"a search cannot take {self.what}={cut(repr(self.value))}: {self.why}"


@facts
class InvalidTool(InvalidInput):
    """A tool of a model call that is not JSON. `where` is its place, `name` its name, if it has one."""

    where: str
    name: str
    why: str

    def __str__(self) -> str:
        which = f"the tool {cut(repr(self.name))}" if self.name else "a tool"
        return f"{which} cannot go to a model: {self.why} (at {self.where}); give tools as the provider gets them"


class ThreadError(MemoryEngineError):
    """An error about a thread as a whole."""


@facts
class ThreadNotFound(ThreadError):
    """No thread has this id."""

    thread_id: str

    template = "thread {thread_id!r} does not exist; create it with engine.create_thread(thread_id=...)"


@facts
class ThreadExists(ThreadError):
    """The id is taken. `deleted`: by a deleted thread, whose log must not come back unasked."""

    thread_id: str
    deleted: bool = False

    def __str__(self) -> str:
        if self.deleted:
            return (
                f"thread {self.thread_id!r} was deleted here, and what is deleted is not brought back under its id; "
                "give another `thread_id`"
            )
        return (
            f"thread {self.thread_id!r} exists already: open it with engine.thread({self.thread_id!r}), or with "
            "engine.open_thread, which makes it only if it is not there"
        )


@facts
class ThreadDiffers(ThreadError):
    """The thread exists with another kind or other scopes than you asked for: (name, found, asked) each."""

    thread_id: str
    differences: tuple[tuple[str, str, str], ...]

    def __str__(self) -> str:
        told = ", ".join(f"{name} is {found!r}, not {asked!r}" for name, found, asked in self.differences)
        return f"thread {self.thread_id!r} is another one: {told}; open it with these, or take another id"


@facts
class ScopeRequired(InvalidInput):
    """A call named neither a user nor a tenant, and `EngineConfig.scopes_required` is set."""

    what: str

    template = (
        "{what}: neither a user nor a tenant is named, and this engine requires one "
        "(EngineConfig.scopes_required); give `user_id`, `tenant_id`, or both"
    )


@facts
class EventNotFound(ThreadError):
    """No event in the thread's log has this id."""

    thread_id: str
    event_id: str

    template = (
        "thread {thread_id!r} has no event {event_id!r}; "
        "take the id from a receipt or from what a view gives (`event_id`), and the thread that it belongs to"
    )


@facts
class ThreadClosed(ThreadError):
    """The thread takes no more events."""

    thread_id: str
    status: str

    def __str__(self) -> str:
        on = "; unarchive it, or fork it, to go on" if self.status == "archived" else ""
        return f"thread {self.thread_id!r} is {self.status} and takes no events{on}"


@facts
class ThreadHasForks(ThreadError):
    """Other threads share this thread's past."""

    thread_id: str
    forks: tuple[str, ...]

    def __str__(self) -> str:
        return f"thread {self.thread_id!r} shares its past with {', '.join(self.forks)}; delete the forks first"


class DispatchError(MemoryEngineError):
    """An event that was not recorded, or whose id was recorded with another payload."""


@facts
class IdempotencyConflict(DispatchError):
    """An event id was already used with another payload."""

    thread_id: str
    event_id: str
    seq: int

    template = (
        "event id {event_id!r} is seq {seq} of thread {thread_id!r} with another payload; "
        "give the new event an id of its own"
    )


@facts
class Conflict(DispatchError):
    """The thread holds more than you had seen (`expected_seq`); `head` is the seq of its last event.

    Nothing was written.
    """

    thread_id: str
    expected_seq: int
    head: int

    template = (
        "thread {thread_id!r} was to be as after seq {expected_seq}, and its head is seq {head}; "
        "nothing was written: read what changed, and dispatch again with `expected_seq` at that head"
    )


@facts
class QueueFull(DispatchError):
    """The thread's queue had no room until the deadline. The event was not taken."""

    thread_id: str
    capacity: int
    blocked_by: str

    def __str__(self) -> str:
        why = f" (blocked: {self.blocked_by})" if self.blocked_by else ""
        return f"the queue of thread {self.thread_id!r} holds {self.capacity} events{why}; wait, then dispatch again"


@facts
class ContentionError(DispatchError):
    """Other processes wrote to the thread first, at every retry. Nothing was written."""

    thread_id: str
    tries: int

    template = "thread {thread_id!r} was changed by another writer {tries} times in a row; dispatch again"


class EngineClosed(DispatchError):
    """The engine is closing or closed."""

    template = "the engine is closed; open it again (`async with memory_engine.open(...)`)"


@facts
class EngineForked(DispatchError):
    """A forked process has neither the threads nor the locks of an engine opened before the fork."""

    opened_in: int

    template = (
        "the engine was opened in process {opened_in}, before this one was forked off: "
        "open one in each process that works with it, after the fork"
    )


@facts
class WrongEventLoop(DispatchError):
    """An engine lives on one event loop, and this call came from another one. Nothing was read or written."""

    loop: str
    is_running: bool

    def __str__(self) -> str:
        if self.is_running:
            return (
                f"the engine lives on the event loop that it was opened on, {self.loop}; this call is from another: "
                "hand it over with `asyncio.run_coroutine_threadsafe`, open an engine on each loop, "
                "or use `memory_engine.sync`, which any thread may call"
            )
        return (
            f"the engine lives on the event loop that it was opened on, {self.loop}, which stopped while calls were "
            "under way: `await engine.close()` works here too; then open it again"
        )


@facts
class ReducerError(DispatchError):
    """A reducer raised, or returned operations that the executor refuses. Nothing was written."""

    thread_id: str
    event_type: str
    reducer: str
    operation: str
    why: str

    def __str__(self) -> str:
        at = f" at operation {self.operation}" if self.operation else ""
        return f"reducer {self.reducer!r} failed on {self.event_type!r} in thread {self.thread_id!r}{at}: {self.why}"


class EventRefused(ReducerError):
    """The event does not fit the state: its reducer says so. Nothing was written; `__cause__` says why."""

    template = "thread {thread_id!r} does not take this {event_type!r}: {why}; nothing was written"
