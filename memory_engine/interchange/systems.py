"""The systems whose memories are read, and which of them a file is from."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from attrs import frozen

from memory_engine.core.bounded import read_file
from memory_engine.core.json_text import BrokenText, parse
from memory_engine.core.limits import ReadingLimits
from memory_engine.errors import FileRefused, ImportRefused, InvalidArgument
from memory_engine.interchange import bundle, letta, mem0, mif, zep
from memory_engine.interchange.foreign import ForeignFile, objects_in
from memory_engine.store.new_file import file_errors

System = Literal["auto", "mem0", "letta", "zep", "mif", "portable-memory"]
"""The systems whose memories are read."""
PAGE = "docs/how-to/move-memories.md"
KEYS_SHOWN = 12


@frozen
class _SystemReader:
    name: System
    keys: str
    sees: Callable[[object], bool]
    read: Callable[[object, ForeignFile], None]


_READERS = (
    _SystemReader("mif", mif.KEYS, mif.sees, mif.read),
    _SystemReader("letta", letta.KEYS, letta.sees, letta.read),
    _SystemReader("zep", zep.KEYS, zep.sees, zep.read),
    _SystemReader("mem0", mem0.KEYS, mem0.sees, mem0.read),
)
SYSTEMS: tuple[str, ...] = ("auto", *(one.name for one in _READERS), bundle.NAME)


def read_foreign(path: Path, system: str, limits: ReadingLimits) -> ForeignFile:
    """The memories of a file, or of a bundle's folder. Raises `ImportRefused`, `FileRefused`, and as `open`."""
    if system not in SYSTEMS:
        raise InvalidArgument("system", system, f"there are {', '.join(SYSTEMS)}")
    if path.is_dir():
        if system not in ("auto", bundle.NAME):
            raise ImportRefused(str(path), 1, f"it is a folder, and not a file of {system}; {PAGE} lists what is read")
        if not (path / bundle.MANIFEST).exists():
            raise FileRefused(str(path), f"it is a folder without a {bundle.MANIFEST}, so not a bundle")
        return bundle.read_bundle(path, limits)
    value = _file_value(path, limits)
    reader = next((one for one in _READERS if one.sees(value) and system in ("auto", one.name)), None)
    if reader is None:
        raise ImportRefused(str(path), 1, _unknown(value, system))
    found = ForeignFile(path, reader.name)
    reader.read(value, found)
    return found


def _file_value(path: Path, limits: ReadingLimits) -> object:
    """The JSON value of a file; of JSON Lines, the list of their values."""
    with file_errors(path):
        written = read_file(path, limit=limits.file_bytes)
    try:
        text = written.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = written.count(b"\n", 0, error.start) + 1
        raise ImportRefused(str(path), line, f"not UTF-8: byte 0x{written[error.start]:02x}") from None
    try:
        if path.suffix.lower() not in (".jsonl", ".ndjson"):
            return parse(text, 1, limits)
        lines = enumerate(text.split("\n"), 1)
        return [parse(one, line, limits) for line, one in lines if one.strip()]
    except BrokenText as error:
        raise ImportRefused(str(path), error.line, error.why) from None


def _unknown(value: object, system: str) -> str:
    """Why a file is not read: the keys that it has, and the system whose keys are nearest."""
    asked = f"it is not a file of {system}" if system != "auto" else "no system is known by what it holds"
    said = f"; {PAGE} lists what is read"
    first = value if isinstance(value, dict) else next(iter(objects_in(value)), None)
    if first is None:
        return f"{asked}: it is not an object, nor a list of objects{said}"
    keys = [json.dumps(key)[1:-1][:60] for key in first]
    shown = ", ".join(keys[:KEYS_SHOWN]) + (", …" if len(keys) > KEYS_SHOWN else "")
    shared = {one: len(set(one.keys.split()) & set(keys)) for one in _READERS}
    near = max(_READERS, key=lambda one: shared[one])
    nearest = f"; the nearest is {near.name} (with {', '.join(near.keys.split()[:4])})" if shared[near] else ""
    return f"{asked} (its keys: {shown or 'none'}){nearest}{said}"
