"""`engine.user(id).playbooks`: flows that went well for a user, found again for requests like those they answered."""

from collections.abc import Mapping, Sequence

import msgspec
from msgspec.structs import replace

from memory_engine.core.codec import encode_json
from memory_engine.core.events.base import Event
from memory_engine.core.events.memory import MemoryForget
from memory_engine.core.records import RecordedEvent
from memory_engine.projections.base import ProjectionMode, ReadableRows, Rows
from memory_engine.recall.likeness import REQUESTS, Corpus, TextIndex
from memory_engine.recall.service import Recall
from memory_engine.runtime.handle import ThreadHandle
from memory_engine.views.playbooks.events import PlaybookCall, PlaybookRemoved, PlaybookSaved, playbook_id

VALUE_CHARS_MAX = 200
LINE_CHARS_MAX = 400
TEXT_BYTES_MAX = 4_000
"""Bytes that a playbook takes of a scratchpad: it is in every context from there on."""


class PlaybookSource(msgspec.Struct, frozen=True, omit_defaults=True):
    """One time that a recipe worked: the event here, and the events (`sources`) of `source_thread` it came from."""

    seq: int
    event_id: str
    user_query: str
    outcome: str = ""
    reason: str = ""
    source_thread: str = ""
    sources: tuple[str, ...] = ()


class Playbook(msgspec.Struct, frozen=True, omit_defaults=True):
    """A recipe that worked: for which flow, with which slots, by which calls, and each time it did.

    `id` follows from flow, slots and calls: equal recipes are one playbook.
    """

    id: str
    flow_dact: str
    slots: dict[str, object]
    tool_calls: tuple[PlaybookCall, ...]
    times: tuple[PlaybookSource, ...]

    @property
    def count(self) -> int:
        """How often it worked."""
        return len(self.times)

    @property
    def user_query(self) -> str:
        """The request that it answered last."""
        return self.times[-1].user_query

    @property
    def outcome(self) -> str:
        """The last outcome that was noted."""
        return next((time.outcome for time in reversed(self.times) if time.outcome), "")

    @property
    def seq(self) -> int:
        """The seq of the last time, in the user's thread."""
        return self.times[-1].seq

    @property
    def text(self) -> str:
        """The playbook for a model to read: the same for the same playbook, at most `TEXT_BYTES_MAX` bytes."""
        lines = [f"Playbook for the flow {self.flow_dact}: it worked {_times(self.count)} for this user."]
        lines.append(f"Request: {_one_line(self.user_query)}")
        if self.slots:
            lines.append("Slots: " + ", ".join(f"{_one_line(k)} = {_shown(v)}" for k, v in sorted(self.slots.items())))
        for n, call in enumerate(self.tool_calls, 1):
            parameters = ", ".join(f"{_one_line(k)}={_shown(v)}" for k, v in sorted(call.parameters.items()))
            lines.append(f"Step {n}: {_one_line(call.tool_id)}({parameters})")
        if self.outcome:
            lines.append(f"Outcome: {_one_line(self.outcome)}")
        text = "\n".join(lines).encode("utf-8", "replace")
        return text[:TEXT_BYTES_MAX].decode(errors="ignore")


class PlaybookMatch(msgspec.Struct, frozen=True):
    """A playbook that was found. `score` is 0 to 1; without a query it is 1. `shared` are words of both requests.

    `how`: `"flow"`, `"lexical"` or `"embedding"`. `failure` says why only words were compared despite a model.
    """

    playbook: Playbook
    score: float
    shared: tuple[str, ...] = ()
    how: str = "flow"
    failure: str = ""


