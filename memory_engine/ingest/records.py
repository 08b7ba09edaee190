"""The records of a file, in order: lines, elements of a JSON list, or messages of one conversation."""

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import BinaryIO, Literal

from memory_engine.core.bounded import open_file
from memory_engine.core.limits import DEFAULT_LIMITS, ReadingLimits
from memory_engine.core.recordings import PAUSE, Record, RecordedFile
from memory_engine.errors import IngestError
from memory_engine.ingest.json_stream import VALUE_CHARS_MAX, BrokenText, Scanner, parse

Format = Literal["auto", "openai", "responses", "anthropic", "tau", "events", "otlp"]
"""The formats of messages. The names of readers are formats, too."""
FIRST_LINE_MAX = 1 << 20
_LINES = frozenset({".jsonl", ".ndjson"})
_STREAMED = frozenset({"messages"})
LINES_LOOKED_AT = 40
"""Number of the first lines by which a file's tool is recognised: some begin with many that are not messages."""
ELEMENTS_LOOKED_AT = 4
NOT_JSON = frozenset({".eml", ".eval", ".gz", ".htm", ".html", ".markdown", ".mbox", ".md", ".srt", ".vtt", ".zip"})


def open_recording(
    path: Path, name: str = "", format: str = "auto", limits: ReadingLimits = DEFAULT_LIMITS
) -> RecordedFile:
    """A file with a look at its first records."""
    name = name or path.stem
    if path.suffix.lower() in NOT_JSON:
        return RecordedFile(path, name, format=format, limits=limits)
    records = read_records(path, limits)
    head = _surrounding_keys(path, limits)
    return looked_at(RecordedFile(path, name, records, head=head, format=format, limits=limits))


def looked_at(recording: RecordedFile) -> RecordedFile:
    """The recording with its first values, whose records it holds until they are read."""
    looked: list[Record | IngestError] = []
    for record in recording.live:
        looked.append(record)
        if isinstance(record, Record) and record.value is PAUSE:
            if len(looked) > 1:
                break
            looked.clear()
            continue
        enough = LINES_LOOKED_AT if isinstance(record, IngestError) or record.is_line else ELEMENTS_LOOKED_AT
        if len(looked) >= enough:
            break
    values = (record.value for record in looked if isinstance(record, Record))
    recording.first = tuple(value for value in values if value is not PAUSE)
    recording.live = chain(looked, recording.live)
    return recording


def read_records(path: Path, limits: ReadingLimits = DEFAULT_LIMITS) -> Iterator[Record | IngestError]:
    """Every record of a file, a broken one as the error that says where. Holds one record at a time.

    A broken line of JSON Lines costs that line; a broken list ends there, since the start
    of its next element is unknown.
    """
    try:
        with open_file(path, takes_stream=True) as file:
            if path.suffix in _LINES or not file.seekable() or _is_json_lines(file):
                yield from _line_records(file, str(path), limits)
            else:
                yield from _document_records(file, str(path), limits)
    except OSError as error:
        yield IngestError(str(path), 1, f"cannot be read: {error.strerror or error}")


def _is_json_lines(file: BinaryIO) -> bool:
    """Whether the first line is a whole object and something comes after it. Goes back to the start."""
    try:
        first = file.readline(FIRST_LINE_MAX)
        while first and not first.strip():
            first = file.readline(FIRST_LINE_MAX)
        is_object = isinstance(parse(first.decode("utf-8-sig"), 1), dict)
        return is_object and any(line.strip() for line in iter(lambda: file.readline(FIRST_LINE_MAX), b""))
    except (BrokenText, UnicodeDecodeError):
        return False
    finally:
        file.seek(0)


def _line_records(file: BinaryIO, path: str, limits: ReadingLimits) -> Iterator[Record | IngestError]:
    number = 0
    line = 0
    while raw := file.readline(VALUE_CHARS_MAX):
        line += 1
        if not raw.strip():
            continue
        number += 1
        try:
            if len(raw) == VALUE_CHARS_MAX and not raw.endswith(b"\n"):
                _skip_rest(file)
                raise BrokenText(line, f"a line of over {VALUE_CHARS_MAX >> 20} MB")
            yield Record(parsed_line(raw, line, limits), line, number, is_line=True)
        except BrokenText as error:
            yield IngestError(path, line, error.why)


def parsed_line(raw: bytes, line: int, limits: ReadingLimits) -> object:
    """The value of a line. Raises `BrokenText`."""
    return parse(_decoded_line(raw, line), line, limits)


def _decoded_line(raw: bytes, line: int) -> str:
    try:
        return raw.decode("utf-8-sig" if line == 1 else "utf-8").rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise BrokenText(line, f"not UTF-8: byte 0x{raw[error.start]:02x}") from None


def _skip_rest(file: BinaryIO) -> None:
    while (raw := file.readline(VALUE_CHARS_MAX)) and not raw.endswith(b"\n"):
        pass


def _document_records(file: BinaryIO, path: str, limits: ReadingLimits) -> Iterator[Record | IngestError]:
    scanner = Scanner(file, limits)
    try:
        start = scanner.peek()
        if start == "[":
            yield from _elements(scanner)
        elif start == "{":
            yield from _members(scanner)
        elif start:
            yield Record(scanner.value(), scanner.line, 1, False)
        if scanner.peek():
            why = "something follows the JSON value; if this is JSON Lines, name the file .jsonl"
            raise BrokenText(scanner.line, why)
    except BrokenText as error:
        yield IngestError(path, error.line, error.why)


def _surrounding_keys(path: Path, limits: ReadingLimits) -> dict[str, object]:
    """The keys of an object around the `messages` that are its records; empty for any other file."""
    try:
        if not path.is_file() or path.suffix in _LINES:
            return {}
        with open_file(path) as file:
            if _is_json_lines(file):
                return {}
            scanner = Scanner(file, limits)
            return _around_messages(scanner) if scanner.take("{") else {}
    except (OSError, BrokenText):  # found again, with its place, when the records are read
        return {}


def _around_messages(scanner: Scanner) -> dict[str, object]:
    head: dict[str, object] = {}
    streamed = False
    ended = scanner.take("}")
    while not ended:
        key = str(scanner.value())
        scanner.expect(":")
        if key in _STREAMED and scanner.peek() == "[" and not streamed:
            streamed = True
            for _ in _elements(scanner):
                pass
        else:
            head[key] = scanner.value()
        if not scanner.take(","):
            scanner.expect("}")
            ended = True
    return head if streamed else {}


def _elements(scanner: Scanner) -> Iterator[Record]:
    scanner.expect("[")
    if scanner.take("]"):
        return
    number = 0
    while True:
        number += 1
        scanner.peek()
        line = scanner.line
        yield Record(scanner.value(), line, number, False)
        if not scanner.take(","):
            scanner.expect("]")
            return


def _members(scanner: Scanner) -> Iterator[Record]:
    """The elements of `messages`, where the object has such a list; else the object itself."""
    line = scanner.line
    rest: dict[str, object] = {}
    streamed = False
    scanner.expect("{")
    ended = scanner.take("}")
    while not ended:
        key = scanner.value()
        if not isinstance(key, str):
            raise BrokenText(scanner.line, "not JSON: a key is not a text")
        scanner.expect(":")
        if key in _STREAMED and scanner.peek() == "[" and not streamed:
            streamed = True
            yield from _elements(scanner)
        else:
            rest[key] = scanner.value()
        if not scanner.take(","):
            scanner.expect("}")
            ended = True
    if not streamed:
        yield Record(rest, line, 1, False)
