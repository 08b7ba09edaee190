"""Search results: hits read back from their events, and how they were found."""

from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime, tzinfo
from functools import partial
from typing import TYPE_CHECKING, Literal, overload

import msgspec
from attrs import field, frozen

from memory_engine.core.aside import aside
from memory_engine.core.chain import decode_event
from memory_engine.core.clock import local_time, to_datetime
from memory_engine.core.json_form import JsonForm
from memory_engine.core.records import StoredEvent
from memory_engine.recall.candidates import Choice
from memory_engine.recall.ranking import Ranked
from memory_engine.runtime.kernel import Kernel
from memory_engine.store.passages import PLACES_BITS, THREAD_BITS, Extractors, Text
from memory_engine.store.reader import LogReader

if TYPE_CHECKING:
    from memory_engine.reports import Line

KINDS = (
    "message", "tool", "task", "note", "snippet", "memory", "preference", "playbook", "agent_md", "document", "pattern",
    "item", "summary",
)  # fmt: skip
"""The kinds of passages from built-in events. Your own events may add others."""


SUPERSEDED = " (superseded)"
"""The end of a statement in a context that a later one is known to replace."""


class Hit(JsonForm, msgspec.Struct, frozen=True, kw_only=True):
    """A passage that was found. It counts as recalled: nothing is learned from it a second time.

    `text` is the passage: the `n`-th (from 0) of the event `event_id` at `seq` of the thread. `kind` is one of `KINDS`,
    `role` and `speaker` say who said it, `at` when (the time of recording, if no other is known), in the zone of the
    search (see `EngineConfig.timezone`). `about` is the title or heading above it. `score` is from 0 to 1 within its
    search; `why` names the signals that it mostly rests on, and `parts`, if you asked for them, what each added. `key`
    names what the passage belongs to ("preference:verbosity", "document:<id>:…"). `likeness` is the model's cosine of
    question and passage, if both have a vector. `alike` are ids of events whose near-duplicates were left out. Of a
    statement that a decision says is replaced, `superseded_by` is the id of the event whose statement replaces it, and
    `decided_by` that of the event that decided so (see `thread.views.statements`).
    """

    json_names = "text kind role speaker about at thread_id seq event_id event_type key score why parts alike"

    text: str
    kind: str
    role: str
    speaker: str
    at: datetime
    thread_id: str
    seq: int
    n: int
    event_id: str
    event_type: str
    score: float
    why: str
    parts: Mapping[str, float] = {}
    key: str = ""
    about: str = ""
    likeness: float | None = None
    alike: tuple[str, ...] = ()
    recalled: bool = True
    superseded_by: str = ""
    decided_by: str = ""

    def as_data(self) -> dict[str, object]:
        """As plain JSON values; of a replaced statement also what replaces it, and what decided so."""
        replaced = {"superseded_by": self.superseded_by, "decided_by": self.decided_by} if self.superseded_by else {}
        return super().as_data() | replaced

    @property
    def sources(self) -> tuple[str, ...]:
        """Ids of the events that hold this passage or a near-duplicate."""
        return (self.event_id, *self.alike)

    @property
    def passage(self) -> tuple[str, int, int]:
        """Which passage it is: its thread, the event's seq, and which of the event's."""
        return self.thread_id, self.seq, self.n

    def rendered(self) -> str:
        """The passage preceded by its date and speaker."""
        return f"[{self.day}] {self._said()}"

    def below_its_day(self) -> str:
        """The same, for a list under the day on which it was said."""
        return self._said()

    @property
    def day(self) -> str:
        """The day on which it was said, in the zone of the search."""
        return day_of(self.at)

    def _said(self) -> str:
        named = (name for name in (self._attributed(), self.about) if name)
        return ": ".join((*named, self.text)) + SUPERSEDED * bool(self.superseded_by)

    def _attributed(self) -> str:
        """Who says it, or the kind of what nobody says. A tool may be named "user", so that it is one is said too."""
        if self.event_type == "llm_subagent_message":
            return f"sub-agent {self.speaker}"
        if self.role and self.role != "tool":
            return self.speaker or self.role
        return f"{self.role or self.kind.replace('_', ' ')} {self.speaker}".rstrip()


