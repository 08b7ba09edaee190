"""Modules that are imported when something in them is first asked for: a start costs what it uses."""

import importlib
from collections.abc import Iterator
from types import ModuleType


class _LazyModule(ModuleType):
    """Stands for a module until one of its names is asked for."""

    def __getattr__(self, name: str) -> object:
        value: object = getattr(importlib.import_module(self.__name__), name)
        setattr(self, name, value)
        return value


def lazy_modules(package: str, *names: str) -> Iterator[ModuleType]:
    """Stand-ins for modules of a package, in order. Show type checkers the real import.

    if TYPE_CHECKING:
        from memory_engine.replay import diff, why
    else:
        diff, why = lazy_modules("memory_engine.replay", "diff", "why")
    """
    return (_LazyModule(f"{package}.{name}") for name in names)
