"""Import: a file that is not as it was written is refused, whatever is wrong with it, and nothing is written."""

import gzip
import json
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

import memory_engine
from memory_engine import UserMessage
from memory_engine.core.chain import link_hash
from memory_engine.errors import ImportRefused, InvalidIdentifier
from memory_engine.replay.export.log_file import FileEvent, event_line, line_of, row_of
from memory_engine.replay.export.redaction import Redaction
from tests.exports import TALK, Spoil, lines_of, spoilt, with_line

HEADER, FIRST, END = 1, 2, len(TALK) + 2
"""Lines of the export."""


def lines(*wanted: int) -> Spoil:
    """These lines only, in this order, counted from 1."""
    return lambda given: [given[number - 1] for number in wanted]


def text(number: int, old: bytes, new: bytes) -> Spoil:
    """Another text in the bytes of a line."""

    def spoil(given: Sequence[bytes]) -> Sequence[bytes]:
        assert old in given[number - 1]
        return [line.replace(old, new) if n == number else line for n, line in enumerate(given, 1)]

    return spoil


def reformatted(number: int) -> Spoil:
    """A line as another program writes JSON."""
    return lambda given: [
        json.dumps(json.loads(line)).encode() if n == number else line for n, line in enumerate(given, 1)
    ]


ALL = range(1, END + 1)
SPOILT: dict[str, tuple[Spoil, int, str]] = {
    "changed payload": (text(3, b"My bike is blue.", b"My bike is red."), 3, "its hash is not that of what it says"),
    "changed operations": (text(3, b'"op":"ADD"', b'"op":"DELETE"'), 3, "its hash is not"),
    "changed envelope": (with_line(3, lambda line: line.update(recorded_at_us=1)), 3, "its hash is not"),
    "changed salt": (with_line(3, lambda line: line.update(salt="00" * 16)), 3, "its hash is not"),
    "changed hash": (with_line(3, lambda line: line.update(hash="0" * 64)), 3, "its hash is not"),
    "another salt in its place": (with_line(3, lambda line: line.update(salt="00" * 64)), 3, r"\$.salt"),
    "salt and commitments": (
        with_line(3, lambda line: line.update(commitments=["0" * 64] * 2)), 3, "either a salt or commitments"
    ),
    "neither": (with_line(3, lambda line: line.pop("salt")), 3, "either a salt or commitments"),
    "reformatted": (reformatted(3), 3, "its JSON was written anew by another program"),
    "reordered": (lines(1, 3, 2, *ALL[3:]), 2, "event 1 is missing: event 2 comes in its place"),
    "left out": (lines(1, 2, *ALL[3:]), 3, "event 2 is missing"),
    "twice": (lines(1, 2, 2, *ALL[2:]), 3, "event 1 comes a second time"),
    "cut off after a line": (lines(*ALL[:-1]), END, "the file ends before its last line: it was cut off"),
    "cut off within": (lambda given: [*given[:4], given[4][:50]], 5, "not JSON, or cut off"),
    "the end of another": (with_line(END, lambda line: line.update(end=3)), END, "the file holds 9 events"),
    "the header of another": (
        with_line(HEADER, lambda line: line["head"].update(seq=3)), END, "the file holds 9 events"  # type: ignore[attr-defined]
    ),
    "a wrong count": (with_line(END, lambda line: line.update(redacted=3)), END, "0 events are redacted"),
    "more after the end": (lines(*ALL, 2), END + 1, "more follows"),
    "no header": (lines(*ALL[1:]), 1, "not an exported log"),
    "another format": (with_line(HEADER, lambda line: line.update(format="csv")), 1, "its format is 'csv'"),
    "a newer version": (with_line(HEADER, lambda line: line.update(version=3)), 1, "of version 3 of the format"),
    "no JSON": (text(3, b'{"seq"', b'{seq'), 3, "not JSON"),
    "a list": (lambda given: [*given[:2], b'["payload"]', *given[3:]], 3, "Expected `object`, got `array`"),
    "not UTF-8": (text(3, b"blue", b"bl\xffe"), 3, "not UTF-8"),
    "a wrong type": (with_line(3, lambda line: line.update(version="1")), 3, r"Expected `int`, got `str` - at `\$.v"),
    "a time out of reach": (with_line(3, lambda line: line.update(recorded_at_us=1 << 62)), 3, "recorded_at_us"),
    "a thread without an id": (
        with_line(HEADER, lambda line: line["thread"].update(id="")), 1, "is empty"  # type: ignore[attr-defined]
    ),
    "a beginning out of reach": (
        with_line(HEADER, lambda line: line["thread"].update(created_at_us=10**18)), 1, "created_at_us"  # type: ignore[attr-defined]
    ),
    "a wrong policy": (
        with_line(HEADER, lambda line: line["thread"].update(policy={"threshold": -1})), 1, "threshold"  # type: ignore[attr-defined]
    ),
    "an empty file": (lambda _given: [], 1, "empty"),
    "an empty line": (lambda given: [given[0], b"", *given[1:]], 2, "not JSON"),
}  # fmt: skip


