"""Images and files as providers take them: by address, as base64 of a `data:` URL, or by an id."""

import binascii
import re
from typing import Literal

import msgspec

from memory_engine.core.events.base import FilePart, ImagePart
from memory_engine.core.lazy import regex

IMAGE_TYPES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""The types of images that all providers take."""
PDF = "application/pdf"
AUDIO_FORMATS = {
    **dict.fromkeys(("audio/wav", "audio/x-wav", "audio/wave", "audio/vnd.wave"), "wav"),
    **dict.fromkeys(("audio/mp3", "audio/mpeg"), "mp3"),
}
"""The types of audio that chat completions takes, and its words for them."""

_DATA_URL = regex(r"data:([^;,]*)(?:;[^,]*)?;base64,([A-Za-z0-9+/]+={0,2})", re.IGNORECASE)
_TYPES = {
    ".pdf": PDF,
    **dict.fromkeys((".txt", ".md", ".csv"), "text/plain"),
    ".wav": "audio/wav",
    ".mp3": "audio/mpeg",
}

Provider = Literal["openai", "anthropic"]


class Base64(msgspec.Struct, frozen=True):
    """The bytes of a `data:` URL, still encoded."""

    media_type: str
    data: str


def is_web(url: str) -> bool:
    """Whether a provider can fetch an address."""
    return url[:8].casefold().startswith(("http://", "https://"))


def base64_of(url: str) -> Base64 | None:
    """The contents of a `data:` URL in base64; `None` for another address, or one that is not well-formed."""
    found = _DATA_URL.fullmatch(url)
    if found is None or len(found[2]) % 4:
        return None
    media_type = found[1].casefold()
    return Base64("image/jpeg" if media_type == "image/jpg" else media_type, found[2])


def plain_text(base64: Base64) -> str | None:
    """The text that base64 holds, if it is one."""
    try:
        return binascii.a2b_base64(base64.data).decode()
    except (binascii.Error, UnicodeDecodeError):
        return None


def image_url(url: str) -> str:
    """The URL by which every provider takes an image; empty for one that not all take."""
    if is_web(url):
        return url
    held = base64_of(url)
    if held is None or held.media_type not in IMAGE_TYPES:
        return ""
    return f"data:{held.media_type};base64,{held.data}"


def file_type(part: FilePart) -> str:
    """The media type of a file: as it says, else by its address or its name."""
    if part.media_type:
        return part.media_type
    held = base64_of(part.url)
    if held is not None:
        return held.media_type
    ends = (name.partition("?")[0].casefold().rpartition(".")[2] for name in (part.url, part.name))
    return next((_TYPES[f".{end}"] for end in ends if f".{end}" in _TYPES), "")


def file_url(part: FilePart) -> str:
    """The `data:` URL of a file, with its media type; empty where it has none or that is not known."""
    held, kind = base64_of(part.url), file_type(part)
    return f"data:{kind};base64,{held.data}" if held is not None and kind else ""


def is_heard(part: FilePart) -> bool:
    """Whether a file is audio or video, which no provider takes as a document."""
    return file_type(part).casefold().startswith(("audio/", "video/"))


def input_audio(part: FilePart) -> dict[str, object] | None:
    """Audio as a part of chat completions; `None` for other files, other kinds of audio, and audio by address."""
    held, kind = base64_of(part.url), AUDIO_FORMATS.get(file_type(part).casefold())
    if held is None or kind is None:
        return None
    return {"type": "input_audio", "input_audio": {"data": held.data, "format": kind}}


def id_at(part: ImagePart | FilePart, provider: Provider) -> str:
    """The id of an uploaded file, if it is one of this provider's: Anthropic's begin with `file_`."""
    is_anthropics = part.file_id.startswith("file_")
    return part.file_id if part.file_id and is_anthropics == (provider == "anthropic") else ""
