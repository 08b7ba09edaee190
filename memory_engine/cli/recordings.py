"""Which files `ingest` reads: those named, those of a folder, those that a pattern fits; and their threads' names."""

import glob
import re
from pathlib import Path

from attrs import frozen

from memory_engine.cli.commands import WrongArgument
from memory_engine.cli.standard import STANDARD
from memory_engine.core.lazy import regex

_SUFFIXES = frozenset({".eml", ".eval", ".json", ".jsonl", ".mbox", ".md", ".ndjson", ".srt", ".traj", ".vtt"})
_UUID = regex(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}", re.IGNORECASE)


@frozen
class AskedFile:
    """A file to read, and the name of its thread. One `in_folder` may be something else than a recording."""

    path: Path
    name: str
    in_folder: bool = False


def asked_files(names: list[str], thread_id: str) -> list[AskedFile]:
    """The files that are meant, in order. Raises `WrongArgument` if two would be one thread, or none is there."""
    found = [file for name in names for file in _files(name, thread_id)]
    threads: dict[str, Path] = {}
    for file in found:
        if file.name in threads:
            first = threads[file.name]
            raise WrongArgument(
                f"{first} and {file.path} would both be thread {file.name!r}; give each its own --thread"
            )
        threads[file.name] = file.path
    return found


def _files(name: str, thread_id: str) -> list[AskedFile]:
    path = Path("/dev/stdin" if name == STANDARD else name)
    if path.is_dir():
        if thread_id:
            raise WrongArgument(f"{path} is a folder, whose files are threads of their own: leave --thread out")
        return [AskedFile(one, _name_in(path, one), in_folder=True) for one in _of_folder(path)]
    if glob.has_magic(name) and not path.exists():
        matches = sorted(Path(one) for one in glob.glob(name, recursive=True))  # noqa: PTH207 - a pattern may be absolute
        if not matches:
            raise WrongArgument(f"no file fits {name!r}")
        return [AskedFile(one, thread_id or one.stem) for one in matches if one.is_file()]
    return [AskedFile(path, thread_id or path.stem)]


def _of_folder(folder: Path) -> list[Path]:
    """The files of a folder that may be recordings; those of sub-agents after the sessions that they are of."""
    files = (one for one in folder.rglob("*") if one.suffix.lower() in _SUFFIXES and one.is_file())
    return sorted(files, key=lambda one: (_is_agents(one), one))


def _is_agents(path: Path) -> bool:
    return path.stem.startswith("agent-") or path.parent.name == "subagents"


def _name_in(folder: Path, path: Path) -> str:
    """A file's own name if that is unique, as a session's id is; else its place in the folder."""
    if _UUID.search(path.stem):
        return path.stem
    return str(path.relative_to(folder).with_suffix(""))
