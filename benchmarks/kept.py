"""The figures that are kept: the newest of each bench, each with the run that they are of."""

import os
import platform
import sqlite3
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from attrs import frozen

from benchmarks.figures import Figure
from benchmarks.peer_process import Peers


@frozen(kw_only=True)
class Measured:
    """One bench's figures, and what they depend on, without a name or a place."""

    bench: str
    at: str
    machine: str
    load: float | None
    compared_with: list[str]
    figures: list[Figure]


def measured(bench: str, figures: list[Figure], peers: Peers, load: float) -> Measured:
    """The figures of a bench that has just ended. `load` is the machine's when it began, in processes that ran."""
    version = f"{platform.python_implementation()} {platform.python_version()}"
    told = {figure.reference.name for figure in figures if figure.reference is not None}
    return Measured(
        bench=bench,
        at=f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        machine=f"{version}; SQLite {sqlite3.sqlite_version}; {platform.system()} on {platform.machine()}, "
        f"{os.cpu_count()} cores",
        load=load,
        compared_with=[
            f"{name} {peers.versions[name]}" for name in peers.names if any(one.startswith(name) for one in told)
        ],
        figures=figures,
    )


def read(path: Path) -> list[Measured]:
    """The kept figures; nothing yet without a file."""
    return msgspec.json.decode(path.read_bytes(), type=list[Measured]) if path.exists() else []


def joined(before: Iterable[Measured], new: Iterable[Measured], order: Iterable[str]) -> list[Measured]:
    """The newest of each bench, in this order; a bench that is no longer there is left out."""
    newest = {one.bench: one for one in (*before, *new)}
    return [newest[name] for name in order if name in newest]


def write(path: Path, kept: list[Measured]) -> None:
    """Write them, a line for each figure: a change can be read."""
    path.write_bytes(msgspec.json.format(msgspec.json.encode(kept), indent=1) + b"\n")
