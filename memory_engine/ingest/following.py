"""A file of JSON Lines that is still being written: its records as they come."""

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from attrs import define, field

from memory_engine.core.bounded import open_file
from memory_engine.core.limits import DEFAULT_LIMITS, ReadingLimits
from memory_engine.core.recordings import PAUSE, Record, RecordedFile
from memory_engine.errors import IngestError
from memory_engine.ingest.json_stream import VALUE_CHARS_MAX, BrokenText
from memory_engine.ingest.records import looked_at, parsed_line

POLL_S = 0.2


@define
class LiveFile:
    """Reads the lines of a file while it is written, until `stop` is set.

    A last line without its end is waited for. A file that was replaced, or cut, is read from its start again, as the
    continuation of what was read before. Where there is nothing more for now, a record of `PAUSE` says so.
    """

    path: Path
    limits: ReadingLimits = DEFAULT_LIMITS
    stop: threading.Event = field(factory=threading.Event)
    _file: BinaryIO | None = None
    _half: bytes = b""
    _line: int = 0
    _number: int = 0

    def file(self, name: str = "", format: str = "auto") -> RecordedFile:
        """The file to read. Waits until it has its first line."""
        file = RecordedFile(self.path, name or self.path.stem, self.records(), format=format, limits=self.limits)
        file.is_followed = True
        return looked_at(file)

    def records(self) -> Iterator[Record | IngestError]:
        """The records; it blocks while there is nothing new."""
        try:
            while not self.stop.is_set():
                yield from self._new_lines()
                if self._has_changed():
                    yield from self._new_lines()
                    self._close()
                    continue
                yield Record(PAUSE, self._line, self._number)
                self._wait()
        finally:
            self._close()

    def _wait(self) -> None:
        """Wait until the file has more, or is another one."""
        while not self.stop.wait(POLL_S):
            if self._has_changed() or (self._file is not None and self._size() > self._file.tell()):
                return

    def _new_lines(self) -> Iterator[Record | IngestError]:
        if self._file is None:
            try:
                self._file = open_file(self.path)
            except OSError:  # not there yet, or between two files of a rotation
                return
            self._half, self._line = b"", 0
        while raw := self._file.readline(VALUE_CHARS_MAX):
            self._half += raw
            if not raw.endswith(b"\n"):
                continue
            whole, self._half = self._half, b""
            self._line += 1
            if not whole.strip():
                continue
            self._number += 1
            try:
                yield Record(parsed_line(whole, self._line, self.limits), self._line, self._number, is_line=True)
            except BrokenText as error:
                yield IngestError(str(self.path), self._line, error.why)

    def _has_changed(self) -> bool:
        """Return True if the path is another file by now, or the file was cut."""
        if self._file is None:
            return self.path.exists()
        opened = os.fstat(self._file.fileno())
        try:
            there = self.path.stat()
        except OSError:
            return False
        return (there.st_ino, there.st_dev) != (opened.st_ino, opened.st_dev) or there.st_size < self._file.tell()

    def _size(self) -> int:
        try:
            return self.path.stat().st_size
        except OSError:
            return 0

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
