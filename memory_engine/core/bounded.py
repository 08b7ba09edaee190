"""Read untrusted data: paths that are not regular files, and bytes that unpack to gigabytes.

A path may name a pipe without a writer, a device without an end, or a link to a file outside the given folder.
So files of others are opened here.
"""

import binascii
import os
import stat
import zlib
from io import BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING

from memory_engine.core.lazy import lazy_module
from memory_engine.errors import FileRefused, UnreadableContent

if TYPE_CHECKING:
    from urllib import parse
else:
    parse = lazy_module("urllib.parse")

UNPACKED_MAX = 64 * 2**20
"""The most bytes that one packed value may unpack to, unless it is large itself (`UNPACKED_RATIO`)."""
UNPACKED_RATIO = 32
"""A large value may unpack to this number of times its size. Texts reach about ten, zlib a thousand."""
UNPACKED_ALL_MAX = 256 * 2**20
"""The same for all packed values of one event."""


FILE_BYTES_MAX = 64 * 2**20
"""The most bytes of a file that is read at once, such as rules or a list of threads."""
_OWN = ("/dev/stdin", "/dev/fd/", "/proc/self/fd/")
"""The descriptors that this process was started with: its parent chose them."""


def open_file(path: Path, *, within: Path | None = None, takes_stream: bool = False) -> BufferedReader:
    """Open a file to be read.

    With `within` it must be in that folder, links resolved. With `takes_stream`, a pipe that this process was started
    with is taken too. Raises `FileRefused` for a pipe, a device, a socket, a folder, and for a link that leads out;
    `OSError` where the system refuses. Nothing waits for the other end of a pipe.
    """
    if within is not None and not path.resolve().is_relative_to(within.resolve()):
        raise FileRefused(str(path), "it is a link that leads out of its folder")
    if takes_stream and str(path).startswith(_OWN):
        return path.open("rb")
    _check_kind(path, path.stat().st_mode)  # before it is opened: opening a device may do something
    flags = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)
    file = os.fdopen(os.open(path, flags), "rb")
    try:
        _check_kind(path, os.fstat(file.fileno()).st_mode)
    except FileRefused:
        file.close()
        raise
    return file


def _check_kind(path: Path, mode: int) -> None:
    if not stat.S_ISREG(mode):
        raise FileRefused(str(path), "Is a directory" if stat.S_ISDIR(mode) else "it is a pipe or a device")


def read_file(path: Path, *, limit: int = FILE_BYTES_MAX, within: Path | None = None) -> bytes:
    """The bytes of a file. Raises `FileRefused` for more than `limit`, else as `open_file`."""
    with open_file(path, within=within) as file:
        size = os.fstat(file.fileno()).st_size
        found = file.read(min(size, limit) + 1)  # room for the limit at once would cost more than a small file
        if len(found) > size:  # a file that grows is read no further, whatever its size said
            found += file.read(max(0, limit + 1 - len(found)))
    if max(len(found), size) > limit:
        raise FileRefused(str(path), f"it has more than {limit:,} bytes")
    return found


def unpacked_max(packed: int, free: int = UNPACKED_MAX) -> int:
    """The most bytes that a number of packed ones may unpack to."""
    return max(free, UNPACKED_RATIO * packed)


def unpacked(packed: bytes, *, what: str, zdict: bytes = b"") -> bytes:
    """Unpack bytes that zlib has packed. `what` names them in an error.

    Never holds more unpacked bytes than `unpacked_max`. Raises `UnreadableContent` for more, and for damaged bytes.
    """
    limit = unpacked_max(len(packed))
    unpacker = zlib.decompressobj(zdict=zdict)
    try:
        found = unpacker.decompress(packed, limit + 1)
    except zlib.error as error:
        raise UnreadableContent(what, f"it is damaged ({error})") from None
    if len(found) > limit:
        raise UnreadableContent(what, f"it unpacks to more than {limit:,} bytes")
    if not unpacker.eof:
        raise UnreadableContent(what, "it is cut off")
    return found


def of_base64(text: str, *, what: str) -> bytes:
    """The bytes that a text holds in base64. Raises `UnreadableContent`."""
    try:
        return binascii.a2b_base64(text)
    except (binascii.Error, ValueError) as error:
        raise UnreadableContent(what, f"it is not base64 ({error})") from None


def is_data_url(text: str) -> bool:
    """Return True for a `data:` URL, which holds a file."""
    return text[:5].lower() == "data:" and "," in text


def of_data_url(url: str) -> bytes:
    """The bytes of the file in a `data:` URL; empty for a damaged one, which is shown only as its text."""
    head, _, data = url.partition(",")
    if not head.lower().endswith(";base64"):
        return parse.unquote_to_bytes(data)
    try:
        return binascii.a2b_base64(data)
    except (binascii.Error, ValueError):
        return b""
