"""Sensitive texts that are known by their shape: addresses of mail and net, numbers, amounts, dates, streets, ids.

Detectors read a text under redaction in which each character knows its place in the original.
"""

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache

from attrs import define

from memory_engine.core.events.base import TextSpan
from memory_engine.core.lazy import regex
from memory_engine.language.dates import all_names, any_of
from memory_engine.language.secrets import secrets_in
from memory_engine.views.patterns.events import Finding

HOLE = "\ufffc"
"""Detectors see this sign in place of a text that was taken out: neither a letter nor a blank."""
KINDS = (
    "account", "address", "date", "email", "handle", "id", "ip", "money", "name", "number", "path", "phone", "secret",
    "url",
)  # fmt: skip
"""The kinds that the embedded redactor distinguishes; `[email]` replaces an address."""
PLACEHOLDER = regex(rf"\[(?:{'|'.join(KINDS)})\]")

_KEPT = "\0"
"""The kind of a hole that stood in the original already, as a placeholder."""
Span = tuple[int, int]


class _Sign(TextSpan, frozen=True):
    """One character for detectors (`text`), and those of the original behind it."""

    text: str


@define
class Masked:
    """The text without the findings so far.

    Compatibility forms (full-width digits, say) are read as plain ones, invisible signs not at all, so that neither
    hides anything. Placeholders in the text remain.
    """

    original: str
    _signs: list[_Sign]
    text: str

    @classmethod
    def of(cls, original: str) -> "Masked":
        """The whole text: nothing is found yet."""
        signs = _signs_of(original)
        masked = cls(original, signs, "".join(sign.text for sign in signs))
        masked.mask((match.span() for match in PLACEHOLDER.finditer(masked.text)), _KEPT)
        return masked

    def mask(self, spans: Iterable[Span], kind: str) -> bool:
        """Take out spans of `text`, together with what was taken out inside them before. Whether there were any."""
        joined = _merge_spans(self._widened(start, end) for start, end in spans if start < end)
        for start, end in reversed(joined):
            covered = self._signs[start:end]
            hole = _Sign(kind, covered[0].start, max(sign.end for sign in covered), HOLE)
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
        """The findings, in the order of the original."""
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
        return [_Sign("", n, n + 1, text) for n, text in enumerate(original)]
    signs: list[_Sign] = []
    start = 0
    while start < len(original):
        end = start + 1
        while end < len(original) and unicodedata.category(original[end]) in ("Mn", "Me"):
            end += 1
        if unicodedata.category(original[start]) != "Cf":
            plain = unicodedata.normalize("NFKC", original[start:end])
            signs += [_Sign("", start, end, text) for text in plain if text != HOLE]
        start = end
    return signs


def _merge_spans(spans: Iterable[Span]) -> list[Span]:
    """Spans that overlap become one."""
    joined: list[Span] = []
    for start, end in sorted(spans):
        if joined and start < joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined


Detector = Callable[[str], Iterator[Span]]
"""The spans of a text that are of its kind. They may overlap."""

NUMBER_DIGITS_MIN = 3
"""A number of at least this number of digits may name something; smaller ones say how many."""
TOKEN_CHARS_MAX = 30
"""A longer word is a key or a hash: the longest words of everyday German are shorter."""
PHONE_DIGITS_MIN = 7

_TLDS = (
    "ai app at au be biz br ca cat ch club cloud cn co com cz de dev dk edu es eu fi fr gov gr hk hu ie il in info int"
    " io it jobs jp kr li lu me mil mobi mx name net nl no nz online org pl pro pt ro ru se sg shop site sk store tech"
    " tr tv tw ua uk us xyz za"
).replace(" ", "|")
_UNITS = (
    "k|m|mio|mn|bn|mrd|lakh|crore|thousand|million|millions|billion|billions|tausend|millionen|milliarden|mille"
    "|milliers|millones|milhões|milioni|miljoen|тыс|млн|млрд"
)
_CODES = "usd|eur|gbp|chf|jpy|cny|inr|rub|sek|nok|dkk|pln|czk|aud|cad|nzd|brl|mxn|zar|try|krw|sgd|hkd"
_COINS = (
    "dollars?|euros?|pounds?|bucks|yen|yuan|rupees?|francs?|franken|pesos|reais|kronor|kroner"
    r"|\u0440\u0443\u0431\w*|cents?|ct"  # the first: roubles
)
_AMOUNT = rf"(?<!\d)\d(?:[\d.,'’ \u00a0]{{0,24}}\d)?(?:\s?(?:{_UNITS})\b)?"
_DASH = r"[.\-/\u2010-\u2015]"

