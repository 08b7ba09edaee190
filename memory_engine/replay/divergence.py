"""The result of verifying a log: that all agrees, or the first place where it does not."""

from collections.abc import Iterator, Sequence

import msgspec

from memory_engine.core.excerpts import counted, one_line
from memory_engine.core.json_form import JsonForm
from memory_engine.errors import IntegrityError, PluginNotLoaded
from memory_engine.reports import WIDTH, Drawable, Line, Paper, first_lines, line

_SAID = {
    "gap": "a gap in the log",
    "redaction": "texts were exchanged",
    "record": "the thread's record cannot be read",
    "operations": "operations differ",
    "reducer": "the reducer fails",
    "undecodable": "cannot be decoded",
    "unloaded": "its plug-in is not loaded",
    "state": "rows of the state differ",
    "projection": "rows of a view differ",
    "snapshot": "a snapshot differs",
    "search": "the search index differs",
    "ids": "the index of event ids differs",
    "thread": "its facts cannot be those of a thread",
}


class Divergence(JsonForm, msgspec.Struct, frozen=True, kw_only=True):
    """The first place where the log, its reducers and the rows derived from it disagree.

    `kind`: `gap`, `hash`, `redaction` (texts exchanged), `operations` (the reducers return others now), `reducer` (they
    raise), `undecodable`, `unloaded` (no plug-in here declares its type, and the event is intact), `head`, `state`
    (live rows), `projection` (rows of a view), `snapshot`, `search` (passages, words, vectors), `ids` (the index of
    event ids), `thread` or `record` (facts of it that cannot be true, or read).

    `reducer` names the reducers that may act differently, or the view. `expected` is what is recorded, `found` what a
    replay gives or what went wrong; `difference` says it in lines: `chunk 5.0 content: 'Hello' → 'Hi'`.
    """

    thread_id: str
    seq: int
    kind: str
    event_id: str = ""
    event_type: str = ""
    reducer: str = ""
    expected: str = ""
    found: str = ""
    difference: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """Its place and kind, in one line."""
        facts = [self.event_type, f"reducer {self.reducer}" if self.reducer and self.event_type else self.reducer]
        at = f" ({', '.join(filter(None, facts))})" if any(facts) else ""
        return f"thread {self.thread_id!r}, seq {self.seq}{at}: {_SAID.get(self.kind, f'{self.kind} differs')}"

    @property
    def lines(self) -> tuple[str, ...]:
        """The difference, or the error."""
        if self.difference or self.kind == "hash":
            return self.difference
        return (self.found,) if self.found else ()

    def __str__(self) -> str:
        more = f" (and {len(self.lines) - 1} lines more)" if len(self.lines) > 1 else ""
        return f"{self.title}: {self.lines[0]}{more}" if self.lines else self.title


class LackingContext(JsonForm, msgspec.Struct, frozen=True, kw_only=True):
    """From the event at `seq` on, contexts of `max_tokens` tokens lacked statements that stood in the brief.

    The first was built at `upto`. `lacks` counts the statements, `unsaid` are the seqs of their messages. This holds
    until the thread's next `context_asked`.
    """

    thread_id: str
    seq: int
    upto: int
    max_tokens: int
    lacks: int
    unsaid: tuple[int, ...] = ()

    def __str__(self) -> str:
        messages = f" (messages {', '.join(map(str, self.unsaid))})" if self.unsaid else ""
        said = counted(self.lacks, "standing statement")
        return f"{self.thread_id}, event {self.seq}: a context of {self.max_tokens:,} tokens lacked {said}{messages}"


class VerifyReport(Drawable, msgspec.Struct, frozen=True, kw_only=True):
    """The result of a verification. `events` were checked; the log is intact if there is no divergence.

    `redacted` of them lack their texts: a recorded act put there what they hold now, except for the `unattested` ones,
    for which only the file they came in vouches. `unloaded_types` are the types of its events that no plug-in here
    declares: then it was verified up to the first of these. `lacking` are contexts of the log that lacked statements of
    the brief, which is no divergence.
    """

    thread_id: str
    events: int
    head_seq: int
    head_hash: str
    divergence: Divergence | None = None
    redacted: int = 0
    unattested: int = 0
    unloaded_types: tuple[str, ...] = ()
    lacking: tuple[LackingContext, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether everything agreed."""
        return self.divergence is None

    @property
    def broken(self) -> IntegrityError | None:
        """The error of a log that is itself broken, whatever is derived from it."""
        found = self.divergence
        if found is None or found.kind not in ("gap", "hash", "redaction"):
            return None
        return IntegrityError(self.thread_id, found.seq, ": ".join((_SAID.get(found.kind, "its hash"), *found.lines)))

    @property
    def unloaded(self) -> PluginNotLoaded | None:
        """The error that names the event types of a plug-in that is not loaded; the log itself may well be intact."""
        if not self.unloaded_types:
            return None
        return PluginNotLoaded((self.thread_id,), self.unloaded_types)

    def drawn(self, paper: Paper) -> Iterator[Line]:
        """Whether a thread is as recorded, or where it is not."""
        events = f"{one_line(self.thread_id, paper.width // 2)}: {counted(self.events, 'event')}"
        if self.divergence is None:
            yield line(f"{events}: every hash, operation and state is as recorded", "green")
        else:
            yield from divergence_lines(self.divergence)
        yield from redaction_lines(self.redacted, self.unattested)
        yield from lacking_lines(self.lacking)

    def as_data(self) -> dict[str, object]:
        """As plain JSON values."""
        return super().as_data() | {"ok": self.ok}


DIFFERS = 400
"""Columns of a line that says what differs."""


def divergence_lines(divergence: Divergence) -> Iterator[Line]:
    """Where a log diverges, and how: the stored value in red, the value a replay gives now in green."""
    yield line(divergence.title, "red")
    for text in divergence.lines:
        kept, arrow, now = one_line(text, DIFFERS).partition(" → ")
        what, colon, value = kept.partition(": ")
        shown = ((value, "red"), (arrow, ""), (now, "green")) if arrow else ((value, ""),)
        yield (f"  {what}{colon}", ""), *shown


LACKING_MAX = 10
"""Contexts that lacked statements and are listed for people."""


def lacking_lines(lacking: Sequence[LackingContext]) -> Iterator[Line]:
    """Which contexts of the log lacked statements that stood, a line each."""
    rest = "… and {} more contexts that lacked statements"
    yield from first_lines(lacking, LACKING_MAX, lambda one: line(one_line(str(one), WIDTH), "yellow"), rest)


def redaction_lines(redacted: int, unattested: int) -> Iterator[Line]:
    """How many events lack their texts, and who vouches for their stand-ins."""
    if redacted > unattested:
        erased = counted(redacted - unattested, "event")
        yield line(f"{erased} redacted: what stands in place of their texts is what a recorded act has put there")
    if unattested:
        came = counted(unattested, "event")
        yield line(f"{came} redacted in a file: what stands in place of their texts cannot be checked")
