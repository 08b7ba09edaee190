"""Lists of words and phrases, as the data files beside the modules of a package hold them.

White space parts the entries of a list. In an entry, `_` stands for a blank and `__` for an underscore: `at_least` is
two words, `created__at` one. What a `*` means, and whether capitals count, is up to each reader.
"""

from collections.abc import Mapping
from functools import cache
from typing import TypeVar

import msgspec

Content = TypeVar("Content")


def entries(listed: str) -> tuple[str, ...]:
    """The entries of a list in order, each once."""
    if "_" in listed:
        return tuple(dict.fromkeys(entry.replace("_", " ").replace("  ", "_") for entry in listed.split()))
    return tuple(dict.fromkeys(listed.split()))


@cache
def lists_of(package: str, name: str = "words.toml") -> Mapping[str, tuple[str, ...]]:
    """The lists of a data file by their names. Read when first asked for: most programs need few of them."""
    return {title: entries(listed) for title, listed in content_of(package, name, dict[str, str]).items()}


@cache
def word_lists(package: str, name: str = "words.toml") -> Mapping[str, frozenset[str]]:
    """The lists of a data file as sets."""
    return {title: frozenset(listed) for title, listed in lists_of(package, name).items()}


def content_of(package: str, name: str, kind: type[Content]) -> Content:
    """The content of a data file (TOML) as a type of yours."""
    return msgspec.toml.decode(data_file(package, name), type=kind)


def data_file(package: str, name: str) -> str:
    """The text of a data file that stands beside the modules of a package."""
    return data_bytes(package, name).decode().replace("\r\n", "\n")


def data_bytes(package: str, name: str) -> bytes:
    """The bytes of a file that stands beside the modules of a package. Raises `FileNotFoundError`."""
    # `importlib.resources` would load archives, compression and temporary files with it: 7 ms of a first search
    from pkgutil import get_data

    found = get_data(package, name)
    if found is None:
        raise FileNotFoundError(name)
    return found