@pytest.mark.parametrize("name", SPOILT)
async def test_a_file_that_is_not_as_it_was_written_is_refused(file: Path, name: str, where: str) -> None:
    """By its line, with the reason; and there is no thread of it."""
    spoil, line, why = SPOILT[name]
    bad = spoilt(file, spoil)
    async with memory_engine.open(where) as engine:
        with pytest.raises(ImportRefused, match=why) as refused:
            await engine.transfer.import_log(bad, scopes="as exported")
        assert (line, str(bad)) == (refused.value.line, refused.value.path)
        assert str(refused.value).endswith("; nothing was imported")
        assert [] == await engine.threads()


async def test_a_compressed_file_that_was_cut_off_is_refused(file: Path, tmp_path: Path) -> None:
    """As one that is damaged, wherever it ends."""
    packed = gzip.compress(b"\n".join(lines_of(file)))
    cut = tmp_path / "cut.gz"
    async with memory_engine.open(":memory:") as engine:
        for size in (20, len(packed) // 2, len(packed) - 4):
            cut.write_bytes(packed[:size])
            with pytest.raises(ImportRefused, match="damaged or cut off"):
                await engine.transfer.import_log(cut, scopes="as exported")


FORGED = [
    (b'"op":"ADD","chunk":"1.0"', b'"op":"DELETE","chunk":"7.0"', "chunk '7.0' is not in the state"),
    (b'"1.0"', b'"9.0"', "'9.0'"),
    (b'"1.0"', b'"1.99999999999999999999999999"', "'1.9999"),
    (b'"op":"ADD"', b'"op":"SUBTRACT"', "SUBTRACT"),
]
"""What the first event is made to do, and the reason why that cannot be."""


@pytest.mark.parametrize(("old", "new", "why"), FORGED)
async def test_what_a_forged_log_does_must_apply(file: Path, old: bytes, new: bytes, why: str) -> None:
    """Hashes that fit are no proof of sense: the operations of every event are tried before anything is written."""
    first = row_of(msgspec.json.decode(lines_of(file)[FIRST - 1], type=FileEvent))
    forged = msgspec.structs.replace(first, record=first.record.replace(old, new))
    line = line_of(event_line(msgspec.structs.replace(forged, hash=link_hash(forged, b"")))).strip()
    async with memory_engine.open(":memory:") as engine:
        with pytest.raises(ImportRefused, match=f"line 2: what it did cannot be applied: .*{why}"):
            await engine.transfer.import_log(
                spoilt(file, lambda given: [given[0], line, *given[2:]]), scopes="as exported"
            )


async def test_an_id_for_the_thread_must_be_one(file: Path) -> None:
    """What no store can hold is refused before anything is read."""
    async with memory_engine.open(":memory:") as engine:
        with pytest.raises(InvalidIdentifier):
            await engine.transfer.import_log(file, thread_id="a\x00b", scopes="as exported")
        with pytest.raises(FileNotFoundError):
            await engine.transfer.import_log("nowhere.jsonl", scopes="as exported")


async def test_a_stand_in_that_is_not_an_event_is_refused(tmp_path: Path) -> None:
    """No hash covers what stands in the place of redacted texts; a log whose events cannot be read is not taken."""
    whole = tmp_path / "redacted.jsonl"
    async with memory_engine.open(":memory:") as engine:
        thread = await engine.create_thread("t")
        await thread.dispatch(UserMessage(content="secret"))
        await thread.replay.export(whole, redaction=Redaction(types=("user_message",)))
    bad = spoilt(whole, text(2, b'"payload":{"content":', b'"payload":{"said":'))
    async with memory_engine.open(":memory:") as engine:
        with pytest.raises(ImportRefused, match="content") as refused:
            await engine.transfer.import_log(bad, scopes="as exported")
        assert 2 == refused.value.line
        assert [] == await engine.threads()
