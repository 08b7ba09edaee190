"""The environments of peers: one for each lock file, made before the tests and kept for later runs.

An adapter's peer may need other versions of what stands in `.venv`, or of what another peer needs. So its tests run in
an environment of its own, which holds what its lock pins; memory_engine itself is found by PYTHONPATH.

`python -m tests.integrations.environments` makes all that are missing; `tasks.py test` does it first. No test makes
one: how long an index, a disk or a compiler takes is no matter of a test's limit.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PEER = "MEMORY_ENGINE_PEER"
"""The variable that tells a run of pytest in which peer's environment it is."""
KEPT = "MEMORY_ENGINE_PEERS"
"""The variable that names the folder in which environments are kept."""


SMALL_MODEL = ROOT / "tests" / "processes" / "small_model.lock"
MAKERS = min(4, (os.cpu_count() or 1) + 1)
"""Environments that are made at a time: pip waits for the index a third of its time."""


class CannotMake(Exception):
    """An environment could not be made: pip's last words."""


class NotMade(Exception):
    """An environment is not here; the message says how to make it."""

    def __init__(self, name: str) -> None:
        super().__init__(f"the environment of {name} is not here: `python3 tasks.py environments` makes it")


def peers() -> list[str]:
    """The names of all peers: a file NAME.in, its NAME.lock, and a folder NAME of tests."""
    return sorted(path.stem for path in HERE.glob("*.in"))


def locks() -> list[Path]:
    """The lock files of all environments that tests use."""
    return [*(HERE / f"{name}.lock" for name in peers()), SMALL_MODEL]


def peer_python(name: str) -> Path:
    """The interpreter of a peer's environment. Raises `NotMade`."""
    return locked_python(HERE / f"{name}.lock")


def locked_python(lock: Path) -> Path:
    """The interpreter of an environment that holds what a lock file pins. Raises `NotMade`."""
    folder = _folder(lock)
    if not _whole(folder).exists():
        raise NotMade(lock.stem)
    return _python(folder)


def make(lock: Path) -> bool:
    """Make the environment of a lock file; False if it is there already. Raises `CannotMake`."""
    folder = _folder(lock)
    if _whole(folder).exists():
        return False
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _alone(folder.with_suffix(".being-made")):
        if _whole(folder).exists():  # another run has made it meanwhile
            return False
        shutil.rmtree(folder, ignore_errors=True)
        python = _python(folder)
        _run(sys.executable, "-m", "venv", "--without-pip", str(folder))
        _run(*_PIP, f"--python={python}", *_INSTALL, *_FROM_SOURCE, "--requirement", str(lock))
        program = python.with_name("memory-engine")
        program.write_text(_PROGRAM.format(python=python), encoding="utf-8")
        program.chmod(0o755)
        _whole(folder).touch()
    return True


def _folder(lock: Path) -> Path:
    """Where the environment of a lock file is kept: by its pins and this Python's version."""
    key = hashlib.sha256(b"%d.%d 2 %s" % (*sys.version_info[:2], lock.read_bytes())).hexdigest()[:16]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "memory-engine", "peers")
    return Path(os.environ.get(KEPT) or cache, f"{lock.stem}-{key}")


def _whole(folder: Path) -> Path:
    return folder / "whole"


def _python(folder: Path) -> Path:
    return folder / "bin" / "python"


_PROGRAM = """#!{python}
import sys

from memory_engine.cli import main

sys.exit(main())
"""
_PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")
_INSTALL = ("install", "--require-hashes", "--no-deps", "--no-compile", "--only-binary=:all:")
_FROM_SOURCE = ("--no-binary=claude-agent-sdk",)
"""Its wheels carry a program of 402 MB, which no test runs; its source is 0.4 MB."""


def run_tests(name: str, report: Path) -> subprocess.CompletedProcess[str]:
    """Run the tests of a peer's folder and the blocks of its page in its environment, with a report as JUnit has it.

    Raises `NotMade`.
    """
    page = f"docs/integrations/{name}.md"
    words = ("-q", "-p", "no:cacheprovider", f"--junit-xml={report}", f"tests/integrations/{name}", page)
    foreign = {"PYTHONDONTWRITEBYTECODE", "PYTHONHOME", "VIRTUAL_ENV", "PYTEST_ADDOPTS", "COVERAGE_PROCESS_START"}
    environment = {
        key: value for key, value in os.environ.items() if key not in foreign and not key.startswith("PYTEST_XDIST")
    }
    environment |= {PEER: name, "PYTHONPATH": str(ROOT)}
    command = [str(peer_python(name)), "-m", "pytest", *words]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


@contextmanager
def _alone(file: Path) -> Iterator[None]:
    """Let one process at a time make an environment."""
    with file.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _run(*command: str) -> None:
    with tempfile.TemporaryFile("w+") as output:
        done = subprocess.run(command, stdout=output, stderr=subprocess.STDOUT, check=False)
        output.seek(0)
        if done.returncode:
            raise CannotMake(output.read()[-2_000:])


def _told(lock: Path) -> str:
    """Make an environment; the line that says what came of it, empty if there was nothing to do."""
    begun = time.monotonic()
    try:
        made = make(lock)
    except CannotMake as error:
        return f"the environment of {lock.stem} cannot be made, its tests are skipped: {error}"
    return f"made the environment of {lock.stem} in {time.monotonic() - begun:.0f} s" if made else ""


def main() -> None:
    """Make all environments that are missing, several at a time, and say which could not be made."""
    largest_first = sorted(locks(), key=lambda lock: -lock.stat().st_size)
    with ThreadPoolExecutor(MAKERS) as pool:
        for line in filter(None, pool.map(_told, largest_first)):
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
