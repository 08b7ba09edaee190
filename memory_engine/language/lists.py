"""Lists of words and phrases, stored in data files next to the modules of a package.

White space separates the entries of a list. In an entry, `_` represents a blank and `__` an underscore: `at_least` is
two words, `created__at` one. Each reader defines what a `*` means and whether case matters.
"""

from collections.abc import Mapping
from functools import cache
from itertools import takewhile
from typing import TypeAlias, TypeVar

import msgspec

from memory_engine.core.lazy import regex
from memory_engine.errors.replay import CodeNotLoaded

Content = TypeVar("Content")
Tables: TypeAlias = "dict[str, str | Tables]"
_TITLE = regex(r"\[([a-z_]+(?:\.[a-z_]+)*)\]")
_LONG = '"""'
_ENTRY = regex(r'([A-Za-z_]+) = "(?:([^"]*)"|"")')
"""A key and its text; two more quotation marks begin a text of several lines."""


def entries(listed: str) -> tuple[str, ...]:
    """Return the entries of a list in order, without duplicates."""
    if "_" in listed:
        return tuple(dict.fromkeys(entry.replace("_", " ").replace("  ", "_") for entry in listed.split()))
    return tuple(dict.fromkeys(listed.split()))


@cache
def lists_of(package: str, name: str = "words.toml") -> Mapping[str, tuple[str, ...]]:
    """Return the lists of a data file by name. The file is read on first use: most programs need few of them."""
    return {title: entries(listed) for title, listed in content_of(package, name, dict[str, str]).items()}


@cache
def word_lists(package: str, name: str = "words.toml") -> Mapping[str, frozenset[str]]:
    """Return the lists of a data file as sets."""
    return {title: frozenset(listed) for title, listed in lists_of(package, name).items()}


def content_of(package: str, name: str, kind: type[Content]) -> Content:
    """Return the content of a data file (TOML) as the given type."""
    text = data_file(package, name)
    tables = plain_tables(text)
    return msgspec.toml.decode(text, type=kind) if tables is None else msgspec.convert(tables, kind)


def plain_tables(text: str) -> "Tables | None":
    """Return the content of a file of comments, tables and texts without escapes; `None` for any other TOML.

    Most lists are so plain. The TOML parser would take 7 ms to be loaded and to read those of a first search.
    """
    if "\\" in text:
        return None
    content: Tables = {}
    table = content
    lines = iter(text.split("\n"))
    for line in lines:
        if not line or line.startswith("#"):
            continue
        if (title := _TITLE.fullmatch(line)) is not None:
            table = content
            for name in title[1].split("."):
                inner = table.setdefault(name, {})
                if isinstance(inner, str):
                    return None
                table = inner
        elif (entry := _ENTRY.fullmatch(line)) is None or entry[1] in table:
            return None
        elif line.endswith(_LONG):
            table[entry[1]] = "".join(f"{line}\n" for line in takewhile(_LONG.__ne__, lines))
        else:
            table[entry[1]] = entry[2]
    return content


def data_file(package: str, name: str) -> str:
    """Return the text of a data file next to the modules of a package."""
    return data_bytes(package, name).decode().replace("\r\n", "\n")


def data_bytes(package: str, name: str) -> bytes:
    """Return the bytes of a file next to the modules of a package. Raises `FileNotFoundError`, `CodeNotLoaded`."""
    try:
        # `importlib.resources` would import archives, compression and temporary files: 7 ms on the first search
        from pkgutil import get_data

        found = get_data(package, name)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise CodeNotLoaded(f"{package}/{name}", error.strerror or str(error)) from error
    if found is None:
        raise FileNotFoundError(name)
    return found
