"""Redaction: a word for its kind replaces every part of a text that may name a person or a company.

The embedded redactor goes by shapes and capitals, in any language with capitals. It takes out too much rather than
too little, and is only the first reader: a person approves every text that leaves.
"""

import re
from collections.abc import Collection, Iterable, Sequence
from typing import Protocol

import msgspec
from attrs import field, frozen

from memory_engine.errors import InvalidPattern
from memory_engine.views.patterns.events import Finding
from memory_engine.views.patterns.names import Names, generic_parts, has_no_capitals
from memory_engine.views.patterns.shapes import PLACEHOLDER, SHAPES, Detector, Masked, Span, substitute

ROUNDS_MAX = 8
"""Each finding changes the text around it, so the detectors run again until none finds more, at most this often."""
KNOWN_PART_CHARS_MIN = 3
KNOWN_INSIDE_CHARS_MIN = 5
"""An id of at least this many characters is looked for inside words too."""
NO_CAPITALS = "part of it is in a writing without capitals: names there are found by titles only; read it with care"
ALL_SMALL = "it has no capitals: names in small letters are not found; read it with care"


class Redacted(msgspec.Struct, frozen=True):
    """A text without the parts that may name a person or a company.

    `text` is the original with each of `found` replaced, and nothing else changed; they are in order and apart.
    `cautions` name for the reviewing person what the redactor could not judge.
    """

    text: str
    found: tuple[Finding, ...] = ()
    cautions: tuple[str, ...] = ()


class Redactor(Protocol):
    """Takes out the parts that may name a person, a company, a place or a thing."""

    def redact(self, text: str) -> Redacted:
        """The redacted text. A redacted one does not change."""
        ...


def _without_case(words: Iterable[str]) -> frozenset[str]:
    return frozenset(word.casefold() for word in words)


class Redactors(msgspec.Struct, frozen=True):
    """The redactor that takes the place of the embedded one, if there is one."""

    redactor: Redactor | None = None


@frozen
class EmbeddedRedactor:
    """E-mail and net addresses, accounts, phones, money, dates, streets, ids, numbers of 3 digits, secrets, names.

    A name is a word with a capital that is neither a known short form (`SQL`) nor a day or month nor, at the
    beginning of a sentence, an everyday word. `allow` are words that are not names, in any case of letters: nouns
    of a language that writes them with capitals, say.
    """

    allow: Collection[str] = field(default=(), converter=_without_case)

    def redact(self, text: str) -> Redacted:
        """The text without them, a word for its kind in brackets instead: `[email]`, `[name]`."""
        masked = Masked.of(text)
        cautions = tuple(_cautions(masked.text))
        _take_out(masked, (*SHAPES, ("name", Names(frozenset(self.allow)))))
        found = masked.found()
        return Redacted(substitute(text, found), found, cautions)


def redact_for(text: str, redactor: Redactor, known: Iterable[str]) -> Redacted:
    """The redactor's result, without any word that holds a known name.

    Raises `InvalidPattern` where the redactor's text is not the original with its findings replaced.
    """
    first = redactor.redact(text)
    try:
        if substitute(text, first.found) != first.text:
            raise ValueError("it changed more than it says")
    except ValueError as error:
        raise InvalidPattern("redactor", type(redactor).__name__, str(error)) from None
    masked = Masked.of(text)
    kept = {(finding.start, finding.end): finding for finding in first.found}
    for finding in first.found:
        masked.mask_original(finding.start, finding.end, finding.kind)
    _take_out(masked, (("name", _known_names(masked.text, known)),))
    found = tuple(kept.get((one.start, one.end), one) for one in masked.found())
    return Redacted(substitute(text, found), found, first.cautions)


def says_anything(text: str) -> bool:
    """Whether words remain besides those taken out."""
    return any(sign.isalpha() for sign in PLACEHOLDER.sub("", text))


def _take_out(masked: Masked, detectors: Sequence[tuple[str, Detector]]) -> None:
    for _ in range(ROUNDS_MAX):
        changed = False
        for kind, detect in detectors:
            changed |= masked.mask(list(detect(masked.text)), kind)
        if not changed:
            return


def _cautions(text: str) -> Iterable[str]:
    if has_no_capitals(text):
        yield NO_CAPITALS
    elif any(sign.islower() for sign in text) and not any(sign.isupper() for sign in text):
        yield ALL_SMALL


def _known_names(text: str, known: Iterable[str]) -> Detector:
    """Finds names however their words are joined: `acme-corp` is `Acme Corp`, `acmecorp`, `acme`."""
    here = "".join(sign for sign in text.casefold() if sign.isalnum())
    patterns = sorted({p for name in known for p in _patterns_of(name, here, text)}, key=len, reverse=True)
    compiled = [re.compile(pattern, re.IGNORECASE) for pattern in patterns]

    def detect(text: str) -> Iterable[Span]:
        return (match.span() for pattern in compiled for match in pattern.finditer(text))

    return lambda text: iter(detect(text))


def _patterns_of(name: str, here: str, text: str) -> Iterable[str]:
    plain = Masked.of(name).text
    parts = re.findall(r"[^\W_]+", plain)
    if not parts:
        if len(plain) > 1 and plain in text:
            yield re.escape(plain)
        return
    whole = "".join(parts)
    if len(whole) > 1 and whole.casefold() in here:
        joined = r"[\W_]{0,3}".join(map(re.escape, parts))
        yield joined if len(whole) >= KNOWN_INSIDE_CHARS_MIN else _whole_word(joined)
    for part in parts if len(parts) > 1 else ():
        if len(part) >= KNOWN_PART_CHARS_MIN and part.casefold() not in generic_parts() and part.casefold() in here:
            yield _whole_word(re.escape(part))


def _whole_word(pattern: str) -> str:
    return rf"(?<![^\W_]){pattern}(?:['’]?s)?(?![^\W_])"
