"""Passages: the pieces of text that search finds, as events make, end and drop them.

It also holds the seam to storage: the protocol of an index of passages and their vectors, and its queries.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Protocol

import msgspec

from memory_engine.core.events.base import Event, UnknownEvent
from memory_engine.core.records import StoredEvent
from memory_engine.core.threads import ThreadRecord
from memory_engine.errors import ReducerError
from memory_engine.language.text import stemmer_version, terms

if TYPE_CHECKING:
    from memory_engine.core.rewinding import Hiding

_VERSION = 3
"""Raise this number when other texts are indexed, or when they are analysed in another way."""
PLACES_BITS = 12
"""A passage's place is its event's seq and its number within the event: `seq << 12 | n`."""
THREAD_BITS = 40
"""A place in a look-up over several threads: the thread's number in it `<< 40`, then its place in the thread."""
PASSAGES_MAX = 1 << PLACES_BITS
"""The most passages of one event; of more, the first are taken."""


class Text(msgspec.Struct, frozen=True):
    """A text for search to find. Pieces of one event keep their order.

    `kind` says what it is ("message", "tool", "note", "memory", "preference", "playbook", "document", ...),
    `role` who says it in a conversation ("user", "assistant", "tool", "system" or ""), `speaker` the name.
    `key` is an identity under which a later event may end it. `origins` are seqs of this thread that it was
    drawn from: to forget one of them drops it. `about` is found and embedded with it, and not shown (a title).
    `at_us` is when it was said (microseconds since 1970), if not when its event happened.
    """

    text: str
    kind: str
    role: str = ""
    speaker: str = ""
    key: str = ""
    origins: tuple[int, ...] = ()
    about: str = ""
    at_us: int | None = None


class PassageEnds(msgspec.Struct, frozen=True, kw_only=True):
    """The passages that an event ends or destroys.

    It ends those with a key in `keys` or with one that begins with one of `prefixes`, those of the events at `seqs`,
    those drawn from the events at `origins`, all with a key of those of the events at `twins`, and with `ends_all`
    those of every earlier event. Only searches as of an earlier seq find an ended passage. Passages of the events at
    `drops`, drawn from one of them, or with a key in `drop_keys`, are destroyed.
    """

    keys: tuple[str, ...] = ()
    prefixes: tuple[str, ...] = ()
    seqs: tuple[int, ...] = ()
    twins: tuple[int, ...] = ()
    drops: tuple[int, ...] = ()
    drop_keys: tuple[str, ...] = ()
    origins: tuple[int, ...] = ()
    ends_all: bool = False


class Extracted(PassageEnds, frozen=True):
    """The effect of an event on the passages of its thread: first it ends some, then `texts` are added."""

    texts: tuple[Text, ...] = ()


NOTHING = Extracted()

Extractor = Callable[[Event, int], Extracted]
"""The passages of an event at a seq. Pure: the same event, the same passages."""


class PassageRow(msgspec.Struct, frozen=True, gc=False):
    """A passage in the index, without its text, which its event holds. `ended` is a seq, 0 for a live one.

    A new one comes with its `text`, whose terms (`terms` of `language.text`) are taken later, unless they were at once.
    """

    place: int
    kind: str
    role: str
    speaker: str
    at_us: int
    key: str
    terms: str
    origins: tuple[int, ...] = ()
    ended: int = 0
    text: str = ""

    @property
    def seq(self) -> int:
        """The seq of its event."""
        return self.place >> PLACES_BITS


class PassageStep(PassageEnds, frozen=True, gc=False):
    """The changes of the event at `seq`: first it ends passages, then `rows` are added."""

    seq: int
    rows: tuple[PassageRow, ...] = ()

    @property
    def only_adds(self) -> bool:
        """Whether nothing ends and nothing is destroyed."""
        ended = self.keys or self.prefixes or self.seqs or self.twins or self.origins
        return not (ended or self.drops or self.drop_keys or self.ends_all)


class PassageChange(msgspec.Struct, frozen=True, gc=False):
    """The changes of the events with `after` < seq <= `upto`. They apply only if the index is at `after`.

    A change of the whole log, made `afresh`, applies to any index: it replaces the content and the vectors. That of a
    rewind begins with what it is `hiding`; its steps are what events that are shown again have ended.
    """

    after: int
    upto: int
    steps: Sequence[PassageStep] = ()
    afresh: bool = False
    hiding: "Hiding | None" = None


Ahead = dict[int, tuple[Event, int, Extracted]]
"""Passages of events that are about to come: by the identity of an event, with the event and the seq it may get."""


