"""Open work: questions, requests, promises and to-dos, each until it is answered or done.

Language enters by closed lists alone (`phrases.toml`), and decides only the heading of a line.
"""

from collections.abc import Sequence

from memory_engine.compactors.extractive.entries import Entry, EntryKind
from memory_engine.compactors.extractive.words import VALUE_MARK, terms_of
from memory_engine.language.phrases import (
    DONE,
    DOUBTS,
    PROMISES,
    REQUESTS,
    TELLS,
    holds,
    is_courteous,
    phrase_list,
    traits_of,
)
from memory_engine.language.sentences import Statement, words
from memory_engine.language.text import fold_case, has_ascii_words

Voice = tuple[str, str]
OPEN_BOX = ("[ ]", "☐", "TODO", "FIXME")
DONE_BOX = ("[x]", "[X]", "☑", "✅", "✓")
TALK: frozenset[EntryKind] = frozenset(("user", "assistant", "question", "other"))
RECENT_SHARE = 0.2
RECENT_ENTRIES = 30
"""A promise is on the agenda if it is in the last fifth, or among this number of last entries."""
REPORT_WORDS = 4
"""Number of words at either end of a text that may report completion; a report this short refers to the latest item."""
REPORT_WORDS_MAX = 16
SAME_MATTER_SHARE = 0.4
WORDING_WORDS_MIN = 3
PROMISE_CHARS = 80
"""Number of characters at the beginning of a statement in which a promise or request is recognised."""


class Remark(Statement, frozen=True, gc=False):
    """A statement with its own properties: whether it asks for, promises or reports a deed, and states a fact."""

    requests: bool = False
    promises: bool = False
    reports: bool = False
    tells: bool = False
    """It goes beyond courtesy, function words and assent, whoever speaks."""
    wording: str = ""
    """Its words without names and values, to find statements of the same form; "" if it has few words."""


def remark(statement: Statement) -> Remark:
    """The statement with what is known of it alone."""
    text, asks, said = statement.text, statement.asks, statement.said
    traits = traits_of(said)
    opening = traits if len(text) <= PROMISE_CHARS else traits_of(words(text[:PROMISE_CHARS]))
    if not has_ascii_words(text[:PROMISE_CHARS]):
        opening |= PROMISES | REQUESTS
    promises = opening & PROMISES > 0 and holds("promises", text, PROMISE_CHARS)
    return Remark(
        text,
        statement.words,
        asks,
        statement.exclaims,
        statement.head,
        statement.before,
        said,
        not asks and opening & REQUESTS > 0 and holds("requests", text, PROMISE_CHARS),
        promises,
        not (asks or promises or traits & DOUBTS) and _reports_done(text, said, traits),
        traits & TELLS > 0,
        _wording(said),
    )


def _wording(said: Sequence[str]) -> str:
    plain = [word for word in said if word.isalpha() and not word[0].isupper()]
    return " ".join(plain) if len(plain) >= WORDING_WORDS_MIN else ""


