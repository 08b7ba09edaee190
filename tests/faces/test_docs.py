"""What the pages name is there: modules and classes in the tree, files and headings behind links."""

import pkgutil
import re
from pathlib import Path

import pytest

from memory_engine import errors
from memory_engine.errors import MissingExtra

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]

NAME = re.compile(r"\bmemory_engine(?:\.[A-Za-z_]\w*)+")
MOVED = re.compile(r"^\| `[^|]*\|", re.MULTILINE)  # the changelog's column of old names
LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
CODE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
LOGGERS = {"memory_engine.report"}
SPANS = {
    "memory_engine.compaction.tokens",
    "memory_engine.context.tokens",
    "memory_engine.event.type",
}
"""Names that telemetry tells of."""

pages = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


@pages
def test_a_name_that_a_page_gives_is_there(page: Path) -> None:
    """Each `memory_engine.…` is a module, or what one holds."""
    text = page.read_text(encoding="utf-8")
    named = NAME.findall(MOVED.sub("", text) if page.name == "CHANGELOG.md" else text)
    assert [] == [name for name in sorted({*named} - LOGGERS - SPANS) if not _resolves(name)]


@pages
def test_a_link_of_a_page_leads_somewhere(page: Path) -> None:
    """To a file of the repository, and to a heading of it where it names one."""
    links: list[tuple[str, str]] = LINK.findall(CODE.sub("", page.read_text(encoding="utf-8")))
    assert [] == [link for link in links if not _leads(page, *link)]


def test_an_error_that_troubleshooting_names_is_one() -> None:
    """The first column names classes that you can catch."""
    rows = re.findall(
        r"^\| (`[^|]*`) \|", (ROOT / "docs/how-to/troubleshooting.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    named = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    assert len(named) > 30
    assert [] == [name for name in named if not issubclass(getattr(errors, name, object), errors.MemoryEngineError)]


def _resolves(name: str) -> bool:
    try:
        pkgutil.resolve_name(name)
    except MissingExtra:  # an adapter, whose peer is not here
        return name.startswith("memory_engine.integrations.")
    except (ImportError, AttributeError):
        return False
    return True


def _leads(page: Path, path: str, anchor: str) -> bool:
    target = page.parent / path if path else page
    return target.exists() and (not anchor or anchor in _anchors(target))


def _anchors(page: Path) -> set[str]:
    headings: list[str] = HEADING.findall(CODE.sub("", page.read_text(encoding="utf-8")))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