class PlaybooksFold:
    """A user's playbooks, by id."""

    name = "playbooks"
    version = 1
    mode: ProjectionMode = "inline"
    row = Playbook
    events: tuple[type[Event], ...] = (PlaybookSaved, PlaybookRemoved, MemoryForget)
    lazy = False

    def apply(self, rows: Rows[Playbook], event: RecordedEvent) -> None:
        """Add a time that a recipe worked; remove or forget."""
        match event.event:
            case PlaybookSaved() as saved:
                key = playbook_id(saved.flow_dact, saved.slots, saved.tool_calls)
                known = rows.get(key)
                time = PlaybookSource(
                    seq=event.seq,
                    event_id=event.id,
                    user_query=saved.user_query,
                    outcome=saved.outcome,
                    reason=saved.reason,
                    source_thread=saved.source_thread,
                    sources=saved.sources,
                )
                times = (*known.times, time) if known is not None else (time,)
                rows.put(key, Playbook(key, saved.flow_dact, saved.slots, saved.tool_calls, times))
            case PlaybookRemoved(playbook_id=key):
                rows.drop(key)
            case MemoryForget(seqs=seqs) if seqs:
                _forget(rows, frozenset(seqs))


def _forget(rows: Rows[Playbook], seqs: frozenset[int]) -> None:
    for key, playbook in list(rows.items()):
        kept = tuple(time for time in playbook.times if time.seq not in seqs)
        if not kept:
            rows.drop(key)
        elif len(kept) < playbook.count:
            rows.put(key, replace(playbook, times=kept))


PLAYBOOKS = PlaybooksFold()
SEARCHED_PER_RESULT = 8
"""Similar requests that are looked at for each playbook wanted: some belong to one recipe, some to other flows."""
_ROW = msgspec.json.Decoder(Playbook)


class Playbooks:
    """A user's playbooks."""

    def __init__(self, thread: ThreadHandle) -> None:
        self._thread = thread

    async def save(  # noqa: PLR0913 - the fields of a playbook, by keyword
        self,
        flow_dact: str,
        *,
        user_query: str,
        slots: Mapping[str, object] | None = None,
        tool_calls: Sequence[PlaybookCall] = (),
        outcome: str = "",
        reason: str = "",
    ) -> Playbook:
        """Keep a recipe by hand; one that is known is kept as one more time that it worked."""
        event = PlaybookSaved(
            flow_dact=flow_dact,
            user_query=user_query,
            slots=dict(slots or {}),
            tool_calls=tuple(tool_calls),
            outcome=outcome,
            reason=reason,
        )
        receipt = await self._thread.dispatch(event)
        key = playbook_id(event.flow_dact, event.slots, event.tool_calls)
        saved = await self.get(key) or await self.get(key, at=receipt.seq)  # another may have removed it by now
        assert saved is not None
        return saved

    async def get(self, playbook_id: str, *, at: int | None = None) -> Playbook | None:
        """One by id."""
        return (await self._thread.rows(PLAYBOOKS, at=at)).get(playbook_id)

    async def all(self, *, at: int | None = None) -> tuple[Playbook, ...]:
        """Every playbook, the one that worked last first."""
        return _newest_first(await self._thread.rows(PLAYBOOKS, at=at))

    async def find(
        self,
        query: str | None = None,
        *,
        flow: str | None = None,
        limit: int = 3,
        threshold: float | None = None,
        at: int | None = None,
    ) -> tuple[PlaybookMatch, ...]:
        """At most `limit` playbooks, best first.

        With `flow`, only of this flow (exactly); with a `query`, only those whose requests are like it, at or
        above `threshold` (default: 0.5 by words, 0.6 by embeddings). Without a query the most proven come first.
        `at` looks at an earlier seq of the user's thread. Raises the errors of the embedder's index.
        """
        rows = await self._thread.rows(PLAYBOOKS, at=at)
        if query is None:
            matches = [PlaybookMatch(playbook, 1.0) for playbook in _newest_first(rows)]
            matches = [match for match in matches if flow is None or match.playbook.flow_dact == flow]
        else:
            matches = await self._similar(query, rows.encoded(), threshold, _PlaybookQuery(flow, limit, at))
        # of equal likeness the most proven, and of these the newest: sorting keeps the order that is there
        matches.sort(key=lambda match: (-match.score, -match.playbook.count))
        return tuple(matches[: max(0, limit)])

    async def _similar(
        self, query: str, stored: Mapping[str, bytes], least: float | None, wanted: "_PlaybookQuery"
    ) -> list[PlaybookMatch]:
        """By the likeness of the requests that a recipe answered: the most like of them counts.

        All flows are searched, so that the index stays in step with the rows; where too few of the best are of
        the flow, the others are looked at too.
        """
        asked = self._asked(stored) if wanted.at is None else _RequestTexts().follow(stored)
        index, threshold = self._index(wanted.at), REQUESTS if least is None else least
        corpus = Corpus(tokens=asked, text=asked.__getitem__)
        best: dict[str, PlaybookMatch] = {}
        for at_most in (SEARCHED_PER_RESULT * max(1, wanted.limit), len(asked)):
            matches = await index.search(query, corpus, limit=at_most, threshold=threshold)
            for match in matches:
                key = match.key.rpartition("/")[0]
                playbook = best[key].playbook if key in best else _ROW.decode(stored[key])
                if wanted.flow is None or playbook.flow_dact == wanted.flow:
                    best.setdefault(key, PlaybookMatch(playbook, match.score, match.shared, match.how, match.failure))
            if len(best) >= wanted.limit or len(matches) < at_most:
                break
        return sorted(best.values(), key=lambda match: -match.playbook.seq)

    def _asked(self, stored: Mapping[str, bytes]) -> dict[str, str]:
        """The requests that the user's recipes answered, read anew only where a row changed."""
        return self._thread.kernel.caches.made(self._thread.id, "playbooks asked", _RequestTexts).follow(stored)

    def _index(self, at: int | None) -> TextIndex:
        kernel = self._thread.kernel
        if at is not None:
            return kernel[Recall].similarity_now()
        return kernel[Recall].similarity(self._thread.id, PLAYBOOKS.name)

    async def remove(self, playbook_id: str, *, reason: str = "") -> bool:
        """Take a playbook away; whether there was one. The same recipe may come back when it works again."""
        if await self.get(playbook_id) is None:
            return False
        await self._thread.dispatch(PlaybookRemoved(playbook_id=playbook_id, reason=reason))
        return True


