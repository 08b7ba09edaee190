"""The engine for code that does not await: the public face, with the same names and signatures.

    from memory_engine import UserMessage, sync

    with sync.open("agent.db") as engine:
        thread = engine.create_thread(user_id="u1")
        thread.dispatch(UserMessage(content="Hello"))

Type checkers read its `__init__.pyi`; `python3 tasks.py sync` makes it of the classes that await.
"""

from memory_engine.sync.facade import HOMES, sync_class
from memory_engine.sync.facade import open as open
from memory_engine.sync.facade import restore as restore


def __getattr__(name: str) -> object:
    """The waiting class for the asynchronous one of this name."""
    if name == "__all__":
        return [*HOMES, "open", "restore"]
    if name not in HOMES:
        raise AttributeError(f"module 'memory_engine.sync' has no attribute {name!r}")
    return sync_class(name)


def __dir__() -> list[str]:
    return sorted({*globals(), *HOMES})
