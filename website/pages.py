"""The pages that the site is made of: docs/, what they link to elsewhere in the repository, and the generated ones.

In docs/ every link leads to a file of the repository, so the pages read well there too. For the site each page is
copied, and files outside docs/ that it links to are copied under `project/`: pages unchanged, any other file as code.
"""

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

from website.commands import write_commands
from website.reference import linked, write_reference

BLOCKS = re.compile(r"(^ *```.*?^ *```[^\n]*\n)", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(!?)(\[(?:[^\[\]]|\[[^\]]*\])*\])\(((?!https?:|#|mailto:)[^)#\s]+)(#[^)\s]*)?\)")
IMPORT = re.compile(r"^\s*from (memory_engine[\w.]*) import (?:\(([^)]*)\)|(.*))$", re.MULTILINE)
RESULTS = re.compile(r"<!-- results: ([\w, -]+) -->")
STYLE = re.compile(r"<style>.*?</style>|<\?xml[^>]*>\s*", re.DOTALL)
LEXERS = {".py": "python", ".toml": "toml", ".jsonl": "json", ".json": "json", ".sql": "sql"}


class Staging:
    """Copies pages into a folder from which the site is built."""

    def __init__(self, root: Path, folder: Path) -> None:
        self.pages: list[str] = []
        """Paths of the pages made so far, in the folder; those of the reference are not among them."""
        self._root = root
        self._folder = folder
        self.names: dict[str, str] = {}
        """The place of each public name in the reference."""
        self._waiting: list[tuple[Path, str]] = []

    def stage(self) -> None:
        """Make every page, and what they show."""
        docs = self._root / "docs"
        shutil.copytree(docs / "images", self._folder / "images")
        shutil.copy(Path(__file__).with_name("site.css"), self._folder / "site.css")
        self.names = write_reference(self._folder / "reference", self._root, self._imported())
        write_commands(self._folder / "reference" / "commands.md")
        self._waiting = [(path, path.relative_to(docs).as_posix()) for path in sorted(docs.rglob("*.md"))]
        for linked_in_nav in ("CHANGELOG.md", "CONTRIBUTING.md", "benchmarks/RESULTS.md"):
            self._staged(self._root / linked_in_nav, is_image=False)
        while self._waiting:
            source, name = self._waiting.pop(0)
            if name not in self.pages:
                self.pages.append(name)
                target = self._folder / name
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(self._page(source, name), "utf-8")

    def _imported(self) -> list[str]:
        """The paths of what the pages import: whoever reads them uses these."""
        found: set[str] = set()
        for page in (self._root / "README.md", *(self._root / "docs").rglob("*.md")):
            for module, several, one in IMPORT.findall(page.read_text("utf-8")):
                names = re.sub(r"#.*", "", several or one).split(",")
                found |= {f"{module}.{name.split(' as ')[0].strip()}" for name in names if name.strip()}
        return sorted(found)

    def _page(self, source: Path, name: str) -> str:
        if source.is_dir():
            listed = (path for path in sorted(source.rglob("*.py")) if "__pycache__" not in path.parts)
            rows = [f"* [{path.relative_to(source)}]({path.relative_to(source).as_posix()})" for path in listed]
            text = f"# {source.relative_to(self._root)}/\n\n" + "\n".join(rows) + "\n"
            return self._linked(text, source / "index.md", name)
        text = source.read_text("utf-8")
        if source.suffix != ".md":
            fence = f"`````{LEXERS.get(source.suffix, 'text')}"
            return f"# {source.relative_to(self._root)}\n\n{fence}\n{text}\n`````\n"
        text = RESULTS.sub(self._results, text)
        parts = BLOCKS.split(text)
        parts[::2] = [self._linked(part, source, name) for part in parts[::2]]
        if not name.startswith("project/"):
            parts = self._with_reference(parts, name)
        return "".join(parts)

    def _linked(self, text: str, source: Path, name: str) -> str:
        """The links of one page as they lead in the site. Raises `FileNotFoundError` for one that leads nowhere."""

        def link(found: re.Match[str]) -> str:
            is_image, label, path, anchor = found.groups(default="")
            target = (source.parent / path).resolve()
            if not target.exists():
                raise FileNotFoundError(f"{source}: {path}")
            if is_image and target.suffix == ".svg" and "currentColor" in (drawing := target.read_text("utf-8")):
                return self._drawn(drawing, label[1:-1])
            to = os.path.relpath(self._staged(target, is_image=bool(is_image)), Path(name).parent)
            return f"{is_image}{label}({to}{anchor})"

        return LINK.sub(link, text)

    def _staged(self, target: Path, *, is_image: bool) -> str:
        """The place of a repository's file in the site; it is put there if it is not of docs/."""
        docs = self._root / "docs"
        if target.is_relative_to(docs):
            return target.relative_to(docs).as_posix() + ("/index.md" if target.is_dir() else "")
        name = f"project/{target.relative_to(self._root).as_posix()}"
        if is_image:
            (self._folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(target, self._folder / name)
            return name
        name += "/index.md" if target.is_dir() else "" if target.suffix == ".md" else ".md"
        self._waiting.append((target, name))
        return name

    def _drawn(self, drawing: str, label: str) -> str:
        """A drawing within its page, where it takes the colours of the theme that the reader has chosen."""
        inner = re.sub(r"\n\s*\n", "\n", STYLE.sub("", drawing)).strip()
        return f'<figure class="drawing" role="img" aria-label="{label}">{inner}</figure>'

    def _with_reference(self, parts: list[str], name: str) -> list[str]:
        """Link the first mention of each public class on a page to its entry."""
        left = {one: place for one, place in self.names.items() if one[0].isupper()}
        to = os.path.relpath("reference", Path(name).parent) + "/"
        for number in range(0, len(parts), 2):
            lines = parts[number].split("\n")
            for at, line in enumerate(lines):
                if not line.startswith("#") and "](" not in line:
                    lines[at] = linked(line, left, to)
                    for one in set(re.findall(r"\[`(\w+)`\]\(", lines[at])):
                        left.pop(one, None)
            parts[number] = "\n".join(lines)
        return parts

    def _results(self, found: re.Match[str]) -> str:
        """The figures of some benches, from benchmarks/results.json. Raises `KeyError` without one."""
        kept = {
            one["bench"]: one["figures"] for one in json.loads((self._root / "benchmarks/results.json").read_text())
        }
        rows = [row(name, figure) for name in found[1].split(", ") for figure in kept[name]]
        return "\n".join(["| bench | case | value | reference | ratio |", "|---|---|---:|---|---:|", *rows])


def row(bench: str, figure: dict[str, Any]) -> str:
    """A figure as a row: what was measured, and its ratio to its reference."""
    value, reference = figure["value"], figure["reference"] or {"name": "", "value": None}
    compared = f"{reference['name']}: {reference['value']:,.4g}" if reference["value"] else reference["name"]
    ratio = f"{value / reference['value']:.3g}" if value is not None and reference["value"] else ""
    return f"| {bench} | {figure['case']} | {value:,.4g} {figure['unit']} | {compared} | {ratio} |"
