"""What images cost: sizes read from the heads of real formats, and the providers' published examples."""

import base64
import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory_engine.core.images import image_size, image_tokens
from memory_engine.core.tokens import IMAGE_TOKENS


def url(raw: bytes, media_type: str = "image/png") -> str:
    """Bytes as a `data:` URL."""
    return f"data:{media_type};base64,{base64.b64encode(raw).decode()}"


def png(width: int, height: int) -> bytes:
    """The head of a PNG."""
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunk = b"IHDR" + header
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I", len(header)) + chunk + struct.pack(">I", zlib.crc32(chunk))


def jpeg(width: int, height: int, preview: int = 0) -> bytes:
    """The head of a JPEG, with so many bytes of a preview before its frame."""
    exif = b"\xff\xe1" + struct.pack(">H", preview + 2) + b"\x00" * preview if preview else b""
    frame = b"\xff\xc0" + struct.pack(">HBHHB", 11, 8, height, width, 1) + b"\x01\x11\x00"
    return b"\xff\xd8" + exif + b"\xff\xff\xdb\x00\x04\x00\x00" + frame


def gif(width: int, height: int) -> bytes:
    """The head of a GIF."""
    return b"GIF89a" + struct.pack("<HH", width, height) + b"\x00\x00\x00"


def webp(kind: bytes, width: int, height: int) -> bytes:
    """The head of a WebP of one of its three kinds."""
    body = {
        b"VP8 ": b"\x00\x00\x00\x9d\x01\x2a" + struct.pack("<HH", width, height),
        b"VP8L": b"\x2f" + struct.pack("<I", (width - 1) | (height - 1) << 14),
        b"VP8X": b"\x00" * 4 + (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little"),
    }[kind]
    return b"RIFF\x00\x00\x00\x00WEBP" + kind + struct.pack("<I", len(body)) + body


SIDES = st.integers(1, 16_000)


@given(SIDES, SIDES, st.integers(0, 60_000))
def test_the_size_stands_in_the_head_of_each_format(width: int, height: int, preview: int) -> None:
    """Of a PNG, a JPEG with or without a preview, a GIF, and each kind of WebP."""
    heads = [png(width, height), gif(width, height), jpeg(width, height, preview)]
    heads += [webp(kind, width, height) for kind in (b"VP8 ", b"VP8L", b"VP8X")]
    assert {(width, height)} == {image_size(url(head)) for head in heads}


@given(
    st.binary(max_size=80), st.sampled_from([b"", b"\x89PNG\r\n\x1a\n", b"\xff\xd8", b"RIFF0000WEBPVP8X", b"GIF89a"])
)
def test_bytes_that_are_no_image_have_no_size_or_some(raw: bytes, begin: bytes) -> None:
    """Whatever stands there, nothing breaks, and a price is there."""
    assert image_tokens(url(begin + raw)) > 0


@pytest.mark.parametrize(
    ("width", "height", "detail", "expected"),
    [
        (1_024, 1_024, "high", 765),  # OpenAI's own examples
        (2_048, 4_096, "high", 1_105),
        (4_096, 8_192, "low", 85),
        (200, 200, "high", 255),
        (200, 200, "", 255),  # Anthropic: 54
        (1_000, 1_000, "", 1_334),  # Anthropic's own example; OpenAI: 765
        (1_092, 1_092, "", 1_590),  # Anthropic's too
        (8_000, 8_000, "", 1_600),
        (1, 1, "", 255),
    ],
)
def test_an_image_costs_what_the_providers_say(width: int, height: int, detail: str, expected: int) -> None:
    """The dearer of two rules; OpenAI's alone where the image names a detail, which is OpenAI's word."""
    assert expected == image_tokens(url(png(width, height)), detail)


@pytest.mark.parametrize("address", ["https://x.org/a.png", "data:image/png,abc", "data:image/png;base64,A", "", "x"])
def test_an_image_of_unknown_size_has_the_typical_price(address: str) -> None:
    """By address, or in a URL that cannot be read."""
    assert IMAGE_TOKENS == image_tokens(address)
