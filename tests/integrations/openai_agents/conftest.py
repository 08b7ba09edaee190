"""The mark that the SDK's own tests bear. AnyIO runs them here."""

import pytest


def pytest_configure(config: pytest.Config) -> None:
    """Know the mark."""
    config.addinivalue_line("markers", "asyncio: a coroutine")
