"""What is installed, from which versions, and what importing it does."""

import ast
import json
import re
import site
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
LINKED_ROOTS = ("compactors", "reducers", "storage")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PEERS = sorted((ROOT / "tests" / "integrations").glob("*.lock"))
LOCKS = {
    lock.stem: lock.read_text(encoding="utf-8")
    for lock in (ROOT / "requirements.lock", *sorted((ROOT / "benchmarks").glob("*.lock")), *PEERS)
}

# Lines of site-packages/*.pth that begin with `import` run whenever Python starts. Two known packages have a reason
# to; a third would be how a stolen release steals.
STARTUP_FILES_EXPECTED = ("__editable__.memory_event_engine", "a1_coverage", "distutils-precedence")

# What `import memory_engine` may not load: drivers, numerics and model clients cost up to seconds.
HEAVY = (
    "aiosqlite",
    "anthropic",
    "fastembed",
    "hnswlib",
    "litellm",
    "numpy",
    "openai",
    "sentence_transformers",
    "sqlite3",
    "starlette",
    "tiktoken",
    "usearch",
    "uvicorn",
)

IMPORT_PROBE = f"""
import json, logging, os, sys, threading, time, warnings
environment, handlers = dict(os.environ), list(logging.root.handlers)
hooks = sys.excepthook, threading.excepthook
begun = time.perf_counter()
import memory_engine
print(json.dumps({{
    "ms": (time.perf_counter() - begun) * 1000,
    "loaded": [name for name in {HEAVY!r} if name in sys.modules],
    "environment": dict(os.environ) != environment,
    "handlers": logging.root.handlers != handlers,
    "hooks": (sys.excepthook, threading.excepthook) != hooks,
    "threads": threading.active_count() - 1,
    "files": os.listdir(),
}}))
"""


def packages_on_disk() -> set[str]:
    """Return every folder with Python in it, by the name it is installed under."""
    rooms = {"memory_engine": ROOT / "memory_engine"} | {f"memory_engine.{name}": ROOT / name for name in LINKED_ROOTS}
    found = set()
    for name, room in rooms.items():
        for path in room.rglob("*.py"):
            inner = path.parent.relative_to(room).parts
            if name != "memory_engine" or not inner or inner[0] not in LINKED_ROOTS:
                found.add(".".join([name, *inner]))
    return found


def declared_requirements(lock: str) -> list[Requirement]:
    """Return what is asked of the packages in one lock file."""
    extras, groups = PROJECT["project"]["optional-dependencies"], PROJECT["dependency-groups"]
    if lock != "requirements":
        peer = ROOT / "tests" / "integrations" / f"{lock}.in"
        source = peer if peer.exists() else ROOT / "benchmarks" / f"{lock}.in"
        named = [line for line in source.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
        shared = (*extras[lock.replace("_", "-")], *groups["peer"]) if source == peer else ()
        return [Requirement(text) for text in (*named, *shared)]
    light = [text for extra in Requirement(extras["all"][0]).extras for text in extras[extra]]
    asked = [text for group in groups["dev"] for text in groups[group["include-group"]]]
    return [Requirement(text) for text in (*PROJECT["project"]["dependencies"], *light, *asked)]


def pins(lock: str) -> dict[str, str]:
    """Return the version that a lock file's text holds of each package; of several, for several Pythons, the last."""
    lines = re.findall(r"^([\w.-]+)==(\S+)", lock, re.MULTILINE)
    return {canonicalize_name(name): version for name, version in lines}


def test_the_list_of_packages_is_the_tree() -> None:
    """A package missing from the list would be left out of the wheel without a warning."""
    assert packages_on_disk() == set(PROJECT["tool"]["setuptools"]["packages"])


def test_every_package_is_a_regular_one() -> None:
    """Every package has an `__init__.py`: a namespace package is found by luck."""
    folders = {name: ROOT.joinpath(*_on_disk(name)) for name in packages_on_disk()}
    assert [] == sorted(name for name, folder in folders.items() if not (folder / "__init__.py").is_file())


def _on_disk(package: str) -> list[str]:
    first, *rest = package.split(".")
    return rest if rest and rest[0] in LINKED_ROOTS else [first, *rest]


@pytest.mark.parametrize("name", LINKED_ROOTS)
def test_a_linked_root_is_reached_by_its_link(name: str) -> None:
    """The link in memory_engine/, or the text that a checkout without links has, leads to its root."""
    link = ROOT / "memory_engine" / name
    assert f"../{name}" == (
        link.readlink().as_posix() if link.is_symlink() else link.read_text(encoding="utf-8").strip()
    )


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_file_holds_what_is_asked_for(lock: str) -> None:
    """Every declared requirement is pinned, at a version that satisfies it."""
    held = pins(LOCKS[lock])
    unmet = [
        str(requirement)
        for requirement in declared_requirements(lock)
        if not requirement.specifier.contains(held.get(canonicalize_name(requirement.name), "0"), prereleases=False)
    ]
    assert [] == unmet, "run `python3 tasks.py lock`"


def test_the_wheel_is_tried_with_the_base_and_the_demo_with_the_inspector() -> None:
    """The first part of requirements.lock pins the base and the build backend, the second one extra."""
    base = [*PROJECT["project"]["dependencies"], *PROJECT["dependency-groups"]["build"]]
    inspector = PROJECT["project"]["optional-dependencies"]["inspect"]
    declared = {canonicalize_name(requirement.name) for requirement in declared_requirements("requirements")}
    for heading, asked in (("# Beyond what the wheel", base), ("# Beyond what `demo`", [*base, *inspector])):
        part, found, _rest = LOCKS["requirements"].partition(f"\n{heading} needs")
        assert found
        assert {canonicalize_name(Requirement(text).name) for text in asked} == declared & set(pins(part))


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_file_names_no_host(lock: str) -> None:
    """Where packages come from is the machine's own configuration."""
    assert [] == re.findall(r"\S+://\S+|^--(?:index|extra-index|find-links).*", LOCKS[lock], re.MULTILINE)


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_file_has_a_hash_for_every_pin(lock: str) -> None:
    """What an index serves is compared with what was locked."""
    assert [] == re.findall(r"^[\w.-]+==[^\\\n]*\n", LOCKS[lock], re.MULTILINE)


def test_no_installed_package_runs_code_at_every_start_of_python() -> None:
    """Only files that are known to are run by `site` before anything else."""
    starting = [
        file.name
        for folder in site.getsitepackages()
        for file in Path(folder).glob("*.pth")
        if re.search(r"^import\s", file.read_text(encoding="utf-8", errors="replace"), re.MULTILINE)
    ]
    assert [] == [name for name in starting if not name.startswith(STARTUP_FILES_EXPECTED)]


def test_importing_the_package_does_nothing(tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    """Importing memory_engine loads nothing heavy and leaves environment, logging, threads and disk alone."""
    probe = subprocess.run(
        [sys.executable, "-c", IMPORT_PROBE],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    seen = json.loads(probe.stdout)
    record_property("import_ms", seen.pop("ms"))  # shown, not judged: a loaded machine would fail it
    assert {
        "loaded": [],
        "environment": False,
        "handlers": False,
        "hooks": False,
        "threads": 0,
        "files": [],
    } == seen


def test_the_task_runner_parses_on_an_old_python() -> None:
    """tasks.py is parsed whole before it can say that the Python is too old."""
    ast.parse((ROOT / "tasks.py").read_text(encoding="utf-8"), feature_version=(3, 7))
