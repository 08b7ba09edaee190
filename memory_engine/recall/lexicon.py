"""Words that express statements of a matter: the uses of each word, in each language.

A matter is an attribute with one value at a time: a person's home, the port of a service. `lexicon.toml` lists
the words that ask for a matter and the words that mention it, and words of change, of doubt and for people.
"""

from collections.abc import Collection, Iterator, Mapping
from functools import cache, lru_cache
from typing import cast

import msgspec

from memory_engine.core.lazy import regex
from memory_engine.language.lists import content_of, entries
from memory_engine.language.text import compound_words, fold_case, is_unspaced, pairs, stem, stop_words, terms

KNOWN_MAX = 32_768
"""Maximum number of words per language whose uses are cached."""
KEY_CHARS = 5
"""Number of characters of a stem that are compared: enough for endings and compounds without a stemmer."""
Reading = tuple[str, frozenset[str]]
"""A folded word or phrase, and its uses."""
NOTHING: frozenset[str] = frozenset()
_CHANGE = frozenset({"change"})
_RUN_MAX = 5
_BEGINNING_MIN, _BEGINNING_MAX = 3, 9
_COMPOUND_MIN = 8
_HAN = regex("[\u3400-\u9fff]")


class Words(msgspec.Struct, frozen=True):
    """The uses of the words of one language.

    A use is "?home" (asks for this matter), "!home" (mentions it), or a list's name: "change", "self", …. `phrases`
    maps a word to the sizes of the phrases that begin with it; `compounded` are words that compounds end with
    (Messebudget). `known` caches words that were looked up; a full cache is emptied and fills again.
    """

    language: str
    uses: Mapping[str, frozenset[str]]
    beginnings: Mapping[str, frozenset[str]]
    phrases: Mapping[str, tuple[int, ...]]
    compounded: frozenset[str]
    known: dict[str, frozenset[str]]

    def of(self, word: str) -> frozenset[str]:
        """Return the uses of a folded word."""
        found = self.known.get(word)
        if found is None:
            if len(self.known) >= KNOWN_MAX:
                self.known.clear()
            found = self.known[word] = self._found(word)
        return found

    def _found(self, word: str) -> frozenset[str]:
        found = self.uses.get(word)
        if found is not None:
            return found
        for size in range(min(len(word), _BEGINNING_MAX), _BEGINNING_MIN - 1, -1):
            if (found := self.beginnings.get(word[:size])) is not None:
                return found
        if self.compounded and len(word) >= _COMPOUND_MIN:
            tails = (word[at:] for at in range(_BEGINNING_MIN, len(word) - _BEGINNING_MIN))
            return next((self.uses[tail] for tail in tails if tail in self.compounded), NOTHING)
        return NOTHING

    def stated(self, matter: str) -> tuple[str, ...]:
        """Return the terms of a matter's words; terms of words that only mention it come first."""
        return _stated(self.language, matter)

    @property
    def changing(self) -> frozenset[str]:
        """Terms of words of change."""
        return _changing(self.language)

    def changes(self, word: str) -> bool:
        """Return True if a word says that something has changed."""
        return "change" in self.of(word)

    def read(self, folded: str) -> Iterator[tuple[str, frozenset[str]]]:
        """Yield the words and phrases of a folded text with their uses; for a run without blanks, also the rest."""
        found = compound_words(folded.replace("\u2019", "'"))
        at = 0
        while at < len(found):
            word = found[at]
            if not word.isascii() and is_unspaced(word):
                yield from self._read_run(word)
                at += 1
                continue
            if "-" in word and word not in self.uses and not any(map(str.isdigit, word)):
                found[at : at + 1] = word.split("-")  # the Hill-Street school
                continue
            size = next((n for n in self.phrases.get(word, ()) if " ".join(found[at : at + n]) in self.uses), 1)
            phrase = " ".join(found[at : at + size])
            uses = self.of(phrase)
            if (
                size > 1
                and all(use[0] in "?!" for use in uses)
                and any(self.changes(one) for one in found[at : at + size])
            ):
                uses |= _CHANGE  # "moved to", said of where someone lives
            yield phrase, uses
            at += size

    def _read_run(self, run: str) -> Iterator[tuple[str, frozenset[str]]]:
        at = begun = 0
        while at < len(run):
            size = next((n for n in range(_RUN_MAX, 0, -1) if run[at : at + n] in self.uses), 0)
            if size:
                if begun < at:
                    yield run[begun:at], NOTHING
                yield run[at : at + size], self.uses[run[at : at + size]]
                begun = at + size
            at += size or 1
        if begun < len(run):
            yield run[begun:], NOTHING


