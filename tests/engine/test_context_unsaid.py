"""What a context lacks of the statements that stand, and that the log, the metric and the command line say so."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path

import pytest

import memory_engine
from memory_engine import LlmTextResponse, Thread, UserMessage
from memory_engine.cli import main
from memory_engine.core.codec import encode_json
from memory_engine.events import ContextAsked
from memory_engine.runtime.probe import UNPROBED, Span
from tests.conversations import log

RULES = [
    f"Never restart {host} before {team} agree to it in writing, and keep {colour} backups of {host} for {n} days."
    for n, (host, team, colour) in enumerate(
        [
            ("heron01", "Lindqvist and Oyelaran", "amber"),
            ("plover22", "Castellanos and Whitby", "cobalt"),
            ("curlew09", "Nakagawa and Dimitrova", "scarlet"),
            ("avocet37", "Abernathy and Mbeki", "ochre"),
            ("godwit14", "Fitzgerald and Sørensen", "teal"),
            ("dunlin55", "Papadakis and Ferreira", "ivory"),
        ],
        30,
    )
]


async def talked(thread: Thread) -> None:
    """Rules of a person, and then much of the agent about other things."""
    for rule in RULES:
        await thread.dispatch(UserMessage(content=rule))
        await thread.dispatch(LlmTextResponse(content="Noted."))
    for n in range(30):
        await thread.dispatch(UserMessage(content=f"And parcel {n}?"))
        await thread.dispatch(LlmTextResponse(content=f"Parcel {n} left at noon, by the usual road. " * 4))


async def test_a_context_names_what_it_has_no_room_for(thread: Thread) -> None:
    """A large one lacks nothing; what a small one lacks is in none of its messages, the rest is."""
    await talked(thread)
    large, small = await thread.context(8_000), await thread.context(400)
    assert ((), set(RULES)) == (large.unsaid, set(RULES) & {one.text for one in large.stood})
    missing = [one.text for one in small.unsaid]
    assert 0 < len(missing) < len(RULES)
    assert all((rule in missing) != (rule in str(small.messages)) for rule in RULES)


async def test_a_context_without_a_budget_lacks_nothing(thread: Thread) -> None:
    """What a compaction has covered is in its brief, and so is a pin."""
    await talked(thread)
    await thread.pin("Glaze on Fridays only.")
    await thread.compact()
    context = await thread.context()
    assert () == context.unsaid
    assert all(text in str(context.messages) for text in (*RULES, "Glaze on Fridays only."))


async def test_the_next_dispatch_records_that_a_context_lacked_a_statement(thread: Thread) -> None:
    """Once, as long as the same is missing, and again when nothing is missing any more."""
    await talked(thread)
    small = await thread.context(400)
    await thread.dispatch(LlmTextResponse(content="Good."))
    await thread.context(400)
    await thread.dispatch(LlmTextResponse(content="Good."))
    await thread.context(8_000)
    await thread.dispatch(LlmTextResponse(content="Good."))
    found = [one.event for one in await log(thread) if isinstance(one.event, ContextAsked)]
    first, last = (json.loads(encode_json(one)) for one in found)
    seqs = list(dict.fromkeys(one.seq for one in small.unsaid))
    assert (len(small.unsaid), seqs) == (first["lacks"], first["unsaid"])
    assert {"max_tokens": 8_000, "window": 8_000} == {name: last[name] for name in ("max_tokens", "window")}
    assert not {"lacks", "unsaid"} & set(last)
    report = await thread.replay.verify()
    assert report.ok
    assert [(len(small.unsaid), tuple(seqs), 400)] == [
        (one.lacks, one.unsaid, one.max_tokens) for one in report.lacking
    ]
    assert "a context of 400 tokens lacked" in str(report)


async def test_what_is_pinned_in_a_loop_is_shown_at_once(thread: Thread) -> None:
    """Directly before the newest turn, so that the prefix stays; in the brief once the window moves."""
    await talked(thread)
    before = await thread.context(2_000)
    pin = await thread.pin("Glaze on Fridays only.")
    after = await thread.context(2_000)
    added = [n for n, message in enumerate(after.messages) if "Glaze on Fridays" in str(message)]
    assert [len(after.messages) - 3] == added
    assert before.messages[: added[0]] == after.messages[: added[0]]
    assert ((), 2) == (after.unsaid, len(after.standing))
    later = after
    for n in range(40):
        await thread.dispatch(UserMessage(content=f"Where did parcel {n} go in the end, and by which road? " * 4))
        later = await thread.context(2_000)
        assert later.tokens <= 2_000
        assert 1 == str(later.messages).count("Glaze on Fridays")
    assert 1 == len(later.standing)
    await thread.unpin(pin)


class _Told:
    """A probe that keeps what is said of contexts."""

    def __init__(self) -> None:
        self.said: list[Mapping[str, object]] = []

    def span(self, operation: str, _said: Mapping[str, object]) -> "Span":
        """An operation that begins."""
        return _Span(self) if operation == "context" else UNPROBED

    def correlation_id(self) -> str:
        """None."""
        return ""


class _Span:
    def __init__(self, told: _Told) -> None:
        self._told = told

    def __enter__(self) -> "_Span":
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def say(self, said: Mapping[str, object]) -> None:
        """Keep it."""
        self._told.said.append(said)


async def test_a_probe_is_told_how_many_statements_a_context_lacks() -> None:
    """So that a metric can count them."""
    told = _Told()
    async with memory_engine.open(":memory:", probe=told) as engine:
        thread = await engine.create_thread()
        await talked(thread)
        small = await thread.context(400)
    assert [len(small.unsaid)] == [one["unsaid"] for one in told.said]


async def test_the_command_line_checks_a_context(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It lists what stood, marks what is missing, and exits with 1 if anything is."""
    path = str(tmp_path / "m.db")
    async with memory_engine.open(path) as engine:
        await talked(await engine.create_thread("t"))
    words = ["context", "t", "--db", path, "--check", "--max-tokens"]
    assert 0 == await _run([*words, "8000"])
    assert "no standing statement is missing" in capsys.readouterr().out
    assert 1 == await _run([*words, "400", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert found["unsaid"]
    assert set(RULES) <= {one["text"] for one in found["stood"]}
    assert 1 == await _run([*words, "400"])
    assert "missing" in capsys.readouterr().out


async def _run(words: list[str]) -> int:
    return await asyncio.to_thread(main, words)