class _PlaybookQuery(msgspec.Struct, frozen=True):
    flow: str | None
    limit: int
    at: int | None


class _RequestTexts:
    """Requests by recipe and number, kept in step with the encoded rows that they are read from."""

    def __init__(self) -> None:
        self._read: dict[str, bytes] = {}
        self._texts: dict[str, str] = {}

    def follow(self, stored: Mapping[str, bytes]) -> dict[str, str]:
        """The texts as of these rows: a copy, since others may follow newer rows while a text is embedded."""
        for key in [key for key in self._read if key not in stored]:
            self._drop(key)
        for key, encoded in stored.items():
            if self._read.get(key) is not encoded:
                self._drop(key)
                self._read[key] = encoded
                texts = _queries(_ROW.decode(encoded))
                self._texts.update((f"{key}/{n}", text) for n, text in enumerate(texts))
        return dict(self._texts)

    def _drop(self, key: str) -> None:
        if self._read.pop(key, None) is not None:
            n = 0
            while self._texts.pop(f"{key}/{n}", None) is not None:
                n += 1


def _newest_first(rows: ReadableRows[Playbook]) -> tuple[Playbook, ...]:
    return tuple(sorted((playbook for _, playbook in rows.items()), key=lambda playbook: -playbook.seq))


def _queries(playbook: Playbook) -> list[str]:
    """The requests that a recipe answered, each once, in the order in which they first came."""
    return list(dict.fromkeys(time.user_query for time in playbook.times))


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _one_line(text: str) -> str:
    short = " ".join(text.split())
    return short if len(short) <= LINE_CHARS_MAX else short[:LINE_CHARS_MAX] + "…"


def _shown(value: object) -> str:
    encoded = encode_json(value).decode()
    return encoded if len(encoded) <= VALUE_CHARS_MAX else encoded[:VALUE_CHARS_MAX] + "…"