_EMAIL = (
    r"(?<![\w.+%&'*/=?^`{|}~\-])[\w.+%&'*/=?^`{|}~\-]++(?:\s*(?:@|\(at\)|\[at\]|\{at\})\s*|\s+at\s+(?=[\w-]+\s+dot\s))[\w\-]+"
    r"(?:(?:\s*(?:\(dot\)|\[dot\]|\{dot\})\s*|\s+dot\s+|\.)[\w\-]+)*"
)
_URL = (
    rf"\b[a-z][a-z0-9+.\-]{{1,20}}://[^\s{HOLE}<>\"]+|\b(?:www\d?\.|mailto:|tel:)[^\s{HOLE}<>\"]+"
    rf"|(?<![\w.\-])(?:[\w\-]++\.)+(?:{_TLDS})(?!\w)(?::\d+)?(?:/[^\s{HOLE}<>\"]*)?"
)
_HANDLE = rf"<[@#!][^>{HOLE}]*>|(?<!\w)[@#](?=\w*[^\W\d])[\w.\-]*\w"
_PATH = rf"(?<!\w)(?:[a-z]:\\|\\\\|~/|\.{{0,2}}/(?=[\w.\-]+/))[^\s{HOLE}]+"
_IP = (
    r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?:/\d{1,2})?(?!\w)|(?<![\w:])(?:[0-9a-f]{2}[:\-]){5}[0-9a-f]{2}(?!\w)"
    r"|(?<![\w:])(?:[0-9a-f]{1,4}:){7}[0-9a-f]{1,4}(?!\w)|(?<![\w:])[0-9a-f]{0,4}(?::[0-9a-f]{1,4})*::[0-9a-f:]*(?!\w)"
)
_ACCOUNT = (
    r"(?<!\w)[a-z]{2}\d{2}(?:[ \-]?[a-z0-9]{4}){2,8}(?:[ \-]?[a-z0-9]{1,4})?(?!\w)|(?<!\w)\d(?:[ \-]?\d){12,18}(?!\w)"
)
_MONEY = (
    rf"(?:[$€£¥₹₽₩₺₴]|\b(?:{_CODES}|chf|kr|r\$|rs\.?)(?=[\s\d]))\s?-?{_AMOUNT}"
    rf"|{_AMOUNT}\s?(?:[$€£¥₹₽₩₺₴円元]|(?:{_CODES}|{_COINS})\b)|(?<!\d)\d{{1,9}}(?:[.,]\d{{1,6}})?\s?(?:{_UNITS})\b"
)
_PLACE = r"(?<![\w'’.\-])[^\W\d_][\w'’.\-]{0,40}"
_HOUSE = r"\d{1,5}\s?[a-z]?\b"
_PLACES = rf"{_PLACE}(?:\s{_PLACE}){{0,3}}"
_STREETS = (
    "rue|avenue|boulevard|place|chemin|impasse|allée|quai|calle|avenida|av\\.|plaza|paseo|rua|via|viale|piazza|corso"
    "|travessa|praça|ulica|ul\\.|ул\\.|улица|проспект|пр-т|переулок"
)
_ADDRESS = (
    rf"\b{_HOUSE},?\s(?:{_PLACE}\s){{1,4}}(?:street|st|road|rd|avenue|ave|lane|ln|drive|dr|boulevard|blvd|court|ct"
    r"|place|pl|square|sq|highway|hwy|terrace|crescent|parkway|pkwy)\b\.?(?:,?\s(?:suite|apt|unit|floor|#)\.?\s?\w+)?"
    rf"|{_PLACE}(?:straße|strasse|str\.|gasse|allee|platz|weg|straat|laan|plein|gracht|kade|gatan|vägen|vej|gade)\s"
    rf"{_HOUSE}"
    rf"|\b(?:{_HOUSE},?\s)?(?:(?:bis|ter)\s)?(?:{_STREETS})\s{_PLACES},?\s?(?:n[°º.]|nr\.?|д\.|дом)?\s?{_HOUSE}"
    rf"|\b{_HOUSE},?\s(?:(?:bis|ter)\s)?(?:{_STREETS})\s{_PLACES}"
    r"|\bp\.?\s?o\.?\s?box\s\w+|\b[a-z]{1,2}\d[a-z\d]?\s\d[a-z]{2}\b|\b[a-z]\d[a-z]\s?\d[a-z]\d\b"
)
_PHONE = r"(?<!\w)(?:\+|\(\+?)?\d(?:[\s().\-/]{0,3}\d)+(?:\s?(?:x|ext\.?|dw)\s?\d+)?"
_NUMBER = r"\d(?:[\s.,:/'’()\-+×x*\u2010-\u2015]{0,2}\d)*"
_TOKEN = r"[^\W_]+(?:[_\-]+[^\W_]+)*"
_PLAIN_NUMBERS = frozenset("24/7 100 80/20 50/50 24x7 365".split())
_PLAIN_TOKENS = regex(
    r"(?i:[qhkw]\d|\d+(?:st|nd|rd|th|x|h|s|d|w|y|pm|am|min|mins|hrs?|ms|kg|km|cm|mm|gb|mb|tb|kb)|b2[bc]|ga4|mp[34]|\dd|utf8|p9\d)"
)


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)


