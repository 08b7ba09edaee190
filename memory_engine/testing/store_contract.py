"""The storage contract as a pytest class: every back end's tests subclass it.

    class TestMyStore(StoreContract):
        persistent = True

        @pytest.fixture
        def store_factory(self, tmp_path):
            return functools.partial(MyStore.open, tmp_path / "db")

Async tests run on anyio's pytest plug-in. For assertions with details, call
`pytest.register_assert_rewrite("memory_engine.testing")` in a conftest.py.
"""

from collections.abc import AsyncIterator

import pytest

from memory_engine.store.protocol import Store
from memory_engine.testing.contract_log import CorrelationContract, LogContract, PastContract
from memory_engine.testing.contract_passages import PassageContract
from memory_engine.testing.contract_threads import ForkContract, ThreadContract
from memory_engine.testing.contract_views import ReopeningContract, StoreFactory, ViewContract


@pytest.mark.anyio
class StoreContract(
    ThreadContract,
    LogContract,
    PastContract,
    CorrelationContract,
    ForkContract,
    ViewContract,
    PassageContract,
    ReopeningContract,
):
    """Everything that `memory_engine.store.protocol.Store` promises.

    `store_factory` gives a function that opens a store; called again in the same test it opens
    the same data again where `persistent` is true. Each test needs data of its own.
    """

    persistent = False

    @pytest.fixture
    def store_factory(self) -> StoreFactory:
        """The subclass overrides this fixture."""
        raise NotImplementedError("a subclass of StoreContract defines the fixture store_factory")

    @pytest.fixture
    async def store(self, store_factory: StoreFactory) -> AsyncIterator[Store]:
        """A store that is closed after the test."""
        store = await store_factory()
        yield store
        await store.close()

    @pytest.fixture(autouse=True)
    def _only_what_it_promises(self, request: pytest.FixtureRequest) -> None:
        """Skip tests that only a persistent store can pass."""
        if not self.persistent and hasattr(ReopeningContract, request.function.__name__):
            pytest.skip("this store keeps nothing beyond its own life")