@lru_cache(maxsize=KNOWN_MAX)
def keys_of(word: str) -> tuple[str, ...]:
    """Return the keys by which a word is compared: its stem's beginning, a whole number, or pairs of characters.

    Pairs are used in scripts without blanks between words.
    """
    if is_unspaced(word):
        return tuple(pairs(word)) if len(word) > 1 else ()
    if any(sign.isdigit() for sign in word):
        return (word,)
    parts = word.replace("'", " ").replace("-", " ").split()
    return tuple(
        (stem(part) if part.isascii() and part.isalpha() else part)[:KEY_CHARS]
        for part in parts
        if len(part) > 1 and part not in stop_words()
    )


def language_of(folded: str) -> str:
    """Return the language of a question, among those with a word list: by its script, else by its function words."""
    if not folded.isascii() and _HAN.search(folded):
        return "zh"
    said = frozenset(compound_words(folded))
    return max(("en", "de", "es"), key=lambda one: sum(_is_little(word, one) for word in said))


_LITTLE = ("plain", "self", "was", "then")
"""The uses of function words."""


def _is_little(word: str, language: str) -> bool:
    """Return True if a word is a function word of a language. Of most words that is known without all of its uses."""
    listed, beginnings = _little(language)
    if word in listed or not word.startswith(beginnings):
        return word in listed
    return not words_of(language).uses.get(word, NOTHING).isdisjoint(_LITTLE)


@cache
def _little(language: str) -> tuple[frozenset[str], tuple[str, ...]]:
    """Return the words that are listed as function words, and the beginnings that make others such words."""
    said = [entry for use in _LITTLE for entry in entries(_data()[use][language])]
    return frozenset(said), tuple(entry[:-1] for entry in said if entry.endswith("*"))


@cache
def _data() -> dict[str, dict[str, str]]:
    from memory_engine.language.dates import full_names

    content = content_of("memory_engine.recall", "lexicon.toml", dict[str, dict[str, object]])
    matters = cast("dict[str, dict[str, str]]", content.pop("matters"))
    data = cast("dict[str, dict[str, str]]", content)
    for language in ("en", "de", "es"):
        calendar = {*full_names("weekdays", language), *full_names("months", language)} - {"may"}  # also a verb
        data["when"][language] += " " + fold_case(" ".join(sorted(calendar)))
    return {f"?{name}": lists for name, lists in matters.items()} | data


@cache
def slots() -> dict[str, str]:
    """Return the kind of value of each matter: "number", "time", or "" for anything."""
    return {name[1:]: lists.get("slot", "") for name, lists in _data().items() if name[0] == "?"}


@cache
def words_of(language: str) -> Words:
    """Return the words of a language: "en", "de", "es" or "zh"."""
    uses: dict[str, set[str]] = {}
    beginnings: dict[str, set[str]] = {}
    phrases: dict[str, set[int]] = {}
    for use, lists in _data().items():
        asking, _, stating = lists[language].partition("|")
        for said, name in ((asking, use), (stating, use.replace("?", "!"))):
            for phrase in entries(said):
                if phrase.endswith("*"):
                    beginnings.setdefault(phrase[:-1], set()).add(name)
                    continue
                uses.setdefault(phrase, set()).add(name)
                first, *rest = phrase.split()
                if rest:
                    phrases.setdefault(first, set()).add(1 + len(rest))
    for word in uses:  # a word that is listed whole keeps the uses of its beginning
        for size in range(_BEGINNING_MIN, min(len(word), _BEGINNING_MAX) + 1):
            uses[word] |= beginnings.get(word[:size], set())
    return Words(
        language=language,
        uses={word: frozenset(found) for word, found in uses.items()},
        beginnings={word: frozenset(found) for word, found in beginnings.items()},
        phrases={word: tuple(sorted(sizes, reverse=True)) for word, sizes in phrases.items()},
        compounded=frozenset(_compounded(uses)) if language == "de" else NOTHING,
        known={},
    )


@cache  # stemming is slow: only the words of the requested matter
def _stated(language: str, matter: str) -> tuple[str, ...]:
    asking, _, stating = _data()[f"?{matter}"][language].partition("|")
    whole = [word for word in entries(f"{stating} {asking}") if word.isalpha()]
    return tuple(dict.fromkeys(term for word in whole for term in terms(word) if len(term) > 1))


@cache
def _changing(language: str) -> frozenset[str]:
    uses = words_of(language).uses
    return frozenset(t for word, found in uses.items() if "change" in found and " " not in word for t in terms(word))


def _compounded(uses: Mapping[str, Collection[str]]) -> Iterator[str]:
    return (word for word, found in uses.items() if len(word) > _BEGINNING_MIN and any(use[0] == "?" for use in found))
