"""A process without free file descriptors: `python -m tests.trust.no_descriptors_child FOLDER WORK SPARE METHOD…`.

Each method is called in a process forked off for it, so that nothing that it loads is there already. SPARE descriptors
are left to it. A line of JSON for each: what it raised then, what it raised once descriptors were free again, how many
events the log had in between, whether it verifies at the end, and unfinished files that were left.
"""

import asyncio
import json
import os
import resource
import shutil
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from operator import attrgetter
from pathlib import Path

import memory_engine
from memory_engine import Engine, EngineConfig
from memory_engine.engine import kernel_of
from memory_engine.errors import MemoryEngineError
from tests.trust.test_read_only_methods import Given, done, given

ENDED = ("Engine.close", "Thread.admin.delete")
"""After these there is nothing to look at."""


@contextmanager
def exhausted(spare: int) -> Iterator[None]:
    """A block in which the process may open so many files more."""
    usual = resource.getrlimit(resource.RLIMIT_NOFILE)
    held = [os.open(os.devnull, os.O_RDONLY)]  # the limit is on the numbers, of which lower ones may be free
    while held[-1] < max(map(int, os.listdir("/proc/self/fd"))) - 1:  # noqa: PTH208 - descriptors
        held.append(os.open(os.devnull, os.O_RDONLY))
    resource.setrlimit(resource.RLIMIT_NOFILE, (held[-1] + 1 + spare, usual[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, usual)
        for descriptor in held:
            os.close(descriptor)


async def raised_by(engine: Engine, name: str, arguments: Given) -> str:
    """The error's class, with `!` where it is not one of ours."""
    of = engine if name.startswith("Engine.") else engine.thread("t")
    try:
        await done(attrgetter(name.partition(".")[2])(of), arguments)
    except MemoryEngineError as error:
        return type(error).__name__
    except Exception as error:  # what is looked for
        return f"! {type(error).__name__}: {error}"
    return ""


async def called(name: str, folder: Path, made: Path, spare: int) -> dict[str, object]:
    """Call a method without descriptors, and again with them."""
    given_here = given(folder).get(name, {}).items()
    arguments = {
        what: made / value.name if isinstance(value, Path) and value.parent.name == "made" else value
        for what, value in given_here
    }
    async with memory_engine.open(":memory:") as target:
        if name == "Engine.copy_to":
            arguments["target"] = target
        engine = await memory_engine.open(str(folder / "m.db"))
        with exhausted(spare):
            first = await raised_by(engine, name, arguments)
        head = (await kernel_of(engine).store.head("t")).seq if name not in ENDED else 0
        second = await raised_by(engine, name, arguments)
        await engine.close()
    if name in ENDED:
        ok = True
    else:
        async with memory_engine.open(str(folder / "m.db"), config=EngineConfig(read_only=True)) as engine:
            ok = all(report.ok for report in await engine.verify())
    return {"method": name, "first": first, "head": head, "second": second, "ok": ok}


def main(source: Path, work: Path, spare: int, names: Sequence[str]) -> None:
    """Call each method in a process of its own."""
    for name in names:
        folder, made = work / name / "there", work / name / "made"
        shutil.copytree(source, folder)
        made.mkdir()
        sys.stdout.flush()
        if not (child := os.fork()):
            warnings.simplefilter("ignore")
            told = asyncio.run(called(name, folder, made, spare))
            left = [file.name for file in (work / name).rglob("*") if ".part" in file.name]
            print(json.dumps({**told, "left": left}), flush=True)  # noqa: T201 - read by the test
            os._exit(0)
        os.waitpid(child, 0)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])
