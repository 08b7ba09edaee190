"""Things made at their first use: modules, objects of a module, the names of a package, regular expressions.

A start then costs only what it uses: compiling the hundred regular expressions alone would take 30 ms.
"""

import importlib
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType, ModuleType
from typing import AnyStr, Generic, cast

from memory_engine.errors.replay import CodeNotLoaded


def loaded(name: str) -> ModuleType:
    """The module of this full name, imported now. Raises `CodeNotLoaded` if its file cannot be read."""
    try:
        return importlib.import_module(name)
    except (
        OSError
    ) as error:  # most often no file descriptor is free; Python forgets the module, and a retry may load it
        raise CodeNotLoaded(name, error.strerror or str(error)) from error


class _LazyModule(ModuleType):
    """Stands for a module until one of its names is asked for."""

    def __getattr__(self, name: str) -> object:
        value: object = getattr(loaded(self.__name__), name)
        setattr(self, name, value)
        return value


def lazy_module(name: str) -> ModuleType:
    """A module, by its full name, imported at its first use. Type checkers get the real import; a test compares both.

    if TYPE_CHECKING:
        from memory_engine.replay import diff
    else:
        diff = lazy_module("memory_engine.replay.diff")
    """
    return _LazyModule(name)


def lazy_modules(room: str, names: str) -> Iterator[ModuleType]:
    """Stand-ins for modules of a room, which are named apart by spaces.

    if TYPE_CHECKING:
        from memory_engine.replay import bisect, diff
    else:
        bisect, diff = lazy_modules("memory_engine.replay", "bisect diff")
    """
    return (_LazyModule(f"{room}.{name}") for name in names.split())


class StandIn:
    """Stands for an object of a module (`"package.module:name"`) until you call it or ask for one of its attributes.

    It answers what is `known` of the object without loading it.
    """

    def __init__(self, place: str, known: Mapping[str, object] = MappingProxyType({})) -> None:
        self.__dict__.update(known)
        self._place = place
        self.__name__ = place.partition(":")[2]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._place!r})"

    @property
    def module(self) -> ModuleType:
        """The module of the object, which may not be loaded yet."""
        return _LazyModule(self._place.partition(":")[0])

    @property
    def original(self) -> Callable[..., object]:
        """The object itself, loaded now. Raises `CodeNotLoaded` as `loaded` does."""
        found: Callable[..., object] = getattr(loaded(self._place.partition(":")[0]), self.__name__)
        return found

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):  # Python asks each object for a few of these
            raise AttributeError(name)
        value: object = getattr(self.original, name)
        setattr(self, name, value)
        return value

    def __call__(self, *given: object) -> object:
        """Call the object."""
        return self.original(*given)


class FunctionsLater:
    """Stand-ins for the functions of a module, by their names: `later.reduce_todo_set`."""

    def __init__(self, module: str) -> None:
        self._module = module

    def __getattr__(self, name: str) -> StandIn:
        return StandIn(f"{self._module}:{name}")


def is_loaded(value: object) -> bool:
    """Whether a value is what it is, or stands in for what is loaded by now."""
    home = value.module if isinstance(value, StandIn) else value
    return not isinstance(home, ModuleType) or home.__name__ in sys.modules


def imported_when_asked(
    package: str, homes: Mapping[str, str]
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Make a package's `__getattr__` and `__dir__`: `homes` says which names each of its modules has, apart by spaces.

    A home that begins with a dot is next to the package.
    """
    home_of = {name: home for home, names in homes.items() for name in names.split()}

    def get(name: str) -> object:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        home = home_of[name]
        beside = package.rpartition(".")[0]
        return getattr(loaded(f"{beside}{home}" if home.startswith(".") else f"{package}.{home}"), name)

    return get, lambda: sorted({*vars(sys.modules[package]), *home_of})


class Uncompiled(Generic[AnyStr]):
    """Stands for a pattern. It keeps each method after its first use, so that a later use costs an attribute."""

    def __init__(self, pattern: AnyStr, flags: re.RegexFlag) -> None:
        self.source: tuple[AnyStr, re.RegexFlag] = pattern, flags

    def __getattr__(self, name: str) -> object:
        found: object = getattr(re.compile(*self.source), name)
        setattr(self, name, found)
        return found


def regex(pattern: AnyStr, flags: re.RegexFlag = re.RegexFlag.NOFLAG) -> re.Pattern[AnyStr]:
    """Return what `re.compile` does, for a name of a module: a pattern whose mistakes only its first use finds."""
    return cast(re.Pattern[AnyStr], Uncompiled(pattern, flags))
