"""Unpacking with a limit: a few kilobytes may unpack to gigabytes."""

import binascii
import zlib
from typing import TYPE_CHECKING

from memory_engine.core.lazy import lazy_module
from memory_engine.errors import UnreadableContent

if TYPE_CHECKING:
    from urllib import parse
else:
    parse = lazy_module("urllib.parse")

UNPACKED_MAX = 64 * 2**20
"""The most bytes that one packed value may unpack to."""


def unpacked(packed: bytes, *, what: str, limit: int = UNPACKED_MAX, zdict: bytes = b"") -> bytes:
    """Unpack bytes that zlib has packed. `what` names them in an error.

    Never holds more than `limit` unpacked bytes. Raises `UnreadableContent` for more, and for damaged bytes.
    """
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
    """The bytes of the file in a `data:` URL; none where it is damaged: then nothing shows it but as it is."""
    head, _, data = url.partition(",")
    if not head.lower().endswith(";base64"):
        return parse.unquote_to_bytes(data)
    try:
        return binascii.a2b_base64(data)
    except (binascii.Error, ValueError):
        return b""
