"""Recordings of other tools, counted by themselves: by code that shares nothing with the readers.

Real ones are not part of the project: they stand beside the checkout, in ../shared/data.
"""

import json
from collections import Counter
from pathlib import Path

import pytest
from attrs import define, field

REAL = Path(__file__).resolve().parents[2] / "shared" / "data"


@define
class Counts:
    """What a recording holds: `said` counts messages of the user role by who wrote them."""

    said: Counter[str] = field(factory=Counter)
    instructions: int = 0
    texts: int = 0
    calls: int = 0
    results: int = 0
    failed: int = 0
    thoughts: int = 0
    times: int = 0
    responses: int = 0
    tokens: int = 0


def real(name: str) -> Path:
    """A real recording; the test that asks for it is skipped where there is none."""
    path = REAL / name
    if not path.exists():
        pytest.skip(f"no recording {name} in {REAL}")
    return path


def counted_claude_code(path: Path) -> Counts:
    """The counts of a session of Claude Code."""
    counts = Counts()
    last: dict[str, int] = {}
    for row in map(json.loads, path.read_text().splitlines()):
        if row.get("type") not in ("user", "assistant"):
            continue
        message = row["message"]
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        kinds = Counter(block["type"] for block in blocks)
        if row["type"] == "assistant":
            last[message["id"]] = message["usage"]["output_tokens"]
            counts.texts += kinds["text"]
            counts.calls += kinds["tool_use"]
            counts.thoughts += kinds["thinking"]
        elif kinds["text"]:
            text = blocks[0]["text"].strip()
            is_note = text.startswith(("<", "[Request interrupted")) or row.get("isMeta")
            counts.said["summary" if row.get("isCompactSummary") else "client" if is_note else ""] += 1
        counts.results += kinds["tool_result"]
        counts.failed += sum(block.get("is_error") is True for block in blocks)
        counts.times += len(blocks)
    counts.responses, counts.tokens = len(last), sum(last.values())
    return counts


def counted_swe_agent(path: Path) -> Counts:
    """The counts of a run of SWE-agent."""
    counts = Counts()
    history = json.loads(path.read_text())["history"]
    for before, row in zip([{}, *history], history, strict=False):
        calls = len(row.get("tool_calls") or ())
        counts.calls += calls
        counts.results += row["role"] == "tool"
        counts.instructions += row["role"] == "system"
        counts.texts += row["role"] == "assistant" and bool(row["content"])
        if row["role"] == "user":
            counts.said["tool" if before.get("role") == "assistant" else ""] += 1
    return counts
