"""A text under redaction: as detectors read it, each character knowing where it stands in the original."""

import unicodedata
from collections.abc import Iterable, Sequence

import msgspec
from attrs import define

from memory_engine.events.patterns import Finding
from memory_engine.regex import regex

HOLE = "\ufffc"
"""What detectors see in the place of what was taken out: neither a letter nor a blank."""
KINDS = (
    "account", "address", "date", "email", "handle", "id", "ip", "money", "name", "number", "path", "phone", "url",
)  # fmt: skip
"""What the embedded redactor tells apart; `[email]` stands for what it took out."""
PLACEHOLDER = regex(rf"\[(?:{'|'.join(KINDS)})\]")

_KEPT = "\0"
"""The kind of a hole that stood in the original already, as a placeholder."""
Span = tuple[int, int]


class _Sign(msgspec.Struct, frozen=True):
    """One character as detectors see it, and the characters `start` to `end` of the original that it stands for."""

    text: str
    start: int
    end: int
    kind: str = ""


@define
class Masked:
    """The text without what was found so far.

    Compatibility forms (full-width digits, say) are read as plain ones, invisible signs not at all, so that neither
    hides anything. Placeholders that stand in the text stay.
    """

    original: str
    _signs: list[_Sign]
    text: str

    @classmethod
    def of(cls, original: str) -> "Masked":
        """Nothing found yet."""
        signs = _signs_of(original)
        masked = cls(original, signs, "".join(sign.text for sign in signs))
        masked.mask((match.span() for match in PLACEHOLDER.finditer(masked.text)), _KEPT)
        return masked

    def mask(self, spans: Iterable[Span], kind: str) -> bool:
        """Take out spans of `text`, together with what was taken out inside them before. Whether there were any."""
        joined = _joined(self._widened(start, end) for start, end in spans if start < end)
        for start, end in reversed(joined):
            covered = self._signs[start:end]
            hole = _Sign(HOLE, covered[0].start, max(sign.end for sign in covered), kind)
            self._signs[start:end] = [hole]
        if joined:
            self.text = "".join(sign.text for sign in self._signs)
        return bool(joined)

    def _widened(self, start: int, end: int) -> Span:
        """The span with all signs of each character of the original that it touches."""
        while start > 0 and self._signs[start - 1].end > self._signs[start].start:
            start -= 1
        while end < len(self._signs) and self._signs[end].start < self._signs[end - 1].end:
            end += 1
        return start, end

    def mask_original(self, start: int, end: int, kind: str) -> None:
        """Take out a span of the original."""
        inside = [n for n, sign in enumerate(self._signs) if sign.start < end and sign.end > start]
        if inside:
            self.mask([(inside[0], inside[-1] + 1)], kind)

    def found(self) -> tuple[Finding, ...]:
        """What was taken out, in the order of the original."""
        holes = (sign for sign in self._signs if sign.kind not in ("", _KEPT))
        return tuple(Finding(sign.kind, sign.start, sign.end, f"[{sign.kind}]") for sign in holes)


def substitute(original: str, found: Sequence[Finding]) -> str:
    """The original with each finding replaced. They must be in order and apart, within it: else `ValueError`."""
    parts: list[str] = []
    done = 0
    for finding in found:
        if not done <= finding.start < finding.end <= len(original):
            raise ValueError(f"the finding at {finding.start} to {finding.end} is out of place")
        parts += (original[done : finding.start], finding.replacement)
        done = finding.end
    return "".join((*parts, original[done:]))


def _signs_of(original: str) -> list[_Sign]:
    if original.isascii():
        return [_Sign(text, n, n + 1) for n, text in enumerate(original)]
    signs: list[_Sign] = []
    start = 0
    while start < len(original):
        end = start + 1
        while end < len(original) and unicodedata.category(original[end]) in ("Mn", "Me"):
            end += 1
        if unicodedata.category(original[start]) != "Cf":
            plain = unicodedata.normalize("NFKC", original[start:end])
            signs += [_Sign(text, start, end) for text in plain if text != HOLE]
        start = end
    return signs


def _joined(spans: Iterable[Span]) -> list[Span]:
    """Spans that overlap become one."""
    joined: list[Span] = []
    for start, end in sorted(spans):
        if joined and start < joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined
