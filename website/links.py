"""Check that the targets of a built site's links exist, and that the site contains all that a page loads."""

import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADED = {"img": "src", "link": "href", "script": "src", "source": "src", "iframe": "src", "use": "href"}
"""Elements that a browser loads something for without being asked."""


class _Page(HTMLParser):
    """The ids of a page, what it links to, and what it loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: set[str] = set()
        self.loads: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep the ids, links and assets of one element."""
        found = {name: value or "" for name, value in attrs}
        self.ids.update(found[name] for name in ("id", "name") if name in found)
        if tag == "a" and "href" in found:
            self.links.add(found["href"])
        elif tag in LOADED and LOADED[tag] in found and found.get("rel") not in ("canonical", "prev", "next"):
            self.loads.add(found[LOADED[tag]])


def broken_links(site: Path) -> list[str]:
    """A line for each link or asset of the site's pages that leads nowhere, or loads from elsewhere."""
    pages = {path: _Page(path.read_text("utf-8")) for path in sorted(site.rglob("*.html"))}
    wrong: list[str] = []
    for path, page in pages.items():
        if path.name == "404.html":  # its links are absolute: it is served for any address
            continue
        shown = path.relative_to(site)
        wrong += [
            f"{shown}: loads {url} from elsewhere" for url in page.loads if urlsplit(url).scheme not in ("", "data")
        ]
        wrong += [f"{shown}: {why}" for url in sorted(page.links | page.loads) if (why := _wrong(url, path, pages))]
    for style in site.rglob("*.css"):
        elsewhere = re.findall(r"url\(['\"]?(https?:[^)'\"]+)", style.read_text("utf-8"))
        wrong += [f"{style.relative_to(site)}: loads {url} from elsewhere" for url in elsewhere]
    return wrong


def _wrong(url: str, path: Path, pages: dict[Path, _Page]) -> str:
    parts = urlsplit(url)
    if parts.scheme or parts.netloc:
        return ""
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    target = target / "index.html" if target.is_dir() else target
    if not target.exists():
        return f"{url} is not there"
    if parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].ids:
        return f"{url} names no heading"
    return ""
