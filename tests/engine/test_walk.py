"""One walk of a log: rows once and in order, wherever it begins and whoever reads them."""

from collections.abc import AsyncIterator, Sequence

import pytest

import memory_engine
from memory_engine import Engine, LlmTextResponse, UserMessage
from memory_engine.core.records import StoredEvent
from memory_engine.engine import kernel_of
from memory_engine.errors import ThreadNotFound
from memory_engine.store import reader
from memory_engine.store.walk import LogWalk, spans_back
from tests.exports import NEVER

SAID = 23
PAGE = 5


@pytest.fixture
async def engine(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Engine]:
    """An engine that reads pages of a few rows, with a thread of questions and answers by turns."""
    monkeypatch.setattr(reader, "PAGE", PAGE)
    async with memory_engine.open(":memory:", config=NEVER) as opened:
        thread = await opened.create_thread("t")
        said = [UserMessage(content=f"{n}") if n % 2 else LlmTextResponse(content=f"{n}") for n in range(1, SAID + 1)]
        await thread.dispatch_all(said)
        yield opened


@pytest.mark.parametrize("raw", [False, True])
@pytest.mark.parametrize(
    ("after", "upto"), [(0, SAID), (0, PAGE), (PAGE, 2 * PAGE), (7, 19), (22, SAID), (9, 9), (12, 3)]
)
async def test_each_row_comes_once_and_in_order(engine: Engine, after: int, upto: int, *, raw: bool) -> None:
    """From any seq to any other, also where a page ends there; taken one by one, together, and by readers."""
    expected = list(range(after + 1, upto + 1))
    seen: list[int] = []

    def walk() -> LogWalk:
        return kernel_of(engine).reader.walk("t", after=after, upto=upto, raw=raw)

    assert expected == [stored.seq async for stored in walk()]
    assert expected == [stored.seq for stored in await walk().all()]
    await walk().feed(lambda stored: seen.append(stored.seq))
    last = await walk().last()
    assert (expected, expected[-1:]) == (seen, [last.seq] if last is not None else [])


async def test_rows_of_some_types_are_the_only_ones_read(engine: Engine) -> None:
    """Through pages that lie far apart, and none where there are none; as rows and as events with them."""
    types = ("user_message",)
    assert list(range(1, SAID + 1, 2)) == [
        one.seq async for one in kernel_of(engine).reader.walk("t", upto=SAID, types=types)
    ]
    found = [
        (stored.seq, event.content)
        async for stored, event in kernel_of(engine).reader.events_of(UserMessage, "t", upto=9)
    ]
    assert [(n, f"{n}") for n in range(1, 10, 2)] == found
    for raw in (False, True):
        assert None is await kernel_of(engine).reader.walk("t", upto=SAID, types=("tool_result",), raw=raw).last()


async def test_readers_share_one_pass_until_one_answers(engine: Engine) -> None:
    """Each gets a row before any gets the next; the first answer ends the walk, and nobody reads further."""
    seen: list[tuple[str, int]] = []
    pages: list[int] = []

    def first(stored: StoredEvent) -> str | None:
        seen.append(("first", stored.seq))
        return "found" if stored.seq == 7 else None

    def second(stored: StoredEvent) -> None:
        seen.append(("second", stored.seq))

    walk = kernel_of(engine).reader.walk("t", upto=SAID)
    assert "found" == await walk.feed(first, second, progress=pages.append)
    assert [(name, seq) for seq in range(1, 7) for name in ("first", "second")] + [("first", 7)] == seen
    assert [PAGE] == pages


@pytest.mark.parametrize("items", [1, 1_000])
async def test_what_follows_a_page_is_awaited_before_the_next_is_read(engine: Engine, items: int) -> None:
    """On the loop or on another thread; it hears of every page, and may end the walk."""
    read: list[int] = []
    written: list[tuple[int, int]] = []

    async def write(page: Sequence[StoredEvent]) -> bool | None:
        assert list(range(1, page[-1].seq + 1)) == read
        written.append((page[0].seq, page[-1].seq))
        return True if page[-1].seq >= 15 else None

    walk = kernel_of(engine).reader.walk("t", upto=SAID)
    assert True is await walk.feed(lambda stored: read.append(stored.seq), items=lambda _: items, then=write)
    assert [(1, 5), (6, 10), (11, 15)] == written


@pytest.mark.parametrize("items", [1, 1_000])
async def test_the_error_of_a_reader_ends_the_walk(engine: Engine, items: int) -> None:
    """It is raised as it is, after the rows before it."""
    read: list[int] = []

    def broken(stored: StoredEvent) -> None:
        if stored.seq == 8:
            raise ZeroDivisionError
        read.append(stored.seq)

    with pytest.raises(ZeroDivisionError):
        await kernel_of(engine).reader.walk("t", upto=SAID).feed(broken, items=lambda _: items)
    assert list(range(1, 8)) == read


async def test_a_walk_left_early_reads_no_further_page(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory and reads stay those of one page."""
    asked: list[int] = []
    read = kernel_of(engine).store.read

    async def counted(*args: object, **named: object) -> Sequence[StoredEvent]:
        asked.append(1)
        return await read(*args, **named)  # type: ignore[arg-type]  # passed on as it came

    monkeypatch.setattr(kernel_of(engine).store, "read", counted)
    async for stored in kernel_of(engine).reader.walk("t", upto=SAID):
        if stored.seq == 3:
            break
    assert 1 == len(asked)


async def test_a_thread_that_is_not_there_is_named(engine: Engine) -> None:
    """An empty walk is one of an empty span, not of a thread that nobody made."""
    with pytest.raises(ThreadNotFound):
        await kernel_of(engine).reader.walk("nobody", upto=1).last()


@pytest.mark.parametrize(
    ("upto", "span", "begins"),
    [(0, 5, [0]), (5, 5, [0]), (6, 5, [1, 0]), (100, 5, [95, 80, 20, 0]), (1, 512, [0])],
)
def test_spans_back_reach_the_beginning(upto: int, span: int, begins: list[int]) -> None:
    """Each begins further back than the one before, and the last with the first event."""
    assert begins == list(spans_back(upto, span))