Missing = Literal["embedder", "re-ranker"]
"""A model that should take part in a search."""


@frozen(kw_only=True)
class Found(Sequence[Hit]):
    """Hits, best first.

    `how` is "hybrid" if a model's vectors took part, else "lexical". `failure` says why they did not although there is
    an embedder (or why a re-ranker's scores are missing); `missing` names the models that did not answer. `waiting`
    passages had no vector yet. `unindexed` events of a long log, or passages of long events, were not searched: they
    are being indexed for later searches. `unread` are the ids of damaged threads, which were left out. `untrusted`
    counts the passages that were left out because their origin is lower than `min_trust`.
    """

    query: str
    hits: tuple[Hit, ...] = ()
    how: str = "lexical"
    failure: str = ""
    waiting: int = 0
    unindexed: int = 0
    missing: tuple[Missing, ...] = ()
    unread: tuple[str, ...] = ()
    untrusted: int = 0

    @overload
    def __getitem__(self, at: int) -> Hit: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[Hit, ...]: ...
    def __getitem__(self, at: int | slice) -> Hit | tuple[Hit, ...]:
        """A hit, or a slice of them."""
        return self.hits[at]

    def __len__(self) -> int:
        return len(self.hits)

    def __str__(self) -> str:
        from memory_engine.reports import plain

        return plain(self._lines())

    def _lines(self) -> "Iterator[Line]":
        """The hits under a head that says how they were found, and what was not searched."""
        from memory_engine.core.excerpts import number, one_line
        from memory_engine.reports import WIDTH, line

        yield line(one_line(f"{len(self.hits)} found for “{self.query}” ({self.how})", WIDTH), "bold")
        yield from hit_lines(self.hits, text_lines_max=2)
        if self.failure:
            yield line(f"found by words alone: {self.failure}")
        if self.unindexed:
            yield line(f"{number(self.unindexed)} are not indexed yet and were not searched")
        if self.untrusted:
            yield line(f"{number(self.untrusted)} of a lower origin were left out")
        if self.unread:
            yield line(one_line(f"damaged, and not searched: {' '.join(self.unread)}", WIDTH))

    def _repr_html_(self) -> str:
        """The hits, best first, for a notebook."""
        from memory_engine.core.notebook import table

        rows = (
            (f"{hit.score:.2f}", hit.kind, f"{hit.at:%Y-%m-%d %H:%M}", f"{hit.thread_id} #{hit.seq}", hit.text)
            for hit in self.hits
        )
        columns = ("score", "kind", "at", "event", "text")
        return table(f"{len(self.hits)} found for “{self.query}” ({self.how})", columns, rows)

    def __iter__(self) -> Iterator[Hit]:
        return iter(self.hits)


HIT_INDENT = "   "


def hit_lines(
    hits: Iterable[Hit], *, width: int = 120, several: bool = True, text_lines_max: int | None = None
) -> "Iterator[Line]":
    """Hits as people read them: place (of `several` threads with the thread of each), text, and why it ranks there."""
    from textwrap import wrap

    from memory_engine.core.excerpts import escaped

    for n, hit in enumerate(hits, 1):
        where = f"{hit.thread_id} {hit.seq}" if several else f"event {hit.seq}"
        facts = (where, hit.kind, hit.speaker or hit.role, f"{hit.at:%Y-%m-%d}", f"{hit.score:.2f}")
        yield (f"{n:>2} ", ""), (escaped(" · ".join(filter(None, facts))), "bold")
        text = hit.text if text_lines_max is None else hit.text[: width * 8 * text_lines_max]
        room = width - len(HIT_INDENT)
        for said in wrap(escaped(" ".join(text.split())), room, max_lines=text_lines_max, placeholder=" …"):
            yield ((HIT_INDENT + said, ""),)
        parts = sorted(hit.parts.items(), key=lambda part: -part[1])
        said = ", ".join(f"{name} {value:.3f}" for name, value in parts if value) or hit.why
        yield (HIT_INDENT, ""), (escaped(said), "dim")


