"""The parts of a text that may leave the process: an engine's mask, a call's placeholders, our logs' filter.

A mask is asked for every text that goes to a model, an embedder or telemetry. Where the answer comes back and is kept,
a secret leaves as a placeholder such as `[secret-1:key]`, and the value returns to its place in the answer.
"""

import logging
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

import msgspec

from memory_engine.core.lazy import lazy_module, regex
from memory_engine.errors import InvalidArgument

if TYPE_CHECKING:
    from memory_engine.language import secrets
    from memory_engine.language.secrets import Secret, SecretKind
else:
    secrets = lazy_module("memory_engine.language.secrets")

Destination = Literal["model", "embedder", "telemetry"]
"""Where a text goes: to a language model, a compactor or a re-ranker; to an embedder; to a probe's spans."""

MASKED_KINDS: "tuple[SecretKind, ...]" = ("password", "code", "key", "card", "account")
"""The kinds that leave masked. Random words do not: ids of calls, hashes and encoded images are random too."""
PROPAGATED_CHARS_MIN = 6
"""Minimum characters of a secret that is masked wherever it occurs in a call, and not only after its name."""
PLACEHOLDER = regex(r"\[secret-(\d{1,6}):(\w{1,20})\]")
CACHED_CHARS_MAX = 200
UUID_CHARS = 36
CHARS_AN_ITEM = 100
"""Characters that are searched for secrets in the time of an item of other work (see `aside`)."""
_QUOTES = "\"'`“”„«»"
_ENDS = _QUOTES + ".,;:"
_NAMES: Mapping[str, str] = {"password": "password", "code": "PIN", "key": "API key"}
"""The words before a value that has no name left where it returns to."""
_UUID = regex(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?:[.:/]\d{1,20}){0,2}")


class Mask(Protocol):
    """Returns what of a text may leave for a destination. The same text must always give the same result.

    A text may pass it twice on its way: what it puts in the place of a secret, it must leave.

    Where a value must come back (a summary must not lose it), a mask needs a method `find` too: see `FindingMask`.
    Vectors are kept apart by the `name` of the mask, else by that of its function or class (see `mask_name`).
    """

    def __call__(self, text: str, destination: Destination, /) -> str:
        """Return what may leave."""
        ...


@runtime_checkable
class FindingMask(Protocol):
    """A mask that knows where in a text its secrets are: models get placeholders, and their answers the values."""

    def __call__(self, text: str, destination: Destination, /) -> str:
        """Return what may leave for good."""
        ...

    def find(self, text: str, destination: Destination, /) -> "Sequence[Secret]":
        """Return the secrets of a text, in order and without overlaps."""
        ...


class SecretMask:
    """The mask of engines that are given none: passwords, keys, codes, card and account numbers, by their look.

    `[secret:key]` replaces each for good, by its kind alone, so that nothing made of the text depends on the secret.
    """

    def __init__(self, kinds: "Collection[SecretKind]" = MASKED_KINDS) -> None:
        self._kinds = tuple(kinds)

    @property
    def name(self) -> str:
        """Empty for the default: its vectors go by the name of the embedder alone."""
        if type(self) is SecretMask and self._kinds == MASKED_KINDS:
            return ""
        return f"{_named_as(type(self))}({','.join(self._kinds)})"

    def __repr__(self) -> str:
        return "SecretMask()" if self._kinds == MASKED_KINDS else f"SecretMask({self._kinds!r})"

    def __call__(self, text: str, destination: Destination, /) -> str:
        """Return the text with each secret replaced by its kind. Lists of ids that are asked for again are cheap."""
        if len(text) > CACHED_CHARS_MAX:
            return _replaced(text, self._kinds)
        if len(text) >= UUID_CHARS and text[8] == text[13] == text[18] == text[23] == "-" and _UUID.fullmatch(text):
            return text
        return _replaced_short(text, self._kinds) if text else ""

    def find(self, text: str, _destination: Destination, /) -> "Sequence[Secret]":
        """Return the secrets of a text, each without the quotes around it."""
        return tuple(_trimmed_secrets(text, self._kinds))


SECRETS = SecretMask()


class MaskInForce(msgspec.Struct, frozen=True):
    """The mask of an engine; `None` hides nothing."""

    mask: Mask | None = SECRETS