class Agenda:
    """Tracks who asked, promised and listed what, and what became of it. One pass; then every query is O(1).

    `hear` takes each entry in order, with its remarks.
    """

    def __init__(self, entries: Sequence[Entry]) -> None:
        self._entries = entries
        self._count = len(entries)
        self._said: list[tuple[int, Voice]] = []
        """The last statement of the current voice, and the last one of any other voice."""
        self._last_call = self._last_todo = -1
        self._last_bare_report: dict[Voice, int] = {}
        self._reports: dict[str, list[int]] = {}
        self._last_of_item: dict[str, int] = {}

    def hear(self, index: int, said: Sequence[Remark]) -> None:
        """Take the next entry, at `index`."""
        entry = self._entries[index]
        if entry.kind == "tool_call":
            self._last_call = index
        if entry.kind == "todo":
            self._last_todo = index
            self._last_of_item.update((item_key(item.text), index) for item in said)
        if entry.kind not in TALK:
            return
        if any(not statement.asks for statement in said):
            voice = voice_of(entry)
            self._said = [(index, voice), *(last for last in self._said if last[1] != voice)][:2]
        for statement in said:
            if statement.reports:
                self._note_report(index, entry, statement)

    def _note_report(self, index: int, entry: Entry, statement: Remark) -> None:
        if statement.words <= REPORT_WORDS:
            self._last_bare_report[voice_of(entry)] = index
        for term in _matter(statement.text):
            self._reports.setdefault(term, []).append(index)

    def is_open(self, index: int) -> bool:
        """Return True if the entry's question is unanswered: others have said nothing but questions since."""
        voice = voice_of(self._entries[index])
        return self._entries[index].kind in TALK and not any(at > index and other != voice for at, other in self._said)

    def is_next(self, index: int, statement: Remark) -> bool:
        """Return True if the statement says what is to be done and it has not happened yet."""
        entry = self._entries[index]
        if entry.kind == "todo":
            return index == self._last_todo and not self._is_done(index, statement)
        if statement.text.startswith(OPEN_BOX):
            return self.is_current(index, statement) and not self._is_done(index, statement)
        if entry.kind not in TALK:
            return False
        if statement.asks or statement.requests:
            return self.is_open(index)
        return statement.promises and self._is_recent(index) and not self._is_kept(index, statement)

    def is_current(self, index: int, statement: Statement) -> bool:
        """Return True if no later list repeats the item; always True for a statement that is not an item."""
        if self._entries[index].kind != "todo" and not statement.text.startswith((*OPEN_BOX, *DONE_BOX)):
            return True
        return self._last_of_item.get(item_key(statement.text), index) <= index

    def _is_recent(self, index: int) -> bool:
        return index >= min(self._count * (1 - RECENT_SHARE), self._count - RECENT_ENTRIES)

    def _is_kept(self, index: int, statement: Statement) -> bool:
        """Return True if a promise was kept: a later report says so, or the agent went on to call its tools."""
        entry = self._entries[index]
        if entry.kind == "assistant" and self._last_call >= index:
            return True
        return self._last_bare_report.get(voice_of(entry), -1) > index or self._is_done(index, statement)

    def _is_done(self, index: int, statement: Statement) -> bool:
        """Return True if a later report is about the same matter."""
        matter = _matter(statement.text)
        reported: dict[int, int] = {}
        for term in matter:
            for at in self._reports.get(term, ())[-8:]:
                reported[at] = reported.get(at, 0) + 1
        return any(at > index and count >= SAME_MATTER_SHARE * len(matter) for at, count in reported.items())


def voice_of(entry: Entry) -> Voice:
    """Return who speaks; a question that waits for its answer counts as the agent's."""
    return ("assistant" if entry.kind == "question" else entry.kind, entry.speaker)


def item_key(text: str) -> str:
    """Return a to-do item's text without its check box, to recognise the item when it is listed again."""
    for box in (*OPEN_BOX, *DONE_BOX):
        text = text.removeprefix(box)
    return fold_case(text).strip()


def _reports_done(text: str, said: Sequence[str], traits: int) -> bool:
    """Return True if a text with these words and traits reports that something is done."""
    if traits & DONE and len(said) <= REPORT_WORDS_MAX and traits_of((*said[:REPORT_WORDS], *said[-2:])) & DONE:
        return True
    if text.isascii():
        return False
    folded = text.casefold()
    return any(sign in folded[:12] for sign in phrase_list("done_unspaced")) and not folded.startswith(
        ("没", "未", "还")
    )


def _matter(text: str) -> frozenset[str]:
    """Return what a statement is about: its values, and its words except the most common."""
    function_words = phrase_list("done") | phrase_list("promise_words")
    told = (word for word in words(text[:400]) if word.casefold() not in function_words)
    terms = {term for word in told for term in terms_of(word)}
    return frozenset(term for term in terms if term[0] == VALUE_MARK or (len(term) > 1 and not is_courteous(term)))
