"""Redaction: the texts that an exported log must not hold.

Texts that a pattern matches are taken out, and names are replaced by other names. An event that repeats another is
recognised only where it names that event.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256

import msgspec
from attrs import Attribute, field, frozen

from memory_engine.core.bounded import is_data_url, of_data_url
from memory_engine.core.chunks import Chunk
from memory_engine.core.events.base import Body, Event, TakenOut, TextPart
from memory_engine.core.events.exchanges import CycleStarted, ExchangeFinished, SummaryRolled
from memory_engine.core.events.memory import MemoryForget
from memory_engine.core.events.roles import Source, roles_of
from memory_engine.core.lazy import regex
from memory_engine.core.lineage import Descent
from memory_engine.core.spelling import Unescaped, unescaped
from memory_engine.errors import InvalidRedaction
from memory_engine.replay.export.log_file import Redacted

STAND_IN = "[redacted]"
"""The stand-in for a text of any length."""


def _names_tuple(value: Sequence[str] | str) -> tuple[str, ...]:
    if isinstance(value, str):
        raise InvalidRedaction(value, "give a list, also of one")
    return tuple(value)


def _numbers_tuple(value: Sequence[int]) -> tuple[int, ...]:
    return tuple(value)


def _check_names(_rules: object, attribute: "Attribute[tuple[str, ...]]", value: tuple[str, ...]) -> None:
    for name in value:
        if not name.strip("."):
            raise InvalidRedaction(name, f"in `{attribute.name}` stands the name of nothing")


def _check_patterns(_rules: object, _attribute: "Attribute[tuple[str, ...]]", value: tuple[str, ...]) -> None:
    for pattern in value:
        try:
            found = re.compile(pattern).search("")
        except re.error as error:
            raise InvalidRedaction(pattern, f"it is not a regular expression: {error}") from None
        if found is not None:
            raise InvalidRedaction(pattern, "it matches where there is nothing")


@frozen(kw_only=True)
class Redaction:
    """The texts to take out of an export; `[redacted]` replaces them. A rule takes out more, never less.

    * `fields`: the texts and numbers in fields of payloads, by name (`"content"`) or by path (`"metadata.email"`)
    * `types`: all texts of events of these types
    * `seqs`: all texts of these events
    * `forgotten`: all texts of forgotten chunks (`Thread.forget`), on by default
    * `patterns`: the matches of these regular expressions, in any text of any event

    Everything that names a redacted event as its origin goes with it: later versions of its chunks, lines of summaries
    that cite it, entries of views that name it as their source. Only patterns reach texts that repeat it in other
    words, or without naming it. Numbers in fields of their own stay unless the field is named. Raises
    `InvalidRedaction`.
    """

    fields: tuple[str, ...] = field(default=(), converter=_names_tuple, validator=_check_names)
    types: tuple[str, ...] = field(default=(), converter=_names_tuple, validator=_check_names)
    patterns: tuple[str, ...] = field(default=(), converter=_names_tuple, validator=_check_patterns)
    seqs: tuple[int, ...] = field(default=(), converter=_numbers_tuple)
    forgotten: bool = True

    def told(self) -> Redacted:
        """The summary in the file: without patterns and places, which may reveal what they hide."""
        return Redacted(
            fields=self.fields,
            types=self.types,
            patterns=len(self.patterns),
            seqs=len(self.seqs),
            forgotten=self.forgotten,
        )


_NAME_PREFIX = "redacted:"
_NAME_DIGITS = 16
_CHUNK_ID = regex(r"[0-9]+\.[0-9]+")
_UUID = regex(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_DERIVED = regex(r"[a-z -]+:[0-9a-f]{32,64}(\.[0-9]+)?")
_JSON_DEPTH_MAX = 8
_STATUSES = frozenset(
    (
        "abandoned approval completed failed in_progress interrupted pending recalled redacted retry started terminated"
    ).split()
)


class Scrubber:
    """Takes out the matches of patterns, and gives a name the same other name each time.

    Other names are made with a secret that is not kept, so the original names cannot be guessed from them.
    """

    def __init__(self, patterns: Sequence[str], secret: bytes) -> None:
        self._patterns = tuple(re.compile(pattern) for pattern in patterns)
        self._secret = secret
        self.hits = [0] * len(self._patterns)

    def scrubbed(self, text: str) -> str:
        """The text without the matches of patterns, also within JSON in it, where characters may be escaped.

        A `data:` URL goes whole where the text in its file matches.
        """
        if not self._patterns or not text:
            return text
        return self._scrubbed(text, 0)

    def matches(self, text: str) -> bool:
        """Whether a pattern matches in the text."""
        return self.scrubbed(text) != text

    def named(self, name: str) -> str:
        """The name, or another one where a pattern matches in it."""
        return self.renamed(name) if self.matches(name) else name

    def first_in(self, text: str) -> str:
        """The first pattern that matches in a text; empty if none does."""
        return next((pattern.pattern for pattern in self._patterns if pattern.search(text)), "")

    def renamed(self, name: str) -> str:
        """Another name for it, always the same."""
        if not name or name.startswith(_NAME_PREFIX):
            return name
        digest = sha256(self._secret + name.encode("utf-8", "surrogatepass")).hexdigest()
        return f"{_NAME_PREFIX}{digest[:_NAME_DIGITS]}"

    def value(self, value: object, depth: int = 0) -> object:
        """A JSON value of any shape, its keys included."""
        match value:
            case str():
                return self._scrubbed(value, depth)
            case bool() | None:
                return value
            case int() | float():
                return STAND_IN if self.matches(str(value)) else value
            case list():
                return [self.value(item, depth) for item in value]
            case dict():
                return {self.named(key): self.value(item, depth) for key, item in value.items()}
        return value

    def _scrubbed(self, text: str, depth: int) -> str:
        if text.lstrip()[:1] in ("{", "[") and depth < _JSON_DEPTH_MAX:
            try:
                value = msgspec.json.decode(text)
            except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
                pass
            else:
                clean = self.value(value, depth + 1)
                if clean != value:
                    text = msgspec.json.encode(clean).decode()
        if is_data_url(text) and self._is_in_file(text):
            return STAND_IN
        read = None
        for n, pattern in enumerate(self._patterns):
            text, found = pattern.subn(lambda _match: STAND_IN, text)
            self.hits[n] += found
            if "\\" in text:
                read = unescaped(text) if read is None or found else read
                less = text if read is None else self._unescaped_out(text, read, n)
                text, read = less, read if less is text else None
        return text

    def _is_in_file(self, url: str) -> bool:
        """Whether a pattern matches in a text file."""
        try:
            return self.matches(of_data_url(url).decode())
        except UnicodeDecodeError:
            return False

    def _unescaped_out(self, text: str, read: Unescaped, n: int) -> str:
        """The text without what matches the `n`-th pattern once its JSON escapes are read."""
        parts: list[str] = []
        done = 0
        for match in self._patterns[n].finditer(read.text):
            first, end = read.starts[match.start()], read.starts[match.end()]
            if done <= first < end:
                parts += (text[done:first], STAND_IN)
                done = end
                self.hits[n] += 1
        return "".join((*parts, text[done:])) if parts else text


def is_status(text: str) -> bool:
    """Whether a chunk's status is a state, and no more: a thought keeps its signature there."""
    return text in _STATUSES


