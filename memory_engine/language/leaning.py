"""Whether a sentence can be read alone, or leans on words outside it: by a pronoun, a pointing word or an ellipsis.

A check by closed lists (`leaning.toml`) of the languages that have one; in others, a sentence counts as complete. When
in doubt, a sentence leans: showing it with the sentence before it costs space and changes no meaning.
"""

from collections.abc import Collection, Mapping, Sequence
from functools import cache, lru_cache
from itertools import chain, islice

from memory_engine.core.lazy import regex
from memory_engine.language.identification import function_words
from memory_engine.language.lists import word_lists
from memory_engine.language.phrases import is_courteous, phrase_list
from memory_engine.language.text import (
    ASCII_WORD,
    COMPOUND_WORD,
    common_words,
    has_ascii_words,
    is_unspaced,
    stop_words,
)

REPLY_WORDS_MAX = 4
"""A reply that begins with a yes or no is complete if it has more words than these: it then repeats the question."""
FEW_WORDS = 6
WORDS_MAX = 64
"""Maximum number of words that are looked at: later words have something before them to lean on."""
REMEMBERED_MAX = 2_048
"""Maximum number of sentences whose answers are kept."""
LOOKAHEAD_WORDS = 5
_CLAUSE_MARKS = frozenset(",;:.!?\u2026()\u2013\u2014\uff0c\u3002\u3001\uff1b\uff1a\uff01\uff1f-")
_CLAUSE_ENDS = _CLAUSE_MARKS | {""}
"""What follows the last word of a clause: a mark, or nothing."""
_WORD_BEFORE = regex(rf"({COMPOUND_WORD.pattern})(?=\s?(\S?))")
_ASCII_WORD_BEFORE = regex(rf"({ASCII_WORD.pattern})(?=\s?(\S?))")
"""A word, and the sign behind it or behind the blank that follows it."""
_PLAIN = regex("[a-z]+(?:'[a-z]+)?")
_NO_VERB_ENDINGS = ("ed", "ing", "ly")


def leans(text: str) -> bool:
    """Return True if a sentence has no meaning without words that it does not contain."""
    is_plain = has_ascii_words(text)
    if is_plain and not _may_lean(text):
        return False
    sentence = _FoldedSentence(text, is_plain=is_plain)
    return bool(sentence.words) and (
        sentence.replies() or sentence.holds_phrase() or sentence.compares() or sentence.points()
    )


def _may_lean(text: str) -> bool:
    """Return False only for a text without a word by which one may lean. In ASCII, contractions do not count."""
    triggers, said = _triggers(), _PLAIN.findall(text.lower())
    if not triggers.isdisjoint(said):
        return True
    return not text.isascii() and any(word.partition("'")[0] in triggers for word in said if "'" in word)


def is_incomplete(text: str) -> bool:
    """Return True if an answer is bare content: no one acts in it, or it begins with what was named before."""
    sentence = _FoldedSentence(text)
    if sentence.words and sentence.words[sentence.start][0] in _lists("definite"):
        return True
    return _lists("acting").isdisjoint(word for word, _ in sentence.words)


@lru_cache(maxsize=REMEMBERED_MAX)
def brings_in(text: str, names: frozenset[str] = frozenset()) -> bool:
    """Return True if a text names a thing or person that a pronoun in the next sentence may refer to.

    `names` are the folded names of the speakers, who are called by them.
    """
    sentence = _FoldedSentence(text)
    return any(
        sentence.introduces(n) or is_unspaced(word) or (sentence.is_name(n) and word not in names) or _is_many(word)
        for n, (word, _) in enumerate(sentence.words)
    )


def tells_of_speaker(said: Collection[str]) -> bool:
    """Return True if folded words contain one for the speaker, or for what is the speaker's."""
    return not phrase_list("tellers").isdisjoint(said) or not _lists("own").isdisjoint(said)


@cache
def _lists(name: str) -> frozenset[str]:
    return word_lists("memory_engine.language", "leaning.toml")[name]


@cache
def _phrases(name: str) -> tuple[str, ...]:
    return tuple(f" {phrase} " for phrase in sorted(_lists(name)))


@cache
def _phrases_by_head() -> Mapping[str, Sequence[str]]:
    """Return the phrases that point elsewhere, by their first words, each between blanks."""
    found: dict[str, list[str]] = {}
    for phrase in _phrases("phrases"):
        found.setdefault(phrase.split(" ")[1], []).append(phrase)
    return found


