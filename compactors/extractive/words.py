"""Words and sentences of any script: the terms they count as, how specific they look, which a telegram leaves out.

Scripts written with spaces give words; scripts written without (Han, Kana, Thai, Lao, Khmer, Burmese) give overlapping
pairs of characters, the usual language-independent index unit for them (Nie, Gao, Zhang, Zhou 2000). A value is
specific by its shape alone.

In any language the commonest words are short and say little (Zipf's law of abbreviation): a word counts as a function
word if it occurs in a share of the passages that grows with its length. `function_words.toml` sharpens that for a
few languages that the input is seen to be written in; every other language rests on the statistics alone. Words that
bound a time or a choice (before, until, only) are left out of the lists on purpose.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache

import msgspec

from memory_engine.core.lazy import regex
from memory_engine.core.text import COMPOUND_WORD, is_unspaced, negations, pairs, stem, word_lists

DATE = regex(r"\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}(?:[T ].*)?$")
TIME = regex(r"\d{1,2}:\d{2}(?::\d{2})?(?:\+\d+)?$")
NUMBER = regex(r"[-+]?\d+(?:[.,]\d+)*$")
HIRAGANA = regex(r"[\u3040-\u309f]+$")
VALUE_MARK = "#"
"""First character of a term that stands for a specific value, not for a word."""
STEM_CHARS = 7
VALUE_CHARS_MAX = 200


def words(text: str) -> Iterator[re.Match[str]]:
    """The words of a text in order; a run of an unspaced script is one match."""
    return COMPOUND_WORD.finditer(text)


@lru_cache(maxsize=65_536)
def is_specific(word: str) -> bool:
    """True for identifiers, codes, numbers, dates, paths and addresses: by shape, not by meaning.

    A digit, an underscore, an inner @, a path, or capitals only: the marks of
    something made to be referred to.
    """
    if any(character.isdigit() for character in word):
        return True
    if "_" in word or "@" in word or word.count("/") > 1 or ("/" in word and "." in word):
        return len(word) > 2
    return len(word) > 2 and word.isupper() and word.isascii()


@lru_cache(maxsize=65_536)
def is_identifier(word: str) -> bool:
    """True for a reference: letters with digits, an address, a path, a long number."""
    if not is_specific(word) or " " in word or DATE.match(word) or TIME.match(word):
        return False
    if not any(character.isalpha() for character in word):
        return word.isdigit() and len(word) > 5
    return any(character.isdigit() or character in "@/" for character in word) or (len(word) > 4 and word.isupper())


@lru_cache(maxsize=65_536)
def specificity(word: str) -> float:
    """The worth of a specific value before anything is known of its use (words count about 1 to 4).

    An identifier is worth more the longer it is, as it cannot be guessed or
    found again without itself; a number of one or two digits could mean anything.
    """
    if DATE.match(word):
        return 6.0 if len(word) <= 10 else 2.5
    if TIME.match(word):
        return 1.5
    if NUMBER.match(word) and not is_identifier(word):
        return (1.0, 1.5, 3.0, 4.0)[min(sum(character.isdigit() for character in word), 4) - 1]
    return 3.0 + 0.6 * min(len(word), 30) if is_identifier(word) else 2.5


@lru_cache(maxsize=65_536)
def terms_of(word: str) -> tuple[str, ...]:
    """The terms of a word: itself if specific, seven letters of its stem, or pairs of characters.

    The stem is the one of an English word. Its first seven letters join most inflections of other
    suffixing languages too, and need no rules of any.
    """
    if is_unspaced(word):
        return tuple(pairs(word))
    if is_specific(word):
        return (VALUE_MARK + word[:VALUE_CHARS_MAX].lower(),)
    return (stem(word.lower())[:STEM_CHARS],)


def is_grammar(term: str) -> bool:
    """True for a pair of Hiragana: Japanese writes endings and particles in them, seldom content."""
    return HIRAGANA.match(term) is not None


def text_terms(text: str) -> Iterator[str]:
    """Every term of a text, repetitions included."""
    for match in words(text):
        yield from terms_of(match.group())


def word_count(text: str) -> float:
    """Words in a text; two characters of an unspaced script count as one word."""
    return sum(len(word) / 2 if is_unspaced(word) else 1.0 for word in map(re.Match[str].group, words(text)))


LANGUAGE_SHARE_MIN = 0.15
PASSAGE_SHARE_PER_LETTER = 0.002
PASSAGES_MIN = 4


@lru_cache(maxsize=65_536)
def _parts(word: str) -> tuple[str, ...]:
    return tuple(part for part in word.lower().replace("’", "'").replace("-", "'").split("'") if part)


class FunctionWords:
    """The function words of one input, and the test a telegram applies to each word."""

    def __init__(self, passages: Iterable[str], languages: Mapping[str, frozenset[str]] | None = None) -> None:
        """Count the passages (sentences, turns) of the input once; linear in their length."""
        if languages is None:
            languages = word_lists("memory_engine.compactors.extractive", "function_words.toml")
        frequency: Counter[str] = Counter()
        spread: Counter[str] = Counter()
        capitals: Counter[str] = Counter()
        passage_count = 0
        for passage in passages:
            passage_count += 1
            found = [match.group() for match in words(passage)]
            frequency.update(part for word in found for part in _parts(word))
            capitals.update(word.lower() for word in found[1:] if word[0].isupper())
            spread.update({word.lower(): 1 for word in found}.keys())
        self._listed = self._of_languages(frequency, languages)
        self._frequent = frozenset() if self._listed else self._by_spread(spread, capitals, passage_count)

    @staticmethod
    def _of_languages(frequency: Counter[str], languages: Mapping[str, frozenset[str]]) -> frozenset[str]:
        """The lists of those languages in which a real share of the running words is found."""
        floor = LANGUAGE_SHARE_MIN * max(1, frequency.total())
        spoken = [listed for listed in languages.values() if sum(frequency[word] for word in listed) >= floor]
        return frozenset().union(*spoken)

    @staticmethod
    def _by_spread(spread: Counter[str], capitals: Counter[str], passage_count: int) -> frozenset[str]:
        """Words met in at least 0.2 % of the passages for one letter, twice that for two, and so on doubling.

        Words mostly written with a capital inside sentences are names (or German
        nouns), however often they occur.
        """
        return frozenset(
            word
            for word, count in spread.items()
            if len(word) <= 8
            and count >= max(PASSAGES_MIN, PASSAGE_SHARE_PER_LETTER * passage_count * 2 ** (len(word) - 1))
            and 2 * capitals[word] <= count
        )

    def drops(self, word: str, *, first: bool) -> bool:
        """Whether a telegram leaves this word out; `first` says that it opens its sentence."""
        if is_unspaced(word) or is_specific(word):
            return False
        parts = _parts(word)
        if any(part in negations() for part in parts) or parts[-1:] == ("t",):
            return False
        if word[0].isupper() and not first and len(parts[0] if parts else "") > 1:
            return False
        if word.lower() in self._frequent:
            return True
        return bool(parts) and all(part in self._listed for part in parts)


SENTENCE_CHARS_MAX = 320
ENDS = ".!?…؟\u06d4।"
# Possessive, and never begun inside a run of marks, so that no input takes more than linear time.
# One or two digits and a full stop are an ordinal or a list number in most languages, seldom an end.
TERMINATOR = regex(
    rf"(?<![{ENDS}])(?<!\b\d)(?<!\b\d\d)[{ENDS}]++[\"'”’)\]*_]*+(?=\s)"
    r"|(?<=\d)[!?؟]++(?=\s)|[。\uff01\uff1f\uff1b｡]++[」』”’\uff09]*+|[\r\n\u2028\u2029]++|\s(?=\[\w{1,20}: )"
)
CLAUSE_END = regex(r"[,;:](?=\s)|[\uff0c、\uff1b\uff1a،؛]|\s")
NUMBERING = regex(r"\(?\d{1,3}[.)]$")
BULLET = regex(r"^(?:[-*+•>#|]{1,6}\s+|\(?\d{1,3}[.)]\s+)+")
MARKUP = regex(r"\*\*|__|`+|[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")
QUESTION_MARKS = ("?", "\uff1f", "؟", "\u037e", "⁇")
CLOSERS = "\"'”’)]*_」』\uff09» "
WORDS_KEPT_WHOLE = 3
"""A sentence of so few words loses its meaning with the first of them."""
PUNCTUATION_KEPT = ".!?;:。\uff01\uff1f؟"


class Sentence(msgspec.Struct, frozen=True):
    """One sentence or a bounded part of one, as it was written but for markup and white space."""

    text: str
    words: float
    asks: bool
    exclaims: bool


def clean(text: str) -> str:
    """One line without markup, control characters or lone surrogates, so that it can always be encoded."""
    return " ".join(MARKUP.sub("", text).split())


def split_sentences(text: str) -> Iterator[Sentence]:
    """Sentences in order; linear in the text, each at most SENTENCE_CHARS_MAX characters."""
    start = 0
    for match in TERMINATOR.finditer(text):
        yield from _bounded(text, start, match.end())
        start = match.end()
    yield from _bounded(text, start, len(text))


def _bounded(text: str, start: int, end: int) -> Iterator[Sentence]:
    """Cut a text that is too long at the last clause end or blank before the limit, or at the limit."""
    while start < end:
        stop = min(end, start + SENTENCE_CHARS_MAX)
        if stop < end:
            stop = _last_clause_end(text, start, stop)
        piece = clean(BULLET.sub("", text[start:stop].strip()))
        if piece and not NUMBERING.match(piece):
            closed = piece.rstrip(CLOSERS)
            yield Sentence(piece, word_count(piece), closed.endswith(QUESTION_MARKS), closed.endswith(("!", "\uff01")))
        start = stop


def _last_clause_end(text: str, start: int, stop: int) -> int:
    ends = [match.end() for match in CLAUSE_END.finditer(text, start + SENTENCE_CHARS_MAX // 2, stop)]
    return ends[-1] if ends else stop


def telegram(sentence: Sentence, function_words: FunctionWords) -> str:
    """The sentence without its function words, in the writer's own order and spelling.

    Deleting keeps every word that carries something for half the tokens; that is
    worth more to a later reader than whole sentences at twice the price.
    """
    if sentence.words <= WORDS_KEPT_WHOLE:
        return sentence.text
    kept: list[str] = []
    for position, token in enumerate(sentence.text.split(" ")):
        found = [match.group() for match in COMPOUND_WORD.finditer(token)]
        if not found or any(not function_words.drops(word, first=position == 0) for word in found):
            kept.append(token)
        elif kept and token[-1] in PUNCTUATION_KEPT and kept[-1][-1] not in PUNCTUATION_KEPT:
            kept[-1] = kept[-1].rstrip(",") + token[-1]
    return " ".join(kept).strip(" ,-–—")
