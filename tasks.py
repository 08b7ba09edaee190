#!/usr/bin/env python3
"""Every task of this project, from a bare clone on: `python3 tasks.py --help` lists them.

Needs Python 3.11 or newer and nothing else. Each task first brings a virtual environment (`.venv`, or what
`--venv` names) up to date from a lock file with hashes, through pip as this machine has it configured; when
nothing has changed since, that costs a few milliseconds. CI calls the same tasks.
"""

import sys

WANTED = (3, 11)
if sys.version_info < WANTED:  # Everything above this line must parse, and everything below it too, in any Python 3.
    import shutil

    found = [name for name in ("python3.14", "python3.13", "python3.12", "python3.11") if shutil.which(name)]
    sys.exit(
        "memory_engine needs Python {}.{} or newer; {} is Python {}.{}.\n".format(
            *WANTED, sys.executable, *sys.version_info[:2]
        )
        + (
            "{0} is on the PATH: run `{0} {1}`.".format(found[0], " ".join(sys.argv))
            if found
            else "Install one (python.org, your system's packages, pyenv or uv), then run this with it."
        )
    )

import argparse
import hashlib
import itertools
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent
LOCKS = ROOT / "requirements"
CHROMIUMS = ("chromium", "chromium-browser", "google-chrome")
"""Programs that the inspector's page is tested in; MEMORY_ENGINE_CHROMIUM names another."""
# Lines in site-packages/*.pth that start with `import` run at every start of the interpreter. Two known
# packages have a reason to; a third would be how a stolen release steals.
STARTUP_FILES_EXPECTED = ("__editable__.memory_engine", "a1_coverage", "distutils-precedence")


class TaskError(Exception):
    """A task cannot go on; the message says why and, where it can, what to do."""


def say(text: str) -> None:
    """Print one line of progress, at once, so that it stands in order with what a child prints."""
    print(f"==> {text}", flush=True)


def run(*command: str | Path, cwd: Path = ROOT, env: dict[str, str] | None = None) -> None:
    """Run a child with this terminal's output; raise `TaskError` if it fails."""
    words = [str(word) for word in command]
    # Another project's modules must not stand in for ours, nor its environment for the one made here.
    # Nor may each of several hundred children compile what it imports: an environment without bytecode is slow.
    foreign = ("PYTHONDONTWRITEBYTECODE", "PYTHONHOME", "PYTHONPATH", "VIRTUAL_ENV")
    inherited = {key: value for key, value in os.environ.items() if key not in foreign}
    try:
        code = subprocess.run(words, cwd=cwd, env=inherited | (env or {}), check=False).returncode
    except FileNotFoundError:
        raise TaskError(f"{words[0]} is not there to be run") from None
    if code:
        raise TaskError(f"`{' '.join(words)}` ended with exit code {code}")


def digest(*parts: str | bytes) -> str:
    """Return a short fingerprint of `parts`."""
    whole = hashlib.sha256()
    for part in parts:
        whole.update(hashlib.sha256(part.encode() if isinstance(part, str) else part).digest())
    return whole.hexdigest()[:16]


