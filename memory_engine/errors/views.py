"""Errors of the views: scratchpad, preferences, playbooks, conversation, tool cache, layers, patterns, memory files."""

from memory_engine.errors.base import InvalidField, InvalidInput, MemoryEngineError, cut, facts


@facts
class WrongThreadKind(MemoryEngineError):
    """A thread has the id of another kind's: it was created by hand."""

    thread_id: str
    kind: str
    expected: str

    def __str__(self) -> str:
        return (
            f"thread {self.thread_id!r} is of kind {self.kind!r}, but the {self.expected} of this id needs it; "
            f"give threads of your own ids without the prefix {self.expected + ':'!r}"
        )


class RowsNotLoaded(MemoryEngineError):
    """A lazy projection read its rows while an event was applied; it may only put and drop them."""

    template = "the rows of a lazy projection cannot be read in `apply`; put and drop them, or set lazy=False"


@facts
class PreferenceError(InvalidInput):
    """A preference that the domain does not allow."""

    key: str
    value: object
    why: str
    allowed: tuple[object, ...] = ()

    def __str__(self) -> str:
        choice = f"; use one of {', '.join(map(repr, self.allowed))}" if self.allowed else ""
        return (
            f"preference {self.key!r} cannot be set to {cut(repr(self.value))}: {self.why}{choice}; nothing was written"
        )


@facts
class DomainError(InvalidInput):
    """A domain with mistakes: lists all of them, each with its place."""

    problems: tuple[str, ...]

    def __str__(self) -> str:
        listed = "".join(f"\n- {problem}" for problem in self.problems)
        return f"the domain cannot be used until this is mended:{listed}"


@facts
class InvalidVector(InvalidInput):
    """A vector of the wrong size, or with numbers that are not finite."""

    source: str
    why: str

    template = "a vector of {source} cannot be used: {why}; look at the model that made it"


@facts
class InvalidParameters(InvalidInput):
    """Tool parameters without a canonical JSON form."""

    tool: str
    where: str
    why: str

    template = "parameters of tool {tool!r} cannot be used: {why} at {where}; nothing was written"


@facts
class AnotherQuestionOpen(InvalidInput):
    """An answer to a question other than the open one."""

    thread_id: str
    question: str
    open_question: str

    def __str__(self) -> str:
        return (
            f"thread {self.thread_id!r} waits for an answer to {cut(self.open_question)!r}, not to "
            f"{cut(self.question)!r}; "
            "finalize that one, or call prepare_messages with the question that is answered"
        )


@facts
class UnknownLine(InvalidInput):
    """A promoted line that `agent.md` does not hold."""

    line: int

    template = "agent.md has no promoted line {line}; `lines()` lists those it has; nothing was written"


@facts
class NotText(InvalidInput):
    """A file that is not UTF-8 text."""

    path: str
    offset: int

    template = "{path} is not UTF-8 text: see byte {offset}; save it as UTF-8; nothing was written"


class InvalidDocument(InvalidField):
    """A document, or a way to split one, that is not accepted."""

    def __str__(self) -> str:
        return f"no document can have {self.field}={cut(repr(self.value))}: {self.why}; nothing was written"


@facts
class UnreadableDocument(InvalidInput):
    """A file, or a part of one, that cannot be read as a document. `place` is empty for the whole file.

    `limit` names the one of the `ReadingLimits` that was exceeded, if that is why.
    """

    path: str
    place: str
    why: str
    limit: str = ""

    def __str__(self) -> str:
        raised = f"; if you trust the file, raise it: limits=ReadingLimits({self.limit}=…)" if self.limit else ""
        place = f"{self.place}: " if self.place else ""
        return f"{self.path}: {place}{self.why}{raised}"


class InvalidMemory(InvalidField):
    """An entry, a question or an order that no memory layer accepts."""

    def __str__(self) -> str:
        return f"memory cannot take {self.field}={cut(repr(self.value))}: {self.why}"


