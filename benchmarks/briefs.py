"""Rules that people state, and what is left of them in contexts after a long piece of work.

`rules.toml` has the rules: of many kinds, in seven languages, most without a word that tells a rule. In a session a
handful of one language is stated, in one of several ways; then an agent works on tickets (`agent_sessions.py`), with a
small window that has the thread compacted again and again. A rule counts as kept if all of it is in the context,
word for word; one from a file only where the context says which file it is from.
"""

import itertools
import json
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
from attrs import define, field, frozen

import memory_engine
from benchmarks.agent_sessions import Message, sessions
from benchmarks.figures import Bar, Figure, Reference
from benchmarks.setting import Setting, say
from benchmarks.truncation import Shown, newest
from memory_engine import CompactionPolicy, Engine

WRITTEN = Path(__file__).resolve().parent / "rules.toml"
BUDGETS = (1_000, 2_000, 8_000, 32_000)
WINDOW = 8_000
BARS = {("said", 2_000): 90, ("said", 8_000): 100, ("said", 32_000): 100, ("read", 8_000): 75, ("read", 32_000): 75}
"""The least share of rules that a context keeps, in percent, by who states them and by budget."""
JUDGED_AFTER = (5, 25)
"""Compactions before the contexts that are judged."""
RULES_A_SESSION = 6
WORK_SESSIONS = 6
FILE = "docs/house-rules.md"
IN_FILES = ("list", "prose")
SOURCES = {
    "short": "said in a short message",
    "long": "said within a longer message",
    "list": f"read by a tool, a list in {FILE}",
    "prose": f"read by a tool, a paragraph in {FILE}",
}


class Rule(msgspec.Struct, frozen=True):
    """A rule in one of its wordings."""

    lang: str
    kind: str
    text: str


class Frame(msgspec.Struct, frozen=True):
    """The text around rules of a language: before and after them in a message, and in a file."""

    before: str
    after: str
    heading: str
    filler: list[str]


class _Written(msgspec.Struct, frozen=True):
    rules: list[Rule]
    frames: dict[str, Frame]


@define
class Tally:
    """Among `rules`, those that contexts kept, those that the newest messages held, and the kinds of the lost."""

    kept: int = 0
    truncated: int = 0
    of: int = 0
    lost: Counter[str] = field(factory=Counter)


Tallies = defaultdict[tuple[str, int, int], Tally]
"""By source, compactions before, and budget."""


@frozen
class Case:
    """A session to play: a handful of rules of one language, how they are stated, and the work that follows."""

    number: int
    source: str
    frame: Frame
    rules: list[Rule]


def cases(source: str) -> list[Case]:
    """Return a case for each handful of rules, stated in this way."""
    data = msgspec.convert(tomllib.loads(WRITTEN.read_text("utf-8")), _Written)
    found: list[Case] = []
    for lang, frame in data.frames.items():
        rules = [rule for rule in data.rules if rule.lang == lang]
        for begin in range(0, len(rules), RULES_A_SESSION):
            found.append(Case(len(found), source, frame, rules[begin : begin + RULES_A_SESSION]))
    return found


def talk(case: Case) -> Iterator[list[Message]]:
    """Yield a session in runs: a person's message with the work on it, and the statements of rules in between.

    A person states a rule before each of the requests after the first; a file is read at the beginning of the first.
    """
    waiting = [] if case.source in IN_FILES else [rule.text for rule in case.rules]
    reading = _file_read(case) if case.source in IN_FILES else []
    work = (by_request(session.messages) for session in sessions(WORK_SESSIONS, first=case.number))
    for n, (request, *answers) in enumerate(itertools.chain.from_iterable(work)):
        if n and waiting:
            rule = waiting.pop(0)
            said = rule if case.source == "short" else f"{case.frame.before} {rule} {case.frame.after}"
            yield [{"role": "user", "content": said}, {"role": "assistant", "content": "OK."}]
        yield [request, *(reading if n == 0 else ()), *answers]


def by_request(messages: Sequence[Message]) -> Iterator[list[Message]]:
    """Yield the messages in runs that begin with a person's."""
    begins = [n for n, message in enumerate(messages) if message["role"] == "user"]
    yield from (list(messages[begin:end]) for begin, end in itertools.pairwise([*begins, len(messages)]))


