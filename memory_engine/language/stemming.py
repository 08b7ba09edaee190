"""Snowball's English stemmer, loaded without those of thirty other languages, with endings looked up in a dict."""

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Protocol

_HOME = f"{__name__}.snowballstemmer"


class _Ending(Protocol):
    s: str
    result: object
    method: object


class _Stemmer(Protocol):
    def stemWord(self, word: str) -> str:  # noqa: N802 - the library's name
        """Return the stem of a word."""
        ...


_Endings = Sequence[_Ending]
_Results = tuple[Sequence[int], Mapping[str, object]] | None


@cache
def english_stemmer() -> Callable[[], _Stemmer]:
    """Return the class of stemmers of English words. A stemmer has state: give each thread, or each word, its own."""
    base = import_module(f"{_home()}.english_stemmer").EnglishStemmer
    known: dict[int, _Results] = {}

    def results(endings: _Endings) -> _Results:
        known[id(endings)] = found = _results(endings)  # the class holds its tables, so each keeps its number
        return found

    class Stemmer(base):  # type: ignore[misc, valid-type]  # the library has no types
        """Finds the longest ending of a table at once; the library searches the table letter by letter."""

        current: str
        cursor: int
        limit: int
        limit_backward: int

        def find_among(self, endings: _Endings) -> object:
            if (found := known.get(id(endings)) or results(endings)) is None:
                return super().find_among(endings)
            at, (sizes, by_text) = self.cursor, found
            for size in sizes:
                result = by_text.get(self.current[at : at + size]) if at + size <= self.limit else None
                if result is not None:
                    self.cursor = at + size
                    return result
            return 0

        def find_among_b(self, endings: _Endings) -> object:
            if (found := known.get(id(endings)) or results(endings)) is None:
                return super().find_among_b(endings)
            at, (sizes, by_text) = self.cursor, found
            for size in sizes:
                result = by_text.get(self.current[at - size : at]) if at - size >= self.limit_backward else None
                if result is not None:
                    self.cursor = at - size
                    return result
            return 0

    return Stemmer


def _results(endings: _Endings) -> _Results:
    """Return the sizes of a table's endings, longest first, and the result of each; `None` if some have conditions."""
    if any(ending.method is not None for ending in endings):
        return None
    return (
        sorted({len(ending.s) for ending in endings}, reverse=True),
        {ending.s: ending.result for ending in endings},
    )


def algorithm() -> bytes:
    """Return the source of the installed algorithm. Raises `FileNotFoundError` if it came without its source."""
    spec = find_spec("snowballstemmer")
    read = getattr(spec.loader, "get_data", None) if spec is not None else None
    if spec is None or spec.origin is None or read is None:
        raise FileNotFoundError("english_stemmer.py")
    source: bytes = read(str(Path(spec.origin).with_name("english_stemmer.py")))
    return source


@cache
def _home() -> str:
    """Return the name of a package with the library's modules, whose `__init__` would import all of them in 25 ms."""
    spec = find_spec("snowballstemmer")
    if spec is None or spec.submodule_search_locations is None:
        return "snowballstemmer"  # the import that follows raises, or finds it in another way
    home = ModuleType(_HOME)
    home.__path__ = spec.submodule_search_locations
    sys.modules[_HOME] = home
    return _HOME
