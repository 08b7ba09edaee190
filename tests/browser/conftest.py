"""One Chromium for the tests of a file, and a page of it for each.

Every test here must be a plain function: Playwright's own loop runs in this thread until the last of the file. Not
until the last of the folder: a process runs files of other folders in between, whose own loops could not begin.
"""

import os
import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.browser.browsing import PATIENCE_MS, Window

if TYPE_CHECKING:
    from playwright.sync_api import Browser

NAMES = ("chromium", "chromium-browser", "google-chrome")
ARGUMENTS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --disable-lcd-text"
).split()


@pytest.fixture(scope="module")
def chromium() -> "Iterator[Browser]":
    """One browser for the tests of a file; they skip without one. Meanwhile no other loop runs in this thread."""
    path = os.environ.get("MEMORY_ENGINE_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        pytest.skip("there is no Chromium here (install it, or name one in MEMORY_ENGINE_CHROMIUM)")
    try:
        from playwright.sync_api import expect, sync_playwright
    except ImportError:
        pytest.skip("Playwright is not installed: `tasks.py test` does it where there is a Chromium")
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture
def window(chromium: "Browser") -> Iterator[Window]:
    """A page of 1,440 × 900 in a light theme."""
    window = Window(chromium)
    yield window
    window.close()
