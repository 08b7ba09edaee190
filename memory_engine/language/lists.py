"""Lists of words and phrases, as the data files beside the modules of a package hold them."""

from collections.abc import Mapping
from functools import cache


def data_bytes(package: str, name: str) -> bytes:
    """The bytes of a file that stands beside the modules of a package. Raises `FileNotFoundError`."""
    # `importlib.resources` would load archives, compression and temporary files with it: 7 ms of a first search
    from pkgutil import get_data

    found = get_data(package, name)
    if found is None:
        raise FileNotFoundError(name)
    return found


def data_file(package: str, name: str) -> str:
    """The text of a data file that stands beside the modules of a package."""
    return data_bytes(package, name).decode().replace("\r\n", "\n")


@cache
def word_lists(package: str, name: str = "words.toml") -> Mapping[str, frozenset[str]]:
    """The word lists of a data file, by their names.

    Read when it is first asked for: most programs need few of them.
    """
    import tomllib

    lists = tomllib.loads(data_file(package, name))
    return {title: frozenset(words.split()) for title, words in lists.items()}
