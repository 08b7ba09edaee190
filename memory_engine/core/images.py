"""What an image costs in tokens: its size, read from the head of its `data:` URL, and the providers' published rules.

A budget is kept before anybody knows which provider gets the request. So an image counts what the dearer of two rules
says, and only OpenAI's where the image names a `detail`, which is OpenAI's word:

* OpenAI, tiles: scaled to fit 2,048 px squared, then to a short side of 768 px; 85, and 170 for each tile of 512 px.
  With the detail `low`, 85.
* Anthropic, area: scaled to a long side of 1,568 px and at most 1,600 tokens; width times height, by 750.

A chunk's own estimate (`core.tokens.estimate_chunk`) is recorded, so it never changes.
"""

import binascii
import math
import struct
from collections.abc import Mapping

from memory_engine.core.tokens import IMAGE_TOKENS, file_tokens

HEAD_CHARS = 131_072
"""Characters of a `data:` URL within which the size is looked for: a JPEG may hold a preview before it."""
LOW_DETAIL_TOKENS = 85
TILE_TOKENS = 170
TILE_PX = 512
SQUARE_PX = 2_048
SHORT_SIDE_PX = 768
LONG_SIDE_PX = 1_568
PX_PER_TOKEN = 750
AREA_TOKENS_MAX = 1_600
SIZE_PX_MAX = 1_000_000
"""A side beyond this is not a size."""

_PNG = b"\x89PNG\r\n\x1a\n"
_FRAMES = frozenset({*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC})
"""The markers of a JPEG that are followed by its size."""
_BARE = frozenset({0x01, *range(0xD0, 0xD8)})
"""The markers of a JPEG that nothing belongs to."""


def media_tokens(part: Mapping[str, object]) -> int:
    """The tokens of an image, a file or audio that is a part of a chat-completions message."""
    match part:
        case {"file": {**file}}:
            return file_tokens(str(file.get("file_data", "")))
        case {"input_audio": {"data": str(data)}}:
            return file_tokens(data)
        case {"image_url": {"url": str(url), **image}}:
            return image_tokens(url, str(image.get("detail", "")))
    return IMAGE_TOKENS


def image_tokens(url: str, detail: str = "") -> int:
    """The tokens of an image; `IMAGE_TOKENS`, those of 1,024 px squared, where its size cannot be read."""
    if detail == "low":
        return LOW_DETAIL_TOKENS
    size = image_size(url)
    if size is None:
        return IMAGE_TOKENS
    return _by_tiles(*size) if detail else max(_by_tiles(*size), _by_area(*size))


def image_size(url: str) -> tuple[int, int] | None:
    """Width and height in pixels of a PNG, JPEG, GIF or WebP in a `data:` URL; `None` where they cannot be read."""
    head, _, data = url[:HEAD_CHARS].partition(";base64,")
    if not data or head[:5].casefold() != "data:":
        return None
    try:
        raw = binascii.a2b_base64(data[: len(data) // 4 * 4])
        size = _size(raw)
    except (binascii.Error, ValueError, struct.error):
        return None
    return size if size is not None and all(0 < side <= SIZE_PX_MAX for side in size) else None


def _size(raw: bytes) -> tuple[int, int] | None:
    if raw.startswith(_PNG):
        width, height = struct.unpack_from(">II", raw, 16)
        return width, height
    if raw[:6] in (b"GIF87a", b"GIF89a"):
        width, height = struct.unpack_from("<HH", raw, 6)
        return width, height
    if raw[:2] == b"\xff\xd8":
        return _jpeg_size(raw)
    if raw[:4] == b"RIFF" and raw[8:12] == b"WEBP":
        return _webp_size(raw)
    return None


def _jpeg_size(raw: bytes) -> tuple[int, int] | None:
    """The size in the first frame header; segments before it are stepped over."""
    at = 2
    while at + 4 <= len(raw):
        if raw[at] != 0xFF:
            return None
        marker = raw[at + 1]
        if marker in _FRAMES:
            height, width = struct.unpack_from(">HH", raw, at + 5)
            return width, height
        if marker == 0xFF:
            at += 1  # filling
        elif marker in _BARE:
            at += 2
        else:
            at += 2 + struct.unpack_from(">H", raw, at + 2)[0]
    return None


def _webp_size(raw: bytes) -> tuple[int, int] | None:
    """The size by the first chunk: lossy, lossless, or extended."""
    kind = raw[12:16]
    if kind == b"VP8 ":
        width, height = struct.unpack_from("<HH", raw, 26)
        return width & 0x3FFF, height & 0x3FFF
    if kind == b"VP8L":
        (bits,) = struct.unpack_from("<I", raw, 21)
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if kind == b"VP8X":
        width, height = (int.from_bytes(raw[at : at + 3], "little") + 1 for at in (24, 27))
        return (width, height) if len(raw) >= 30 else None
    return None


def _by_tiles(width: int, height: int) -> int:
    fitted = min(1.0, SQUARE_PX / max(width, height))
    scale = fitted * min(1.0, SHORT_SIDE_PX / max(1.0, min(width, height) * fitted))
    across, down = (max(1, math.ceil(round(side * scale) / TILE_PX)) for side in (width, height))
    return LOW_DETAIL_TOKENS + TILE_TOKENS * across * down


def _by_area(width: int, height: int) -> int:
    scale = min(1.0, LONG_SIDE_PX / max(width, height))
    return min(AREA_TOKENS_MAX, math.ceil(width * scale * height * scale / PX_PER_TOKEN))
