"""Claude's memory tool on this memory: its files are a view, each edit an event.

    from memory_engine.integrations.anthropic import MemoryTool

    with MemoryTool("agent.db", agent_id="claude") as memory:
        runner = client.beta.messages.tool_runner(tools=[memory], ...)

Needs the extra `anthropic`. Answers are those of the SDK's own tool on a folder, except for sizes:
a file's is that of its text, a folder's that of the texts in it.
"""

import posixpath
import weakref
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from memory_engine import sync
from memory_engine.engine import Engine
from memory_engine.errors import InvalidInput, MemoryFileExists, MissingExtra, UnknownMemoryFile
from memory_engine.thread import Thread
from memory_engine.views.memory_files.view import MemoryFile, MemoryFiles

try:
    from anthropic.lib.tools import BetaAbstractMemoryTool, BetaAsyncAbstractMemoryTool, ToolError
except ImportError:
    raise MissingExtra("Claude's memory tool", "anthropic") from None

if TYPE_CHECKING:
    from anthropic.types.beta import BetaCacheControlEphemeralParam
    from anthropic.types.beta import BetaMemoryTool20250818CreateCommand as Create
    from anthropic.types.beta import BetaMemoryTool20250818DeleteCommand as Delete
    from anthropic.types.beta import BetaMemoryTool20250818InsertCommand as Insert
    from anthropic.types.beta import BetaMemoryTool20250818RenameCommand as Rename
    from anthropic.types.beta import BetaMemoryTool20250818StrReplaceCommand as StrReplace
    from anthropic.types.beta import BetaMemoryTool20250818ViewCommand as View

ROOT = "/memories"
LINES_MAX = 999_999
_WIDTH = len(str(LINES_MAX))
_AROUND = 2
"""How many lines are shown before and after an edit."""
_DEPTH = 2


class AsyncMemoryTool(BetaAsyncAbstractMemoryTool):
    """The memory tool for `AsyncAnthropic`, on the memory files of a thread: an agent's, a user's, a conversation's.

    Claude's mistakes raise the SDK's `ToolError`, which its tool runner returns to Claude; errors that Claude did
    not cause (a `StorageError`) are raised unchanged.
    """

    def __init__(self, thread: Thread, *, cache_control: "BetaCacheControlEphemeralParam | None" = None) -> None:
        super().__init__(cache_control=cache_control)
        self._folder = _Folder(thread.memory_files)

    async def view(self, command: "View") -> str:
        """A file with its lines numbered, or the files and folders below one, two levels deep."""
        return await self._folder.view(command.path, command.view_range)

    async def create(self, command: "Create") -> str:
        """Make a file."""
        return await self._folder.create(command.path, command.file_text)

    async def str_replace(self, command: "StrReplace") -> str:
        """Replace a text that occurs once in a file."""
        return await self._folder.str_replace(command.path, command.old_str, command.new_str or "")

    async def insert(self, command: "Insert") -> str:
        """Insert lines into a file, after its line `insert_line`."""
        return await self._folder.insert(command.path, command.insert_line, command.insert_text)

    async def delete(self, command: "Delete") -> str:
        """Delete a file or a folder."""
        return await self._folder.delete(command.path)

    async def rename(self, command: "Rename") -> str:
        """Move a file or a folder."""
        return await self._folder.rename(command.old_path, command.new_path)

    async def clear_all_memory(self) -> str:
        """Delete all files. The log keeps them."""
        return await self._folder.clear()


