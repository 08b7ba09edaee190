"""Exports of other systems, as tests import them, and bundles of other programs."""

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path

from memory_engine import Engine
from memory_engine.events import Layer

MEM0 = {
    "results": [
        {
            "id": "5d1f",
            "memory": "Grows dahlias on the balcony",
            "hash": "0c",
            "created_at": "2025-04-02T09:30:00.250000-07:00",
            "updated_at": "2025-04-03T09:30:00Z",
            "user_id": "ines",
            "categories": ["hobbies"],
            "metadata": {"season": "spring"},
        },
        {"id": "77ab", "memory": "Works nights at a bakery", "created_at": "2025-05-01T00:00:00Z", "user_id": "ines"},
        {"id": "none", "memory": None, "user_id": "ines"},
    ],
    "relations": [{"source": "ines", "relationship": "works_at", "target": "bakery"}],
}
LETTA = {
    "agents": [
        {
            "id": "agent-0",
            "name": "helper",
            "messages": [
                {"id": "message-0", "role": "system", "content": "You help."},
                {
                    "id": "message-1",
                    "role": "user",
                    "content": [{"type": "text", "text": "The ferry leaves at seven"}],
                    "created_at": "2025-06-01T07:00:00Z",
                },
                {"id": "message-2", "role": "tool", "content": "{}"},
            ],
        }
    ],
    "blocks": [
        {"id": "block-0", "label": "human", "value": "Called Ines, a baker"},
        {"id": "block-1", "label": "persona", "value": "I am a kind helper"},
    ],
    "tools": [{"id": "tool-0"}, {"id": "tool-1"}],
}
LETTA_FIRST = {
    "core_memory": [{"label": "human", "value": "Keeps two hens"}],
    "messages": [{"role": "assistant", "text": "Noted the hens", "created_at": "2025-06-02T07:00:00Z"}],
}
PASSAGES = [
    {"id": "passage-9", "text": "Her sister lives in Gent", "created_at": "2025-02-02T00:00:00Z", "tags": ["family"]}
]
ZEP = {
    "user": {"user_id": "ines", "summary": "A baker who gardens"},
    "edges": [
        {
            "uuid": "e1",
            "name": "LIVES_IN",
            "fact": "Ines lives in Mechelen",
            "created_at": "2025-03-01T00:00:00Z",
            "valid_at": "2025-03-01T00:00:00Z",
        },
        {
            "uuid": "e0",
            "name": "LIVES_IN",
            "fact": "Ines lives in Leuven",
            "valid_at": "2023-01-01T00:00:00Z",
            "invalid_at": "2025-03-01T00:00:00Z",
        },
    ],
    "episodes": [{"uuid": "p1", "content": "I moved last week", "role": "user", "created_at": "2025-03-08T00:00:00Z"}],
    "nodes": [{"uuid": "n1", "name": "Mechelen", "summary": "A town on the Dijle"}, {"uuid": "n2", "summary": ""}],
}
MIF = {
    "mif_version": "2.0",
    "memories": [
        {
            "id": "0b0d3b1e-6b0a-4a39-9e5c-2f1f6c1f0a11",
            "content": "Decided on a rye starter",
            "memory_type": "decision",
            "created_at": "2025-07-01T00:00:00Z",
        }
    ],
}
FORMS: Mapping[str, tuple[object, Sequence[str], Mapping[str, int]]] = {
    "mem0": (MEM0, ["dahlias", "nights"], {"memories without a text": 1, "relations": 1}),
    "letta": (
        LETTA,
        ["ferry", "baker"],
        {
            "blocks in which an agent describes itself (persona)": 1,
            "messages of the role system": 1,
            "messages of the role tool": 1,
            "tools": 2,
        },
    ),
    "letta of the first layout": (LETTA_FIRST, ["two hens", "Noted the hens"], {}),
    "passages of letta": (PASSAGES, ["Gent"], {}),
    "zep": (ZEP, ["gardens", "Mechelen", "Leuven", "moved", "Dijle"], {"nodes without a summary": 1}),
    "mif": (MIF, ["rye"], {}),
}


def written(folder: Path, value: object, name: str = "memories.json") -> Path:
    """A file with a value."""
    path = folder / name
    path.write_text(json.dumps(value))
    return path


async def held(engine: Engine, user_id: str, tenant_id: str = "") -> set[tuple[str, str]]:
    """The entries of a user's memory: layer and text."""
    memory = engine.user(user_id, tenant_id=tenant_id).memory
    layers: tuple[Layer, ...] = ("working", "episodic", "semantic", "procedural")
    return {(layer, entry.content) for layer in layers for entry in await memory.entries(layer)}


async def log_of(engine: Engine, user_id: str) -> list[str]:
    """The ids of the events in a user's thread."""
    user = engine.user(user_id)
    return [event.id async for event in user.events()] if await user.exists() else []


async def filled(engine: Engine, tmp_path: Path) -> None:
    """A user with imported and native memories in all layers, and preferences."""
    for name in ("mem0", "letta", "zep"):
        await engine.transfer.import_memories(written(tmp_path, FORMS[name][0]), user_id="ines")
    ines = engine.user("ines")
    await ines.memory.learn("city", "Mechelen ✓")
    await ines.memory.append("episodic", "Asked for a recipe", metadata={"mood": "glad", "n": 3})
    await ines.memory.append("procedural", "Answer in Dutch", condition="she writes Dutch")
    await ines.preferences.update("tone", {"short": True, "words": 40})
    await ines.preferences.update("language", "nl")


def reseal(folder: Path) -> None:
    """Make a bundle's manifest fit its files."""
    manifest = json.loads((folder / "manifest.json").read_text())
    for one in manifest["files"]:
        content = (folder / one["path"]).read_bytes()
        one |= {"sha256": sha256(content).hexdigest(), "bytes": len(content)}
    (folder / "manifest.json").write_text(json.dumps(manifest))


def made_bundle(folder: Path, files: Mapping[str, Sequence[Mapping[str, object]]]) -> None:
    """A bundle of another program."""
    entries = []
    for place, records in files.items():
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        (folder / place).write_text("".join(json.dumps(one) + "\n" for one in records))
        entries.append({"path": place, "sha256": "", "bytes": 0})
    (folder / "manifest.json").write_text(json.dumps({"format": "1.0.0", "files": entries}))
    reseal(folder)