@cache
def _reply_words_max() -> int:
    """Return the number of words of the longest phrase of a reply."""
    return max(len(phrase.split(" ")) for phrase in _lists("replies"))


@cache
def _referring() -> frozenset[str]:
    """Return the words that may point to something."""
    return frozenset(chain(*map(_lists, ("pronouns", "possessive", "things", "pointing", "that"))))


@cache
def _triggers() -> frozenset[str]:
    """Return the words of which a sentence that leans has at least one, if it is written in ASCII."""
    names = "pronouns", "possessive", "things", "pointing", "that", "comparing", "auxiliary"
    listed_phrases = chain(_lists("phrases"), _lists("replies"))
    heads = (phrase.split(" ")[0] for phrase in listed_phrases)
    return frozenset(chain(phrase_list("answers"), heads, *map(_lists, names)))


class _FoldedSentence:
    """A sentence as folded words, each with whether a mark of a clause follows it."""

    def __init__(self, text: str, *, is_plain: bool | None = None) -> None:
        is_plain = has_ascii_words(text) if is_plain is None else is_plain
        self._text, self._pattern = text, _ASCII_WORD_BEFORE if is_plain else _WORD_BEFORE
        self._written: list[tuple[str, str]] | None = None
        if is_plain:
            found = self._pattern.findall(text.lower())[:WORDS_MAX]
            self.words: list[tuple[str, bool]] = [(word, mark in _CLAUSE_ENDS) for word, mark in found]
        else:
            found = self._pattern.findall(text)[:WORDS_MAX]
            self.words = [(word.casefold().replace("\u2019", "'"), mark in _CLAUSE_ENDS) for word, mark in found]
        self.start = 0
        joining = _lists("joining")
        while self.start < len(self.words) - 1 and self.words[self.start][0] in joining:
            self.start += 1

    def replies(self) -> bool:
        """Return True if it agrees with or answers another's words, and adds too little to be complete."""
        first = self.words[0][0]
        if first in phrase_list("answers") and len(self.words) - self.start <= REPLY_WORDS_MAX:
            return True
        if self._repeats_a_verb():
            return True
        said = islice((word for word, _ in self.words[self.start :] if not word.isdecimal()), _reply_words_max())
        begun = f" {' '.join(said)} "
        return begun.startswith(_phrases("replies")) or (
            is_unspaced(first) and first.startswith(tuple(_lists("replies_unspaced")))
        )

    def _repeats_a_verb(self) -> bool:
        """Return True if a clause has nothing but a subject and an auxiliary: "I did", "yes, they are"."""
        return any(
            ends and word in _lists("auxiliary") and self._word(n - 1) in _lists("speaking") and self._opens(n - 1)
            for n, (word, ends) in enumerate(self.words)
        )

    def _opens(self, n: int) -> bool:
        """Return True if a clause begins with the word, or with joining words before it."""
        while n > 0 and not self.words[n - 1][1] and self.words[n - 1][0] in _lists("joining"):
            n -= 1
        return n == 0 or self.words[n - 1][1]

    def holds_phrase(self) -> bool:
        """Return True if it holds a phrase that points elsewhere."""
        said, by_head = [word for word, _ in self.words], _phrases_by_head()
        if heads := by_head.keys() & said:
            folded = f" {' '.join(said)} "
            if any(phrase in folded for head in heads for phrase in by_head[head]):
                return True
        first = self.words[0][0]
        return is_unspaced(first) and first.startswith(tuple(_lists("phrases_unspaced")))

    def compares(self) -> bool:
        """Return True if few words compare, with nothing to compare with."""
        return len(self.words) <= FEW_WORDS and any(ends and word in _lists("comparing") for word, ends in self.words)

    def points(self) -> bool:
        """Return True if a word points to something that nothing before it in the sentence brings in."""
        has_any = had_any = is_told = False
        referring, clauses = _referring(), _lists("clauses")
        for n, (word, ends) in enumerate(self.words):
            base = word.partition("'")[0] if word.endswith(("'s", "'re", "'ve", "'ll", "'d")) else word
            if base in referring:
                is_resolved = is_told and (base in _lists("pointing") or base in _lists("that"))
                has_named = had_any if self._is_object(n, base) else has_any
                if not is_resolved and self._points_here(n, base, has_any=has_named):
                    return True
            is_told = is_told or (ends and has_any)
            has_any = has_any or self.introduces(n) or self.is_name(n) or _is_many(base) or (ends and _is_content(base))
            had_any = had_any or (has_any and (ends or base in clauses))
            if is_told and had_any:
                return False  # whatever comes later has something to point to
        return False

    def _points_here(self, n: int, word: str, *, has_any: bool) -> bool:
        if word in _lists("pronouns") or word in _lists("possessive"):
            return not has_any
        if word in _lists("things"):
            return not (has_any or self._is_impersonal(n))
        if word in _lists("pointing"):
            return self._points_outside(n)
        return word in _lists("that") and self._that_points(n)

    def _is_object(self, n: int, word: str) -> bool:
        """Return True for an "it" inside a clause: the subject of that clause is not what it refers to."""
        return word in _lists("things") and n > self.start and not self._begins_clause(n)

    def _begins_clause(self, n: int) -> bool:
        before = self._word(n - 1)
        return n == self.start or self.words[n - 1][1] or before in _lists("clauses") or before in _lists("joining")

    def introduces(self, n: int) -> bool:
        """Return True for an article, a number or the like, with a word behind it."""
        return self.words[n][0] in _lists("introducing") and n + 1 < len(self.words) and not self.words[n][1]

    def is_name(self, n: int) -> bool:
        """Return True for a word with a capital or digit inside the sentence, and for a name at its beginning."""
        written, (word, _) = self._as_written(n), self.words[n]
        if any(map(str.isdigit, written)):
            return True
        if not written[0].isupper() or word.partition("'")[0] == "i":
            return False
        is_inside = n > self.start or not word.endswith((*_NO_VERB_ENDINGS, "s"))
        return is_inside and _is_content(word.partition("'")[0])

    def _as_written(self, n: int) -> str:
        if self._written is None:
            self._written = self._pattern.findall(self._text)
        return self._written[n][0]

    def _is_impersonal(self, n: int) -> bool:
        """Return True if "it" refers to what follows ("it is hard to …"), or to nothing."""
        if n > self.start and not self.words[n - 1][1] and self._word(n - 1) not in _lists("joining"):
            return False
        verb = self.words[n][0].partition("'")[2] or self._word(n + 1)
        if verb in _lists("seeming"):
            return True
        if verb not in ("s", "ll", "d") and verb not in _lists("impersonal"):
            return False
        if self._word(n + 1 if verb != self._word(n + 1) else n + 2) in ("like", "a", "an", "the"):
            return False
        for place in range(n + 2 if verb != self._word(n + 1) else n + 3, n + 1 + LOOKAHEAD_WORDS):
            word = self._word(place)
            before = self._word(place - 1)
            if word == "to" and (before.endswith("ed") or before in phrase_list("done")):
                return False  # "it was moved to …"
            if word in _lists("following") or (word.endswith("ing") and before not in _lists("degree")):
                return True
            if place >= len(self.words) or self.words[place][1] or word in _lists("clauses"):
                break
        return False

    def _points_outside(self, n: int) -> bool:
        following = self._word(n + 1)
        if self.words[n][1]:
            return True
        if following in _lists("times") or following in ("who", "with"):
            return False
        # "this song" says what it is of, if not which
        return not any(_is_content(word) and word not in _lists("vague") for word in self._described(n))

    def _described(self, n: int) -> list[str]:
        """Return the words that a pointing word comes before: up to two after words of mood, within the clause."""
        found: list[str] = []
        for word, ends in self.words[n + 1 : n + 4]:
            if not is_courteous(word):
                found.append(word)
                break
            if ends:
                break
        return found

    def _that_points(self, n: int) -> bool:
        _, ends = self.words[n]
        if self.words[n][0] in ("das", "dat"):
            return n == self.start and self._word(n + 1) in _lists("behind_that")
        if ends or self._word(n + 1) in _lists("behind_thing"):
            return True
        behind = self._word(n + 1)
        if n == self.start or self.words[n - 1][1] or self._word(n - 1) in _lists("joining"):
            has_object = self._word(n + 2) in _lists("own") | _lists("introducing")
            return "'" in self.words[n][0] or behind in _lists("behind_that") or (behind.endswith("s") and has_object)
        return self._word(n - 1) in _lists("before_that") and behind not in _lists("times")

    def _word(self, n: int) -> str:
        return self.words[n][0] if 0 <= n < len(self.words) else ""


def _is_many(word: str) -> bool:
    return word.endswith("s") and len(word) > 3 and word not in _lists("seeming") and _is_content(word)


def _is_content(word: str) -> bool:
    return not (word in _empty() or is_courteous(word))


@cache
def _empty() -> frozenset[str]:
    """Return words that say nothing of what a sentence is about."""
    return function_words() | stop_words() | common_words() | _lists("joining")