UNMASKED = "unmasked"
"""The name of vectors of texts that no mask changes."""


def mask_name(mask: Mask | None) -> str:
    """Return the name by which vectors made behind a mask are known: its own, else that of its function or class.

    Raises `InvalidArgument` for a function that has none of its own: another one would pass for it.
    """
    if mask is None:
        return UNMASKED
    named: object = getattr(mask, "name", None)
    if isinstance(named, str):
        return named
    function = getattr(mask, "__func__", mask)
    if isinstance(mask, partial) or "<lambda>" in getattr(function, "__name__", "") or _holds_values(function):
        why = 'vectors are kept apart by its name: give it one (`mask.name = "v1"`), and another when it changes'
        raise InvalidArgument("mask", mask, why)
    return _named_as(function if hasattr(function, "__qualname__") else type(mask))


def _holds_values(function: object) -> bool:
    """Whether a function was made with values of its own, as each that a function returns is."""
    return bool(getattr(function, "__closure__", None))


def _named_as(named: object) -> str:
    return f"{getattr(named, '__module__', '')}.{getattr(named, '__qualname__', '')}"


def without_secrets(text: str) -> str:
    """Return a text for an error or a line of the program's log, without secrets."""
    return SECRETS(text, "telemetry")


def _trimmed_secrets(text: str, kinds: "tuple[SecretKind, ...]") -> "Iterator[Secret]":
    for secret in secrets.secrets_in(text, kinds):
        start, end = secret.start, secret.end
        while start < end and text[start] in _QUOTES:
            start += 1
        while end > start and text[end - 1] in _ENDS:
            end -= 1
        if end > start:
            yield secrets.Secret(secret.kind, start, end)


def _replaced(text: str, kinds: "tuple[SecretKind, ...]") -> str:
    return _substituted(text, ((one.start, one.end, f"[secret:{one.kind}]") for one in _trimmed_secrets(text, kinds)))


_replaced_short = lru_cache(maxsize=2048)(_replaced)


def _substituted(text: str, parts: Iterable[tuple[int, int, str]]) -> str:
    said: list[str] = []
    done = 0
    for start, end, instead in parts:
        said += (text[done:start], instead)
        done = end
    return "".join((*said, text[done:])) if said else text


class Placeholders:
    """The placeholders of one call: each secret of its texts has one, wherever it occurs in them.

    They are numbered in the order of the texts, after every number that a text has already in such a form. A mask
    without `find` is applied for good: nothing comes back.
    """

    def __init__(self, mask: Mask | None, texts: Iterable[str], destination: Destination = "model") -> None:
        self._mask = mask
        self._destination: Destination = destination
        self._places: dict[str, Sequence[Secret]] = {}
        self._names: dict[str, str] = {}
        self._known: set[str] = set()
        self._everywhere: re.Pattern[str] | None = None
        if isinstance(mask, FindingMask):
            self._number(mask, list(texts))

    def __bool__(self) -> bool:
        """Whether a text is changed at all."""
        return bool(self._names) if isinstance(self._mask, FindingMask) else self._mask is not None

    def _number(self, mask: FindingMask, texts: Sequence[str]) -> None:
        for text in dict.fromkeys(texts):
            self._known.update(match[0] for match in PLACEHOLDER.finditer(text))
            found = mask.find(text, self._destination)
            if found:
                self._places[text] = found
        first = 1 + max((int(match[1]) for name in self._known if (match := PLACEHOLDER.match(name))), default=0)
        kinds: dict[str, str] = {}
        for text, found in self._places.items():
            for one in found:
                kinds.setdefault(text[one.start : one.end], one.kind)
        self._names = {value: f"[secret-{n}:{kind}]" for n, (value, kind) in enumerate(kinds.items(), first)}
        wide = sorted(filter(_is_unmistakable, self._names), key=lambda value: (-len(value), value))
        if wide:
            self._everywhere = re.compile("|".join(map(_bounded, wide)))

    def hide(self, text: str) -> str:
        """Return the text with placeholders for its secrets."""
        if self._mask is None:
            return text
        if not isinstance(self._mask, FindingMask):
            return self._mask(text, self._destination)
        places = [(one.start, one.end) for one in self._places.get(text, ())]
        elsewhere = self._everywhere.finditer(text) if self._everywhere is not None else ()
        places += [match.span() for match in elsewhere if not _overlaps(match.span(), tuple(places))]
        return _substituted(text, ((start, end, self._names[text[start:end]]) for start, end in sorted(places)))

    def restore(self, text: str) -> str:
        """Return the text with the values in the places of their placeholders.

        A value that would not look like a secret there gets a name, so that later masks find it in stored texts:
        "they gave [secret-1:password]" becomes `they gave password: "hunter2"`.
        """
        mask = self._mask
        if not (self._names and "[secret-" in text and isinstance(mask, FindingMask)):
            return text
        values = {name: value for value, name in self._names.items()}
        found = [(match, values[match[0]]) for match in PLACEHOLDER.finditer(text) if match[0] in values]
        plain = _substituted(text, ((match.start(), match.end(), value) for match, value in found))
        hidden = mask(plain, self._destination)
        nameless = {value for _, value in found if value in hidden}
        return _substituted(
            text,
            (
                (match.start(), match.end(), _introduced(match[2], value) if value in nameless else value)
                for match, value in found
            ),
        )

    def invented(self, text: str) -> list[str]:
        """Return the placeholders of an answer that have no value, and were in no text of the call."""
        known = {*self._known, *self._names.values()}
        return [match[0] for match in PLACEHOLDER.finditer(text) if match[0] not in known]


