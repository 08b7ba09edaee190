"""Files and packed values made to hurt their reader, and how much time their reading takes."""

import gc
import io
import json
import struct
import time
import zipfile
import zlib
from base64 import b64encode
from collections.abc import Callable, Mapping
from functools import cache
from typing import TypeVar

T = TypeVar("T")

LARGER = 16
SLACK = 4
"""How much worse than its length a growth may look on a busy machine: the square of the length is 16 times worse."""
SECONDS_MIN = 0.002
"""Anything faster is taken for as long: a clock tick would decide otherwise."""


def is_linear(run: Callable[[T], object], make: Callable[[int], T], size: int) -> bool:
    """Whether running on 16 times the size takes about 16 times the processor time: far below the square."""
    larger, bound = make(size * LARGER), LARGER * SLACK * SECONDS_MIN
    took = _seconds(run, larger)
    if took <= bound:  # whatever the small size takes, it is taken for no less
        return True
    bound = max(bound, LARGER * SLACK * min(_seconds(run, make(size)) for _ in range(3)))
    # one that a busy machine does not stretch is enough
    return took <= bound or any(_seconds(run, larger) <= bound for _ in range(3))


def _seconds(run: Callable[[T], object], value: T) -> float:
    gc.disable()  # what it costs depends on all that the process holds, which is no matter of the reader
    try:
        begun = time.thread_time()
        run(value)
        return time.thread_time() - begun
    finally:
        gc.enable()


@cache
def packed_bomb(megabytes: int) -> str:
    """A piece of a checkpoint that unpacks to so many megabytes."""
    from memory_engine.views.checkpoints import pieces

    zipper = zlib.compressobj(9, zdict=pieces._WORDS)
    packed = b"".join(zipper.compress(b"a" * (1 << 20)) for _ in range(megabytes)) + zipper.flush()
    return "~" + b64encode(packed).decode()


def mail(*headers: str, body: str = "hello") -> bytes:
    """A mail with these headers."""
    return ("\n".join(("From: Ann <ann@example.com>", *headers)) + f"\n\n{body}\n").encode()


def mailbox(*mails: bytes) -> bytes:
    """Mails in one file."""
    return b"".join(b"From x Mon Nov  4 10:00:00 2024\n" + one + b"\n" for one in mails)


def nested_parts(depth: int, boundary: str = "b") -> bytes:
    """A mail of parts in parts."""
    begun = "".join(
        f'Content-Type: multipart/mixed; boundary="{boundary}{n}"\n\n--{boundary}{n}\n' for n in range(depth)
    )
    return f"From: Ann <ann@example.com>\nSubject: nested\n{begun}\nx\n".encode()


def many_parts(count: int) -> bytes:
    """A mail of so many parts."""
    return b"From: a@b.c\nContent-Type: multipart/mixed; boundary=b\n\n" + b"--b\n\nx\n" * count + b"--b--\n"


def slack_zip(files: Mapping[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """A Slack export with these files beside its users and channels."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method, compresslevel=9) as packed:
        packed.writestr("users.json", json.dumps([{"id": "U1", "name": "Ann"}]))
        packed.writestr("channels.json", json.dumps([{"id": "C1", "name": "growth"}]))
        for name, content in files.items():
            packed.writestr(name, content)
    return out.getvalue()


def with_long_list(packed: bytes, size: int) -> bytes:
    """A zip that says its list of files has so many bytes, and is so long."""
    at = packed.rfind(b"PK\x05\x06")
    return b"\0" * size + packed[:at] + packed[at : at + 12] + struct.pack("<L", size) + packed[at + 16 :]
