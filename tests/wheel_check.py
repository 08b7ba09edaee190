"""Check an installed wheel against the checkout it was built from: `python -I wheel_check.py CHECKOUT`.

Run by `tasks.py wheel` in an environment that holds the wheel and its base dependencies only, so that a
package missing from the build, a data file left behind and an extra imported too early all show here.
"""

import asyncio
import importlib
import sys
from pathlib import Path

import memory_engine

LINKED_ROOTS = ("compactors", "reducers", "storage")
# The storage contract is a pytest suite, PostgreSQL has a driver, and adapters subclass what their peers have: the base
# package brings none of them along.
NEEDS_MORE = (
    "testing/contract_",
    "testing/embedder_contract",
    "testing/store_contract",
    "storage/postgres/",
    "integrations/adk",
    "integrations/agent_framework",
    "integrations/anthropic",
    "integrations/langgraph",
    "integrations/llama_index",
    "integrations/openai_agents",
    "integrations/pydantic_ai",
    "integrations/pydantic_ai_messages",
    "integrations/strands",
    "integrations/strands_storage",
    "telemetry.py",
)


def source_files(checkout: Path) -> list[str]:
    """Return each file that must be installed, by its path under `memory_engine/`."""
    found = []
    for room in (Path(), *map(Path, LINKED_ROOTS)):
        folder = checkout / room if room.parts else checkout / "memory_engine"
        for path in folder.rglob("*"):
            name = room / path.relative_to(folder)
            linked = not room.parts and name.parts[0] in LINKED_ROOTS
            if path.is_file() and not linked and "__pycache__" not in name.parts:
                found.append(name.as_posix())
    return sorted(found)


def module_name(file: str) -> str:
    """Return the dotted name under which a source file is imported."""
    return ".".join(["memory_engine", *Path(file).with_suffix("").parts]).removesuffix(".__init__")


async def use_it() -> None:
    """Append one event to a file and read it back through a second engine."""
    from memory_engine.events import UserMessage

    async with memory_engine.open("wheel-check.db") as engine:
        thread = await engine.create_thread(user_id="u1")
        await thread.dispatch(UserMessage(content="Hello"))
    async with memory_engine.open("wheel-check.db") as engine:
        report = await engine.thread(thread.id).replay.verify()
    if not report.ok:
        raise SystemExit(f"the wheel's own log does not verify: {report}")


def main(checkout: Path) -> None:
    """Compare the files, import every module, and use the engine once."""
    installed = Path(memory_engine.__file__).parent
    if installed.is_relative_to(checkout):
        raise SystemExit(f"memory_engine was imported from the checkout: {installed}")
    expected = source_files(checkout)
    missing = [name for name in expected if not (installed / name).is_file()]
    if missing:
        raise SystemExit(f"left out of the wheel: {', '.join(missing)}")
    modules = [
        module_name(name)
        for name in expected
        if name.endswith(".py") and "__main__" not in name and not name.startswith(NEEDS_MORE)
    ]
    for name in modules:
        importlib.import_module(name)
    asyncio.run(use_it())
    print(f"the wheel holds {len(expected)} files; its {len(modules)} modules import and it works")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
