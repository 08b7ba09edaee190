"""Packages whose public names are imported when they are first asked for."""

import importlib
from collections.abc import Callable, Mapping


def imported_when_asked(package: str, homes: Mapping[str, str]) -> Callable[[str], object]:
    """Make a package's `__getattr__`: `homes` says which names each of its modules has, apart by spaces."""
    home_of = {name: home for home, names in homes.items() for name in names.split()}

    def get(name: str) -> object:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(f"{package}.{home_of[name]}"), name)

    return get
