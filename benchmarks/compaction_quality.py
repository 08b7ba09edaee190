"""How much of what is needed later the extractive compactor keeps, measured without a model.

`locomo()`: questions with gold answers and gold turns over long conversations of
two people (share of answerable questions whose answer words survive in lines
that cite a gold turn, at 5, 10 and 20 % of the tokens).

`tau_bench()`: an agent and its tools. Each conversation is cut before several of
its user turns; what lies before the cut (without the system prompt) is compacted
to 20 % of its tokens, headings included; then every identifier, date and amount
that a tool call after the cut uses and that is before the cut must be,
verbatim, in the rendered summary.

`standing()`: whether a reader of the summary alone understands its lines of
speech. Conversations of ours (`standing.toml`) mark the statements that lean
on earlier ones; a summary that shows such a statement must show the earlier one, too.

The first two read recordings next to the repository (../shared), which are not part of it.
"""

import argparse
import importlib.util
import json
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from types import ModuleType
from typing import Required, TypedDict

import msgspec
from attrs import frozen

from memory_engine.compactors.extractive import HEADING_TOKENS, Entry, Line, extract, render
from memory_engine.compactors.extractive.entries import CHARS_PER_TOKEN, tokens
from memory_engine.files.facts import VALUE, is_value, missing, stands_in
from memory_engine.language.leaning import is_incomplete, leans

ROOT = Path(__file__).resolve().parent.parent
SHARED = ROOT.parent / "shared"
QUALITY = SHARED / "quality"
TAU_BENCH = SHARED / "data" / "tau_bench" / "airline_gpt4o.json"
LOCOMO_SHARES = (0.05, 0.10, 0.20)
CUT_SHARES = (0.4, 0.5, 0.6, 0.7, 0.8)
BUDGET_SHARE = 0.20
TRIES = 3
STANDING = Path(__file__).with_name("standing.toml")
STANDING_SHARES = (0.2, 0.3, 0.45, 0.6)
LEANS = "^"
Figures = dict[str, float | int | str]


class Function(TypedDict):
    """The content of a call: the tool, and its arguments as JSON text."""

    name: str
    arguments: str


class Call(TypedDict):
    """A tool call of a message."""

    id: str
    function: Function


class Message(TypedDict, total=False):
    """A chat-completions message, with the fields that are read here."""

    role: Required[str]
    content: str | None
    name: str
    tool_call_id: str
    tool_calls: list[Call] | None


class SharedDataMissing(Exception):
    """Something that the measurement needs is missing: the shared recordings, or a package that reads them."""

    def __init__(self, path: Path, why: str = "it is absent; put the shared data beside the repository") -> None:
        super().__init__(f"skipped: {path.name}: {why}")


@frozen
class Cut:
    """One conversation cut in two: what is compacted, and the values that later calls take from it."""

    entries: tuple[Entry, ...]
    tokens: float
    needed: tuple[str, ...]


# The two-person conversations.


def locomo(shares: Sequence[float] = LOCOMO_SHARES, *, retrieval: bool = False) -> dict[str, Figures]:
    """Figures per share of tokens; `retrieval` adds ctx10, which needs embeddings and takes a minute."""
    harness = quality_module("eval_compaction")
    data = harness.prepare(harness.load())
    harness.set_chance(data)
    found: dict[str, Figures] = {}
    for share in shares:
        figures = harness.measure(data, compact_units, share, retrieval)
        names = ("used%", "cov", "strict", "loose", "chance", "sec") + (("ctx10",) if retrieval else ())
        found[f"{share:.0%}"] = {name: round(figures[name], 2) for name in names}
    return found


def compact_units(units: Sequence[dict[str, str]], budget_tokens: float) -> list[dict[str, object]]:
    """Adapt the compactor to the harness: take turns, return lines with their sources."""
    entries = [
        Entry(
            id=unit["id"],
            kind="user",
            speaker=unit["speaker"],
            text=unit["text"] + (f" [image: {unit['caption']}]" if unit["caption"] else ""),
        )
        for unit in units
    ]
    return [{"text": line.text, "sources": list(line.sources)} for line in extract(entries, budget_tokens)]


