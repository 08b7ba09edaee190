"""The litellm module itself: imported late and off the event loop, and its connections closed after use.

Importing it takes seconds and does things to the process that nobody asked for; they are undone
or prevented here, unless the user's own code imported it before us.
"""

import asyncio
import contextlib
import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Iterator
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

from attrs import define, field

from memory_engine.errors import MissingExtra


def require_litellm() -> None:
    """Raise `MissingExtra` where litellm is not installed. Imports nothing."""
    if importlib.util.find_spec("litellm") is None:
        raise MissingExtra("LiteLLM", "llm")


async def load_litellm() -> Any:
    """The module. The first import happens in a worker thread; cancelling the caller does not wait for it."""
    return await asyncio.to_thread(_import)


def _import() -> Any:
    if "litellm" in sys.modules:
        return importlib.import_module("litellm")  # waits where another thread is importing it
    cache_dir = os.environ.get("TIKTOKEN_CACHE_DIR")
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # else it downloads prices
    os.environ.setdefault("LITELLM_MODE", "PRODUCTION")  # else it loads the working directory's .env
    litellm: Any = importlib.import_module("litellm")
    importlib.import_module("openai.resources")  # else the first call imports it, on the event loop
    litellm.ModelResponse()  # the same: builds what checks answers, under the filters of warnings that litellm sets
    if cache_dir is not None:
        os.environ["TIKTOKEN_CACHE_DIR"] = cache_dir  # it has put its own in the place
    litellm.suppress_debug_info = True  # else errors print to stdout, where another protocol may run
    return litellm


@define(eq=False)
class _Connections:
    """Of one event loop: who calls models, and the HTTP clients that litellm made for these calls."""

    users: WeakSet[Any] = field(factory=WeakSet)
    clients: dict[str, Any] = field(factory=dict)


_connections: WeakKeyDictionary[asyncio.AbstractEventLoop, _Connections] = WeakKeyDictionary()


@contextlib.contextmanager
def noting_clients(litellm: Any, user: object) -> Iterator[None]:
    """Note which clients litellm puts into its cache during a call, so that they can be closed.

    litellm caches them for the process and never closes them: without this, each leaves a
    ResourceWarning and an open socket behind. Those without the loop's id in their key belong
    to no loop; they are litellm's own.
    """
    loop = asyncio.get_running_loop()
    mine = _connections.setdefault(loop, _Connections())
    mine.users.add(user)
    cache = litellm.in_memory_llm_clients_cache.cache_dict
    known = set(cache)
    try:
        yield
    finally:
        new = cache.keys() - known
        mine.clients.update((key, cache[key]) for key in new if key.endswith(f"-{id(loop)}"))


async def close_clients(litellm: Any, user: object) -> None:
    """Close the clients of this loop's calls once no other user is left; litellm makes new ones at need.

    A client that is just serving a call of somebody else's (litellm shares them) stays open, in
    litellm's care.
    """
    mine = _connections.get(asyncio.get_running_loop())
    if mine is None:
        return
    mine.users.discard(user)
    if mine.users:
        return
    cache = litellm.in_memory_llm_clients_cache
    while mine.clients:
        key, client = mine.clients.popitem()
        if _is_busy(client):
            continue
        if cache.cache_dict.get(key) is client:
            cache.delete_cache(key)
        close = getattr(client, "close", None) or getattr(client, "aclose", None)
        if close is not None and inspect.iscoroutinefunction(close):
            await close()


def _is_busy(client: Any) -> bool:
    """Whether litellm says that a request of the client is under way. A version that cannot say: no."""
    try:
        closer = importlib.import_module("litellm.caching.evicted_client_closer")
    except ModuleNotFoundError:
        return False
    ask = getattr(closer, "_has_connection_in_flight", None)
    return ask is not None and bool(ask(client))
