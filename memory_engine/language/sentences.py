"""Statements: the smallest parts of a text that may be kept or left out, each verbatim.

A statement is a whole sentence, together with the sentences that a reader must see with it: a following sentence that
retracts, restricts or answers it ("But only if …"), the item that a colon announces, the rest of an open quotation.
Nothing is removed from it, except a greeting or a filler at its very beginning (`openings` in `phrases.toml`).

When in doubt, two sentences are one statement: a longer statement costs space, a shorter one may change the meaning.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache

import msgspec

from memory_engine.core.lazy import regex
from memory_engine.language.phrases import alternatives, begins, denies, may_begin, phrase_list, points_back
from memory_engine.language.rough import QUESTION_MARKS
from memory_engine.language.text import compound_words, is_unspaced

GAP = "…"
"""Marks an omission in a text."""
ENDS = ".!?…؟\u06d4।"
_WIDE_ENDS = "。\uff01\uff1f｡"
_LINE_BREAKS = "\r\n\u2028\u2029"
# The pattern begins with one character class, which the regex engine can search for quickly; the second pattern also
# tries every blank. It is possessive and never begins inside a run of marks, so that no input takes more than linear
# time.
_BORDER_PATTERN = (
    rf"[{ENDS}{_WIDE_ENDS}{_LINE_BREAKS}](?:"
    rf"(?<=[{ENDS}])(?<![{ENDS}]{{2}})[{ENDS}]*+[\"'”’»)\]*_]*+(?=\s)"
    rf"|(?<=[{_WIDE_ENDS}])[{_WIDE_ENDS}]*+[」』”’\uff09]*+|(?<=[{_LINE_BREAKS}])\s*+)"
)
_BORDER = regex(_BORDER_PATTERN)
_BORDER_OR_ANNOTATION = regex(rf"{_BORDER_PATTERN}|\s(?=\[(?:image|photo|video|audio|file): )")
_BLANK_LINE = regex(r"[\r\n\u2028\u2029][^\S\r\n\u2028\u2029]*(?:\r\n|[\r\n\u2028\u2029])")
_ITEM = regex(r"\s*(?:[-*+•>#|☐☑✅✓]|\(?\d{1,3}[.)]\s|\[|```)")
_BULLET = regex(r"(?:[-*•]\s+(?![\d.,])|#{1,6}\s+(?!\d))+")
_BULLETS = frozenset("-*•#")
_UNSAID = regex(r"[\x00-\x08\x0e-\x1b\x7f\ud800-\udfff]")
_LAST_WORD = regex(r"[^\s(\[\"'“„«]*$")
_QUOTES: Mapping[str, str] = {'"': '"', "“": "”", "„": '“”"', "«": "»", "»": "«", "「": "」", "『": "』"}
_QUOTE_SIGNS = regex("[" + "".join(sorted({*_QUOTES, *"".join(_QUOTES.values())})) + "]")
_ASKING = frozenset(QUESTION_MARKS)
_EXCLAIMING = frozenset("!\uff01")
_CLOSERS = "\"'”’)]*_」』\uff09» "
_HEADING = regex(r"\s*#{1,6}\s")
WRAPPED_CHARS_MIN = 50
"""Minimum length of a line that was probably wrapped to fit a page, so that its sentence continues in the next line."""
QUOTATION_CHARS_MAX = 600
"""Maximum length of a quotation. A quotation mark that stays open for longer was not meant as one."""
LIST_CHARS_MAX = 480
"""Maximum length of a list that stays one statement with the words that announce it."""
SENTENCE_CHARS_MAX = 640
"""Maximum length of a sentence. Longer text is a log, code or text without stops, and is excerpted."""
STATEMENT_CHARS_MAX = 2_000
"""Maximum length of a statement of several sentences. A longer one is excerpted."""
EXCERPT_CHARS_MAX = 160
SHORT_ANSWER_WORDS = 3
FRAGMENT_WORDS = 5


class Statement(msgspec.Struct, frozen=True, gc=False):
    """A part of a text, verbatim except for white space. `text` is all of it, or an excerpt that is marked as one."""

    text: str
    words: float
    asks: bool
    """Whether it ends in a question mark."""
    exclaims: bool
    head: int = -1
    """Index of the statement that announces this item of a long list, which must not appear without it; -1: none."""
    before: str | None = " "
    """Separator from the previous statement: a blank or nothing; `None` before a list item."""
    said: tuple[str, ...] = ()
    """Words of the statement."""


def clean(text: str) -> str:
    """Return the text as one line without control characters and lone surrogates, so that it can always be encoded."""
    if text.isprintable() and "  " not in text:  # most texts have no control characters, surrogates, other white space
        return text.strip()
    return " ".join(_UNSAID.sub("", text).split())


words = compound_words


def word_count(text: str) -> float:
    """Return the number of words in a text; two characters of an unspaced script count as one word."""
    return _word_count(words(text), text)


def _word_count(found: Sequence[str], text: str) -> float:
    if text.isascii() or (found and all(map(str.isascii, found))):
        return float(len(found))
    return sum(len(word) / 2 if is_unspaced(word) else 1.0 for word in found)


def statements(text: str, *, lines: bool = False) -> tuple[Statement, ...]:
    """Return the statements of a text in order, in linear time. If `lines` (a tool's output), each line ends one."""
    found: list[Statement] = []
    first_of: list[int] = []
    spaced = True
    for parts, head in _groups(list(_sentences(text, lines=lines)), lines=lines):
        group = parts[0].text if len(parts) == 1 else "".join([sentence.text for sentence in parts])
        first_of.append(len(found))
        body = group.strip()
        bullet = _BULLET.match(body) if body[:1] in _BULLETS else None
        before = None if bullet or lines else " " if spaced or group[:1].isspace() else ""
        body = clean(body[bullet.end() :] if bullet else body)
        chars_max = SENTENCE_CHARS_MAX if len(parts) == 1 else STATEMENT_CHARS_MAX
        within = first_of[head] if head >= 0 else -1
        if len(body) > chars_max:
            found.extend(_excerpts(body, within, before))
        elif body:
            found.append(_statement(body, within, before))
        spaced = group[-1:].isspace()
    return tuple(found)


def spans(text: str) -> list[tuple[int, int]]:
    """Return the start and end of each sentence, in order, covering everything except white space exactly once.

    A sentence that is meaningful only with the previous one is merged with it: "But …", "It …", "Or else …". A sentence
    that is a prohibition by itself ("Never …") is not. Sentences of any length are whole.
    """
    found: list[tuple[int, int]] = []
    start = 0
    for sentence in _sentences(text, lines=False):
        end = start + len(sentence.text)
        said = text[start:end]
        if said.strip():
            first, last = end - len(said.lstrip()), start + len(said.rstrip())
            if found and not sentence.is_item and _leans(text[found[-1][0] : found[-1][1]], said):
                first = found.pop()[0]
            found.append((first, last))
        start = end
    return found


def _leans(before: str, sentence: str) -> bool:
    """Return True if a sentence of the same speaker has no meaning without the previous one."""
    if before.endswith((":", "\uff1a")):
        return True
    said = words(sentence)
    if before.endswith(QUESTION_MARKS) and len(said) <= SHORT_ANSWER_WORDS and not sentence.endswith(QUESTION_MARKS):
        return True
    return points_back(said) or (begins("bound", sentence) and not denies(said)) or _is_fragment(sentence)


def _excerpts(text: str, head: int, before: str | None) -> Iterator[Statement]:
    """Yield excerpts of a statement that is too long for a sentence."""
    start = 0
    while start < len(text):
        stop = min(len(text), start + EXCERPT_CHARS_MAX)
        if stop < len(text):
            blank = text.rfind(" ", start + EXCERPT_CHARS_MAX // 2, stop)
            stop = blank if blank > 0 else stop
        from_start, to_end = f"{GAP} " if start else "", f" {GAP}" if stop < len(text) else ""
        yield _statement(f"{from_start}{text[start:stop].strip()}{to_end}", head, None)
        start = stop


def _statement(text: str, head: int, before: str | None) -> Statement:
    last = text[-1]
    if last in _CLOSERS:
        last = text.rstrip(_CLOSERS)[-1:]
    said = tuple(words(text))
    return Statement(text, _word_count(said, text), last in _ASKING, last in _EXCLAIMING, head, before, said)


# Sentences.


class _Quotation:
    """Tracks, from border to border of a text, whether a quotation is open."""

    def __init__(self) -> None:
        self._closers = ""
        self._since = 0

    def read(self, text: str, start: int, end: int) -> bool:
        """Return True if a quotation is open at `end`, given that everything up to `start` has been read."""
        for match in _QUOTE_SIGNS.finditer(text, start, end):
            sign, at = match.group(), match.start()
            if self._closers:
                if sign in self._closers:
                    self._closers = ""
            elif sign in _QUOTES and not (sign == '"' and at and text[at - 1].isdigit()):
                self._closers, self._since = _QUOTES[sign], at
        if end - self._since > QUOTATION_CHARS_MAX:
            self._closers = ""
        return bool(self._closers)

    def end(self) -> None:
        """Close the quotation at the end of a paragraph."""
        self._closers = ""


class _Sentence(msgspec.Struct, frozen=True, gc=False):
    """A sentence as written, with the white space after it, and the indentation of its line."""

    text: str
    indent: int

    @property
    def is_item(self) -> bool:
        return _ITEM.match(self.text) is not None


def _sentences(text: str, *, lines: bool) -> Iterator[_Sentence]:
    start = read = 0
    indent = len(text) - len(text.lstrip())
    quotation = _Quotation() if _QUOTE_SIGNS.search(text) is not None else None
    writes_small = next((sign.islower() for sign in text if sign.isalpha()), False)
    for match in (_BORDER_OR_ANNOTATION if ": " in text and "[" in text else _BORDER).finditer(text):
        is_open = quotation is not None and quotation.read(text, read, match.end())
        read = match.end()
        sign = match.group()[0]
        if sign in _LINE_BREAKS:
            paragraph = _BLANK_LINE.match(match.group()) is not None
            ends = lines or paragraph or (not is_open and not _goes_on(text, start, match))
            if quotation is not None and (paragraph or lines):
                quotation.end()
        else:
            ends = (
                not is_open
                and not _closes_quotation(match.group())
                and (sign not in ENDS or _is_stop(text, start, match, writes_small))
            )
        if ends:
            yield _Sentence(text[start : match.end()], indent)
            start = match.end()
            if sign in _LINE_BREAKS:
                indent = len(match.group()) - 1 - max(map(match.group().rfind, _LINE_BREAKS))
    yield _Sentence(text[start:], indent)


def _closes_quotation(stop: str) -> bool:
    """Return True if the stop is inside a quotation that ends there: its speaker may be named after it."""
    return len(stop) > 1 and any(sign in '"”“»」』' for sign in stop[1:])


def _goes_on(text: str, start: int, line_break: re.Match[str]) -> bool:
    """Return True if the sentence continues after a line break: it was wrapped, or is a list of phrases."""
    following = text[line_break.end() : line_break.end() + 8]
    if not following or _ITEM.match(following):
        return False
    before = text[max(start, line_break.start() - 200) : line_break.start()].rstrip()
    if not before or before[-1] in f"{ENDS}:。\uff01\uff1f":
        return False
    line = before.splitlines()[-1]
    long_enough = WRAPPED_CHARS_MIN // 2 if is_unspaced(line[-1]) else WRAPPED_CHARS_MIN
    return before[-1] in ",;\uff0c、\uff1b-–—" or following[0].islower() or len(line) >= long_enough


def _is_stop(text: str, start: int, match: re.Match[str], writes_small: bool) -> bool:
    """Return True if a full stop, question mark or exclamation mark ends its sentence."""
    following = text[match.end() : match.end() + 12].lstrip().lstrip("\"'“„«»(¿¡*_")
    if following[:1].islower() and not writes_small:
        return False
    mark = match.group()
    if mark != ".":
        return not (mark.startswith(("…", "...")) and following and not following[0].isalpha())
    word = _last_word(text[max(start, match.start() - 24) : match.start()])
    if len(word) == 1 and word.isalpha() and not is_unspaced(word):
        return False
    if word.isdecimal() and len(word) <= 2:
        return False
    if word in phrase_list("abbreviations") or (
        "." in word and not any(sign.isdigit() for sign in word) and len(word) <= 6
    ):
        return False
    return not (following[:1].isdigit() and word in phrase_list("abbreviations_before_numbers"))


def _last_word(text: str) -> str:
    """Return the folded text after the last blank, bracket or quotation mark."""
    word = text.rpartition(" ")[2]
    if not word.isalnum():
        found = _LAST_WORD.search(word)
        word = found.group() if found is not None else ""
    return word.casefold()


# Grouping of sentences.


def _groups(sentences: list[_Sentence], *, lines: bool) -> Iterator[tuple[list[_Sentence], int]]:
    """Yield sentences grouped with those they depend on, and the index of the group that heads a long list (or -1)."""
    place, n = 0, 0
    while n < len(sentences):
        head_end, end = (n + 1, n + 1) if lines or _is_alone(sentences, n) else _group_end(sentences, n)
        yield sentences[n:head_end], -1
        head = place
        place += 1
        for first, last in _outer_items(sentences, head_end, end):
            yield sentences[first:last], head
            place += 1
        n = end


def _is_alone(sentences: list[_Sentence], n: int) -> bool:
    """Return True if sentence `n`, which begins a group, announces nothing and no following sentence depends on it."""
    return not _announces(sentences[n].text) and _bound_end(sentences, n + 1) == n + 1


def _group_end(sentences: list[_Sentence], n: int) -> tuple[int, int]:
    """Return where the group of sentence `n` ends, without and with the items of a list that is too long to join it."""
    end = n + 1
    while True:
        announced = _list_end(sentences, end - 1)
        if announced > end and sum(len(sentence.text) for sentence in sentences[n:announced]) > LIST_CHARS_MAX:
            return end, _bound_end(sentences, announced)
        extended = _bound_end(sentences, announced)
        if extended == end:
            return end, end
        end = extended


def _bound_end(sentences: list[_Sentence], end: int) -> int:
    """Return the end of the group that ends here, including the next sentence if it depends on the group."""
    if end < len(sentences) and _is_bound(sentences[end - 1].text, sentences[end]):
        return end + 1
    return end


def _list_end(sentences: list[_Sentence], n: int) -> int:
    """Return the end of what sentence `n` announces: the items of a list, or else the sentence after a colon."""
    if not _announces(sentences[n].text):
        return n + 1
    end = n + 1
    while end < len(sentences) and (
        sentences[end].is_item or (end > n + 1 and not sentences[end - 1].text.endswith(tuple(_LINE_BREAKS)))
    ):
        end += 1
    return end if end > n + 1 else min(n + 2, len(sentences))


def _outer_items(sentences: list[_Sentence], start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the outer items of a list, each with everything that is indented below it or follows it."""
    outer = min((sentence.indent for sentence in sentences[start:end]), default=0)
    first = start
    for n in range(start + 1, end):
        if sentences[n].is_item and sentences[n].indent <= outer:
            yield first, n
            first = n
    if first < end:
        yield first, end


def _announces(sentence: str) -> bool:
    """Return True if a sentence ends in a colon, with or without markup, or is a heading."""
    if ":" not in sentence and "#" not in sentence and "\uff1a" not in sentence:
        return False
    return sentence.rstrip().rstrip("*_").endswith((":", "\uff1a")) or _HEADING.match(sentence) is not None


def _is_bound(before: str, following: _Sentence) -> bool:
    """Return True if a sentence must not be separated from the previous one."""
    sentence = following.text
    if not may_begin(sentence, "bound", "fragments") and not any(mark in before for mark in QUESTION_MARKS):
        return False
    if following.is_item or not before.strip():
        return False
    if before.rstrip(_CLOSERS + _LINE_BREAKS).endswith(QUESTION_MARKS) and _answers_itself(sentence):
        return True
    return begins("bound", sentence) or _is_fragment(sentence)


def _is_fragment(sentence: str) -> bool:
    """Return True if a sentence with such a beginning is too short to be complete, and belongs to the previous one."""
    return begins("fragments", sentence) and word_count(sentence[:80]) <= FRAGMENT_WORDS


def _answers_itself(sentence: str) -> bool:
    """Return True if a sentence after a question of the same speaker is its answer, or a consequence of the answer."""
    if sentence.rstrip(_CLOSERS + _LINE_BREAKS).endswith(QUESTION_MARKS):
        return False
    return word_count(sentence[:80]) <= SHORT_ANSWER_WORDS or begins("consequences", sentence)


# Greetings and fillers.


@cache
def _opening_pattern() -> re.Pattern[str]:
    spaced, unspaced = alternatives("openings", "openings_unspaced")
    return re.compile(
        rf"[¡]?(?:(?:{spaced})(?!\w)(?P<name>\s+\w+)?[,!…]+(?:\s+|(?=\W))|(?:{unspaced})[,\uff0c!\uff01、]+\s*)",
        re.IGNORECASE,
    )


def without_opening(text: str, names: frozenset[str]) -> str:
    """Return the statement without its initial greetings and fillers, and the name they address.

    `names` are the folded names of the speakers: only these can be addressed. If nothing else is said, the statement
    stays whole.
    """
    rest = text
    while True:
        found = _opening_pattern().match(rest) if may_begin(rest, "openings") else None
        if found is None:
            called = _CALLED.match(rest)
            if rest == text or called is None or called[1].casefold() not in names:
                break
            found = called
        elif found["name"] and found["name"].strip().casefold() not in names:
            break
        following = rest[found.end() :]
        if "," in found.group() and following[:1].isupper() and not _is_called_or_i(following, names):
            break
        rest = following
    return rest if word_count(rest) >= 2 else text


_CALLED = regex(r"(\w+)[,!]+\s+")


def _is_called_or_i(rest: str, names: frozenset[str]) -> bool:
    """Return True if the capital here does not begin a thing's name: "Hey, Jude is my song" has no greeting."""
    word = words(rest)[0]
    return word.casefold() in names or (word[0] == "I" and not word[1:2].isalpha())