def is_opaque(text: str) -> bool:
    """Whether the engine made an id: its digits reveal nothing, also where a pattern matches in them."""
    return _UUID.fullmatch(text) is not None or _DERIVED.fullmatch(text) is not None


def is_chunk_id(text: str) -> bool:
    """Whether a text is a chunk's id."""
    return _CHUNK_ID.fullmatch(text) is not None


class Hidden(Descent, kw_only=True):
    """Everything taken out of a log so far, while its events go by in order, as events and chunks (see `Descent`).

    `forgotten` are chunks that go by themselves, `lines` digests of summary lines. `texts` are what the events say that
    are hidden from the start, `made` the ids of their calls. `thread_id` is of the log.
    """

    thread_id: str
    forgotten: set[str] = msgspec.field(default_factory=set)
    lines: set[str] = msgspec.field(default_factory=set)
    texts: dict[str, None] = msgspec.field(default_factory=dict)
    made: dict[str, None] = msgspec.field(default_factory=dict)
    _cycle: int = 0
    _asked: dict[int, int] = msgspec.field(default_factory=dict)
    _exchanges: set[int] = msgspec.field(default_factory=set)

    def forget(self, forgotten: MemoryForget) -> None:
        """Take out the chunks that a forgetting names, from the beginning of the log on."""
        self.seqs.update(forgotten.seqs)
        self.forgotten.update(forgotten.chunk_ids)
        self.calls.update(forgotten.call_ids)
        self.lines.update(forgotten.lines)

    def add(self, seq: int, event_id: str, chunks: tuple[Chunk, ...]) -> None:
        """An event was taken out, with all that came of it: its chunks, whole."""
        self.seqs.add(seq)
        self.events.add(event_id)
        if seq in self._asked:
            self._exchanges.add(self._asked[seq])
        for chunk in chunks:
            self.calls.update((chunk.call_id, *(call.id for call in chunk.calls)))
        self.calls.discard("")

    def note(self, bodies: Iterable[Body]) -> None:
        """The words of an event that is hidden from the start."""
        for body in bodies:
            content = (body.content,) if isinstance(body.content, str) else body.content
            for one in content:
                text = one if isinstance(one, str) else one.text if isinstance(one, TextPart) else one.url
                self.texts.update({text: None} if text else {})
            self.made.update(dict.fromkeys(call.id for call in body.calls))

    @property
    def gone(self) -> TakenOut:
        """The same, for events that hold some of it in addition to their own."""
        return TakenOut(self.seqs, tuple(self.texts), tuple(self.made))

    def is_repeated_by(self, event: Event, seq: int) -> bool:
        """Whether an event names something of it as its source."""
        is_of_cycle = self._is_of_cycle(event, seq)
        usual = any(self.holds(source, value, seq) for source, value in _usual_sources(event))
        return is_of_cycle or usual or self.is_source_of(event, seq)

    def holds(self, source: Source, value: object, seq: int) -> bool:
        """See `Descent.holds`. A chunk of an event that was taken out counts only if it held any text."""
        return value in self.chunks if source is Source.CHUNK else super().holds(source, value, seq)

    def _is_of_cycle(self, event: Event, seq: int) -> bool:
        """Take out an exchange that ends the open cycle without naming it: it goes whole, with its question."""
        match event:
            case CycleStarted():
                self._cycle = seq
            case ExchangeFinished(cycle=cycle):
                asked = self._asked[seq] = cycle or self._cycle
                if asked == self._cycle:
                    self._cycle = 0
                return asked in self.seqs
            case SummaryRolled(covers=covers):
                return not self._exchanges.isdisjoint(covers)
        return False


def _usual_sources(event: Event) -> Iterator[tuple[Source, object]]:
    """The values of fields without a declared role, known by their usual names, as plug-ins may have them."""
    roles = roles_of(type(event))
    if "sources" not in roles:
        yield from ((Source.EVENT, one) for one in _texts_in_field(getattr(event, "sources", ())))
    if "drawn_from" not in roles:
        yield from ((Source.SEQ, one) for one in _numbers_in(getattr(event, "drawn_from", ())))


def _texts_in_field(value: object) -> tuple[str, ...]:
    """The texts of a field that an event of a stranger may hold anything in."""
    return tuple(one for one in value if isinstance(one, str)) if isinstance(value, list | tuple) else ()


def _numbers_in(value: object) -> tuple[int, ...]:
    return tuple(one for one in value if isinstance(one, int)) if isinstance(value, list | tuple) else ()