@facts
class BriefFull(InvalidInput):
    """A pin that would be one too many, or too long, for the brief of a thread."""

    thread_id: str
    what: str
    wanted: int
    most: int

    template = (
        "the brief of thread {thread_id!r} takes {most:,} {what}, not {wanted:,}: "
        "unpin what no longer holds, or pin a shorter text; nothing was written"
    )


@facts
class UnknownPin(InvalidInput):
    """No pin of the brief has this seq."""

    thread_id: str
    pin: int
    known: tuple[int, ...] = ()

    def __str__(self) -> str:
        known = f"; there are {', '.join(map(str, self.known))}" if self.known else "; there are none"
        return f"the brief of thread {self.thread_id!r} has no pin {self.pin}{known}"


@facts
class UnknownMemory(InvalidInput):
    """No visible entry has this id."""

    thread_id: str
    entry_id: str

    template = (
        "the memory of {thread_id!r} has no entry {entry_id!r}, or no longer: "
        "take the id from an entry or a hit; what was removed or forgotten cannot be opened"
    )


@facts
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


@facts
class InvalidFilePath(InvalidInput):
    """A path that no memory file can have."""

    path: str
    why: str

    def __str__(self) -> str:
        return f"{cut(repr(self.path))} cannot be the path of a memory file: {self.why}; nothing was written"


@facts
class UnknownMemoryFile(InvalidInput):
    """The thread has no memory file, and no folder of memory files, at this path."""

    thread_id: str
    path: str

    def __str__(self) -> str:
        what = f"at {cut(repr(self.path))}" if self.path else "at all"
        return f"thread {self.thread_id!r} has no memory file {what}: `memory_files.list()` gives those there are"


@facts
class MemoryFileExists(InvalidInput):
    """A memory file, or a folder of them, is already at the path of a new one."""

    path: str

    def __str__(self) -> str:
        return f"there is a memory file or folder at {cut(repr(self.path))}: edit or delete it, or take another path"


@facts
class UnknownFlow(InvalidInput):
    """The conversation does not have this run of a flow."""

    flow_id: str
    thread_id: str

    def __str__(self) -> str:
        which = f"no flow {self.flow_id!r}" if self.flow_id else "no flow yet"
        return f"thread {self.thread_id!r} has {which}; record its end with `flows.completed(...)` first"


@facts
class TaskNotRunning(MemoryEngineError):
    """A step of a run at the wrong moment: without a task, or a second task during the first."""

    thread_id: str
    step: str
    is_running: bool = False

    def __str__(self) -> str:
        why = (
            "a task is running: end it, or let it fail, first"
            if self.is_running
            else "no task is running: start one first"
        )
        return f"{self.step} in thread {self.thread_id!r}: {why}"


@facts
class NotJoined(MemoryEngineError):
    """A tenant asked for the patterns of an industry that it has not joined. `industry` is empty for any."""

    tenant_id: str
    industry: str

    def __str__(self) -> str:
        which = f"industry {self.industry!r}" if self.industry else "no industry"
        wanted = repr(self.industry) if self.industry else '"..."'
        has = "has not joined" if self.industry else "has joined"
        return (
            f"tenant {self.tenant_id!r} {has} {which}: patterns are read and shared by those who joined; "
            f"await engine.tenant({self.tenant_id!r}).patterns.join({wanted}, by=...)"
        )


class InvalidPattern(InvalidField):
    """A pattern that cannot be proposed or approved, or an impossible question about patterns."""

    def __str__(self) -> str:
        return f"patterns cannot take {self.field}={cut(repr(self.value))}: {self.why}; nothing was written"


@facts
class UnknownPattern(InvalidInput):
    """A pattern, or a proposal (a number), that this tenant does not have."""

    tenant_id: str
    id: str

    template = (
        "tenant {tenant_id!r} has no {id}: `review()` lists what waits for a decision, `shared()` "
        "what it shares; nothing was written"
    )
