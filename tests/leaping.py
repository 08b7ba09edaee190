"""Time that passes at once: a deadline is reached when a test says so, however fast the machine is."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch


@contextmanager
def leap(seconds: float) -> Iterator[None]:
    """Within the block the loop's clock is so far ahead: whatever was to happen in between is due now."""
    loop = asyncio.get_running_loop()
    now = loop.time
    with patch.object(loop, "time", lambda: now() + seconds):
        yield
