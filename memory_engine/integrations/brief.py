"""The brief of a thread as one text, for frameworks that build the request of their model themselves."""

from collections.abc import Iterable
from contextlib import suppress

from msgspec.structs import replace

from memory_engine.context.brief_block import RankedBlock
from memory_engine.context.builder import ContextBuilder
from memory_engine.errors import ThreadNotFound
from memory_engine.integrations.owned import OwnedThreads
from memory_engine.thread import Thread, handle_of
from memory_engine.views.brief.view import heading, weighed

BRIEF_TOKENS = 2_000
"""Tokens that a brief takes at most where nothing else is said."""
BRIEF_MARK = "[Brief]"
"""The beginning of a brief's text."""


async def brief_of(
    threads: OwnedThreads, thread_id: str, *, beside: Iterable[str] = (), max_tokens: int = BRIEF_TOKENS
) -> str:
    """The `brief_text` of an owner's thread; empty if there is no thread yet. Raises `ThreadDiffers`."""
    thread = await threads.find(thread_id)
    if thread is not None:
        with suppress(ThreadNotFound):
            return await brief_text(thread, beside=beside, max_tokens=max_tokens)
    return ""


async def brief_text(thread: Thread, *, beside: Iterable[str] = (), max_tokens: int = BRIEF_TOKENS) -> str:
    """People's statements in a thread that still apply, in at most `max_tokens` tokens; empty without any.

    `beside` are the texts of the request: their statements are not repeated, except pins. Send it in the role of a
    user, in front of the history, and do not store it with the talk: it would count as said by a person. Raises
    `ThreadNotFound`.
    """
    brief = await thread.brief.read()
    shown = " ".join(" ".join(beside).split())
    offered = [one for one in weighed(brief) if one.pinned or one.text not in shown]
    if not offered:
        return ""
    offered = [replace(one, request=False) for one in offered]  # the request itself is in what the framework sends
    whole = RankedBlock.whole("brief", heading(brief), offered)
    block = whole.within(max_tokens, handle_of(thread).kernel[ContextBuilder].counter)
    return f"{BRIEF_MARK} {block.text}" if block.lines else ""
