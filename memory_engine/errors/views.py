"""Errors of the views: scratchpad, preferences, playbooks, conversation, tool cache, layers."""

from attrs import frozen

from memory_engine.errors.base import MemoryEngineError
from memory_engine.errors.inputs import InvalidInput


class WrongThreadKind(MemoryEngineError):
    """A thread stands where another kind's should: somebody made one of this id by hand."""

    def __init__(self, thread_id: str, kind: str, expected: str) -> None:
        super().__init__(
            f"thread {thread_id!r} is of kind {kind!r}, but the {expected} of this id needs it; "
            f"give threads of your own ids without the prefix {expected + ':'!r}"
        )
        self.thread_id = thread_id
        self.kind = kind
        self.expected = expected


class RowsNotLoaded(MemoryEngineError):
    """A lazy projection looked at its rows while an event was applied; it may only put and drop them."""

    def __init__(self) -> None:
        super().__init__(
            "the rows of a lazy projection cannot be read in `apply`; put and drop them, or set lazy=False"
        )


@frozen
class PreferenceError(InvalidInput):
    """A preference that the domain does not allow."""

    key: str
    value: object
    why: str
    allowed: tuple[object, ...] = ()

    def __str__(self) -> str:
        shown = repr(self.value)
        shown = shown if len(shown) <= 60 else shown[:57] + "..."
        choice = f"; use one of {', '.join(map(repr, self.allowed))}" if self.allowed else ""
        return f"preference {self.key!r} cannot be set to {shown}: {self.why}{choice}; nothing was written"


@frozen
class DomainError(InvalidInput):
    """A domain with mistakes: all of them, each with its place."""

    problems: tuple[str, ...]

    def __str__(self) -> str:
        listed = "".join(f"\n- {problem}" for problem in self.problems)
        return f"the domain cannot be used until this is mended:{listed}"


@frozen
class InvalidVector(InvalidInput):
    """A vector of the wrong size, or with numbers that are none."""

    source: str
    why: str

    def __str__(self) -> str:
        return f"a vector of {self.source} cannot be used: {self.why}; look at the model that made it"


@frozen
class InvalidParameters(InvalidInput):
    """Parameters of a tool that no canonical JSON can stand for."""

    tool: str
    where: str
    why: str

    def __str__(self) -> str:
        return f"parameters of tool {self.tool!r} cannot be used: {self.why} at {self.where}; nothing was written"


@frozen
class AnotherQuestionOpen(InvalidInput):
    """An answer to a question that is not the open one."""

    thread_id: str
    question: str
    open_question: str

    def __str__(self) -> str:
        both = (self.question, self.open_question)
        asked, waiting = (text if len(text) <= 60 else text[:57] + "..." for text in both)
        return (
            f"thread {self.thread_id!r} waits for an answer to {waiting!r}, not to {asked!r}; "
            "finalize that one, or call prepare_messages with the question that is answered"
        )


@frozen
class UnknownLine(InvalidInput):
    """A promoted line that `agent.md` does not hold."""

    line: int

    def __str__(self) -> str:
        return f"agent.md has no promoted line {self.line}; `lines()` lists those it has; nothing was written"


@frozen
class NotText(InvalidInput):
    """A file that is no UTF-8 text."""

    path: str
    offset: int

    def __str__(self) -> str:
        return f"{self.path} is no UTF-8 text: see byte {self.offset}; save it as UTF-8; nothing was written"


@frozen
class InvalidDocument(InvalidInput):
    """A document, or a way to split one, that cannot be taken."""

    field: str
    value: object
    why: str

    def __str__(self) -> str:
        shown = repr(self.value)
        shown = shown if len(shown) <= 60 else shown[:57] + "..."
        return f"no document can have {self.field}={shown}: {self.why}; nothing was written"


@frozen
class UnreadableDocument(InvalidInput):
    """A file, or a part of one, that no document can be read from. `place` is empty for the whole file."""

    path: str
    place: str
    why: str

    def __str__(self) -> str:
        return f"{self.path}: {self.place}: {self.why}" if self.place else f"{self.path}: {self.why}"


@frozen
class InvalidMemory(InvalidInput):
    """An entry, a question or an order that no layer of memory can take."""

    field: str
    value: object
    why: str

    def __str__(self) -> str:
        shown = repr(self.value)
        shown = shown if len(shown) <= 60 else shown[:57] + "..."
        return f"memory cannot take {self.field}={shown}: {self.why}"


@frozen
class UnknownMemory(InvalidInput):
    """No entry of this id can be seen."""

    thread_id: str
    entry_id: str

    def __str__(self) -> str:
        return (
            f"the memory of {self.thread_id!r} has no entry {self.entry_id!r}, or no longer: "
            "take the id from an entry or a hit; what was removed or forgotten cannot be opened"
        )


@frozen
class NotGranted(MemoryEngineError):
    """An agent asked for a layer of another's memory that was not granted to it."""

    owner: str
    grantee: str
    tenant_id: str
    layer: str
    write: bool = False

    def __str__(self) -> str:
        tenant = f" of tenant {self.tenant_id!r}" if self.tenant_id else ""
        what = "write to" if self.write else "read"
        order = f"engine.agent({self.owner!r}{f', tenant_id={self.tenant_id!r}' if self.tenant_id else ''})"
        write = ", write=True" if self.write else ""
        return (
            f"agent {self.grantee!r} may not {what} the {self.layer} memory of agent {self.owner!r}{tenant}; "
            f'{self.owner!r} must allow it: await {order}.share_with({self.grantee!r}, layers=("{self.layer}",){write})'
        )


@frozen
class UnknownFlow(InvalidInput):
    """A run of a flow that a conversation does not hold."""

    flow_id: str
    thread_id: str

    def __str__(self) -> str:
        which = f"no flow {self.flow_id!r}" if self.flow_id else "no flow yet"
        return f"thread {self.thread_id!r} has {which}; record its end with `flows.completed(...)` first"


class TaskNotRunning(MemoryEngineError):
    """A step of a run at the wrong moment: without a task, or a second task beside the first."""

    def __init__(self, thread_id: str, step: str, *, is_running: bool = False) -> None:
        why = (
            "a task is running: end it, or let it fail, first" if is_running else "no task is running: start one first"
        )
        super().__init__(f"{step} in thread {thread_id!r}: {why}")
        self.thread_id = thread_id
        self.step = step
