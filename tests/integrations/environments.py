"""The environments of peers: one for each lock file beside this, made once and kept for later runs.

An adapter's peer may need other versions of what stands in `.venv`, or of what another peer needs. So its tests run in
an environment of its own, which holds what its lock pins; memory_engine itself is found by PYTHONPATH.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PEER = "MEMORY_ENGINE_PEER"
"""The variable that tells a run of pytest in which peer's environment it is."""
KEPT = "MEMORY_ENGINE_PEERS"
"""The variable that names the folder in which environments are kept."""


class CannotMake(Exception):
    """An environment could not be made: pip's last words."""


def peers() -> list[str]:
    """The names of all peers: a file NAME.in, its NAME.lock, and a folder NAME of tests."""
    return sorted(path.stem for path in HERE.glob("*.in"))


def peer_python(name: str) -> Path:
    """The interpreter of a peer's environment, which is made if it is not there. Raises `CannotMake`."""
    return locked_python(HERE / f"{name}.lock")


def locked_python(lock: Path) -> Path:
    """The interpreter of an environment that holds what a lock file pins. Raises `CannotMake`."""
    name = lock.stem
    key = hashlib.sha256(b"%d.%d 2 %s" % (*sys.version_info[:2], lock.read_bytes())).hexdigest()[:16]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "memory-engine", "peers")
    folder = Path(os.environ.get(KEPT) or cache, f"{name}-{key}")
    python, whole = folder / "bin" / "python", folder / "whole"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _alone(folder.with_suffix(".being-made")):
        if not whole.exists():
            shutil.rmtree(folder, ignore_errors=True)
            _run(sys.executable, "-m", "venv", "--without-pip", str(folder))
            _run(*_PIP, f"--python={python}", *_INSTALL, *_FROM_SOURCE, "--requirement", str(lock))
            program = python.with_name("memory-engine")
            program.write_text(_PROGRAM.format(python=python), encoding="utf-8")
            program.chmod(0o755)
            whole.touch()
    return python


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

    Raises `CannotMake`.
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
