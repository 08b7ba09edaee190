"""Detection of secrets in a text, which must not be learned, shown again or passed on.

Detects passwords after their names, in many languages and notations; keys by their prefixes, private keys and signed
tokens; card and bank account numbers by their check digits; and random words. A text with JSON escapes is read with
and without them. Detection prefers false positives to false negatives: rules that learn skip a text that contains a
secret.
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from functools import cache
from itertools import pairwise
from math import log2
from typing import Literal

from memory_engine.core.events.base import TextSpan
from memory_engine.core.lazy import regex
from memory_engine.core.spelling import unescaped
from memory_engine.language.credentials import SHOWN, credentials, passwords_in_addresses, places
from memory_engine.language.lists import lists_of

SecretKind = Literal["password", "code", "key", "card", "account", "random"]
MASK = "[secret]"

READ_CHARS_MAX = 200_000
"""Maximum characters of a piece. A longer text is read in overlapping pieces of this size."""
OVERLAP_CHARS = 4_000
SHORT_CHARS = 800
"""Characters from which on a text is searched for the beginnings of names first: shorter ones are read at once."""
KEY_CHARS_MIN = 6
WORD_CHARS_MIN = 3
"""Minimum characters of a password, and digits of a code. Masking a shorter one would mask parts of words."""
PREFIXED_CHARS_MIN = 12
RANDOM_CHARS_MIN = 20
RANDOM_BITS_MIN = 3.5
"""Minimum bits per character, from character frequencies.

Random words of 20 letters and digits have about 4 bits, German words 3.
"""
RANDOM_TURNS_MIN = 0.35
"""Minimum share of characters whose class (lowercase, uppercase, digit) differs from the previous character's.

