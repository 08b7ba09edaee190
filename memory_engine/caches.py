"""What views keep in memory beside their rows: indexes, values made once. All of it can be made again."""

from collections import OrderedDict
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class Caches:
    """Values by thread and name. They go with their thread: when it is let go of, deleted, or forgets something."""

    def __init__(self) -> None:
        self._of: dict[str, dict[str, object]] = {}
        self._bounded: dict[type, OrderedDict[tuple[str, str], None]] = {}

    def get(self, thread_id: str, name: str, kind: type[T]) -> T | None:
        """The value, if it is there and of this kind."""
        value = self._of.get(thread_id, {}).get(name)
        return value if isinstance(value, kind) else None

    def put(self, thread_id: str, name: str, value: object) -> None:
        """Keep a value."""
        self._of.setdefault(thread_id, {})[name] = value

    def made(self, thread_id: str, name: str, make: Callable[[], T], *, at_most: int = 0) -> T:
        """The value, made now if it is not there. All values of a name are of one kind.

        With `at_most`, so many values of the kind are kept over all threads, those used last.
        """
        of = self._of.setdefault(thread_id, {})
        if name not in of:
            of[name] = make()
        value: T = of[name]  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]  # made by this caller
        if at_most:
            self._bound(type(value), (thread_id, name), at_most)
        return value

    def _bound(self, kind: type, key: tuple[str, str], at_most: int) -> None:
        order = self._bounded.setdefault(kind, OrderedDict())
        order[key] = None
        order.move_to_end(key)
        while len(order) > at_most:
            (thread_id, name), _ = order.popitem(last=False)
            self._of.get(thread_id, {}).pop(name, None)

    def drop(self, thread_id: str) -> None:
        """Let go of all that was kept of a thread."""
        self._of.pop(thread_id, None)
