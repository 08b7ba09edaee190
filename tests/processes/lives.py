"""Lives that end by a kill: a child is forked, works, says what it did, and is killed at any moment of that."""

import asyncio
import os
import random
import signal
import time
from collections.abc import Callable, Coroutine

LAST_MS_MAX = 3


def one_life(
    live: Callable[[], Coroutine[None, None, None]], dice: random.Random, lines_max: int, word: str = ""
) -> list[str]:
    """Fork a child, let it work until it has said 1 to `lines_max` lines, kill it; the lines that it said.

    With a word, lines that begin with it are counted: the kill comes at the stage of the work that it names. Counted in
    lines, a child on a slow machine gets as far as on a fast one.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(writing, 1)
        os.close(reading)
        asyncio.run(live())
        os._exit(1)
    os.close(writing)
    said, lines, mark = bytearray(b"\n"), dice.randint(1, lines_max), f"\n{word}".encode()  # each line after a break
    while said.rpartition(b"\n")[0].count(mark) < lines and (piece := os.read(reading, 65536)):
        said += piece
    time.sleep(dice.uniform(0, LAST_MS_MAX) / 1000)  # the moment of the kill is the test: anywhere between two words
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    while piece := os.read(reading, 65536):
        said += piece
    os.close(reading)
    return said[1:].decode().splitlines()
