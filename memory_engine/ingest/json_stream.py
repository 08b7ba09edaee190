"""JSON values one at a time out of a file that may be larger than memory."""

import codecs
import json
from typing import BinaryIO, NoReturn

from memory_engine.core.json_text import DECODER, BrokenText, check_values, parse
from memory_engine.core.limits import DEFAULT_LIMITS, ReadingLimits

__all__ = ["BLOCK", "VALUE_CHARS_MAX", "BrokenText", "Scanner", "parse"]

BLOCK = 1 << 16
VALUE_CHARS_MAX = 64 * 1024 * 1024
"""A single value (a line, an element of a list) longer than this is refused: an event is never that large."""
_SPACE = " \t\r\n"


class Scanner:
    """Walks the text of a file value by value and knows its line.

    Holds one block and one value at a time. All methods raise `BrokenText`.
    """

    def __init__(self, file: BinaryIO, limits: ReadingLimits = DEFAULT_LIMITS) -> None:
        self._file = file
        self._limits = limits
        self._decoder = codecs.getincrementaldecoder("utf-8")("strict")
        self._text = ""
        self._at = 0
        self._line = 1
        self._counted = 0
        self._columns_before = 0
        self._lines_read = 1
        self._at_start = True
        self._ended = False
        self._broken: BrokenText | None = None

    @property
    def line(self) -> int:
        """The line of the next character."""
        self._line += self._text.count("\n", self._counted, self._at)
        self._counted = self._at
        return self._line

    def peek(self) -> str:
        """The next character that is not a space; empty at the end."""
        while True:
            while self._at < len(self._text) and self._text[self._at] in _SPACE:
                self._at += 1
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._more(BLOCK):
                return ""

    def take(self, wanted: str) -> bool:
        """Step over `wanted` if it comes next."""
        if self.peek() != wanted:
            return False
        self._at += 1
        return True

    def expect(self, wanted: str) -> None:
        """Step over `wanted`; anything else is broken."""
        if not self.take(wanted):
            found = repr(self.peek()) if self.peek() else "the end of the file"
            raise BrokenText(self.line, f"not JSON: expected {wanted!r}, found {found}")

    def value(self) -> object:
        """The next value, whole."""
        self.peek()
        size = BLOCK
        while True:
            if len(self._text) > 2 * BLOCK:  # one value alone fills a larger buffer
                check_values(self._text, self.line, self._limits)
            try:
                found, end = DECODER.raw_decode(self._text, self._at)
            except json.JSONDecodeError as error:
                # Cut off and broken look alike, so a value counts as broken once all of it was read.
                if self._ended or len(self._text) - self._at > VALUE_CHARS_MAX:
                    self._fail(error)
            except ValueError as error:
                raise BrokenText(self.line, f"not JSON: {error}") from None
            except RecursionError:
                raise BrokenText(self.line, "not usable: its values are nested too deep") from None
            else:
                if end < len(self._text) or self._ended:  # a number at the end of a block may go on in the next
                    self._at = end
                    return found
            self._more(size)
            size = min(size * 2, VALUE_CHARS_MAX)

    def _fail(self, error: json.JSONDecodeError) -> NoReturn:
        if not self._ended:
            why = f"not usable: broken, or a single value of over {VALUE_CHARS_MAX >> 20} MB"
            raise BrokenText(self.line, why)
        line = self.line + self._text.count("\n", self._at, error.pos)
        raise BrokenText(line, f"not JSON: {error.msg} at column {self._column(error.pos)}")

    def _column(self, at: int) -> int:
        newline = self._text.rfind("\n", 0, at)
        return at - newline if newline >= 0 else self._columns_before + at + 1

    def _more(self, size: int) -> bool:
        """Drop the text already read and read on; false at the end of the file."""
        if self._broken is not None:
            raise self._broken
        if self._ended:
            return False
        self._line = self.line
        self._columns_before = self._column(self._at) - 1
        text = self._decoded(self._file.read(size))
        self._text = self._text[self._at :] + text
        self._at = self._counted = 0
        return not self._ended

    def _decoded(self, block: bytes) -> str:
        """The block's text; before a byte that is not UTF-8, the text in front of it, and the error next time."""
        self._ended = not block
        try:
            text = self._decoder.decode(block, final=self._ended)
        except UnicodeDecodeError as error:
            text = error.object[: error.start].decode()
            line = self._lines_read + text.count("\n")
            self._broken = BrokenText(line, f"not UTF-8: byte 0x{error.object[error.start]:02x}")
            self._ended = False
        if self._at_start:
            text = text.removeprefix("\ufeff")
            self._at_start = False
        self._lines_read += text.count("\n")
        return text