CamelCase has about a quarter.
"""
CARD_DIGITS = range(13, 20)
IBAN_CHARS = range(15, 35)


class Secret(TextSpan, frozen=True):
    """A secret in a text, without the name before it."""

    kind: SecretKind


def secrets_in(text: str, kinds: Collection[SecretKind] = ()) -> tuple[Secret, ...]:
    """Return the secrets of a text (of these kinds, if given), in order and without overlaps."""
    found: list[Secret] = []
    for secret in sorted(_all(text, kinds), key=lambda secret: (secret.start, -secret.end)):
        if found and secret.start < found[-1].end:
            if secret.end > found[-1].end:
                found[-1] = Secret(found[-1].kind, found[-1].start, secret.end)
        else:
            found.append(secret)
    return tuple(found)


def holds_secret(*texts: str) -> bool:
    """Return True if any of the texts contains a secret."""
    return any(next(_all(text), None) is not None for text in texts)


def tells_secret(name: str, value: object) -> bool:
    """Return True if a value of any type is a secret by its name, or contains a secret."""
    said = str(value)
    return holds_secret(said, f"{name.replace('-', ' ')}: {said}")


def mask_secrets(text: str) -> str:
    """Return the text with each secret replaced by `[secret]`. A text that is already masked stays the same."""
    parts: list[str] = []
    done = 0
    for secret in secrets_in(text):
        parts += (text[done : secret.start], MASK)
        done = secret.end
    return "".join((*parts, text[done:])) if parts else text


def _all(text: str, kinds: Collection[SecretKind] = ()) -> Iterator[Secret]:
    yield from _detected_secrets(text, kinds)
    read = unescaped(text) if "\\" in text else None
    if read is not None:  # such as JSON in a tool's arguments
        for secret in _detected_secrets(read.text, kinds):
            yield Secret(secret.kind, read.starts[secret.start], read.starts[secret.end])


def _detected_secrets(text: str, kinds: Collection[SecretKind]) -> Iterator[Secret]:
    for start in range(0, max(1, len(text) - OVERLAP_CHARS), READ_CHARS_MAX - OVERLAP_CHARS):
        piece = text[start : start + READ_CHARS_MAX]
        for kind, detect in DETECTORS if not kinds else [one for one in DETECTORS if one[0] in kinds]:
            for first, end in detect(piece):
                yield Secret(kind, start + first, start + end)


# Secrets after their names.


@cache
def _sorted_list(name: str) -> tuple[str, ...]:
    """Return the entries of a list, longest first."""
    found = lists_of("memory_engine.language", "secrets.toml")[name]
    return tuple(sorted(found, key=lambda entry: (-len(entry), entry)))


_QUOTED = r"(?:\"[^\"\n]{1,200}\"|'[^'\n]{1,200}'|`[^`\n]{1,200}`|“[^”\n]{1,200}”|„[^“”\n]{1,200}[“”]|«[^»\n]{1,200}»)"
_REST = rf"(?:{_QUOTED}|[^\s\"'`,;{{}}\[\]()<>]\S*(?:[ \t]{{1,8}}(?![-–—(])[^\s,;{{}}\[\]]+)*)"
"""Value up to the end of the line or the next item: a passphrase may contain blanks."""
_ONE = rf"(?:{_QUOTED}|[^\s\"'`,;{{}}()<>]+)"
_OF = "for|to|of|on|für|zu|zum|zur|vom|von|auf|de|del|para|pour|du|da|di|per|voor"
"""Words that link a name to its purpose: "the password *for* staging is …". A password policy is not a password."""
_SEPARATOR = r"[\"'`*_]{0,3}[ \t]{0,8}(?::=|=>|->|→|:|=|\uff1a|\uff1d)[ \t]{0,8}[*_]{0,2}[ \t]{0,8}"


_NOT_SHOWN = r"(?!secret(?:-\d{1,6})?:\w{1,20}\])"
"""The word in a placeholder is the name of nothing: `[secret:password]`, `[secret-1:key]`."""


@cache
def _assignment_pattern(name: str) -> re.Pattern[str]:
    """Return a pattern for `name: value`, `name = value`, `"name": "value"`, `--name value`, "name is value" etc."""
    words = "|".join(re.escape(word).replace(r"\ ", r"[ _.\-]?") for word in _sorted_list(name))
    copulas, adverbs = ("|".join(map(re.escape, _sorted_list(other))) for other in ("copulas", "adverbs"))
    before = r"(?:(?<![^\W_])|(?-i:(?<=[a-z])(?=[A-Z])))"
    unspaced = r"(?:(?![^\W_])|(?<=[\u3040-\u9fff\uac00-\ud7af]))"
    return re.compile(
        rf"(?P<dashes>--?(?:\w{{1,20}}-){{0,3}})?{before}{_NOT_SHOWN}(?:{words}){unspaced}"
        rf"(?:{_SEPARATOR}{SHOWN}(?P<labelled>{_REST})"
        rf"|>{SHOWN}(?P<tagged>[^<\n]{{1,200}})</"
        rf"|(?:[ \t]{{1,8}}(?:{_OF})(?:[ \t]{{1,8}}[^\W\d_]+){{1,3}}?)?[ \t]{{0,8}}"
        rf"(?:(?<![\w])(?:{copulas})(?![\w])|[是为は])[ \t:]{{0,8}}(?:(?:{adverbs})[ \t]{{1,8}}){{0,2}}"
        rf"{SHOWN}(?P<said>{_ONE})"
        rf"|[ \t]{{1,8}}{SHOWN}(?P<next>{_ONE}))",
        re.IGNORECASE,
    )


_EDGES = "\"'`“”„«»*_.,;:!?)("
_LAST = regex(r"[\"'`“”»*_]*\s*(?:[.!?,;)…]|$|\n)")


def _behind(name: str, kind: SecretKind, text: str) -> Iterator[tuple[int, int]]:
    for match in _name_matches(name, text):
        how = match.lastgroup or ""
        if how == "dashes":
            continue
        start, end = match.start(how), _value_end(match, how)
        value = text[start:end].strip(_EDGES)
        word = next(iter(_SCHEME.sub("", value).casefold().split()), "").strip(_EDGES)
        if _IS_SHOWN.match(text, start, end):
            continue
        if len(value) < WORD_CHARS_MIN or not word or word in _states() or not any(map(str.isalnum, word)):
            continue
        if how == "next" and not (match["dashes"] or _is_mixed(word)):
            continue
        if how == "said" and not (_is_mixed(word) or _LAST.match(text, end)):
            continue
        if kind == "code" and sum(map(str.isdigit, word)) < WORD_CHARS_MIN:
            continue
        if kind == "key" and not (_is_key(value) and (_is_mixed(word) or _ASSIGNED.search(match.group()))):
            continue
        if kind != "code" and how == "labelled" and _CALL.match(text[start:end]):
            continue
        yield start, end


def _value_end(match: "re.Match[str]", how: str) -> int:
    """Return where a value ends: an unquoted one at a closing quote around it, and with its word after `NAME=`."""
    value, end = match[how], match.end(how)
    if value[:1] in "\"'`“„«":
        return end
    cut = _CLOSED.search(value)
    if cut is not None and cut.start():
        value = value[: cut.start()]
    if how == "labelled" and match.string[match.start(how) - 1] == "=" and value:
        value = value.split()[0]
    return match.start(how) + len(value)


_CLOSED = regex(r"\\?[\"'`](?=[\s,;)\]}:\\]|$)|\\[nrt]|&\w{1,40}=")
"""The end of a value that has no quotes of its own: a quote around the whole, a written line break, the next item."""
_IS_SHOWN = regex(r"[frb]{0,2}[\"'`“„«]{0,3}\[secret(?:-\d{1,6})?:\w{1,20}\]")
_CALL = regex(r"[A-Za-z_][\w.]*\(")


@cache
def _beginnings(name: str) -> tuple[str, ...]:
    """Return the first words of a list's names."""
    return tuple(sorted({entry.split()[0].lower() for entry in _sorted_list(name)}))