def _pattern_detector(pattern: str) -> Detector:
    def detect(text: str) -> Iterator[Span]:
        return (match.span() for match in _compiled(pattern).finditer(text))

    return detect


def _digits(text: str) -> int:
    return sum(sign.isdigit() for sign in text)


@cache
def _date_pattern() -> re.Pattern[str]:
    months = any_of(all_names("months"))
    return _compiled(
        rf"\b\d{{1,4}}\s?{_DASH}\s?\d{{1,2}}\s?{_DASH}\s?\d{{1,4}}\b"
        r"|\d{1,4}\s?[年년]\s?(?:\d{1,2}\s?[月월])?(?:\s?\d{1,2}\s?[日일])?"
        rf"|\d{{1,2}}\s?[月월]\s?(?:\d{{1,2}}\s?[日일])?"
        rf"|\b\d{{1,2}}(?:st|nd|rd|th|er|º|\.)?\s?(?:of |de |di )?(?:{months})\b\.?(?:,? (?:de |del )?\d{{2,4}}\b)?"
        rf"|\b(?:{months})\b\.?\s?(?:the )?\d{{1,2}}(?:st|nd|rd|th)?(?!\d)(?:,? \d{{2,4}}\b)?"
        rf"|\b(?:{months})\b\.?,? (?:de |of )?(?:['’]\d\d|\d{{4}})\b"
    )


def _dates(text: str) -> Iterator[Span]:
    return (match.span() for match in _date_pattern().finditer(text))


def _phones(text: str) -> Iterator[Span]:
    for match in _compiled(_PHONE).finditer(text):
        said = match.group()
        if PHONE_DIGITS_MIN <= _digits(said) and (said[0] in "+(0" or re.search(r"\d[\s().\-/]", said)):
            yield match.span()


def _number_spans(text: str) -> Iterator[Span]:
    for match in _compiled(_NUMBER).finditer(text):
        if _digits(match.group()) >= NUMBER_DIGITS_MIN and match.group() not in _PLAIN_NUMBERS:
            yield match.span()


def _id_spans(text: str) -> Iterator[Span]:
    """Words of letters and digits, but short ones of the trade (`Q3`, `7x`); words no language has."""
    for match in _compiled(_TOKEN).finditer(text):
        parts = re.split(r"[_\-]+", match.group())
        if any(_is_mixed(part) or (len(part) > TOKEN_CHARS_MAX and part.isascii()) for part in parts):
            yield match.span()


def _is_mixed(part: str) -> bool:
    """Whether letters and digits are joined in a way that the trade does not use."""
    if part.isalpha() or not any(sign.isdigit() for sign in part) or not any(sign.isalpha() for sign in part):
        return False
    return _digits(part) >= NUMBER_DIGITS_MIN or _PLAIN_TOKENS.fullmatch(part) is None


def _secrets(text: str) -> Iterator[Span]:
    return ((secret.start, secret.end) for secret in secrets_in(text))


SHAPES: tuple[tuple[str, Detector], ...] = (
    ("email", _pattern_detector(_EMAIL)),
    ("url", _pattern_detector(_URL)),
    ("handle", _pattern_detector(_HANDLE)),
    ("path", _pattern_detector(_PATH)),
    ("ip", _pattern_detector(_IP)),
    ("account", _pattern_detector(_ACCOUNT)),
    ("money", _pattern_detector(_MONEY)),
    ("date", _dates),
    ("address", _pattern_detector(_ADDRESS)),
    ("phone", _phones),
    ("id", _id_spans),
    ("number", _number_spans),
    ("secret", _secrets),
)
"""The detectors in their order: each looks at the text that the ones before left."""
