"""The matter that a question asks for: attributes ("home", "port") of a subject.

`lexicon.py` defines the uses of words.
"""

from collections.abc import Iterable
from typing import Literal

import msgspec
from msgspec.structs import replace

from memory_engine.core.lazy import regex
from memory_engine.language.text import fold_case
from memory_engine.recall.lexicon import Reading, keys_of, language_of, slots, words_of
from memory_engine.recall.question import Question

TEXT_CHARS_MAX = 300
"""Maximum length of a passage that is read. A longer one is an essay, not a statement of one fact."""
FURTHER_MAX = 12
"""Maximum number of terms, in addition to the question's own, by which newer statements become candidates."""
PARTNER = "?partner"
"""Use of a word that asks for somebody's partner."""
_NO_SUBJECT = frozenset({"plain", "self", "then", "was", "change", "unsaid", "added", "denied", "other", "conditions"})
_SEVERAL = {
    "en": regex(
        r"\b(?:what|which) (?!is\b|was\b|does\b|has\b)\w+[^su]s\b"
        r"|^(?:what|which|where|who|how)(?: \w+){0,2} ha(?:s|ve) \w+ \w+"
    ),
    "de": regex(r"\bwelche \w+en\b"),
    "es": regex(r"\bcuales\b|\bque \w{2,}[ao]s\b"),
    "zh": regex("哪些|些什么"),
}
"""Questions for several values, or for everything that has happened so far."""


class Matter(msgspec.Struct, frozen=True):
    """The matter that a question asks for: attributes ("home", "port") of a subject.

    `subject` are the keys of the words that name it; together with the keys of the attributes they form `asked`.
    `people` are the people it is about, in addition to the speaker (`is_own`). `slots` say that the value is a "number"
    or a "time". `asks` is "now" for what is true now, "before" for what was true, and "event" for a past event.
    `is_past` says that it asks in a word of the past, not only of a plan or a wish. `further` are terms that statements
    of the matter may contain, but the question does not. `speakers` are the speakers that the question names: they
    speak about themselves.
    """

    language: str
    attributes: frozenset[str]
    slots: frozenset[str]
    subject: tuple[str, ...]
    asked: frozenset[str]
    people: frozenset[str]
    is_own: bool
    asks: Literal["now", "before", "event"]
    further: tuple[str, ...]
    speakers: frozenset[str] = frozenset()
    is_past: bool = False

    @property
    def spoken(self) -> frozenset[str]:
        """Uses of the words that mention its attributes."""
        return frozenset(sign + attribute for attribute in self.attributes for sign in "?!")

    def of_speakers(self, names: Iterable[str]) -> "Matter":
        """Return the matter given the speakers' names: named speakers speak about themselves, and others to them."""
        keys = {name: frozenset(keys_of(fold_case(name))) for name in names if name}
        named = frozenset(name for name, held in keys.items() if not held.isdisjoint(self.subject))
        if not named:
            return self
        told = frozenset().union(*(keys[name] for name in named))
        rest = tuple(key for key in self.subject if key not in told)
        return replace(self, subject=rest, is_own=True, speakers=named)


def read_matter(question: Question) -> Matter | None:
    """Return what a question asks for; `None` if it names no attribute and no subject, or asks for several values."""
    folded = fold_case(question.text[:TEXT_CHARS_MAX])
    language = language_of(folded)
    words = words_of(language)
    attributes: set[str] = set()
    named: list[str] = []
    people: set[str] = set()
    used: set[str] = set()
    others: list[Reading] = []
    for word, uses in words.read(folded):
        of = {use[1:] for use in uses if use[0] == "?"}
        used |= uses
        attributes |= of
        if "person" in uses:
            people.add(word)
        elif of:
            named += keys_of(word)
        elif uses.isdisjoint(_NO_SUBJECT):
            others.append((word, uses))
    if people and attributes != {PARTNER[1:]}:
        attributes.discard(PARTNER[1:])
    elif people:
        people = set()
    is_own = "self" in used
    stating = {f"!{attribute}" for attribute in attributes}
    subject = [key for word, uses in others if uses.isdisjoint(stating) for key in keys_of(word)]
    subject = subject or ([] if is_own or people else named)
    if (not attributes and not subject) or _SEVERAL[language].search(folded):
        return None
    is_past = "then" in used or not used.isdisjoint(("was", "unsaid"))
    stated = [term for attribute in sorted(attributes) for term in words.stated(attribute)]
    if "then" in used:
        # The words that ask for it in the present come last; they are the words that stated it in the past.
        stated = [*stated[: FURTHER_MAX // 2], *reversed(stated)]
    return Matter(
        language=language,
        attributes=frozenset(attributes),
        slots=frozenset(slot for attribute in attributes if (slot := slots()[attribute])),
        subject=tuple(dict.fromkeys(subject)),
        asked=frozenset((*named, *subject)),
        people=frozenset(people),
        is_own=is_own,
        asks="before" if "then" in used else "event" if is_past else "now",
        is_past="then" in used or "was" in used,
        further=tuple(t for t in dict.fromkeys(stated) if t not in question.terms)[:FURTHER_MAX],
    )
