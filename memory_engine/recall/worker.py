"""A model in this process: loaded late, and computing in a thread of its own while the event loop goes on."""

import asyncio
import importlib.util
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

from memory_engine.errors import MissingExtra, ModelError
from memory_engine.llm.failures import model_error

M = TypeVar("M")
T = TypeVar("T")


class LocalModel(Generic[M]):
    """One model and its one thread. Calls wait for each other; one that is cancelled while it waits is not begun."""

    def __init__(self, name: str, load: Callable[[], M]) -> None:
        self.name = name
        self._load = load
        self._model: M | None = None
        self._thread: ThreadPoolExecutor | None = None

    async def run(self, use: Callable[[M], T]) -> T:
        """What `use` makes of the model, which the first call loads. Raises `ModelError` for whatever goes wrong.

        Cancelling does not stop a computation that has begun: keep each short.
        """
        if self._thread is None:
            self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="memory-engine-model")
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, self._use, use)
        except (ModelError, MissingExtra):
            raise
        except Exception as error:  # the boundary to libraries that raise anything: all becomes typed
            raise model_error(self.name, error) from error

    async def aclose(self) -> None:
        """Let go of model and thread. What waits is not begun; what has begun ends by itself."""
        thread, self._thread, self._model = self._thread, None, None
        if thread is not None:
            thread.shutdown(wait=False, cancel_futures=True)

    def _use(self, use: Callable[[M], T]) -> T:
        model = self._model
        if model is None:
            model = self._model = self._load()
        return use(model)


def require(package: str, feature: str, extra: str) -> None:
    """Raise `MissingExtra` where a package is not installed. Imports nothing."""
    if importlib.util.find_spec(package) is None:
        raise MissingExtra(feature, extra)
