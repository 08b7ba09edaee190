"""A time that a log takes can be read back; one that cannot is refused, on every road in."""

import gzip
import json
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

import memory_engine
from memory_engine import Engine, EngineConfig, NewEvent, UserMessage, errors
from memory_engine.core.clock import to_datetime, to_us
from memory_engine.views.documents.fold import Described
from tests.trust.files import tamper

AHEAD, BEHIND = timezone(timedelta(hours=14)), timezone(timedelta(hours=-12))
OUTSIDE = [
    datetime(9999, 12, 31, 23, 59, tzinfo=BEHIND),
    datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
    datetime(1, 1, 1, tzinfo=AHEAD),
    datetime(1, 1, 1, tzinfo=UTC),
]
INSIDE = [datetime(9999, 12, 29, tzinfo=AHEAD), datetime(1, 1, 4, tzinfo=BEHIND), datetime(1969, 7, 20, tzinfo=UTC)]
NO_TIMES = ["2024", 2024, 1.5, True, [], datetime(2024, 1, 1), datetime(2024, 1, 1).date()]  # noqa: DTZ001


@pytest.mark.parametrize("moment", [*OUTSIDE, *NO_TIMES])
async def test_an_event_outside_the_years_is_refused(engine: Engine, moment: datetime) -> None:
    """By `dispatch`, `dispatch_all`, and the first event of a scope; nothing is written."""
    thread = await engine.create_thread()
    with pytest.raises(errors.InvalidEvent, match="occurred_at"):
        await thread.dispatch(UserMessage(content="x"), occurred_at=moment)
    with pytest.raises(errors.InvalidEvent, match="occurred_at"):
        await thread.dispatch_all([UserMessage(content="x"), NewEvent(UserMessage(content="y"), occurred_at=moment)])
    with pytest.raises(errors.InvalidEvent, match="occurred_at"):
        await engine.user("u").dispatch(UserMessage(content="x"), occurred_at=moment)
    assert (1, 0) == (len(await engine.threads()), (await thread.info()).events)


@pytest.mark.parametrize("moment", INSIDE)
async def test_an_event_inside_the_years_is_read_back(engine: Engine, moment: datetime) -> None:
    """As the moment that it was, shown in any zone."""
    thread = await engine.create_thread()
    await thread.dispatch(UserMessage(content="x"), occurred_at=moment)
    (event,) = [event async for event in thread.events()]
    assert moment == event.occurred_at
    assert event.occurred_at is not None
    assert event.occurred_at.astimezone(AHEAD) == event.occurred_at.astimezone(BEHIND)
    assert "x" == (await thread.search("x"))[0].text


@pytest.mark.parametrize("moment", OUTSIDE)
async def test_documents_and_memories_outside_the_years_are_refused(engine: Engine, moment: datetime) -> None:
    """A text's date, an entry's time."""
    documents = engine.tenant("acme").documents
    with pytest.raises(errors.InvalidDocument, match="date"):
        await documents.add_text("text", title="t", described=Described(date=moment))
    with pytest.raises(errors.InvalidMemory, match="timestamp"):
        await engine.user("u").memory.append("episodic", "text", timestamp=moment)
    assert [] == await engine.threads()


async def test_a_mail_from_the_year_9999_has_no_date(engine: Engine, tmp_path: Path) -> None:
    """Its text is brought all the same."""
    path = tmp_path / "one.eml"
    path.write_text("From: ann@example.org\nDate: Fri, 31 Dec 9999 23:59:59 -1200\nSubject: s\n\nHello\n")
    documents = engine.tenant("acme").documents
    assert (1, []) == ((report := await documents.ingest(path)).added, report.failed)
    assert [None] == [document.date for document in await documents.list()]


def log_with(tmp_path: Path, log: Path, **changed: object) -> Path:
    """A copy of an exported log whose header's thread has other facts."""
    lines = gzip.decompress(log.read_bytes()).splitlines()
    header = json.loads(lines[0])
    header["thread"] |= changed
    path = tmp_path / "changed.jsonl"
    path.write_bytes(b"\n".join([json.dumps(header).encode(), *lines[1:]]) + b"\n")
    return path


@pytest.mark.parametrize(
    "changed",
    [{"created_at_us": 1 << 62}, {"metadata": {"": "x"}}, {"metadata": {"k": 5}}, {"metadata": {"k": None}},
     {"policy": {"deadline_s": None}}, {"user_id": None}],
)  # fmt: skip
async def test_a_file_with_facts_that_could_not_be_read_back_is_refused(
    engine: Engine, tmp_path: Path, changed: dict[str, object]
) -> None:
    """An import checks them as `create_thread` does."""
    thread = await engine.create_thread("t")
    await thread.dispatch(UserMessage(content="x"))
    await thread.replay.export(tmp_path / "log.jsonl.gz")
    path = log_with(tmp_path, tmp_path / "log.jsonl.gz", id="copy", **changed)
    with pytest.raises(errors.ImportRefused):
        await engine.transfer.import_log(path, scopes="as exported")
    assert ["t"] == [info.id for info in await engine.threads()]


async def test_a_log_of_yesterday_with_such_a_time_is_read(tmp_path: Path) -> None:
    """What was taken before times were checked is shown as the last moment that there is; listing and views go on."""
    path = str(tmp_path / "memory.db")
    async with memory_engine.open(path) as engine:
        thread = await engine.create_thread("t")
        await thread.dispatch(UserMessage(content="x"))
    late = to_us(datetime.max.replace(tzinfo=UTC)) + 1
    tamper(path, f"UPDATE threads SET created_at_us = {late}", f"UPDATE events SET occurred_at_us = {late}")
    unchecked = EngineConfig(check_hashes=False)  # the row is changed here, as it never was when it was written
    async with memory_engine.open(path, config=unchecked) as engine:
        (info,) = await engine.threads()
        assert datetime.max.replace(tzinfo=UTC) == info.created_at
        (event,) = [event async for event in engine.thread("t").events()]
        assert datetime.max.replace(tzinfo=UTC) == event.occurred_at
        assert "x" == (await engine.thread("t").search("x"))[0].text


def test_moments_beyond_the_calendar_are_its_ends() -> None:
    """Never an error of Python's."""
    assert (9999, 1) == (to_datetime(1 << 62).year, to_datetime(-(1 << 62)).year)


class Wrong:
    """A clock that gives something else than a time."""

    def __init__(self, value: object) -> None:
        self.value = value

    def now_us(self) -> int:
        """See `Clock`."""
        return self.value  # type: ignore[return-value]


@pytest.mark.parametrize("value", [None, 1.5, "now", 1 << 62, -(1 << 62)])
async def test_a_clock_that_gives_no_time_is_named(value: object) -> None:
    """Before anything is written with it."""
    async with memory_engine.open(":memory:", clock=Wrong(value)) as engine:
        with pytest.raises(errors.InvalidArgument, match="clock"):
            await engine.create_thread("t")
        assert [] == await engine.threads()
