"""All modules of the package, as far as they can be imported here."""

import importlib
import pkgutil
from collections.abc import Iterator
from contextlib import suppress
from types import ModuleType

import memory_engine
from memory_engine.errors import MissingExtra


def every_module() -> Iterator[ModuleType]:
    """Each but those that run a program, and the adapters whose peers are in environments of their own."""
    for module in pkgutil.walk_packages(memory_engine.__path__, "memory_engine."):
        is_adapter = module.name.startswith("memory_engine.integrations.")
        if not module.name.endswith("__main__"):
            with suppress(*(MissingExtra,) if is_adapter else ()):
                yield importlib.import_module(module.name)
