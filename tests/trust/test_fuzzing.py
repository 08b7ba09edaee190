"""A byte that is flipped, a file that is spoilt: the right answer or a typed error. More: `python -m tests.soak`."""

import json
from pathlib import Path

import pytest

import memory_engine
from memory_engine import UserMessage
from memory_engine.errors import IntegrityError
from tests.replay.test_verify import tamper
from tests.soak.__main__ import main
from tests.soak.flips import flip
from tests.soak.mutations import mutate

FLIPS, MUTATIONS = 10, 60


async def test_a_flipped_bit_of_the_log_never_gives_a_wrong_answer(tmp_path: Path) -> None:
    """Wherever it is in the rows of events and their bodies."""
    report = await flip(FLIPS, 1, tmp_path, lambda _: None, frozenset({"events", "blobs"}))
    assert [] == report.failures
    assert FLIPS == report.flips == report.right + report.refused + report.found
    assert report.refused > 0


@pytest.mark.parametrize(("column", "value"), [("pos", "pos + 100"), ("tid", "tid + 1"), ("tid", "99")])
async def test_an_event_in_another_place_is_not_given_by_its_correlation_id(
    tmp_path: Path, column: str, value: str
) -> None:
    """It would have another seq, or another thread, than the one it was recorded with."""
    path = str(tmp_path / "m.db")
    async with memory_engine.open(path) as engine:
        for name in ("t", "other"):
            thread = await engine.create_thread(name)
            await thread.dispatch(UserMessage(content="first"))
            await thread.dispatch(UserMessage(content="second"), correlation_id=f"ride {name}")
    tamper(path, f"UPDATE events SET {column} = {value} WHERE correlation_id = 'ride t'")
    async with memory_engine.open(path) as engine:
        assert ["second"] == [event.event.content for event in await engine.correlated("ride other")]  # type: ignore[union-attr]
        with pytest.raises(IntegrityError, match="not in the place where it was recorded"):
            await engine.correlated("ride t")


async def test_a_spoilt_file_is_taken_or_refused(tmp_path: Path) -> None:
    """Logs, anchors, documents and transcripts; what was taken verifies."""
    report = await mutate(MUTATIONS, 1, tmp_path, lambda _: None)
    assert [] == report.failures
    assert MUTATIONS == report.mutations == report.taken + report.refused
    assert {"logs", "anchors", "documents", "transcripts"} == set(report.by_folder)
    assert report.taken > 0
    assert report.refused > 0


def test_the_command_prints_its_seed_and_a_summary(capsys: pytest.CaptureFixture[str]) -> None:
    """As JSON, if asked; the same seed spoils the same files."""
    said = []
    for _ in range(2):
        assert 0 == main(["--mutations", "5", "--seed", "7", "--json"])
        printed = capsys.readouterr()
        assert printed.err.startswith("seed 7\n")
        said.append(json.loads(printed.out)["mutations"])
    assert 5 == said[0]["mutations"]
    assert said[0] | {"seconds": 0} == said[1] | {"seconds": 0}
