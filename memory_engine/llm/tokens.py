"""Exact token counts with OpenAI's encodings, without a network.

tiktoken downloads an encoding's table at its first use. The package litellm contains three of the
tables; they are read from there without importing it, else from tiktoken's cache.
"""

import base64
import functools
import hashlib
import importlib.util
import os
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from memory_engine.core.bounded import read_file
from memory_engine.core.lazy import regex
from memory_engine.errors import InvalidIdentifier, MissingExtra

CACHED_COUNTS_MAX = 4096
"""Counts kept by one tokenizer, under the text, or under the digest of a long text."""
KEY_CHARS_MAX = 256
PIECE_CHARS_MAX = 100_000
"""Beyond a few hundred thousand blanks in a row, tiktoken panics (its regex engine's stack overflows)."""
_PIECES = regex(rf"(?s).{{1,{PIECE_CHARS_MAX - 1}}}\S(?= )|.{{1,{PIECE_CHARS_MAX}}}")
"""Every encoding begins a new token at a blank that follows something else: there a cut changes no count."""

_PAIRS = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"
_CL100K = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$"
    r"|\s*[\r\n]|\s+(?!\S)|\s"
)
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_O200K = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    rf"|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


class _Table(msgspec.Struct, frozen=True):
    """A file of tiktoken's: its address names it in every cache, its digest proves its content."""

    address: str
    sha256: str
    pattern: str


_BASE = "https://openaipublic.blob.core.windows.net/encodings/"
_TABLES = {
    "o200k_base": _Table(
        _BASE + "o200k_base.tiktoken",
        "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
        _O200K,
    ),
    "cl100k_base": _Table(
        _BASE + "cl100k_base.tiktoken",
        "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
        _CL100K,
    ),
    "p50k_base": _Table(
        _BASE + "p50k_base.tiktoken",
        "94b5ca7dff4d00767bc256fdd1b27e5b17361d7b8a5f968547f9f23eb70d2069",
        _PAIRS,
    ),
    "r50k_base": _Table(
        _BASE + "r50k_base.tiktoken",
        "306cd27f03c1a714eca7108e03d66b7dc042abe8c258b44c199a7ed9838dd930",
        _PAIRS,
    ),
}
_SAME_TEXT = {"o200k_harmony": "o200k_base", "p50k_edit": "p50k_base", "gpt2": "r50k_base"}
"""Encodings that differ from another in special tokens only, which no text contains."""


class Tokenizer:
    """Counts as OpenAI's models do: a `TokenCounter` that is exact.

    `model_or_encoding` is a model (`"gpt-4o"`, also `"openai/gpt-4o"`) or an encoding
    (`"o200k_base"`). Text that looks like a special token counts as plain text. Reading the
    table takes up to half a second; it is shared by all tokenizers of a process. Raises
    `MissingExtra` where tiktoken or the table is missing, and `InvalidIdentifier` for a
    model whose encoding is not known: another provider's model has another tokenizer.
    """

    exact = True

    def __init__(self, model_or_encoding: str) -> None:
        self._encoding_name = encoding_name(model_or_encoding)
        self._encoding = _encoding(_SAME_TEXT.get(self._encoding_name, self._encoding_name))
        self._counts: OrderedDict[str | bytes, int] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        """The encoding's name."""
        return self._encoding_name

    def __repr__(self) -> str:
        return f"Tokenizer({self._encoding_name!r})"

    def count(self, text: str) -> int:
        """The tokens of `text`. The latest counts are remembered. Callable from any thread.

        Exact, but for a text with no blank in 100,000 characters, where it may be a token or two too many.
        """
        key = _cache_key(text)
        with self._lock:
            if key in self._counts:
                self._counts.move_to_end(key)
                return self._counts[key]
        pieces = [text] if len(text) <= PIECE_CHARS_MAX else _PIECES.findall(text)
        count = sum(len(self._encoding.encode_ordinary(piece)) for piece in pieces)
        with self._lock:
            self._counts[key] = count
            if len(self._counts) > CACHED_COUNTS_MAX:
                self._counts.popitem(last=False)
        return count


def encoding_name(model_or_encoding: str) -> str:
    """The encoding that a model uses, or the name itself where it is an encoding's."""
    if model_or_encoding in _TABLES or model_or_encoding in _SAME_TEXT:
        return model_or_encoding
    model = model_or_encoding.rpartition("/")[2]
    try:
        name: str = _tiktoken().model.encoding_name_for_model(model)
    except KeyError:
        why = "its tokenizer is not known; name an encoding, such as 'o200k_base', or count with the estimate"
        raise InvalidIdentifier("model", model_or_encoding, why) from None
    return name


@functools.cache
def _encoding(name: str) -> Any:
    """The encoding from a file on this machine; made once."""
    tiktoken, table = _tiktoken(), _TABLES[name]
    key = hashlib.sha1(table.address.encode(), usedforsecurity=False).hexdigest()
    for folder in _folders():
        path = folder / key
        if path.is_file() and hashlib.sha256(content := read_file(path)).hexdigest() == table.sha256:
            pairs = (line.split() for line in content.splitlines() if line)
            ranks = {base64.b64decode(token): int(rank) for token, rank in pairs}
            return tiktoken.Encoding(name, pat_str=table.pattern, mergeable_ranks=ranks, special_tokens={})
    if name == "r50k_base":
        why = f"its table is not in tiktoken's cache; fetch it once with tiktoken.get_encoding({name!r})"
        raise InvalidIdentifier("encoding", name, why)
    raise MissingExtra(f"the table of {name}, which tiktoken would download,", "llm")


def _folders() -> Iterator[Path]:
    """The places where tables may be: litellm's package, then tiktoken's cache."""
    spec = importlib.util.find_spec("litellm")
    for place in (spec.submodule_search_locations or ()) if spec is not None else ():
        yield Path(place, "litellm_core_utils", "tokenizers")
    for variable in ("TIKTOKEN_CACHE_DIR", "DATA_GYM_CACHE_DIR"):
        if folder := os.environ.get(variable):
            yield Path(folder)
    yield Path(tempfile.gettempdir(), "data-gym-cache")


def _tiktoken() -> Any:
    """The module and its table of models."""
    try:
        import tiktoken.model
    except ImportError:
        raise MissingExtra("counting tokens exactly", "tokenizer") from None
    return tiktoken


def _cache_key(text: str) -> str | bytes:
    if len(text) <= KEY_CHARS_MAX:
        return text
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
