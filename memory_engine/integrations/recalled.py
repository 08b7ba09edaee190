"""A user's other conversations for a request, as one message, for frameworks that build requests themselves."""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from contextlib import suppress

import msgspec
from attrs import evolve

from memory_engine.context.ownership import Viewer
from memory_engine.context.recall import HIT_TOKENS_MIN, are_found, recalled_beside
from memory_engine.engine import kernel_of
from memory_engine.errors import InvalidArgument, ThreadNotFound
from memory_engine.integrations.brief import BRIEF_MARK
from memory_engine.integrations.owned import KIND, OwnedThreads
from memory_engine.recall.hits import Found, Hit
from memory_engine.recall.search import LIMIT_MAX
from memory_engine.thread import Thread

RECALL_TOKENS = 1_000
"""Tokens that a recalled message takes at most where nothing else is said."""
KINDS = ("message", "tool", "task", "snippet", "memory")
"""Kinds of passages that are recalled: what was said and done, not the instructions of the agents."""
_REQUESTS_MAX = 256


def recall_tokens_of(recall: bool, recall_tokens: int) -> int:
    """The tokens to recall: 0 if recall is off. Raises `InvalidArgument` unless they are a positive number."""
    if type(recall_tokens) is not int or recall_tokens < 1:
        raise InvalidArgument("recall_tokens", recall_tokens, "give a positive number of tokens")
    return recall_tokens if recall else 0


async def recalled(  # noqa: PLR0913 - what is asked for, by keyword
    threads: OwnedThreads, thread_id: str, query: str, *, max_tokens: int, beside: Iterable[str] = (), request: str = ""
) -> str:
    """The owner's conversations about a query, in at most `max_tokens` tokens; empty without any.

    Without a user, only this thread is searched. `beside` are the texts of the model's request: their content is not
    repeated. A `request` is searched for once: until another one of the thread is named, calls get the same text,
    unless a source was forgotten or erased; so do calls without a query. Send the result in the role of a user, before
    the message that asks, and do not store it with the talk: it would count as said by a person. Raises `ThreadDiffers`
    and `ScopeRequired`.
    """
    if not max_tokens:
        return ""
    thread = await threads.find(thread_id)
    requests = kernel_of(threads.engine).made(_Requests)
    place = (threads.user_id, threads.tenant_id, threads.agent_id, thread_id, max_tokens)
    kept = await requests.get(threads, place)
    if kept is not None and (request == kept.request if query.strip() else not request):
        return kept.text
    if not query.strip():
        return ""
    found = await _owned_hits(threads, thread, query, min(LIMIT_MAX, max_tokens // HIT_TOKENS_MIN + 1))
    found = evolve(found, hits=tuple(hit for hit in found.hits if not _is_own_call(hit, thread_id)))
    viewer = Viewer(threads.user_id, thread_id)
    text, hits = await recalled_beside(kernel_of(threads.engine), viewer, found, [*beside, query], max_tokens)
    return requests.keep(place, _OfRequest(request, text, hits)) if request else text


async def _owned_hits(threads: OwnedThreads, thread: Thread | None, query: str, limit: int) -> Found:
    if threads.user_id:
        return await threads.engine.search(
            query,
            kind=KIND,
            user_id=threads.user_id,
            tenant_id=threads.tenant_id,
            agent_id=threads.agent_id or None,
            kinds=KINDS,
            limit=limit,
        )
    if thread is not None:
        with suppress(ThreadNotFound):
            return await thread.search(query, kinds=KINDS, limit=limit)
    return Found(query=query)


def newest_request(said: Sequence[tuple[bool, str]]) -> int | None:
    """Where the newest request is among messages (whether in the role of a user, and the text), without briefs."""
    places = (n for n in reversed(range(len(said))) if said[n][0] and not said[n][1].startswith(BRIEF_MARK))
    return next(places, None)


def _is_own_call(hit: Hit, thread_id: str) -> bool:
    """Whether a hit is a call of the thread itself, whose text in a framework's request is another."""
    return hit.thread_id == thread_id and (hit.kind, hit.role) == ("tool", "assistant")


class _OfRequest(msgspec.Struct, frozen=True):
    """The recalled text for a request, and the passages in it."""

    request: str
    text: str
    hits: tuple[Hit, ...]


_Place = tuple[str, str, str, str, int]


class _Requests:
    """The recalled texts for the newest request of each thread, by owner: the same for all calls of its model."""

    def __init__(self) -> None:
        self._kept: OrderedDict[_Place, _OfRequest] = OrderedDict()

    async def get(self, threads: OwnedThreads, place: _Place) -> _OfRequest | None:
        """The kept text, unless a source was forgotten or erased since."""
        kept = self._kept.get(place)
        if kept is None or await are_found(kernel_of(threads.engine), kept.hits):
            return kept
        if self._kept.get(place) is kept:
            del self._kept[place]
        return None

    def keep(self, place: _Place, recalled: _OfRequest) -> str:
        """Keep it, unless a concurrent call was first, and return the text that is kept. The oldest ones go."""
        kept = self._kept.get(place)
        if kept is not None and kept.request == recalled.request:
            return kept.text
        self._kept[place] = recalled
        self._kept.move_to_end(place)
        if len(self._kept) > _REQUESTS_MAX:
            self._kept.popitem(last=False)
        return recalled.text
