"""Golden logs: what an earlier release wrote is read, reduced and shown as it was then."""

import json
from pathlib import Path

import pytest

import memory_engine
from memory_engine.events import builtin_registry
from memory_engine.wiring import builtin_projections
from tests.exports import lines_of
from tests.golden_logs import DIGESTS, LOGS, digest_of, logs_in, make, version

RELEASES = sorted(path.name for path in LOGS.iterdir())
GOLDEN = [(release, path) for release in RELEASES for path in logs_in(LOGS / release)]


def told(release: str) -> dict[str, dict[str, object]]:
    """What a release wrote down of its logs."""
    found: dict[str, dict[str, object]] = json.loads((LOGS / release / DIGESTS).read_text(encoding="utf-8"))
    return found


@pytest.mark.parametrize(("release", "path"), GOLDEN, ids=[f"{release}-{path.name}" for release, path in GOLDEN])
async def test_X10_a_log_of_every_release_verifies(release: str, path: Path, tmp_path: Path) -> None:
    """Its hashes and operations come out the same, so do its state and the views whose rows have not changed since."""
    expected = told(release)[path.name]
    async with memory_engine.open(str(tmp_path / "golden.db")) as engine:
        report = await engine.transfer.import_log(path, scopes="as exported")
        verified = await engine.thread(report.thread_id).replay.verify()
        found = await digest_of(engine, report.thread_id)
        await engine.thread(report.thread_id).replay.export(tmp_path / "again.jsonl")
    assert (None, expected["redacted"]) == (verified.divergence, verified.redacted)
    views, then = found.pop("views"), expected.pop("views")
    assert expected == {"redacted": report.redacted, **found}
    assert isinstance(views, dict)
    assert isinstance(then, dict)
    assert {name: then[name] for name in views if name in then} == {name: views[name] for name in views if name in then}
    assert lines_of(path)[1:-1] == lines_of(tmp_path / "again.jsonl")[1:-1]
    ends = [json.loads(lines_of(file)[-1]) for file in (path, tmp_path / "again.jsonl")]
    assert ends[0] == {name: value for name, value in ends[1].items() if name in ends[0]}
    assert report.header_hashed is ("header" in ends[0])


def test_each_release_has_its_folder() -> None:
    """One a release, with a log in it for each line of its digests, and this version's among them."""
    assert version() in RELEASES
    for release in RELEASES:
        assert sorted(told(release)) == [path.name for path in logs_in(LOGS / release)]


async def test_the_next_golden_logs_would_hold_every_event_and_view(tmp_path: Path) -> None:
    """Whoever adds an event sees to it that the logs of the next release have one; the same logs are made each time."""
    made = []
    for name in ("one", "two"):
        await make(tmp_path / name)
        made.append(json.loads((tmp_path / name / DIGESTS).read_text(encoding="utf-8")))
    assert made[0] == made[1]
    held = {one.partition("@")[0] for log in made[0].values() for one in log["types"]}
    assert {cls.event_type for cls in builtin_registry().classes()} == held
    views = {f"{view.name}@{view.version}" for view in builtin_projections()}
    assert all(views == set(log["views"]) for log in made[0].values())