def day_of(moment: datetime) -> str:
    """The day of a moment, as written before a passage."""
    return f"{moment.day} {_month_of(moment)} {moment.year}"


def _month_of(moment: datetime) -> str:
    """Its month in English, whatever the locale of the process: what is embedded and recalled depends on none."""
    from memory_engine.language.dates import full_names

    return full_names("months", "en")[moment.month - 1].capitalize()


_N_MASK = (1 << PLACES_BITS) - 1


class Shown(msgspec.Struct, frozen=True):
    """A passage with its text, and its event."""

    text: Text
    at_us: int
    event: StoredEvent
    n: int

    @property
    def at(self) -> datetime:
        """When it was said, in UTC: what is embedded depends on no zone."""
        return to_datetime(self.at_us)

    def embedded(self) -> str:
        """The text to embed: it begins with when it was said, by whom, and its title. Models match on all of these."""
        at = self.at
        hour, half = at.hour % 12 or 12, "am" if at.hour < 12 else "pm"
        when = f"{hour}:{at:%M} {half} on {at.day} {_month_of(at)}, {at.year}"
        who, title = self.text.speaker or self.text.role, self.text.about
        return f"[{when}] {f'{who}: ' if who else ''}{f'{title}: ' if title else ''}{self.text.text}"


async def read_passages(
    reader: LogReader, extractors: Extractors, thread_id: str, places: Collection[int]
) -> dict[int, Shown]:
    """The passages at these places; places without one are left out. Raises `IntegrityError`."""
    rows = await reader.rows_at(thread_id, {place >> PLACES_BITS for place in places})
    return await aside(partial(_read_back, reader, extractors, (thread_id, rows), places), items=len(rows))


def _read_back(
    reader: LogReader, extractors: Extractors, of: tuple[str, Mapping[int, StoredEvent]], places: Collection[int]
) -> dict[int, Shown]:
    thread_id, rows = of
    texts = {
        seq: extractors.extract(decode_event(thread_id, stored, reader.registry), seq).texts
        for seq, stored in rows.items()
    }
    found: dict[int, Shown] = {}
    for place in places:
        seq, n = place >> PLACES_BITS, place & _N_MASK
        if n < len(texts.get(seq, ())):
            stored, text = rows[seq], texts[seq][n]
            happened = stored.recorded_at_us if stored.occurred_at_us is None else stored.occurred_at_us
            found[place] = Shown(text, happened if text.at_us is None else text.at_us, stored, n)
    return found


async def texts_at(
    kernel: Kernel,
    thread_ids: Sequence[str],
    places: Collection[int],
    gap: Callable[[str], AbstractContextManager[None]],
) -> dict[int, Shown]:
    """The passages at places that begin with the number of their thread; `gap` gives a block for reading a thread."""
    by_thread: dict[int, set[int]] = {}
    for place in places:
        by_thread.setdefault(place >> THREAD_BITS, set()).add(place & _PLACE)
    texts: dict[int, Shown] = {}
    for number, within in by_thread.items():
        with gap(thread_ids[number]):
            found = await read_passages(kernel.reader, kernel.extractors, thread_ids[number], within)
            texts.update((number << THREAD_BITS | place, one) for place, one in found.items())
    return texts


WHY_PARTS = 4
_PLACE = (1 << THREAD_BITS) - 1
_NO_PARTS: Mapping[str, float] = {}


def passage_of(place: int, thread_ids: Sequence[str]) -> tuple[str, int, int]:
    """The passage at a place whose thread is a number among these (see `Hit.passage`)."""
    number, within = divmod(place, 1 << THREAD_BITS)
    seq, n = divmod(within, 1 << PLACES_BITS)
    return thread_ids[number], seq, n


