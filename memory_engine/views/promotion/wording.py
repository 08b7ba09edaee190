"""Wording: which phrases a text uses, which of its words are specifics, and whether two texts say the same.

Scripts written with spaces are matched by whole words, scripts written without (Han, Kana, Thai …) anywhere.
"""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache

import msgspec

from memory_engine.core.lazy import regex
from memory_engine.language.lists import content_of, entries, word_lists
from memory_engine.language.text import COMPOUND_WORD, UNSPACED, is_unspaced, negations, pairs

READ_CHARS_MAX = 10_000
"""Characters of a text that are read to judge it: a snippet has a few sentences, a longer one shows its kind early."""
SHOWN_MAX = 4
"""Phrases that a reason quotes."""

LETTER = rf"[^\W\d{UNSPACED}]"
SPECIFIC = regex(
    rf"[^\w\s]{{0,3}}(?<!{LETTER}){LETTER}*+\d(?:[^\W{UNSPACED}]|[.,:/@+\-](?=\w))*%?"
    r"|(?<![\w.+\-])[\w.+\-]++@[\w.\-]+"
)
RECURRING = regex(r"[qh][1-4]|\d+(?:x|%|st|nd|rd|th)?-?(?:day|week|month|hour)s?")
"""Numbered names of recurring things: quarters, seven-day windows."""

UNSPACED_NEGATION = regex(r"不|没|沒|無|非|ない|ません|なかった|ไม่")
ENDING = regex(r"(?<=\w\w\w)(?:ing|ed|es|en|s|e|n)$")
"""Not `language.text.stem`, for which experiments and experience, or successful and successive, are one word: a finding
that says something else would be taken for a repetition, and be lost."""
SAME_WORDS = 0.6
"""The share of the words of both texts together that near-duplicates have in common."""


def normalized(text: str) -> str:
    """The text for comparison: composed, without case, with straight apostrophes and single blanks."""
    composed = unicodedata.normalize("NFKC", text[:READ_CHARS_MAX]).casefold().replace("\u2019", "'")
    return " ".join(composed.split())