class MemoryTool(BetaAbstractMemoryTool):
    """The memory tool for `Anthropic`, on the memory files of an agent (or, with `user_id`, of a user).

    It opens the store (a path or a URL) and closes it with `close`, or at the end of a `with` block. Calls
    raise what those of `AsyncMemoryTool` raise; making it raises what `memory_engine.open` raises.
    """

    def __init__(
        self,
        path: str = "memory.db",
        *,
        agent_id: str = "claude",
        user_id: str = "",
        tenant_id: str = "",
        cache_control: "BetaCacheControlEphemeralParam | None" = None,
    ) -> None:
        super().__init__(cache_control=cache_control)

        async def folder(engine: Engine) -> _Folder:
            scope: Thread = (
                engine.user(user_id, tenant_id=tenant_id) if user_id else engine.agent(agent_id, tenant_id=tenant_id)
            )
            return _Folder(scope.memory_files)

        self._engine = sync.open(path)
        self._end = weakref.finalize(self, self._engine.close)
        self._folder = self._engine.call(folder)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the store. A second call does nothing."""
        self._end()

    def view(self, command: "View") -> str:
        """A file with its lines numbered, or the files and folders below one, two levels deep."""
        return self._engine.call(lambda _: self._folder.view(command.path, command.view_range))

    def create(self, command: "Create") -> str:
        """Make a file."""
        return self._engine.call(lambda _: self._folder.create(command.path, command.file_text))

    def str_replace(self, command: "StrReplace") -> str:
        """Replace a text that occurs once in a file."""
        return self._engine.call(
            lambda _: self._folder.str_replace(command.path, command.old_str, command.new_str or "")
        )

    def insert(self, command: "Insert") -> str:
        """Insert lines into a file, after its line `insert_line`."""
        return self._engine.call(lambda _: self._folder.insert(command.path, command.insert_line, command.insert_text))

    def delete(self, command: "Delete") -> str:
        """Delete a file or a folder."""
        return self._engine.call(lambda _: self._folder.delete(command.path))

    def rename(self, command: "Rename") -> str:
        """Move a file or a folder."""
        return self._engine.call(lambda _: self._folder.rename(command.old_path, command.new_path))

    def clear_all_memory(self) -> str:
        """Delete all files. The log keeps them."""
        return self._engine.call(lambda _: self._folder.clear())


class _Folder:
    """The commands, with the SDK's wording. Paths begin with `/memories`; the view's are relative to it."""

    def __init__(self, files: MemoryFiles) -> None:
        self._files = files

    async def view(self, path: str, lines: "Sequence[int] | None") -> str:
        inner = _inner(path)
        file = await self._files.get(inner) if inner else None
        if file is not None:
            return _numbered(path, file.content, lines)
        below = await self._files.list(inner)
        if inner and not below:
            raise _missing(path)
        head = f"Here're the files and directories up to {_DEPTH} levels deep in {path}, excluding hidden items:"
        return "\n".join((head, f"{_size(_files_bytes(below))}\t{path}", *_directory_listing(path, inner, below)))

    async def create(self, path: str, text: str) -> str:
        try:
            await self._files.create(_inner(path), _sendable(text))
        except MemoryFileExists as error:
            there = f"{ROOT}/{error.path}"
            raise ToolError(f"File {path if error.path == _inner(path) else there} already exists") from error
        except InvalidInput as error:
            raise ToolError(str(error)) from error
        return f"File created successfully at: {path}"

    async def str_replace(self, path: str, old: str, new: str) -> str:
        at = 0

        def change(text: str) -> str:
            nonlocal at
            at = _only_place(path, text, old)
            return text.replace(old, _sendable(new))

        text = await self._edit(path, change, "str_replace")
        changed, lines = text[:at].count("\n"), text.split("\n")
        first = max(0, changed - _AROUND)
        snippet = _with_numbers(lines[first : changed + _AROUND + 1], first + 1)
        return (
            f"The memory file has been edited. Here is the snippet showing the change (with line numbers):\n{snippet}"
        )

    async def insert(self, path: str, line: int, text: str) -> str:
        def change(before: str) -> str:
            lines = before.split("\n")
            if not lines[-1]:
                lines.pop()
            if not 0 <= line <= len(lines):
                where = f"It should be within the range [0, {len(lines)}]."
                raise ToolError(f"Invalid `insert_line` parameter: {line}. {where}")
            lines.insert(line, _sendable(text).rstrip("\n"))
            after = "\n".join(lines)
            return after if after.endswith("\n") else f"{after}\n"

        await self._edit(path, change, "insert")
        return f"The file {path} has been edited."

    async def delete(self, path: str) -> str:
        inner = _inner(path)
        if not inner:
            raise ToolError(f"Cannot delete the {ROOT} directory itself")
        try:
            await self._files.delete(inner)
        except UnknownMemoryFile as error:
            raise ToolError(f"The path {path} does not exist") from error
        return f"Successfully deleted {path}"

    async def rename(self, old_path: str, new_path: str) -> str:
        old, new = _inner(old_path), _inner(new_path)
        if not old:
            raise ToolError(f"Cannot rename the {ROOT} directory itself")
        if not new:
            raise ToolError(f"The destination {new_path} already exists")
        try:
            await self._files.move(old, new)
        except UnknownMemoryFile as error:
            raise ToolError(f"The path {old_path} does not exist") from error
        except MemoryFileExists as error:
            raise ToolError(f"The destination {new_path} already exists") from error
        except InvalidInput as error:
            raise ToolError(str(error)) from error
        return f"Successfully renamed {old_path} to {new_path}"

    async def clear(self) -> str:
        await self._files.clear()
        return "All memory cleared"

    async def _edit(self, path: str, change: "_Change", how: str) -> str:
        """Edit a file and return its new text."""
        inner, after = _inner(path), ""

        def changed(text: str) -> str:
            nonlocal after
            after = change(text)
            return after

        try:
            if not inner:
                raise UnknownMemoryFile("", path)
            await self._files.edit(inner, changed, how=how)
        except UnknownMemoryFile as error:
            if not inner or await self._files.list(inner):
                raise ToolError(f"The path {path} is not a file.") from error
            raise _missing(path) from error
        return after


class _Change(Protocol):
    """Makes the new text from the old one."""

    def __call__(self, text: str, /) -> str: ...


def _inner(path: str) -> str:
    """The path below `/memories`, empty for that itself, by the SDK's rules. Raises `ToolError`."""
    if path != ROOT and not path.startswith(f"{ROOT}/"):
        raise ToolError(f"Path must start with {ROOT}, got: {path}")
    inner = posixpath.normpath(f"./{path.removeprefix(ROOT)}")
    if inner.partition("/")[0] == "..":
        raise ToolError(f"Path {path} would escape {ROOT} directory")
    if "\0" in path or inner.encode("utf-8", "replace") != inner.encode("utf-8", "surrogatepass"):
        raise ToolError(f"Path {path!r} has a character that no path may have")
    return "" if inner == "." else inner