class Extractors(msgspec.Struct, frozen=True):
    """The extractor for each type of event; the bodies' texts of types without one are notes.

    Of events that are about to come, `taken` are the terms of texts, `found` the passages of large ones.
    """

    of_type: Mapping[str, Extractor]
    default: Extractor
    taken: dict[str, str] = {}
    found: Ahead = {}

    def extract(self, event: Event | UnknownEvent, seq: int) -> Extracted:
        """The passages of an event. An event of an unknown class has none."""
        if isinstance(event, UnknownEvent):
            return NOTHING
        return self.of_type.get(event.event_type, self.default)(event, seq)

    def take(self, event: Event) -> None:
        """Take the terms of an event's texts ahead of its `step`: on a worker thread, where they are many."""
        if len(self.taken) > PASSAGES_MAX:
            self.taken.clear()  # of events that did not come
        for text in self.extract(event, 0).texts:
            self.taken[_indexed_text(text)] = " ".join(terms(_indexed_text(text)))

    def ahead(self, events: Iterable[tuple[Event, int]]) -> Ahead:
        """The passages of large events at the seqs that they may get, for `found`: work for another thread."""
        found: Ahead = {}
        for event, seq in events:
            with suppress(Exception):  # `step` raises it, to those who wait for the event
                found[id(event)] = event, seq, self.extract(event, seq)
        return found

    def step(self, event: Event | UnknownEvent, seq: int, at_us: int, *, analysed: bool) -> PassageStep | None:
        """The change of an event, with the terms of its texts if they are to be `analysed`; `None` for nothing."""
        known = self.found.get(id(event)) if self.found else None
        found = known[2] if known is not None and known[1] == seq else self.extract(event, seq)
        if found is NOTHING:
            return None
        return PassageStep(
            seq,
            tuple(_passage_rows(found.texts, seq, at_us, self.taken, analysed=analysed)),
            keys=found.keys,
            prefixes=found.prefixes,
            seqs=_earlier(found.seqs, seq),
            twins=_earlier(found.twins, seq),
            drops=_earlier(found.drops, seq),
            drop_keys=found.drop_keys,
            origins=found.origins,
            ends_all=found.ends_all,
        )


def _earlier(seqs: tuple[int, ...], seq: int) -> tuple[int, ...]:
    """The seqs that an event at `seq` can refer to: a place made of another one might belong to another thread."""
    return tuple(one for one in seqs if 0 < one < seq) if seqs else seqs


def _indexed_text(text: Text) -> str:
    return f"{text.about} {text.text}" if text.about else text.text


def _passage_rows(
    texts: Sequence[Text], seq: int, at_us: int, taken: dict[str, str], *, analysed: bool
) -> Iterable[PassageRow]:
    for n, text in enumerate(texts[:PASSAGES_MAX]):
        said = _indexed_text(text)
        said_at_us = at_us if text.at_us is None else text.at_us
        place = seq << PLACES_BITS | n
        found = " ".join(terms(said)) if analysed else taken.pop(said, "") if taken else ""
        yield PassageRow(
            place,
            text.kind,
            text.role,
            text.speaker,
            said_at_us,
            text.key,
            found,
            text.origins,
            0,
            "" if found else said,
        )


def passage_step(
    extractors: Extractors, thread_id: str, event: Event | UnknownEvent, stored: StoredEvent, *, analysed: bool = False
) -> PassageStep | None:
    """The change of an event for search. Raises `ReducerError` where its extractor fails.

    To have its texts `analysed` takes a second for a million characters: do it in a worker thread, and when no
    sender waits.
    """
    at_us = stored.recorded_at_us if stored.occurred_at_us is None else stored.occurred_at_us
    try:
        return extractors.step(event, stored.seq, at_us, analysed=analysed)
    except Exception as error:  # the boundary to user code
        why = f"{type(error).__name__}: {error}"
        raise ReducerError(thread_id, stored.type, "the extractor of its passages", "", why) from error


POSTINGS_MAX = 5_000
"""Entries that a look-up may visit in its terms' lists, rarest first: some milliseconds, however long the thread."""
LEXICAL_MAX = 80
"""Passages that words alone add to the candidates."""


@cache
def index_version() -> int:
    """The version of the indexed texts and their analysis. An index of another version is made again from the log."""
    return _VERSION << 16 | stemmer_version()


LISTED_MAX = 100
"""Passages of the times that a query names, which are taken whatever their words."""


