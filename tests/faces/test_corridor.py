"""How many functions, in how many files, a reader passes who follows one warm dispatch from the call to its receipt."""

import inspect
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import CodeType, FrameType

import pytest

import memory_engine
from memory_engine import UserMessage
from memory_engine.storage.sqlite import store, writer

ROOT = Path(__file__).resolve().parents[2]
ROOMS = tuple(str(ROOT / room) + "/" for room in ("memory_engine", "reducers", "storage", "compactors"))
FUNCTIONS_MAX = 90
FILES_MAX = 24
LINES_MAX = 40
"""Lines of one of them: a count is not won by a long body."""
WARM = 5
"""Dispatches before the one that is followed: fewer than after which the loop has its turn."""


async def passed(call: Callable[[], Awaitable[object]]) -> set[CodeType]:
    """Return the functions of the package that a call enters on this thread."""
    found: set[CodeType] = set()

    def entered(frame: FrameType, kind: str, _argument: object) -> None:
        if kind == "call" and str(Path(frame.f_code.co_filename).resolve()).startswith(ROOMS):
            found.add(frame.f_code)

    sys.setprofile(entered)
    try:
        await call()
    finally:
        sys.setprofile(None)
    return found


@pytest.fixture
def undisturbed(monkeypatch: pytest.MonkeyPatch) -> None:
    """However busy the machine is, no commit counts as slow, and no pause between two of them as a long one."""
    monkeypatch.setattr(writer, "SLOW_S", 3_600.0)
    monkeypatch.setattr(writer, "IDLE_S", 3_600.0)
    monkeypatch.setattr(store, "MEASURE_S", 3_600.0)


@pytest.mark.usefixtures("undisturbed")
async def test_a_warm_dispatch_passes_few_functions_in_few_files(tmp_path: Path) -> None:
    """None of them is long, and the last of them have committed: the receipt is there when the call returns."""
    async with memory_engine.open(str(tmp_path / "memory.db")) as engine:
        thread = await engine.open_thread("t", user_id="u", tenant_id="acme")
        for n in range(WARM):
            await thread.dispatch(UserMessage(content=f"hello {n} about the budget"))
        functions = await passed(lambda: thread.dispatch(UserMessage(content="one more about the budget")))
    names = {code.co_qualname for code in functions}
    assert names >= {"ThreadHandle.dispatch", "reduce_user_message", "Transactions.write", "Request.resolve"}
    files = {code.co_filename for code in functions}
    lengths = {code.co_qualname: len(inspect.getsourcelines(code)[0]) for code in functions}
    assert {} == {name: lines for name, lines in lengths.items() if lines > LINES_MAX}
    assert len(functions) <= FUNCTIONS_MAX, sorted(names)
    assert len(files) <= FILES_MAX, sorted(files)