def _sendable(text: str) -> str:
    """The text, if it is UTF-8. Raises `ToolError` for lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ToolError("The text has a character that is not valid Unicode; nothing was written") from error
    return text


def _missing(path: str) -> ToolError:
    return ToolError(f"The path {path} does not exist. Please provide a valid path.")


def _only_place(path: str, text: str, old: str) -> int:
    """The position of `old`, if it occurs exactly once. Raises `ToolError`."""
    if not old or text.count(old) == 0:
        why = f"old_str `{old}` did not appear verbatim in {path}."
        raise ToolError(f"No replacement was performed, {why}")
    if text.count(old) > 1:
        lines = ", ".join(map(str, _lines_with(text, old)))
        why = f"Multiple occurrences of old_str `{old}` in lines: {lines}. Please ensure it is unique"
        raise ToolError(f"No replacement was performed. {why}")
    return text.index(old)


def _lines_with(text: str, old: str) -> Iterator[int]:
    at = text.find(old)
    while at >= 0:
        yield text.count("\n", 0, at) + 1
        at = text.find(old, at + 1)


def _numbered(path: str, text: str, shown: "Sequence[int] | None") -> str:
    lines = text.split("\n")
    if len(lines) > LINES_MAX:
        raise ToolError(f"File {path} exceeds maximum line limit of {LINES_MAX:,} lines.")
    first = 1
    if shown is not None and len(shown) == 2:
        first = max(1, shown[0])
        lines = lines[first - 1 : None if shown[1] == -1 else shown[1]]
    return f"Here's the content of {path} with line numbers:\n{_with_numbers(lines, first)}"


def _with_numbers(lines: Sequence[str], first: int) -> str:
    return "\n".join(f"{number:>{_WIDTH}}\t{line}" for number, line in enumerate(lines, first))


def _directory_listing(path: str, inner: str, below: Sequence[MemoryFile]) -> Iterator[str]:
    """The files and folders, two levels deep, without those whose names begin with a dot, sorted by name."""
    sizes: dict[tuple[str, ...], int] = {}
    files: set[tuple[str, ...]] = set()
    for file in below:
        parts = tuple(file.path.removeprefix(f"{inner}/" if inner else "").split("/"))
        files |= {parts}
        for depth in range(1, min(len(parts), _DEPTH) + 1):
            if not any(part.startswith(".") for part in parts[:depth]):
                sizes[parts[:depth]] = sizes.get(parts[:depth], 0) + _files_bytes([file])
    for parts, size in sorted(sizes.items()):
        yield f"{_size(size)}\t{path}/{'/'.join(parts)}{'' if parts in files else '/'}"


def _files_bytes(files: Sequence[MemoryFile]) -> int:
    return sum(len(file.content.encode()) for file in files)


def _size(count: int) -> str:
    """A size as the SDK writes it: 0B, 17B, 1.5K, 2M."""
    unit = min(max(count.bit_length() - 1, 0) // 10, 3)
    size = count / 1024**unit
    return f"{int(size) if size == int(size) else f'{size:.1f}'}{'BKMG'[unit]}"