@frozen
class RankedHits:
    """The ranked candidates of a search, best first. Texts are read back on demand: a context shows few.

    `read` are places that are read with the first ones, to see what is true now. `gap` gives a block in which a thread
    is read.
    """

    kernel: Kernel
    choice: Choice
    ranked: Sequence[Ranked]
    read: Collection[int]
    gap: Callable[[str], AbstractContextManager[None]]
    explain: bool = field(kw_only=True)
    zone: tzinfo = field(kw_only=True)

    async def first(self, count: int) -> list[Hit]:
        """The hits of the first `count` ranked, and of those behind them that are read to see what is true now.

        They are to be settled together (`Current.settled`).
        """
        behind = (one for one in self.ranked[count:] if one.place in self.read)
        return await self._read([*self.ranked[:count], *behind])

    def parted(self, settled: Sequence[Hit], count: int) -> tuple[list[Hit], list[Hit]]:
        """The settled hits of `first`: those that come before all others, and those that are among these."""
        if count >= len(self.ranked):
            return list(settled), []
        leading = {self._passage(one) for one in self.ranked[:count]}
        end = max((n for n, hit in enumerate(settled, 1) if hit.passage in leading), default=0)
        return list(settled[:end]), list(settled[end:])

    async def behind(self, settled: Sequence[Hit], count: int, most: int) -> AsyncGenerator[list[Hit]]:
        """The hits behind the first `count` ranked, some at a time, up to a limit.

        `settled` are those of them that were read.
        """
        known = {hit.passage: hit for hit in settled}
        for at in range(count, len(self.ranked), count):
            page = self.ranked[at : at + count]
            hits = await self._read([one for one in page if one.place not in self.read])
            read = {hit.passage: hit for hit in hits} | known
            found = [read[passage] for passage in map(self._passage, page) if passage in read][:most]
            most -= len(found)
            yield found

    def _passage(self, one: Ranked) -> tuple[str, int, int]:
        return passage_of(one.place, self.choice.thread_ids)

    async def _read(self, ranked: Sequence[Ranked]) -> list[Hit]:
        places = {place for one in ranked for place in (one.place, *one.alike)}
        texts = await texts_at(self.kernel, self.choice.thread_ids, places, self.gap)
        return await aside(partial(self._hits, ranked, texts), items=len(ranked))

    def _hits(self, ranked: Sequence[Ranked], texts: Mapping[int, Shown]) -> list[Hit]:
        return [self._hit(one, texts) for one in ranked if one.place in texts]

    def _hit(self, ranked: Ranked, texts: Mapping[int, Shown]) -> Hit:
        one, choice = texts[ranked.place], self.choice
        candidate = choice.candidates.get(ranked.place)
        return Hit(
            text=one.text.text,
            kind=one.text.kind,
            role=one.text.role,
            speaker=one.text.speaker,
            at=local_time(one.at_us, self.zone),
            thread_id=choice.thread_ids[ranked.place >> THREAD_BITS],
            seq=one.event.seq,
            n=one.n,
            event_id=one.event.id,
            event_type=one.event.type,
            score=ranked.score,
            why=_score_reason(ranked.parts),
            parts=dict(ranked.parts) if self.explain else _NO_PARTS,
            key=choice.keys.get(ranked.place, ""),
            about=one.text.about,
            likeness=candidate.cosine if candidate is not None else None,
            alike=tuple([texts[place].event.id for place in ranked.alike if place in texts]),
        )


def _score_reason(parts: Mapping[str, float]) -> str:
    """The signals that counted most, in words."""
    best = sorted([(value, name) for name, value in parts.items() if value > 0], reverse=True)
    return ", ".join([f"{name.replace('_', ' ')} {value:.2f}" for value, name in best[:WHY_PARTS]])