class Environment:
    """A virtual environment, and the note in it of what was last installed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.binaries = path / ("Scripts" if os.name == "nt" else "bin")
        self.python = self.binaries / ("python.exe" if os.name == "nt" else "python")
        self._note = path / "installed-by-tasks.json"

    def provide(self, lock: str) -> None:
        """Bring the environment to `requirements/<lock>.lock` and this checkout, if it is not there yet."""
        self.create()
        note = self._read_note()
        # dev.lock holds all that base.lock does, at the same versions.
        enough = ("base", "dev") if lock == "base" else (lock,)
        if not any(note.get(name) == digest((LOCKS / f"{name}.lock").read_bytes()) for name in enough):
            self.install_locked(lock)
            note[lock] = digest((LOCKS / f"{lock}.lock").read_bytes())
            self._write_note(note)
        package = digest((ROOT / "pyproject.toml").read_bytes(), str(ROOT))
        if note.get("package") != package:
            say("installing memory_engine from this checkout (editable)")
            self.pip("install", "--no-deps", "--no-build-isolation", "--editable", ROOT)
            self._write_note(note | {"package": package})

    def create(self) -> None:
        """Make the environment unless it is there and works."""
        if self.python.exists():
            self._refuse_other_python()
            return
        say(f"making a virtual environment in {self.path}")
        try:
            run(sys.executable, "-m", "venv", self.path)
        except TaskError as error:
            raise TaskError(
                f"{error}: if it asks for ensurepip, install your system's venv package "
                f"(Debian, Ubuntu: `apt install python3-venv`), delete {self.path} and try again"
            ) from None

    def install_locked(self, lock: str) -> None:
        """Install exactly what a lock file pins, each file checked against its hashes."""
        file = LOCKS / f"{lock}.lock"
        count = sum(line[:1].isalnum() for line in file.read_text(encoding="utf-8").splitlines())
        say(f"installing {file.relative_to(ROOT)} ({count} packages; the first time takes a while)")
        try:
            self.pip("install", "--require-hashes", "--only-binary", ":all:", "-r", file)
        except TaskError as error:
            raise TaskError(
                f"{error}: pip could not get what the lock file pins. Is the package index within reach? "
                f"`{self.python} -m pip config list` shows how pip is told to find it"
            ) from None
        self._refuse_startup_files()

    def pip(self, *words: str | Path) -> None:
        """Run this environment's pip, with the machine's own configuration of indexes and proxies."""
        run(self.python, "-m", "pip", "--disable-pip-version-check", "-qq", *words)

    def _refuse_other_python(self) -> None:
        asked = subprocess.run(
            [str(self.python), "-c", "import sys; print('%d.%d' % sys.version_info[:2])"],
            capture_output=True,
            text=True,
            check=False,
        )
        ours = "{}.{}".format(*sys.version_info[:2])
        if asked.stdout.strip() != ours:
            held = asked.stdout.strip() or "a Python that no longer starts"
            raise TaskError(f"{self.path} holds {held}, this is {ours}: delete it, or name another with --venv")

    def _refuse_startup_files(self) -> None:
        strange = [
            file
            for file in self.path.glob("[Ll]ib/**/site-packages/*.pth")
            if not file.name.startswith(STARTUP_FILES_EXPECTED)
            and any(line.startswith(("import ", "import\t")) for line in file.read_text(errors="replace").splitlines())
        ]
        if strange:
            raise TaskError(f"an installed package would run code at every start of Python: {strange[0]}")

    def _read_note(self) -> dict[str, str]:
        try:
            note: dict[str, str] = json.loads(self._note.read_text(encoding="utf-8"))
        except (
            FileNotFoundError,
            json.JSONDecodeError,
        ):  # never installed, or killed while writing: install again
            return {}
        return note

    def _write_note(self, note: dict[str, str]) -> None:
        self._note.write_text(json.dumps(note, indent=1), encoding="utf-8")

    def provide_native(self) -> None:
        """Bring what has to be compiled, if there is a compiler; tests that need it say so where it is absent."""
        if not any(map(shutil.which, ("c++", "g++", "clang++", "cl"))):
            say("no C++ compiler: hnswlib is left out, and what needs it is skipped")
            return
        lock = LOCKS / "native.lock"
        note = self._read_note()
        wanted = digest(lock.read_bytes())
        if note.get("native") != wanted:
            say(f"compiling {lock.relative_to(ROOT)} (half a minute)")
            # pip keeps what it built: for any processor, since the cache may be another machine's
            words = (
                "-m",
                "pip",
                "--disable-pip-version-check",
                "-qq",
                "install",
                "--require-hashes",
                "--no-deps",
                "-r",
            )
            run(self.python, *words, lock, env={"HNSWLIB_NO_NATIVE": "1"})
            self._write_note(note | {"native": wanted})

    def provide_browser(self) -> None:
        """Bring what drives a browser, if there is a Chromium; tests that need it say so where it is absent."""
        named = os.environ.get("MEMORY_ENGINE_CHROMIUM")
        if not named and not any(map(shutil.which, CHROMIUMS)):
            say("no Chromium: Playwright is left out, and the tests of the inspector's page are skipped")
            return
        lock = LOCKS / "browser.lock"
        note = self._read_note()
        wanted = digest(lock.read_bytes())
        if note.get("browser") != wanted:
            self.install_locked("browser")
            self._write_note(note | {"browser": wanted})


def demo(venv: Environment, words: list[str]) -> None:
    """Show the engine at work; installs the base package only."""
    venv.provide("base")
    run(venv.binaries / "memory-engine", "demo", *words)


def test(venv: Environment, words: list[str]) -> None:
    """Run the test suite; further words go to pytest."""
    venv.provide("dev")
    venv.provide_native()
    venv.provide_browser()
    shared = ("--numprocesses=auto", "--maxprocesses=4", "--dist=loadgroup", "--no-loadscope-reorder")
    run(venv.python, "-m", "pytest", *shared, *words)


def coverage(venv: Environment, words: list[str]) -> None:
    """Run the test suite and report the lines and branches it misses; further words go to pytest."""
    venv.provide("dev")
    venv.provide_native()
    venv.provide_browser()
    run(venv.python, "-m", "coverage", "run", "-m", "pytest", *words)
    run(venv.python, "-m", "coverage", "report")


def lint(venv: Environment, words: list[str]) -> None:
    """Check style and format (ruff); `--fix` mends what can be mended."""
    venv.provide("dev")
    fix = "--fix" in words
    run(venv.python, "-m", "ruff", "check", *(["--fix"] if fix else []), ".")
    run(venv.python, "-m", "ruff", "format", *([] if fix else ["--check"]), ".")


def types(venv: Environment, _words: list[str]) -> None:
    """Check types twice: mypy, strict, and pyright."""
    venv.provide("dev")
    run(venv.python, "-m", "mypy", "-p", "memory_engine")
    beside = ("tests", "benchmarks", "examples", "conftest.py", "tasks.py")
    run(venv.python, "-m", "mypy", *(name for name in beside if holds_python(name)))
    run(venv.python, "-m", "pyright", "--pythonpath", venv.python)


def imports(venv: Environment, _words: list[str]) -> None:
    """Check which way imports run (import-linter)."""
    venv.provide("dev")
    run(venv.binaries / "lint-imports")


def docs(venv: Environment, words: list[str]) -> None:
    """Run the Python of README.md and docs/ as tests; further words go to pytest."""
    venv.provide("dev")
    pages = [path for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))) if path.is_file()]
    if not pages:
        say("no page to run yet")
        return
    run(venv.python, "-m", "pytest", *pages, *words)


def bench(venv: Environment, words: list[str]) -> None:
    """Measure; further words go to `python -m benchmarks`."""
    venv.provide("dev")
    if not (ROOT / "benchmarks" / "__main__.py").is_file():
        say("no benchmark to run yet")
        return
    run(venv.python, "-m", "benchmarks", *words)
    if "--quick" in words:
        run(venv.python, "-m", "pytest", "benchmarks")


def peers(venv: Environment, words: list[str]) -> None:
    """Run Python, with further words, in the environment of the engines we measure ourselves against."""
    other = Environment(venv.path.with_name(f"{venv.path.name}-peers"))
    other.provide("peers")
    run(other.python, *words)


def recall_peers(venv: Environment, _words: list[str]) -> None:
    """Install what the benchmark of search compares with, beside the environment (a gigabyte)."""
    other = Environment(venv.path.with_name(f"{venv.path.name}-recall-peers"))
    other.provide("recall-peers")


def wheel(venv: Environment, _words: list[str]) -> None:
    """Build the distributions, install the wheel elsewhere, and check what came out."""
    venv.provide("dev")
    with tempfile.TemporaryDirectory(prefix="memory-engine-wheel-") as name:
        elsewhere = Path(name)
        say("building the source distribution, and the wheel from it")
        # A copy: setuptools leaves build/ behind and would pack what an earlier build left there.
        kept_out = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "build", "dist")
        shutil.copytree(ROOT, elsewhere / "source", symlinks=True, ignore=kept_out)
        built = elsewhere / "dist"
        run(venv.python, "-m", "build", "--quiet", "--no-isolation", "--outdir", built, elsewhere / "source")
        say("installing the wheel in an environment of its own")
        fresh = Environment(elsewhere / "venv")
        fresh.create()
        fresh.install_locked("base")
        fresh.pip("install", "--no-deps", *built.glob("*.whl"))
        run(fresh.python, "-I", ROOT / "tests" / "wheel_check.py", ROOT, cwd=elsewhere)
        run(fresh.binaries / "memory-engine", "demo", cwd=elsewhere)


LOCKED_EXTRAS = ("documents", "inspect", "llm", "pdf", "tokenizer", "vectors")
"""Without those that bring PyTorch or onnxruntime, or need a compiler."""
LOCK_HEAD = """\
# Made by `python3 tasks.py lock` from pyproject.toml; do not edit. `lock --upgrade` takes newer versions.
#
# base.lock   what the package itself needs, and its build backend: `demo`, and the wheel's test installation
# dev.lock    all of base.lock at the same versions, every extra that is no gigabyte, and the tools of every other task
# native.lock what has to be compiled: installed for the tests where there is a compiler
# browser.lock what drives a browser: installed for the tests where there is a Chromium
# peers.lock  what benchmarks compare with; apart, because its openai and litellm's cannot live together
# recall-peers.lock  what the benchmark of search compares with: a gigabyte, and apart from peers.lock by its protobuf
#
# Each is complete and holds hashes, so `pip install --require-hashes -r` takes nothing else. Each is for
# every system and every supported Python. None names an index: the machine's pip configuration decides that.

