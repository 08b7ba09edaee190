"""Word pieces: how BERT's models without case take a text apart, so that MiniLM needs no library for it.

J. Devlin and others, "BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding", 2018. The
vocabulary in this folder is that of `bert-base-uncased` (Google, Apache License 2.0), one piece a line.
"""

import gzip
import unicodedata
from collections.abc import Iterator, Mapping
from functools import cache

from memory_engine.language.lists import data_bytes

WORD_CHARS_MAX = 100
"""A longer word is unknown as a whole."""
_WITHOUT_SIGN = frozenset({0, 0xFFFD})
_WITHOUT_CATEGORY = frozenset({"Cc", "Cf", "Co", "Cs"})
_LETTERS_APART = ((0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x2FA1F))
"""Han: each sign is a word."""


@cache
def vocabulary() -> Mapping[str, int]:
    """The number of each piece; pieces within a word begin with `##`."""
    packed = data_bytes("memory_engine.recall", "uncased.txt.gz")
    return {piece: number for number, piece in enumerate(gzip.decompress(packed).decode("utf-8").splitlines())}


def token_ids(text: str, tokens_max: int) -> list[int]:
    """The numbers of a text's pieces between the marks of its beginning and end, at most `tokens_max` with these."""
    known = vocabulary()
    found = [known["[CLS]"]]
    for word in _basic_tokens(text):
        found += _pieces(word, known)
        if len(found) >= tokens_max:
            break
    return [*found[: tokens_max - 1], known["[SEP]"]]


def _basic_tokens(text: str) -> Iterator[str]:
    """The words of a text in lower case and without accents; each punctuation mark and each Han sign is one."""
    plain = "".join(" " if sign.isspace() else sign for sign in text if sign.isspace() or _is_kept(sign))
    folded = unicodedata.normalize("NFD", plain.lower())
    spaced = "".join(
        f" {sign} " if _stands_alone(sign) else sign for sign in folded if unicodedata.category(sign) != "Mn"
    )
    return iter(spaced.split())


def _is_kept(sign: str) -> bool:
    return ord(sign) not in _WITHOUT_SIGN and unicodedata.category(sign) not in _WITHOUT_CATEGORY


def _stands_alone(sign: str) -> bool:
    if sign.isascii():
        return not sign.isalnum() and not sign.isspace()
    if unicodedata.category(sign).startswith("P"):
        return True
    return any(first <= ord(sign) <= last for first, last in _LETTERS_APART)


def _pieces(word: str, known: Mapping[str, int]) -> list[int]:
    """The longest known pieces from the left; a word with a part that is no piece is unknown as a whole."""
    if len(word) > WORD_CHARS_MAX:
        return [known["[UNK]"]]
    found: list[int] = []
    start = 0
    while start < len(word):
        mark = "##" if start else ""
        end = next((end for end in range(len(word), start, -1) if mark + word[start:end] in known), start)
        if end == start:
            return [known["[UNK]"]]
        found.append(known[mark + word[start:end]])
        start = end
    return found
