"""The peers' measuring process: found, started, and asked for one conversation at a time."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from attrs import field, frozen

from benchmarks.figures import Reference

ROOT = Path(__file__).resolve().parent.parent
PIP_INSTALL = "pip install --require-hashes --only-binary :all:"


def how_to_make(group: str) -> str:
    """Say how to make the environment of a group of peers."""
    venv = f".venv-{group}"
    made = f"`python3 -m venv {venv} && {venv}/bin/{PIP_INSTALL} -r benchmarks/{group}.lock`"
    return f"the environment of the {group} is not there: make it with {made}"


@frozen
class Appended:
    """A peer's measurements: nanoseconds for each message, and the bytes of its closed store."""

    times: list[int]
    bytes: int


@frozen
class Peers:
    """The peers that can be measured here; none where their environment is absent, and `why` says so."""

    process: "subprocess.Popen[str] | None" = None
    versions: dict[str, str] = field(factory=dict)
    why: str = how_to_make("peers")
    missing: dict[str, str] = field(factory=dict)

    @property
    def names(self) -> list[str]:
        """Those not found missing so far."""
        return [name for name in self.versions if name not in self.missing]

    def append(self, peer: str, seed: int, count: int, synchronous: str = "") -> Appended | None:
        """Let a peer append a conversation to a new store, on the cores that this process may use now.

        SQLite's `synchronous` is as the peer ships it, or as given.
        `None`, and a note in `missing`, if it cannot.
        """
        if self.process is None or self.process.stdin is None or self.process.stdout is None:
            return None
        cores = sorted(os.sched_getaffinity(0)) if sys.platform == "linux" else []
        job = {"peer": peer, "seed": seed, "count": count, "cores": cores, "synchronous": synchronous}
        print(json.dumps(job), file=self.process.stdin, flush=True)
        line = self.process.stdout.readline()
        if not line:
            raise ChildProcessError(f"the peers' process ended while it measured {peer}")
        answer = json.loads(line)
        if "missing" in answer:
            self.missing[peer] = answer["missing"]
            return None
        return Appended(answer["ns"], answer["bytes"])

    def missing_reference(self, name: str) -> Reference:
        """A reference without a value, and what to do about it."""
        return Reference(name, None, f"reference missing: {self.why}")


def peers_python(group: str = "peers") -> Path | None:
    """The interpreter of a group of peers, in the checkout or next to this one's environment."""
    own = Path(sys.prefix)
    for folder in (own.with_name(f"{own.name}-{group}"), ROOT / f".venv-{group}"):
        for python in (folder / "bin" / "python", folder / "Scripts" / "python.exe"):
            if python.is_file():
                return python
    return None


@contextmanager
def peers_running(python: Path | None) -> Iterator[Peers]:
    """Start the peers' process, and end it afterwards. Without an interpreter there are no peers."""
    if python is None:
        yield Peers()
        return
    words = [str(python), "-m", "benchmarks.peers"]
    process = subprocess.Popen(words, cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with process:
        hello = process.stdout.readline() if process.stdout is not None else ""
        yield (Peers(process, json.loads(hello), "") if hello else Peers(why="the peers' process did not start"))
