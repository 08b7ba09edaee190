"""What ADK's own tests need of pytest."""

import pytest


def pytest_configure(config: pytest.Config) -> None:
    """Know the mark that they bear; tests run on an event loop without it here."""
    config.addinivalue_line("markers", "asyncio: a test of the peer's that awaits")