"""


def lock(venv: Environment, words: list[str]) -> None:
    """Write the lock files anew (needs uv, or fetches it); `--upgrade` takes newer versions."""
    uv = shutil.which("uv") or fetch_uv(venv)
    # uv does not read pip's configuration; the index, at least, must be the same one.
    env = {"UV_DEFAULT_INDEX": os.environ["PIP_INDEX_URL"]} if "PIP_INDEX_URL" in os.environ else {}
    asks = {
        "dev": [
            *(word for extra in LOCKED_EXTRAS for word in ("--extra", extra)),
            "--group",
            "build",
            "--group",
            "test",
            "--group",
            "lint",
            "--group",
            "docs",
            "--group",
            "release",
        ],
        "base": ["--group", "build", "--constraints", "requirements/dev.lock"],
        "native": ["--group", "pyproject.toml:native", "--constraints", "requirements/dev.lock"],
        "browser": ["--group", "pyproject.toml:browser", "--constraints", "requirements/dev.lock"],
        "peers": ["--group", "build", "--group", "peers"],
        "recall-peers": ["--group", "build", "--group", "recall-peers"],
    }
    for name, ask in asks.items():
        target = LOCKS / f"{name}.lock"
        with tempfile.TemporaryDirectory() as folder:
            draft = Path(folder) / target.name
            if target.is_file():
                shutil.copy(target, draft)  # uv keeps the versions it finds in the output file
            shape = ["--universal", "--python-version", "{}.{}".format(*WANTED), "--generate-hashes"]
            silent = ["--quiet", "--no-header", "--no-emit-index-url", "--no-emit-find-links"]
            source = () if name in ("native", "browser") else ("pyproject.toml",)
            run(uv, "pip", "compile", *source, *ask, *shape, *silent, *words, "-o", draft, env=env)
            target.write_text(LOCK_HEAD + draft.read_text(encoding="utf-8"), encoding="utf-8")
        say(f"wrote {target.relative_to(ROOT)}")


def fetch_uv(venv: Environment) -> str:
    """Install uv in an environment of its own and return its path."""
    own = Environment(venv.path.with_name(f"{venv.path.name}-lock"))
    own.create()
    if not (own.binaries / "uv").exists():
        own.pip("install", "uv")
    return str(own.binaries / "uv")


def ci(venv: Environment, words: list[str]) -> None:
    """Run all checks, to the end even if one fails; `--without NAME` leaves one out."""
    left_out = {name for flag, name in itertools.pairwise(words) if flag == "--without"}
    results: list[str] = []
    failed: list[str] = []
    for check in (test, lint, types, imports, docs, wheel, bench):
        if check.__name__ in left_out:
            continue
        say(f"{check.__name__}: begins")
        begun = time.monotonic()
        try:
            check(venv, ["--quick"] if check is bench else [])
        except TaskError as error:
            failed.append(check.__name__)
            say(f"{check.__name__}: {error}")
        verdict = "FAILED" if check.__name__ in failed else "passed"
        results.append(f"{check.__name__:<8} {verdict} {time.monotonic() - begun:7.1f} s")
    print("\n".join(["", *results]), flush=True)
    if failed:
        raise TaskError(f"failed: {', '.join(failed)}")


def holds_python(name: str) -> bool:
    """Tell whether a file, or a folder with a Python file in it, is there."""
    path = ROOT / name
    return path.is_file() or any(path.rglob("*.py"))


TASKS: dict[str, Callable[[Environment, list[str]], None]] = {
    task.__name__: task
    for task in (demo, test, coverage, lint, types, imports, docs, wheel, bench, peers, recall_peers, lock, ci)
}


def main() -> int:
    """Run the task that the command line names, and return the exit code."""
    listing = "\n".join(f"  {name:<9} {task.__doc__}" for name, task in TASKS.items())
    parser = argparse.ArgumentParser(
        prog="tasks.py",
        usage="python3 tasks.py [--venv DIR] TASK [words for the task]",
        description=f"tasks:\n{listing}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--venv", type=Path, default=ROOT / ".venv", help="the virtual environment (default .venv)")
    parser.add_argument("task", choices=TASKS, metavar="TASK")
    parser.add_argument("words", nargs=argparse.REMAINDER, metavar="...")
    if len(sys.argv) == 1:
        parser.print_help()
        return 2
    asked = parser.parse_args()
    begun = time.monotonic()
    try:
        TASKS[asked.task](Environment(asked.venv.absolute()), asked.words)
    except TaskError as error:
        print(f"tasks.py: {error}", file=sys.stderr, flush=True)
        return 1
    except KeyboardInterrupt:
        return 130
    say(f"{asked.task}: done in {time.monotonic() - begun:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