def _file_read(case: Case) -> list[Message]:
    """Return a call that reads the file of rules, and its result: the rules among other lines."""
    first, *rest = case.frame.filler
    lines = [first, *(rule.text for rule in case.rules), *rest]
    body = [" ".join(lines)] if case.source == "prose" else [f"- {line}" for line in lines]
    numbered = "\n".join(f"{n:5}\t{line}" for n, line in enumerate((f"# {case.frame.heading}", "", *body), 1))
    call = {"name": "read_file", "arguments": json.dumps({"path": FILE})}
    return [
        {"role": "assistant", "content": None, "tool_calls": [{"id": "call_0", "type": "function", "function": call}]},
        {"role": "tool", "tool_call_id": "call_0", "content": numbered},
    ]


def kept(source: str, rule: Rule, shown: Sequence[Shown]) -> bool:
    """Return whether a context holds all of a rule, with its file if it is from one."""
    named = {
        call["id"]
        for message in shown
        for call in message.get("tool_calls") or ()
        if FILE in call["function"]["arguments"]
    }
    for message in shown:
        content = message.get("content") or ""
        text = content if isinstance(content, str) else "\n".join(str(part.get("text", "")) for part in content)
        if rule.text not in text:
            continue
        lines = (line for line in text.splitlines() if rule.text in line)
        if source not in IN_FILES or message.get("tool_call_id") in named or any(FILE in line for line in lines):
            return True
    return False


async def play(engine: Engine, case: Case, marks: Sequence[int], tallies: Tallies) -> None:
    """Play one session, and judge its contexts after each of several compactions."""
    thread = await engine.create_thread(policy=CompactionPolicy.for_window(WINDOW))
    history: list[Message] = []
    left = list(marks)
    compactions = seen = 0
    for messages in talk(case):
        history += messages
        for message in messages:
            await thread.record(message)
            await thread.compaction.settle()
        async for recorded in thread.events(after=seen):
            seen = recorded.seq
            compactions += recorded.type == "compaction_completed"
        while left and compactions >= left[0] and _all_stated(case, history):
            mark = left.pop(0)
            for budget in BUDGETS:
                shown = (await thread.context(max_tokens=budget)).messages
                _judge(case, shown, newest(history, budget), tallies[case.source, mark, budget])
        if not left:
            return
    raise RuntimeError(f"only {compactions} compactions in {len(history)} messages")


def _all_stated(case: Case, history: Sequence[Message]) -> bool:
    said = "\n".join(str(message["content"]) for message in history)
    return all(rule.text in said for rule in case.rules)


def _judge(case: Case, shown: Sequence[Shown], held: Sequence[Shown], tally: Tally) -> None:
    for rule in case.rules:
        tally.of += 1
        tally.truncated += kept(case.source, rule, held)
        if kept(case.source, rule, shown):
            tally.kept += 1
        else:
            tally.lost[rule.kind] += 1


async def briefs(setting: Setting) -> list[Figure]:
    """Rules that people state, or that a tool reads: those that a context holds word for word after 25 compactions."""
    tallies: Tallies = defaultdict(Tally)
    marks = JUDGED_AFTER[: setting.size(len(JUDGED_AFTER), 1)]
    async with memory_engine.open(":memory:") as engine:
        for source, how in SOURCES.items():
            say(f"  {how}")
            found = cases(source)
            for case in found[: setting.size(len(found), 1)]:
                await play(engine, case, marks, tallies)
    return [_figure(source, budget, marks, tallies) for source in SOURCES for budget in BUDGETS]


def _figure(source: str, budget: int, marks: Sequence[int], tallies: Tallies) -> Figure:
    last = tallies[source, marks[-1], budget]
    detail: dict[str, float | int | str] = {"kept": last.kept, "kept_by_truncation": last.truncated, "of": last.of}
    for mark in marks[:-1]:
        before = tallies[source, mark, budget]
        detail |= {f"kept_after_{mark}": before.kept, f"kept_by_truncation_after_{mark}": before.truncated}
    least = BARS.get(("read" if source in IN_FILES else "said", budget))
    return Figure(
        bench="briefs",
        case=f"rules {SOURCES[source]}, kept in {budget:,} tokens",
        value=100 * last.kept / last.of,
        unit="%",
        reference=Reference("the newest messages that fit", 100 * last.truncated / last.of),
        bar=Bar("value", ">=", least) if least is not None else None,
        detail=detail | {f"lost_{kind}": count for kind, count in sorted(last.lost.items())},
    )