class Phrases(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of wording that speaks for a criterion: how strongly (0 to 1), and the phrases that show it.

    `phrases` is a list (see `language.lists`); `*` at the end of a word matches any ending.
    """

    kind: str
    weight: float = 0.0
    phrases: str

    @property
    def pattern(self) -> re.Pattern[str]:
        """Finds any of the phrases in folded text: whole words, in scripts without spaces anywhere."""
        return _compiled(self.phrases)

    def found_in(self, text: str) -> tuple[str, ...]:
        """The phrases that a folded text uses, each once, in the order of the text."""
        return tuple(dict.fromkeys(match.group() for match in self.pattern.finditer(text)))


class Wordings(msgspec.Struct, frozen=True):
    """The content of `phrases.toml`."""

    general: tuple[Phrases, ...]
    one_off: Phrases
    talk: Phrases
    unexpected: tuple[Phrases, ...]
    lasting: Phrases
    asking: Phrases
    at_large: Phrases
    of_oneself: Phrases
    from_now_on: Phrases


@cache
def wordings() -> Wordings:
    """The phrases by which a snippet shows its kind. Read when they are first asked for."""
    return content_of("memory_engine.views.promotion", "phrases.toml", Wordings)


_ONESELF = regex(
    r"(?<![\w.])I(?:['\u2019]|\s+(?!(?:is|has|and|or|of|to)\b|\w+i\b)[a-zà-ÿ])"
    r"|我(?![们們国國司方])|私(?!たち|達)|僕|俺"
)
"""Words of the first person that small letters or a plural would make another word: `I dati`, `Phase I is`, 我们."""
_FRENCH_OWN = regex(r"(?<!\w)(?:mon|ma|mes)\s+\w{3}.*\s(?:est|sont|a|ont|n'|ne|au|aux|des)\s")
"""`mon`, `ma`, `mes` with another French word: elsewhere they mean a day, a conjunction, a month."""


def is_first_person(text: str) -> bool:
    """Whether people speak of themselves alone, in any of several languages: `I`, `my`, `ich`, `je`, `私`.

    `we` and `our` are those of a business, and do not count.
    """
    said = normalized(text)
    if wordings().of_oneself.pattern.search(said) or _ONESELF.search(text[:READ_CHARS_MAX]):
        return True
    return _FRENCH_OWN.search(said) is not None


_SO_FAR = regex(
    r"(?<!\w)(?:have|has|had|was|were|habe|hast|hat|haben|hatte|war|waren|he|ha|hemos|han|era|ai|as|a|ont|étais|était)"
    r" (?:always|never|immer|nie|niemals|siempre|nunca|toujours|jamais)(?!\w)|(?<=\w)'(?:ve|s) (?:always|never)(?!\w)"
)
"""A statement about always or never: it says nothing of the times to come."""


def is_from_now_on(text: str) -> bool:
    """Whether a sentence wishes or rules something for all times to come. A question does not."""
    said = normalized(text)
    if said.endswith(("?", "\u061f", "\uff1f")):
        return False
    return wordings().from_now_on.pattern.search(_SO_FAR.sub(" ", said)) is not None


def is_of_a_person(text: str) -> bool:
    """Whether a text is about one person: in the first person, or on how the user likes, wants or does things."""
    said = normalized(text)
    is_of_user = wordings().lasting.pattern.search(said) or wordings().asking.pattern.search(said)
    return is_first_person(text) or bool(is_of_user and not wordings().at_large.pattern.search(said))


@lru_cache(maxsize=64)
def _compiled(phrases: str) -> re.Pattern[str]:
    """Compiled at the first use: it takes milliseconds, and most programs never promote anything."""
    return pattern_of(entries(phrases))


def pattern_of(phrases: Iterable[str]) -> re.Pattern[str]:
    """Finds any of the phrases in folded text: whole words, in scripts without spaces anywhere."""
    longest_first = sorted(phrases, key=len, reverse=True)
    spaced = [phrase for phrase in longest_first if not _has_unspaced(phrase)]
    unspaced = [phrase for phrase in longest_first if _has_unspaced(phrase)]
    parts = [re.escape(phrase) for phrase in unspaced]
    if spaced:
        words = "|".join(re.escape(phrase).replace(r"\*", r"\w*") for phrase in spaced)
        parts.append(rf"(?<!\w)(?:{words})(?!\w)")
    return re.compile("|".join(parts))


def _has_unspaced(phrase: str) -> bool:
    return any(map(is_unspaced, phrase))


class Evidence(msgspec.Struct, frozen=True):
    """The evidence for a criterion: the joint strength of the kinds found (0 to 1), and the phrases by kind."""

    strength: float
    found: tuple[tuple[str, tuple[str, ...]], ...]

    def __str__(self) -> str:
        return "; ".join(f"{kind}: {quoted(phrases)}" for kind, phrases in self.found)


def evidence(text: str, kinds: Iterable[Phrases]) -> Evidence:
    """The evidence in a text's wording. Kinds add up as independent signs do: 1 - (1 - a)(1 - b)."""
    doubt = 1.0
    found = []
    for kind in kinds:
        phrases = kind.found_in(text)
        if phrases:
            doubt *= 1.0 - kind.weight
            found.append((kind.kind, phrases))
    return Evidence(1.0 - doubt, tuple(found))


NO_EVIDENCE = Evidence(0.0, ())


def combine_evidence(one: Evidence, other: Evidence) -> Evidence:
    """The evidence of two independent looks at one text."""
    return Evidence(1.0 - (1.0 - one.strength) * (1.0 - other.strength), (*one.found, *other.found))


def quoted(phrases: Sequence[str]) -> str:
    """A few phrases in quotation marks."""
    return ", ".join(f"'{phrase[:40]}'" for phrase in phrases[:SHOWN_MAX])


def words_of(text: str) -> tuple[str, ...]:
    """The words of folded text in order; scripts without spaces give overlapping pairs of characters."""
    found: list[str] = []
    for match in COMPOUND_WORD.finditer(text):
        word = match.group()
        if is_unspaced(word):
            found += pairs(word)
        else:
            found.append(word)
    return tuple(found)


def specifics_of(text: str) -> tuple[str, ...]:
    """The words that name one thing rather than a kind, with their signs: numbers, dates, amounts, ids, addresses."""
    found = (match.group().rstrip(".,:/") for match in SPECIFIC.finditer(text))
    return tuple(word for word in found if not RECURRING.fullmatch(word))


def same_text(text: str) -> str:
    """The form that texts share if they differ only in case, in blanks, and in the mark that ends them.

    Other marks count: in `-5` and `5`, in `C` and `C++`, a mark is the meaning.
    """
    blanks = " ".join(unicodedata.normalize("NFC", text).casefold().replace("\u2019", "'").split())
    return blanks.rstrip(".!\u3002\uff01\u0964") or blanks


class Shape(msgspec.Struct, frozen=True):
    """The parts of a text that decide whether another says the same."""

    stems: tuple[str, ...]
    """Its words in order, without endings and without the small words that carry no meaning of their own."""
    exact: tuple[tuple[str, ...], int, tuple[str, ...]]
    """Numbers and ids, the number of denials, symbols: these must be equal."""


@lru_cache(maxsize=1024)
def shape_of(text: str) -> Shape:
    """The shape of a text (in its own spelling)."""
    plain = normalized(text)
    stems: list[str] = []
    denials = len(UNSPACED_NEGATION.findall(plain))
    for match in COMPOUND_WORD.finditer(plain):
        word = match.group()
        if is_unspaced(word):
            stems += word
        elif word in negations():
            denials += 1
        elif word not in word_lists("memory_engine.views.promotion")["small"]:
            stems.append(ENDING.sub("", word))
    symbols = (mark for mark in plain if unicodedata.category(mark)[0] == "S" or mark in "#%&*")
    return Shape(stems=tuple(stems), exact=(tuple(sorted(specifics_of(plain))), denials, tuple(sorted(symbols))))


def says_the_same(one: str, other: str) -> bool:
    """Whether two texts are near-duplicates: one adds a few words to the other, or only endings differ.

    An opposite is as like a text as a text can be: it swaps one word, adds a denial, or changes the order. So
    words may be added on one side, never swapped; and order, numbers, ids, symbols and denials must agree.
    """
    if same_text(one) == same_text(other):
        return True
    if max(len(one), len(other)) > READ_CHARS_MAX:  # the beginning of a long text does not represent the whole
        return False
    a, b = shape_of(one), shape_of(other)
    if a.exact != b.exact:
        return False
    in_a, in_b = frozenset(a.stems), frozenset(b.stems)
    shared = in_a & in_b
    if min(len(in_a), len(in_b)) > len(shared) or len(shared) < SAME_WORDS * len(in_a | in_b):
        return False
    return bool(shared) and [s for s in a.stems if s in shared] == [s for s in b.stems if s in shared]