class LookUp(msgspec.Struct, frozen=True, kw_only=True):
    """A query to an index: passages that hold some of `terms`, and those at the places `near`.

    `upto` is the seq as of which it searches (0: now). `kinds`, if there are any, are the only ones wanted;
    `unwanted` ones are left out; `within`, if there is any, names what keys begin with and the seq from which on.
    `since_us` and `until_us` bound when they were said, ends included. Of `near` (best first) at most `near_max` that
    fit all this are taken (0: all). `listed` are times (ends included) whose passages are taken, whatever their words.
    """

    terms: tuple[str, ...] = ()
    near: tuple[int, ...] = ()
    near_max: int = 0
    listed: tuple[tuple[int, int], ...] = ()
    listed_max: int = LISTED_MAX
    upto: int = 0
    kinds: tuple[str, ...] = ()
    unwanted: tuple[str, ...] = ()
    within: tuple[tuple[str, int], ...] = ()
    since_us: int | None = None
    until_us: int | None = None
    limit: int = LEXICAL_MAX
    postings_max: int = POSTINGS_MAX


class Threads(msgspec.Struct, frozen=True, kw_only=True):
    """The threads of a look-up over several: those of `thread_ids`, or all that match every value that is given.

    A tenant is always given (`""`: threads of none). Kinds of `without_kinds` are left out, threads
    whose metadata has the key `without_key`, and the ids in `without`.
    """

    thread_ids: tuple[str, ...] | None = None
    tenant_id: str = ""
    user_id: str | None = None
    agent_id: str | None = None
    kind: str | None = None
    without_kinds: tuple[str, ...] = ()
    without_key: str = ""
    without: frozenset[str] = frozenset()

    @property
    def exact(self) -> Mapping[str, str]:
        """Conditions by name."""
        asked = {"user_id": self.user_id, "agent_id": self.agent_id, "kind": self.kind}
        return {"tenant_id": self.tenant_id, **{name: value for name, value in asked.items() if value is not None}}

    def matches(self, record: ThreadRecord) -> bool:
        """Whether a thread is one of those that match."""
        return (
            all(getattr(record, name) == value for name, value in self.exact.items())
            and record.kind not in self.without_kinds
            and self.without_key not in record.metadata
            and record.id not in self.without
        )