def _name_matches(name: str, text: str) -> Iterator["re.Match[str]"]:
    """Yield the matches of a list's names, as `finditer` does, but only look where a name may begin."""
    pattern, folded = _assignment_pattern(name), text.lower()
    if len(text) < SHORT_CHARS or len(folded) != len(text):  # (of a capital may come two small letters)
        yield from pattern.finditer(text)
        return
    done = 0
    for at in places(folded, _beginnings(name)):
        dashes = _DASHES.search(text, max(done, at - DASHED_CHARS_MAX), at)
        match = pattern.match(text, dashes.start()) if dashes is not None else None
        match = match or (pattern.match(text, at) if at >= done else None)
        if match is not None:
            done = match.end()
            yield match


_DASHES = regex(r"--?(?:\w{1,20}-){0,3}\Z")
DASHED_CHARS_MAX = 66


@cache
def _states() -> frozenset[str]:
    return frozenset(_sorted_list("states"))


def _is_mixed(word: str) -> bool:
    """Return True if a word contains digits, or symbols other than apostrophes, hyphens and full stops."""
    return any(sign.isdigit() for sign in word) or any(not sign.isalnum() and sign not in "'’-–." for sign in word)


def _is_key(value: str) -> bool:
    """Return True if a value may be a key: one long word that is neither a number nor a call.

    Several words are a description of a key.
    """
    words = _SCHEME.sub("", value).split()
    if len(words) != 1 or len(words[0]) < KEY_CHARS_MIN or "(" in words[0]:
        return False
    return not (words[0].translate(_IN_NUMBERS).isdigit() or _is_reference(words[0].strip(_EDGES)))


def _is_reference(word: str) -> bool:
    """Return True if a word is the name of a variable or a field: `self.api_key`, `SERVICE_TOKEN`, `tokens[key]`."""
    plain = _SUBSCRIPT.sub("", word)
    if word.casefold() in _sorted_list("keys"):
        return True
    parts = [part for part in re.split(r"[_.]+", plain.rstrip("]})").lstrip("@$")) if part]
    if plain != word and parts and all(part.isalpha() for part in parts):
        return True
    return len(parts) > 1 and all(
        part.isalpha() and (part[1:].islower() or part.isupper() or len(part) == 1) for part in parts
    )


_SUBSCRIPT = regex(r"\[[^\]]{0,80}\]?$")

_SCHEME = regex(r"(?i:^(?:bearer|basic)\s+)")
_ASSIGNED = regex(r"[=>\"'`]")
"""Characters of machine notations: the value after them is a value even if it is a plain word."""
_IN_NUMBERS = str.maketrans("", "", ".,_:-+")


def _passwords(text: str) -> Iterator[tuple[int, int]]:
    yield from _behind("words", "password", text)
    yield from passwords_in_addresses(text)


