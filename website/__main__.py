"""Build the site of the docs into build/site, and check every link of it: `python3 tasks.py site`.

Nothing in the site loads from elsewhere, so it reads from a disk or behind any web server:
`python3 -m http.server --directory build/site`. Exit code 1: a page, a link, an anchor or an asset is missing.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import memory_engine
from website.links import broken_links
from website.pages import Staging
from website.reference import ROOMS

ROOT = Path(__file__).resolve().parents[1]
CONFIG = Path(__file__).with_name("zensical.toml")
SHIM = "https://unpkg.com/iframe-worker/shim"
"""The theme's search for pages that are read from a disk; ours replaces it."""


def main() -> int:
    """Stage the pages, build them, check the links; return the exit code."""
    build = ROOT / "build"
    staged, site, config = build / "site-pages", build / "site", build / "zensical.toml"
    for folder in (staged, site):
        shutil.rmtree(folder, ignore_errors=True)
    staging = Staging(ROOT, staged)
    staging.stage()
    text = CONFIG.read_text("utf-8")
    reference = ", ".join(f'{{ "{room.title}" = "reference/{room.name}.md" }}' for room in ROOMS)
    config.write_text(text.replace('"REFERENCE"', reference), "utf-8")
    missing = [page for page in staging.pages if f'"{page}"' not in text and not page.startswith("project/")]
    program = Path(sys.executable).with_name("zensical")
    done = subprocess.run([program, "build", "--strict", "--clean", "-f", config], cwd=build, check=False)
    wrong = [f"{page}: not in the navigation (website/zensical.toml)" for page in missing]
    names = [name for name in dir(memory_engine) if not name.startswith("_")]
    known = {*staging.names, "errors", "events", "sync", "testing"}
    wrong += [f"memory_engine.{name}: no docstring" for name in names if name not in known]
    if not done.returncode:
        _replace_shim(site)
        wrong += broken_links(site)
    print(*wrong, sep="\n", file=sys.stderr, end="\n" if wrong else "")
    if not (wrong or done.returncode):
        print(f"{len(staging.pages)} pages and the reference: {site / 'index.html'}")
    return 1 if wrong else done.returncode


def _replace_shim(site: Path) -> None:
    shutil.copy(Path(__file__).with_name("search_from_disk.js"), site / "assets")
    for page in site.rglob("*.html"):
        up = "../" * (len(page.relative_to(site).parts) - 1)
        text = page.read_text("utf-8")
        page.write_text(text.replace(SHIM, f"{up}assets/search_from_disk.js"), "utf-8")


if __name__ == "__main__":
    sys.exit(main())