class LookedUp(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of an index, all of one moment.

    The index is at `seq` (-1: there is none of this version) of a log that ends at `head`, and lacks `lacking`
    events of it. The words of `unindexed` passages are not indexed yet: the latest were read one by one, all but
    `unread`. `passages` and `terms` count its content, `holding` the passages that hold each asked term. `chosen` are
    places: those with the greatest sum of idf, `near` of those asked for as near, the `listed`, the direct successors
    of the first two, and of the best of them those `around` (by place, with how many passages further on; back: less
    than 0). `rows` has the chosen and, for each, the one before it in the thread, whose place is in `before`.

    `to_index` are the events to read before it lacks none, where these are more: those of an index in memory.

    Of a look-up over several threads, `threads` are those of the `chosen`, by the numbers in their places: in the order
    named, or else in that of their making, and `numbers` the store's own of these. `behind` are threads without an
    index, or with one that lacks events.
    """

    seq: int = -1
    head: int = 0
    lacking: int = 0
    to_index: int = 0
    unindexed: int = 0
    unread: int = 0
    passages: int = 0
    terms: int = 0
    holding: Mapping[str, int] = {}
    near: int = 0
    listed: frozenset[int] = frozenset()
    chosen: Sequence[int] = ()
    rows: Mapping[int, PassageRow] = {}
    before: Mapping[int, int] = {}
    around: Mapping[int, Mapping[int, int]] = {}
    threads: tuple[str, ...] = ()
    behind: tuple[str, ...] = ()
    numbers: tuple[int, ...] = ()

    def numbered(self, ids: Mapping[int, str]) -> "LookedUp":
        """Over several threads: the same with numbers that say their order; `ids` are by the store's, in this order."""
        shift = {number: (n - number) << THREAD_BITS for n, number in enumerate(ids)}

        def moved(place: int) -> int:
            return place + shift[place >> THREAD_BITS]

        def is_used(place: int) -> bool:
            return place >> THREAD_BITS in shift

        return msgspec.structs.replace(
            self,
            threads=tuple(ids.values()),
            numbers=tuple(ids),
            chosen=[moved(place) for place in self.chosen],
            listed=frozenset(map(moved, filter(is_used, self.listed))),
            rows={moved(place): row for place, row in self.rows.items() if is_used(place)},
            before={moved(place): moved(before) for place, before in self.before.items()},
            around={
                moved(place): {moved(other): far for other, far in found.items()}
                for place, found in self.around.items()
                if is_used(place)
            },
        )


class VectorRows(msgspec.Struct, frozen=True):
    """Vectors of a thread's passages: their places in order, and their numbers one after the other.

    A number takes two bytes (see `quantized`), or four in what an older release wrote (see `packed`).
    """

    places: Sequence[int]
    numbers: bytes | bytearray


class VectorsAmong(msgspec.Struct, frozen=True):
    """Vectors of several threads that came since, with the store's own numbers of the threads.

    `upto` says by number how far the model has embedded each thread, `waiting` by id how many passages have no vector.
    """

    vectors: Sequence[tuple[int, VectorRows]]
    upto: Mapping[int, int]
    waiting: Mapping[str, int]


class Member(msgspec.Struct, frozen=True):
    """A thread of a look-up over several, as the log has it: `seq` is that of its head.

    `number` is the store's own, as in `LookedUp.numbers`; `rank` is less than 2**23, and greater the later it was made.
    """

    id: str
    number: int
    rank: int
    tenant_id: str
    seq: int


class PassageIndex(Protocol):
    """Passages of a store's threads. All raise `ThreadNotFound`."""

    async def look_up(self, thread_id: str, wanted: LookUp) -> LookedUp:
        """Look up a thread's index."""
        ...

    async def look_up_among(self, threads: Threads, wanted: LookUp) -> LookedUp:
        """Look up the indexes of several threads as if they were one; `wanted` names no seq and no keys.

        Places of `near` begin with the store's own numbers of threads, which `vectors_among` says.

        Counts are of them all, and so is the rarity of a term. Of threads named, each must be there.
        """
        ...

    async def members(self, threads: Threads) -> Sequence[Member]:
        """The threads of a look-up over several, whether they have an index or not."""
        ...

    async def index_words_of(self, threads: Threads) -> None:
        """Index the words of all waiting passages of several threads, however few wait in each."""
        ...

    async def fitting(self, thread_id: str, wanted: LookUp) -> Sequence[int]:
        """The places of all passages that fit what narrows a look-up, whatever their words, in order."""
        ...

    async def begin(self, thread_id: str, *, afresh: bool = False) -> None:
        """Give the thread an empty index, unless it has one of this version (`afresh`: then too).

        From now on commits that bring passages keep it.
        """
        ...

    async def write(self, thread_id: str, change: PassageChange) -> bool:
        """Apply a change if the index is at `change.after`. Returns whether it applied. Its words may wait."""
        ...

    async def index_words(self, thread_id: str) -> None:
        """Index the words of the waiting passages, if they are enough: some milliseconds at a time."""
        ...

    async def threads(self) -> Sequence[str]:
        """The ids of the threads that have an index."""
        ...

    async def unembedded(self, thread_id: str, model: str, limit: int) -> tuple[Sequence[int], int]:
        """The places of the oldest passages that this model has not embedded yet, and how many there are in all."""
        ...

    async def put_vectors(
        self, thread_id: str, model: str, vectors: Mapping[int, bytes], upto: int, *, first: int = 0
    ) -> None:
        """Keep vectors (see `quantized`) by place; all from `first` up to the place `upto` are then embedded.

        Vectors whose passage is gone meanwhile are left out. Where earlier passages wait (also after the index was made
        again), or the index has not come so far, nothing is kept: vectors come in the order of places.
        """
        ...

    async def vectors(self, thread_id: str, model: str, after: int) -> Sequence[VectorRows]:
        """The vectors of places above `after`, in order of places: in one piece while all take as many bytes."""
        ...

    async def vectors_among(self, threads: Threads, model: str, known: Mapping[int, int]) -> VectorsAmong:
        """The vectors of several threads beyond the places that are `known` by number."""
        ...

    async def models(self, thread_id: str) -> Mapping[str, int]:
        """The models whose vectors are kept, with the place up to which each has embedded the thread."""
        ...

    async def drop_vectors(self, thread_id: str, models: Iterable[str]) -> None:
        """Destroy the vectors of models."""
        ...


class OverlaidIndex(PassageIndex, Protocol):
    """The index of an engine that only reads: that of the store where it is whole, else one of the engine's `own`.

    What is written goes to that one, which is in memory and ends with the engine.
    """

    @property
    def own(self) -> PassageIndex:
        """The one in memory, with the threads and heads of the store: what `begin` and `write` are about."""
        ...

    async def close(self) -> None:
        """Let go of it."""
        ...
