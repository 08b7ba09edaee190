"""Pairs of statements that a question raises: an earlier one that search finds, and a later one near it."""

from collections.abc import Sequence
from datetime import datetime
from operator import itemgetter

import msgspec

from memory_engine.language.rough import asks, rough_sentences
from memory_engine.recall.hits import Hit
from memory_engine.recall.matter import TEXT_CHARS_MAX
from memory_engine.recall.search import Asked
from memory_engine.recall.service import Recall, asked
from memory_engine.recall.superseding import KINDS
from memory_engine.runtime.handle import ThreadHandle

HITS_READ = 40
"""Number of a question's best hits that are read as statements."""
OLDER_MAX = 12
"""Number of statements, the best for the question, for which later ones are looked for."""
LATER_MAX = 8
"""Number of later statements, those nearest to an earlier one by its own words, that are paired with it."""


class Pair(msgspec.Struct, frozen=True):
    """An earlier and a later statement of the same speaker."""

    older: Hit
    newer: Hit

    @property
    def place(self) -> tuple[int, int, int, int]:
        """The seqs of both, each with the number of the passage within its event."""
        return self.older.seq, self.older.n, self.newer.seq, self.newer.n


async def pairs_of(thread: ThreadHandle, question: str) -> list[Pair]:
    """Return the pairs that a question raises, those that it most likely turns on first.

    An earlier statement is among the best hits for the question. A later one is too, or is near the earlier one by
    its own words: of a fact that is restated, the question's words may all be gone.
    """
    recall = thread.kernel[Recall]
    hits = await recall.search((thread.id,), _search_request(question, HITS_READ))
    statements = [hit for hit in hits if is_statement(hit)]
    ranked: list[tuple[int, Pair]] = []
    for n, older in enumerate(statements[:OLDER_MAX]):
        near = await recall.search((thread.id,), _search_request(older.text, OLDER_MAX, since=older.at))
        later = [hit for hit in statements if _follows(older, hit)]
        for found in (later, _later(older, near)):
            ranked += [((n + 1) * (m + 1), Pair(older, newer)) for m, newer in enumerate(found)]
    ranked.sort(key=itemgetter(0))
    first: dict[tuple[int, int, int, int], Pair] = {}
    for _, pair in ranked:
        first.setdefault(pair.place, pair)
    return list(first.values())


def is_statement(hit: Hit) -> bool:
    """Return True if a hit may state a fact that a later one replaces: short, and not only questions."""
    if hit.kind not in KINDS or hit.role == "assistant" or len(hit.text) > TEXT_CHARS_MAX:
        return False
    return not all(map(asks, rough_sentences(hit.text)))


def _later(older: Hit, near: Sequence[Hit]) -> list[Hit]:
    return [hit for hit in near if is_statement(hit) and _follows(older, hit)][:LATER_MAX]


def _follows(older: Hit, newer: Hit) -> bool:
    """Return True if the newer hit is another statement, said later by the same speaker."""
    is_later = (older.at, older.seq, older.n) < (newer.at, newer.seq, newer.n)
    return is_later and (older.role, older.speaker) == (newer.role, newer.speaker) and older.text != newer.text


def _search_request(query: str, limit: int, since: datetime | None = None) -> Asked:
    return asked(query, limit=limit, kinds=(), at=None, as_of=None, since=since, until=None, explain=False)
