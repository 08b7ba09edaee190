"""Any provider's models through the litellm package (extra `llm`): the model, its requests, the module itself.

Importing litellm takes seconds and changes the process. It is imported late and off the event loop; its side effects
are undone or prevented here, unless your own code imported it before; and its connections are closed after use.
"""

import asyncio
import contextlib
import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar
from weakref import WeakKeyDictionary, WeakSet

from attrs import define, field, frozen

from memory_engine.errors import MissingExtra, ModelError
from memory_engine.errors.effects import Usage
from memory_engine.llm.answers import chat_text, chat_usage, total, with_usage
from memory_engine.llm.base import Completion, Message
from memory_engine.llm.failures import model_error
from memory_engine.llm.tries import CallOptions, tried


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
        os.environ["TIKTOKEN_CACHE_DIR"] = cache_dir  # it has replaced it with its own
    litellm.suppress_debug_info = True  # else errors print to stdout, where another protocol may run
    return litellm


@define(eq=False)
class _Connections:
    """One event loop's users of litellm, and the HTTP clients that litellm made for their calls."""

    users: WeakSet[Any] = field(factory=WeakSet)
    clients: dict[str, Any] = field(factory=dict)


_connections: WeakKeyDictionary[asyncio.AbstractEventLoop, _Connections] = WeakKeyDictionary()


@contextlib.contextmanager
def noting_clients(litellm: Any, user: object) -> Iterator[None]:
    """Note which clients litellm puts into its cache during a call, so that they can be closed.

    litellm caches them for the process and never closes them: without this, each leaves a
    ResourceWarning and an open socket behind. Clients without the loop's id in their key do not
    belong to a loop; they are litellm's own.
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

    A client that is serving another's call (litellm shares them) remains open, and litellm
    keeps it.
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


@frozen(kw_only=True)
class LiteLLMOptions(CallOptions):
    """The waits between tries, and further parameters to send: `api_version`, `reasoning_effort`, ..."""


class LiteLLM:
    """A model by its litellm name (`"openai/gpt-4o-mini"`, `"anthropic/..."`, `"ollama/..."`).

    Without `api_key`, litellm takes the provider's environment variable. `retries` is how
    often a failure that may pass is tried again; litellm's own retries are off. litellm is
    imported at the first call, in a worker thread. Raises `MissingExtra` where it is not
    installed.
    """

    def __init__(
        self,
        model: str,
        *,
        api_base: str | None = None,
        api_key: str | None = None,
        retries: int = 2,
        options: LiteLLMOptions = LiteLLMOptions(),
    ) -> None:
        require_litellm()
        self._model = model
        self._api_base = api_base
        self._api_key = api_key
        self._retries = retries
        self._options = options
        self._litellm: Any = None

    @property
    def name(self) -> str:
        """The name given."""
        return self._model

    @property
    def context_window(self) -> int:
        """The tokens that the model takes, by litellm's table; 0 for one that is not in it, or before the first call.

        A server of your own (`api_base`) may give a known name to another model, so then it is 0 too.
        """
        if self._litellm is None or self._api_base is not None:
            return 0
        try:
            found = self._litellm.get_model_info(self._model)
        except Exception:  # the boundary to a library: it raises a bare one for a model that it does not know
            return 0
        return int(found.get("max_input_tokens") or 0)

    def __repr__(self) -> str:
        return f"LiteLLM({self._model!r})"

    async def complete(
        self, messages: Sequence[Message], *, temperature: float, max_tokens: int, timeout_s: float
    ) -> Completion:
        """The answer (see `LanguageModel.complete`). A parameter that the model does not know is left out.

        The first call of a process imports litellm before its time begins to run.
        """
        if self._litellm is None:
            self._litellm = await load_litellm()
        request = {
            **self._options.parameters,
            "model": self._model,
            "messages": [dict(message) for message in messages],
            "temperature": temperature,
            "max_tokens": max_tokens,
            "timeout": timeout_s,  # not the time left: litellm keeps one client for each value
            "max_retries": 0,
            "drop_params": True,
            "api_base": self._api_base,
            "api_key": self._api_key,
        }
        spent: list[Usage] = []
        try:
            return await tried(
                self._model,
                lambda: self._try(request, spent),
                retries=self._retries,
                timeout_s=timeout_s,
                options=self._options,
            )
        except ModelError as error:
            raise with_usage(error, spent) from error.__cause__

    async def aclose(self) -> None:
        """Close the connections of this loop's calls, unless another `LiteLLM` still uses them."""
        if self._litellm is not None:
            await close_clients(self._litellm, self)

    async def _try(self, request: Mapping[str, Any], spent: list[Usage]) -> Completion:
        try:
            with noting_clients(self._litellm, self):
                response = await self._litellm.acompletion(**request)
        except Exception as error:  # the boundary to libraries whose errors share no base: all become typed
            raise model_error(self._model, error, secret=self._api_key) from error
        spent.append(chat_usage(response))
        text = chat_text(self._model, response)
        return Completion(
            text=text,
            model=str(getattr(response, "model", None) or self._model),
            response_id=str(getattr(response, "id", None) or ""),
            usage=total(spent),
        )