def quality_module(name: str) -> ModuleType:
    """Import a module of the harness. Raises `SharedDataMissing` if it is not there."""
    path = QUALITY / f"{name}.py"
    if not path.exists():
        raise SharedDataMissing(path)
    if str(QUALITY) not in sys.path:
        sys.path.insert(0, str(QUALITY))
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise SharedDataMissing(path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except ImportError as error:
        raise SharedDataMissing(path, f"it needs packages of its own: pip install numpy PyStemmer ({error})") from error
    return module


# The agent and its tools.


def tau_bench(budget_share: float = BUDGET_SHARE) -> Figures:
    """Share of needed values kept: over all values, as a mean over cuts, and by the last words alone."""
    if not TAU_BENCH.exists():
        raise SharedDataMissing(TAU_BENCH)
    kept = needed = whole = used = tail_kept = 0
    shares: list[float] = []
    spent = 0.0
    start = time.perf_counter()
    for cut in tau_cuts():
        budget = budget_share * cut.tokens
        summary = render(_with_headings(cut.entries, budget))
        if len(summary) > budget * 4:
            raise AssertionError(f"summary of {len(summary)} characters for a budget of {budget} tokens")
        lost = missing(summary, cut.needed)
        tail = "\n".join(_shown(entry) for entry in cut.entries)[-int(budget * 4) :]
        tail_kept += len(cut.needed) - len(missing(tail, cut.needed))
        kept += len(cut.needed) - len(lost)
        needed += len(cut.needed)
        whole += not lost
        used += 1
        spent += len(summary) / 4 / cut.tokens
        shares.append(1 - len(lost) / len(cut.needed))
    return {
        "cuts": used,
        "values": needed,
        "kept%": round(100 * kept / needed, 2),
        "kept% (mean over cuts)": round(100 * sum(shares) / used, 2),
        "cuts with every value%": round(100 * whole / used, 2),
        "truncation kept%": round(100 * tail_kept / needed, 2),
        "used%": round(100 * spent / used, 2),
        "sec": round(time.perf_counter() - start, 2),
    }


def _with_headings(entries: Sequence[Entry], budget_tokens: float) -> tuple[Line, ...]:
    """Return the lines that fit the budget together with their headings, which a first selection determines."""
    lines = extract(entries, budget_tokens)
    for _ in range(TRIES):
        headings = len(render(lines)) / CHARS_PER_TOKEN - sum(map(tokens, lines))
        lines = extract(entries, budget_tokens - headings)
        if len(render(lines)) <= budget_tokens * CHARS_PER_TOKEN:
            return lines
    return extract(entries, budget_tokens - HEADING_TOKENS)


def tau_cuts() -> Iterator[Cut]:
    """Yield each cut of every conversation after which a call uses at least one value from before the cut."""
    for conversation in json.loads(TAU_BENCH.read_text()):
        messages = [message for message in conversation["traj"] if message["role"] != "system"]
        for place in _cut_places(messages):
            entries = tuple(entry for i, message in enumerate(messages[:place]) for entry in as_entries(i, message))
            before = "\n".join(_shown(entry) for entry in entries)
            needed = tuple(value for value in later_values(messages[place:]) if stands_in(value, before))
            if needed:
                yield Cut(entries, len(before) / 4, needed)


def _cut_places(messages: Sequence[Message]) -> list[int]:
    """Return, for each share, the index of the first user message at or after it, without duplicates."""
    users = [i for i, message in enumerate(messages) if message["role"] == "user" and i > 1]
    places = (next((i for i in users if i >= share * len(messages)), 0) for share in CUT_SHARES)
    return [place for place in dict.fromkeys(places) if place]


def as_entries(index: int, message: Message) -> Iterator[Entry]:
    """Yield a chat-completions message as entries: its text, and one entry for each call."""
    text = message.get("content") or ""
    if message["role"] == "tool":
        call_id = message.get("tool_call_id", "")
        yield Entry(id=f"m{index}", kind="tool_result", text=text, name=message.get("name", ""), call_id=call_id)
        return
    if text:
        yield Entry(id=f"m{index}", kind="user" if message["role"] == "user" else "assistant", text=text)
    for number, call in enumerate(message.get("tool_calls") or ()):
        function = call["function"]
        yield Entry(
            id=f"m{index}.{number}",
            kind="tool_call",
            text="",
            name=function["name"],
            call_id=call["id"],
            arguments=function["arguments"],
        )


def _shown(entry: Entry) -> str:
    return "\n".join(part for part in (entry.name, entry.arguments, entry.text) if part)


def later_values(messages: Sequence[Message]) -> list[str]:
    """Return every identifier, code, date and amount in the arguments of the calls, without duplicates, in order."""
    found: dict[str, None] = {}
    for message in messages:
        for call in message.get("tool_calls") or ():
            for text in _scalars(json.loads(call["function"]["arguments"])):
                found.update(dict.fromkeys(value for value in VALUE.findall(text) if is_value(value)))
    return list(found)


def _scalars(node: object) -> Iterator[str]:
    if isinstance(node, dict):
        for child in node.values():
            yield from _scalars(child)
    elif isinstance(node, list):
        for child in node:
            yield from _scalars(child)
    elif isinstance(node, str | int | float) and not isinstance(node, bool):
        yield str(node)


# Lines that can be read alone.


class Conversation(msgspec.Struct, frozen=True):
    """A conversation of ours, a statement a line; "^" marks the statements that lean on earlier ones."""

    name: str
    agent: bool
    lines: list[str]

    @property
    def statements(self) -> list[tuple[str, str, int]]:
        """Its statements: speaker, text, and the index of the statement that it leans on, or -1."""
        found: list[tuple[str, str, int]] = []
        base = -1
        for n, line in enumerate(self.lines):
            speaker, _, text = line.partition(": ")
            leans = text.startswith(LEANS)
            base = base if leans else n
            found.append((speaker, text.removeprefix(LEANS), base if leans else -1))
        return found

    def entries(self) -> list[Entry]:
        """Its messages: what one speaker says in a row is one."""
        messages = groupby(self.statements, key=lambda one: one[0])
        return [
            Entry(
                id=f"m{n}",
                kind="assistant" if speaker == "Assistant" else "user",
                speaker="" if self.agent else speaker,
                text=" ".join(text for _, text, _ in said),
            )
            for n, (speaker, said) in enumerate(messages)
        ]


class Conversations(msgspec.Struct, frozen=True):
    """The conversations of `standing.toml`."""

    conversations: list[Conversation]


def standing(shares: Sequence[float] = STANDING_SHARES) -> Figures:
    """Share of the shown statements that lean on what the summary does not show, and what the check finds of them."""
    shown = leaning = found = right = marked = 0
    data = msgspec.toml.decode(STANDING.read_bytes(), type=Conversations)
    for conversation in data.conversations:
        entries, statements = conversation.entries(), conversation.statements
        chars = sum(len(line) for line in conversation.lines)
        for share in shares:
            summary = "\n".join(line.text for line in extract(entries, share * chars / CHARS_PER_TOKEN))
            kept = [one for one in statements if one[1] in summary]
            shown += len(kept)
            leaning += sum(base >= 0 and statements[base][1] not in summary for _, _, base in kept)
        asked = [False, *(text.endswith("?") for _, text, _ in statements)]
        told = [
            (leans(text) or (after and is_incomplete(text)), base >= 0)
            for after, (_, text, base) in zip(asked, statements, strict=False)
        ]
        found += sum(said for said, _ in told)
        right += sum(said and is_so for said, is_so in told)
        marked += sum(is_so for _, is_so in told)
    return {
        "statements shown": shown,
        "leaning%": round(100 * leaning / shown, 2),
        "check: precision%": round(100 * right / found, 2),
        "check: recall%": round(100 * right / marked, 2),
    }


def main() -> None:
    """Print the figures; `--json` as one JSON object, `--retrieval` with ctx10."""
    parser = argparse.ArgumentParser(description="Quality of the extractive compactor.")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--retrieval", action="store_true", help="add ctx10 (needs embeddings)")
    options = parser.parse_args()
    report: dict[str, object] = {"standing": standing()}
    try:
        report["locomo"] = locomo(retrieval=options.retrieval)
        report["tau_bench"] = tau_bench()
    except SharedDataMissing as missing:
        report["skipped"] = str(missing)
    if options.json:
        print(json.dumps(report, indent=2))
        return
    for name, figures in report.items():
        print(name)
        rows = figures.items() if isinstance(figures, dict) else [("", figures)]
        for label, value in rows:
            print(f"  {label}: {value}")


if __name__ == "__main__":
    main()
