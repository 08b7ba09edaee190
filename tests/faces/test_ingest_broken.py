"""Recordings with wrong values anywhere in them are read as far as they make sense, or refused: no reader breaks."""

import json
import random
from contextlib import suppress
from pathlib import Path

import pytest

from memory_engine.errors import IngestError
from memory_engine.ingest.chat import ChatReader
from memory_engine.ingest.events import UnusableRecord
from memory_engine.ingest.readers import reader_of
from memory_engine.ingest.records import open_recording
from tests.faces.test_ingest_readers import CASES, lines
from tests.faces.test_ingest_tools import ACTION, RUN, SESSION, observed, stats

SAMPLES: dict[str, tuple[str, object]] = {
    **{name: (file, value) for name, (file, value, *_) in CASES.items() if file.startswith("x.json")},
    "claude code": ("x.jsonl", lines(*SESSION)),
    "swe-agent": ("x.traj", RUN),
    "openhands": ("x.jsonl", lines(stats(1, 2), ACTION, observed("e3", "c1"))),
}
WRONG = ["null", "5", "-1.5", "true", "[]", "{}", '"x"', '""', "[null]", "[5]", '["x"]', '{"a": 1}', "[[]]", "1" * 30]


def places(value: object, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """The paths of all values in a value, but of itself."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [found for key, one in inner for found in ((*path, key), *places(one, (*path, key)))]


def broken(value: object, chance: random.Random) -> object:
    """The value with another one, or none, at some place."""
    copied = json.loads(json.dumps(value))
    *path, last = chance.choice(places(copied))
    at = copied
    for key in path:
        at = at[key]
    if isinstance(at, dict) and chance.random() < 0.3:
        del at[last]
    else:
        at[last] = json.loads(chance.choice(WRONG))
    return copied


def read(path: Path) -> None:
    """Read all records of a file, as `ingest` does."""
    file = open_recording(path)
    reader = reader_of(file)
    assert reader is not None
    for conversation in reader.conversations(file):
        if isinstance(conversation, IngestError):
            continue
        translator = ChatReader("t", native=True, strict=conversation.strict)
        for record in conversation.records:
            if isinstance(record, IngestError) or conversation.shape == "event":
                continue
            with suppress(UnusableRecord):
                translator.take(record)


@pytest.mark.parametrize("sample", SAMPLES)
def test_no_reader_breaks_on_a_wrong_value(tmp_path: Path, sample: str) -> None:
    """It is an error that says so, or counts among what is not taken."""
    name, value = SAMPLES[sample]
    rows = [json.loads(line) for line in value.splitlines()] if isinstance(value, str) else value
    chance = random.Random(sample)
    for _ in range(40):
        wrong = broken(rows, chance)
        text = lines(*wrong) if isinstance(value, str) and isinstance(wrong, list) else json.dumps(wrong)
        (tmp_path / name).write_text(text)
        read(tmp_path / name)