def _introduced(kind: str, value: str) -> str:
    return f'{_NAMES[kind]}: "{value}"' if kind in _NAMES and '"' not in value else value


def _overlaps(span: tuple[int, int], others: Iterable[tuple[int, int]]) -> bool:
    return any(start < span[1] and span[0] < end for start, end in others)


def _is_unmistakable(value: str) -> bool:
    """Return True if a value is long, and no word: `hunter2`, not `sunshine`."""
    return len(value) >= PROPAGATED_CHARS_MIN and any(not sign.isalpha() for sign in value)


def _bounded(value: str) -> str:
    before, after = (r"(?<!\w)" if value[0].isalnum() else ""), (r"(?!\w)" if value[-1].isalnum() else "")
    return f"{before}{re.escape(value)}{after}"


def mapped(value: object, change: Callable[[str], str]) -> object:
    """Return plain data with every text in it changed, but for the keys of mappings and addresses of data."""
    if isinstance(value, str):
        return value if value.startswith("data:") else change(value)
    if isinstance(value, dict):
        return {key: mapped(one, change) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [mapped(one, change) for one in value]
    return value


def texts_in(value: object) -> Iterator[str]:
    """Yield every text in plain data, in order."""
    texts: list[str] = []

    def seen(text: str) -> str:
        texts.append(text)
        return text

    mapped(value, seen)
    yield from texts


LOGGERS = (
    "memory_engine",
    "memory_engine.brief",
    "memory_engine.compaction",
    "memory_engine.conversation",
    "memory_engine.inspector",
    "memory_engine.integrations.langgraph",
    "memory_engine.llm",
    "memory_engine.projections",
    "memory_engine.rebuild",
    "memory_engine.recall",
    "memory_engine.relay",
    "memory_engine.report",
    "memory_engine.retention",
    "memory_engine.runtime.messages",
    "memory_engine.storage",
    "memory_engine.tool_cache",
)
"""Every logger of the library: a filter on one does not see the records of those below it."""


class _WithoutSecrets(logging.Filter):
    """Masks a record in place, and never drops one."""

    def filter(self, record: logging.LogRecord) -> bool:
        said = record.getMessage()
        safe = without_secrets(said)
        if safe != said:
            record.msg, record.args = safe, ()
        if record.exc_info and record.exc_info[1] is not None:
            shown = _FORMATTER.formatException(record.exc_info)
            safe = without_secrets(shown)
            if safe != shown:
                record.exc_text, record.exc_info = safe, None
        for name in vars(record).keys() - _OWN:
            setattr(record, name, mapped(getattr(record, name), without_secrets))
        return True


_OWN = frozenset(vars(logging.makeLogRecord({})))
"""The attributes that every record has; the others are data for log collectors."""
_FORMATTER = logging.Formatter()
_FILTER = _WithoutSecrets()


def mask_logs() -> None:
    """Have all loggers of the library mask secrets. Calling it again changes nothing."""
    for name in LOGGERS:
        logging.getLogger(name).addFilter(_FILTER)
