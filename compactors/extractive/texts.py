"""The properties of one text alone: its terms, statements and records, whatever its speaker and its neighbours.

It is a pure function of the text, made in parts when they are first asked for, and kept: the same text is read again
when summaries are merged or repeated. The cache may change the time that a compaction takes, never its lines.
"""

from collections import OrderedDict
from threading import Lock

import msgspec

from memory_engine.compactors.extractive.agenda import Remark, remark
from memory_engine.compactors.extractive.arguments import CallArguments, read_arguments
from memory_engine.compactors.extractive.outputs import Output, read_output, record_output
from memory_engine.compactors.extractive.printed import printed_in
from memory_engine.compactors.extractive.structured import ToldRecord, line_records, read_json
from memory_engine.compactors.extractive.words import distinct_terms
from memory_engine.core.lazy import regex
from memory_engine.language.leaning import leans
from memory_engine.language.sentences import statements, words

KEPT_CHARS_MAX = 1 << 20
"""Characters of the texts whose analyses are kept, over all threads of the process: 16 to 20 MB of memory.

A compaction of more finds none of them when it is made again: the latest are kept, and it begins with the oldest.
"""
TELLS_ERROR = regex(r"(?i)(?:error|exception|failure|failed|fatal|denied|not found)\b")
ERROR_PREFIXES = ("error", "traceback", "exception", "fatal", "failed")


class OutputLine(msgspec.Struct, frozen=True, gc=False):
    """A line of what a tool printed, its words, and whether it speaks of an error."""

    text: str
    words: tuple[str, ...]
    tells_error: bool


class SourceText(msgspec.Struct, gc=False):
    """One text and its analysis: each part is computed when first asked for."""

    text: str
    _words: tuple[tuple[str, ...], frozenset[str]] | None = None
    _remarks: tuple[Remark, ...] | None = None
    _leaning: tuple[bool, ...] | None = None
    _lines: tuple[OutputLine, ...] | None = None
    _answer: tuple[tuple[ToldRecord, ...] | None, bool, str | None] | None = None
    _asked: CallArguments | None = None
    _output: Output | None = None

    @property
    def asked(self) -> CallArguments:
        """Parse the text as the arguments of a call."""
        found = self._asked
        if found is None:
            found = self._asked = read_arguments(self.text)
        return found

    @property
    def output(self) -> Output:
        """Return the text's form as a tool's output; for a JSON text, the form of the text printed into it."""
        found = self._output
        if found is None:
            printed = self.printed
            found = self._output = record_output(self.text) if printed is None else read_output(printed)
        return found

    @property
    def printed(self) -> str | None:
        """Return the text printed into it: all of a text that is not JSON, `None` for JSON that only holds values."""
        return self.answer[2]

    @property
    def words(self) -> tuple[tuple[str, ...], frozenset[str]]:
        """Return its distinct terms, in no order, and the subset that are values."""
        found = self._words
        if found is None:
            found = self._words = distinct_terms(words(self.text))
        return found

    @property
    def terms(self) -> tuple[str, ...]:
        """Its distinct terms, in no order."""
        return self.words[0]

    @property
    def remarks(self) -> tuple[Remark, ...]:
        """Split the text into statements, as speech."""
        found = self._remarks
        if found is None:
            found = self._remarks = tuple(map(remark, statements(self.text)))
        return found

    @property
    def leaning(self) -> tuple[bool, ...]:
        """Return, for each of its statements, whether it has no meaning without words outside it."""
        found = self._leaning
        if found is None:
            found = self._leaning = tuple([leans(remark.text) for remark in self.remarks])
        return found

    @property
    def lines(self) -> tuple[OutputLine, ...]:
        """Split the text into statements, as if a tool printed them: every line ends one."""
        found = self._lines
        if found is None:
            said = statements(self.text, lines=True)
            found = tuple([OutputLine(s.text, s.said, TELLS_ERROR.search(s.text) is not None) for s in said])
            self._lines = found
        return found

    @property
    def answer(self) -> tuple[tuple[ToldRecord, ...] | None, bool, str | None]:
        """Return its records if it is JSON, whether it is an error, and the text printed into it.

        An error is recognised by how tools begin their errors, or by a field that says so.
        """
        found = self._answer
        if found is None:
            found = self._answer = _parse_answer(self.text)
        return found

    @property
    def records(self) -> tuple[ToldRecord, ...] | None:
        """Its records, if it is a JSON text."""
        return self.answer[0]

    @property
    def tells_failure(self) -> bool:
        """Return True if it is an error."""
        return self.answer[1]


def _parse_answer(text: str) -> tuple[tuple[ToldRecord, ...] | None, bool, str | None]:
    value = read_json(text)
    fails = isinstance(value, dict) and (bool(value.get("error")) or value.get("success", value.get("ok")) is False)
    if text.lstrip()[:9].lower().startswith(ERROR_PREFIXES):
        fails = True
    if value is None:
        return None, fails, text
    return tuple(line_records(value)), fails, printed_in(value)


class _KeptTexts:
    """Cache of the latest texts by their content, limited by their characters."""

    def __init__(self) -> None:
        self._texts: OrderedDict[str, SourceText] = OrderedDict()
        self._chars = 0
        self._lock = Lock()

    def text(self, said: str) -> SourceText:
        with self._lock:
            found = self._texts.get(said)
            if found is not None:
                self._texts.move_to_end(said)
                return found
            found = self._texts[said] = SourceText(said)
            self._chars += len(said)
            while self._chars > KEPT_CHARS_MAX:
                gone, _ = self._texts.popitem(last=False)
                self._chars -= len(gone)
            return found


_KEPT = _KeptTexts()


_NOTHING = SourceText("")


def source_text(said: str) -> SourceText:
    """Return the text with its analysis, which is filled in on demand."""
    return _KEPT.text(said) if said else _NOTHING
