"""Programs that hear Ctrl-C, however the tests were started.

A process that `nohup`, `&` in a script or a CI runner has started ignores SIGINT, and so does every process that it
starts: rightly, for what runs in the background is not meant by a Ctrl-C at the terminal.
"""

import sys

_HEARS = (
    "import os, signal, sys\n"
    "signal.signal(signal.SIGINT, signal.SIG_DFL)\n"
    "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])\n"
)


def python(*words: str) -> list[str]:
    """The command that runs a Python with these words as if it had been started at a terminal, under the same pid."""
    return [sys.executable, "-c", _HEARS, *words]
