"""PgBouncer in front of the tests' server: each transaction may get another of its few connections."""

import atexit
import os
import shutil
import socket
import subprocess
import tempfile
import time
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S
from tests.postgres_cluster import other_user
from tests.postgres_server import new_store, server_place

CONNECTIONS = 2
"""Connections to the server, fewer than one store opens to the pooler: they are taken by whoever comes."""
_PORT = 6432
_SETTINGS = """
[databases]
* = {server}
[pgbouncer]
unix_socket_dir = {folder}
listen_port = {port}
auth_type = trust
auth_file = {folder}/users
pool_mode = transaction
default_pool_size = {connections}
logfile = {folder}/log
"""


def pooled_url(**options: str) -> str:
    """The URL of a store that nobody has used, by way of the pooler. Skips where there is none, saying so."""
    return new_store(_pooler_url(), prepared="no", **options)


@cache
def _pooler_url() -> str:
    """The pooler's URL: a process of its own, ended with this one."""
    program = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    if program is None:
        pytest.skip("no pgbouncer is installed")
    place, ours, user = server_place(), os.getpid(), other_user()
    pooler = ExitStack()
    folder = Path(tempfile.mkdtemp(prefix="me-pooler-"))
    pooler.callback(shutil.rmtree, folder, ignore_errors=True)
    settings = folder / "settings.ini"
    options = {"folder": folder, "port": _PORT, "connections": CONNECTIONS}
    settings.write_text(_SETTINGS.format(server=" ".join(f"{key}={value}" for key, value in place.items()), **options))
    (folder / "users").write_text(f'"{place["user"]}" ""\n')
    if user:  # it does not run as root
        for path in (folder, *folder.iterdir()):
            shutil.chown(path, user)
    process = subprocess.Popen(
        [program, "-q", str(settings)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        user=user,
        extra_groups=[] if user else None,
    )
    pooler.callback(process.wait)
    pooler.callback(process.kill)
    atexit.register(lambda: pooler.close() if os.getpid() == ours else None)
    _wait_for(process, folder)
    return f"postgresql://{place['user']}@/{place['dbname']}?host={folder}&port={_PORT}"


def _wait_for(process: "subprocess.Popen[bytes]", folder: Path) -> None:
    """Wait until it lets clients in; fail with what it says if it ends instead."""
    until = time.monotonic() + PATIENCE_S
    while True:
        with socket.socket(socket.AF_UNIX) as client:
            if not client.connect_ex(f"{folder}/.s.PGSQL.{_PORT}"):
                return
        if process.poll() is not None or time.monotonic() > until:
            said = (folder / "log").read_text() if (folder / "log").exists() else ""
            pytest.fail(f"pgbouncer does not start ({process.poll()}): {said}")
        time.sleep(0.01)