T = TypeVar("T")


class _Given(int):
    """A number that is true even where it is 0: litellm's embedding replaces a falsy number of retries with two."""

    def __bool__(self) -> bool:
        return True


NO_RETRIES = _Given(0)


@frozen(kw_only=True)
class RequestOptions(LiteLLMOptions):
    """How requests are made, besides the tries and parameters of `LiteLLMOptions`.

    `retries` is how often a failure that may pass is tried again, within `timeout_s` seconds a
    request. One request takes at most `batch` texts, and of each the first `chars_max`
    characters: models take a limited number of tokens, and one text that is too long fails its whole request.
    """

    retries: int = 2
    timeout_s: float = 30.0
    batch: int = 128
    chars_max: int = 6_000


class LiteLLMCalls:
    """Calls to one model. Raises `MissingExtra` where litellm is not installed; imports it at the first call."""

    def __init__(self, model: str, api_base: str | None, api_key: str | None, options: RequestOptions) -> None:
        require_litellm()
        self.model = model
        self.options = options
        self._api_base = api_base
        self._api_key = api_key
        self._litellm: Any = None

    async def call(self, function: str, arguments: Mapping[str, object], read: Callable[[Any], T]) -> T:
        """Call one of litellm's functions and read its answer with `read`, which raises `ModelError` for a bad one.

        Raises `ModelError` when all tries are used up, or the time.
        """
        if self._litellm is None:
            self._litellm = await load_litellm()
        options = self.options
        request = {
            **options.parameters,
            **arguments,
            "model": self.model,
            "timeout": options.timeout_s,
            "max_retries": NO_RETRIES,
            "drop_params": True,
            "api_base": self._api_base,
            "api_key": self._api_key,
        }
        return await tried(
            self.model,
            lambda: self._try(function, request, read),
            retries=options.retries,
            timeout_s=options.timeout_s,
            options=options,
        )

    async def aclose(self) -> None:
        """Close the connections of this loop's calls, unless another adapter to litellm still uses them."""
        if self._litellm is not None:
            await close_clients(self._litellm, self)

    async def _try(self, function: str, request: Mapping[str, object], read: Callable[[Any], T]) -> T:
        try:
            with noting_clients(self._litellm, self):
                response = await getattr(self._litellm, function)(**request)
        except Exception as error:  # the boundary to libraries whose errors share no base: all become typed
            raise model_error(self.model, error, secret=self._api_key) from error
        return read(response)


def sendable(texts: Sequence[str], chars_max: int) -> list[str]:
    """The texts, cut to this many characters, without lone surrogates, which no encoding holds."""
    return [text[:chars_max].encode(errors="replace").decode() for text in texts]


def batches(items: Sequence[T], size: int) -> list[Sequence[T]]:
    """The items in their order, at most `size` together."""
    return [items[at : at + size] for at in range(0, len(items), size)]