def _codes(text: str) -> Iterator[tuple[int, int]]:
    return _behind("codes", "code", text)


# Secrets by their form.

_PRIVATE_KEY = regex(
    r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY[A-Z ]{0,10}-----[\s\S]*?(?:-----END [A-Z0-9 ]{0,60}-----|\Z)"
)
_SIGNED = regex(r"(?<![\w\-])eyJ[\w\-]{8,}\.[\w\-]{8,}(?:\.[\w\-]*)?")


@cache
def _prefixed() -> re.Pattern[str]:
    beginnings = "|".join(map(re.escape, _sorted_list("prefixes")))
    return re.compile(rf"(?<![\w\-])(?:{beginnings})[\w\-.+/=]{{{PREFIXED_CHARS_MIN},}}")


def _keys(text: str) -> Iterator[tuple[int, int]]:
    yield from _behind("keys", "key", text)
    yield from credentials(text)
    for pattern in (_PRIVATE_KEY, _SIGNED):
        yield from (match.span() for match in pattern.finditer(text))
    prefixed = _prefixed()
    found = (prefixed.match(text, at) for at in places(text, _sorted_list("prefixes")))
    for match in prefixed.finditer(text) if len(text) < SHORT_CHARS else filter(None, found):
        said = match.group().rstrip(".")
        if any(sign.isdigit() for sign in said[3:]) and any(sign.isalpha() for sign in said[3:]):
            yield match.start(), match.start() + len(said)


_DIGITS = regex(r"(?<![\w.,+\-])\d(?:[ \-]?\d){12,18}(?![\w\-]|[.,]\d)")
_IBAN = regex(r"(?<!\w)[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,4})?(?!\w)")


def _cards(text: str) -> Iterator[tuple[int, int]]:
    for match in _DIGITS.finditer(text):
        digits = [int(sign) for sign in match.group() if sign.isdigit()]
        if len(digits) in CARD_DIGITS and digits[0] in range(2, 7) and passes_luhn(digits):
            yield match.span()


def passes_luhn(digits: list[int]) -> bool:
    """Return True if the last digit is the check digit of the others, as on cards (ISO/IEC 7812-1, H. P. Luhn)."""
    doubled = (2 * digit for digit in digits[-2::-2])
    return (sum(digits[-1::-2]) + sum(digit - 9 if digit > 9 else digit for digit in doubled)) % 10 == 0


def _accounts(text: str) -> Iterator[tuple[int, int]]:
    for match in _IBAN.finditer(text):
        said = match.group()
        if len(said.replace(" ", "")) in IBAN_CHARS and _is_iban(said.replace(" ", "")):
            yield match.span()


def _is_iban(said: str) -> bool:
    """Return True if a bank account number has valid check digits (ISO 13616: modulo 97 is 1)."""
    return int("".join(str(int(sign, 36)) for sign in said[4:] + said[:4])) % 97 == 1


_WORD = regex(rf"(?<![\w+/=\-])[\w+/=\-]{{{RANDOM_CHARS_MIN},}}", re.ASCII)


def _random(text: str) -> Iterator[tuple[int, int]]:
    return (match.span() for match in _WORD.finditer(text) if is_random(match.group()))


def is_random(word: str) -> bool:
    """Return True if a word looks random: mixed uppercase, lowercase and digits in no order, with high entropy."""
    sorts = ["A" if sign.isupper() else "a" if sign.islower() else "0" for sign in word if sign.isalnum()]
    if len(set(sorts)) < 3 or len(sorts) < RANDOM_CHARS_MIN:
        return False
    turns = sum(one != other for one, other in pairwise(sorts))
    return turns >= RANDOM_TURNS_MIN * len(sorts) and _bits(word) >= RANDOM_BITS_MIN


def _bits(word: str) -> float:
    """Return the entropy per character, from character frequencies (Shannon 1948)."""
    return -sum(n / len(word) * log2(n / len(word)) for n in Counter(word).values())


DETECTORS: tuple[tuple[SecretKind, Callable[[str], Iterator[tuple[int, int]]]], ...] = (
    ("password", _passwords),
    ("code", _codes),
    ("key", _keys),
    ("card", _cards),
    ("account", _accounts),
    ("random", _random),
)
