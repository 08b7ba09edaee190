"""`engine.user(id).playbooks`: flows that went well for a user, found again for requests like those they answered."""

from collections.abc import Mapping, Sequence

import msgspec

from memory_engine.core.arguments import checked_list, checked_name, checked_number, checked_text, checked_type
from memory_engine.llm.vectors import Match
from memory_engine.projections.base import ReadableRows
from memory_engine.recall.likeness import REQUESTS, Corpus, TextIndex
from memory_engine.recall.service import Recall
from memory_engine.runtime.handle import ThreadHandle
from memory_engine.views.playbooks.events import PlaybookCall, PlaybookRemoved, PlaybookSaved, playbook_id
from memory_engine.views.playbooks.playbook import PLAYBOOKS, Playbook


class PlaybookMatch(Match, frozen=True, kw_only=True):
    """A playbook that was found; `shared` are words of both requests. Without a query, `score` is 1 and `how` `"flow"`.

    `key` is the playbook's id.
    """

    playbook: Playbook


SEARCHED_PER_RESULT = 8
"""Similar requests examined per playbook wanted: some belong to the same recipe, some to other flows."""
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
        """Keep a recipe by hand; for a known one, counts one more success."""
        event = PlaybookSaved(
            flow_dact=flow_dact,
            user_query=user_query,
            slots=dict(checked_type("slots", {} if slots is None else slots, Mapping, give="names and values")),
            tool_calls=checked_list("tool_calls", tool_calls, PlaybookCall, each="PlaybookCall"),
            outcome=outcome,
            reason=reason,
        )
        receipt = await self._thread.dispatch(event)
        key = playbook_id(event.flow_dact, event.slots, event.tool_calls)
        saved = await self.get(key) or await self.get(key, at=receipt.seq)  # another may have removed it by now
        assert saved is not None
        return saved

    async def get(self, playbook_id: str, *, at: int | None = None) -> Playbook | None:
        """One playbook by id."""
        checked_text("playbook_id", playbook_id)
        return (await self._thread.rows(PLAYBOOKS, at=at)).get(playbook_id)

    async def all(self, *, at: int | None = None) -> tuple[Playbook, ...]:
        """Every playbook, most recently successful first."""
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

        With `flow`, only those of this exact flow; with a `query`, only those with similar requests, at or above
        `threshold` (default: 0.5 by words, 0.6 by embeddings). Without a query the most proven come first. `at` looks
        at an earlier seq of the user's thread. Raises the errors of the embedder's index.
        """
        checked_number("threshold", 0 if threshold is None else threshold)
        checked_name("flow", flow)
        checked_type("limit", limit, int, give="a number of playbooks")
        checked_text("query", "" if query is None else query)
        rows = await self._thread.rows(PLAYBOOKS, at=at)
        if query is None:
            matches = [_of_flow(playbook) for playbook in _newest_first(rows)]
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
                    found = (match.score, match.shared, match.how, match.failure)
                    best.setdefault(key, PlaybookMatch(key, *found, playbook=playbook))
            if len(best) >= wanted.limit or len(matches) < at_most:
                break
        return sorted(best.values(), key=lambda match: -match.playbook.seq)

    def _asked(self, stored: Mapping[str, bytes]) -> dict[str, str]:
        """The requests that the user's recipes answered, read again only after a row changed."""
        return self._thread.kernel.caches.made(self._thread.id, "playbooks asked", _RequestTexts).follow(stored)

    def _index(self, at: int | None) -> TextIndex:
        kernel = self._thread.kernel
        if at is not None:
            return kernel[Recall].similarity_now()
        return kernel[Recall].similarity(self._thread.id, PLAYBOOKS.name)

    async def remove(self, playbook_id: str, *, reason: str = "") -> bool:
        """Remove a playbook; returns whether it existed. The same recipe may come back when it works again."""
        checked_text("reason", reason)
        checked_text("playbook_id", playbook_id)
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


def _of_flow(playbook: Playbook) -> PlaybookMatch:
    return PlaybookMatch(playbook.id, 1.0, how="flow", playbook=playbook)


def _newest_first(rows: ReadableRows[Playbook]) -> tuple[Playbook, ...]:
    return tuple(sorted((playbook for _, playbook in rows.items()), key=lambda playbook: -playbook.seq))


def _queries(playbook: Playbook) -> list[str]:
    """The requests that a recipe answered, each once, in the order in which they first came."""
    return list(dict.fromkeys(time.user_query for time in playbook.times))
