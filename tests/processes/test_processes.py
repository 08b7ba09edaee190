"""Several processes and one file: nothing lost, every thread in order, no lock left behind."""

import asyncio
import json
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from subprocess import PIPE, Popen

import pytest

from memory_engine import RecordedEvent
from memory_engine.storage.sqlite.locking import FileLock
from tests.conversations import NEVER, log, opened, texts, types
from tests.scripted_compactors import Scripted

ROOT = Path(__file__).resolve().parents[2]

Word = str | int | list[str | int]
Answer = list[Word]


def places(answer: Answer) -> list[Word]:
    """Id and seq of each receipt, without its hash."""
    return [receipt[:2] for receipt in answer if isinstance(receipt, list)]


def seq_of(answer: Answer) -> object:
    """The seq of the one receipt."""
    [receipt] = places(answer)
    return receipt[1] if isinstance(receipt, list) else None


class Peer:
    """A process with an engine, told what to do."""

    def __init__(self) -> None:
        self._unheard = 0
        self.process = Popen(
            [sys.executable, "-m", "tests.processes.process_child"], stdin=PIPE, stdout=PIPE, cwd=ROOT, text=True
        )

    def tell(self, *words: str) -> None:
        """Say what to do, without waiting."""
        assert self.process.stdin is not None
        self._unheard += 1
        self.process.stdin.write(json.dumps(words) + "\n")
        self.process.stdin.flush()

    def hear(self) -> Answer:
        """The answer to what was said first and is not answered yet."""
        assert self.process.stdout is not None
        answer: Answer = json.loads(self.process.stdout.readline())
        self._unheard -= 1
        return answer

    def ask(self, *words: str) -> Answer:
        """Say what to do, and wait for the answer."""
        self.tell(*words)
        return self.hear()

    def insist(self, *words: str) -> Answer:
        """Ask again for as long as the file is busy: another process may be folding its log just then."""
        while (answer := self.ask(*words))[:2] == ["error", "StorageBusy"]:
            continue
        return answer

    def close(self) -> None:
        """Close its file; a process that still owes an answer, or is gone, is ended."""
        if self._unheard or self.process.poll() is not None:
            self.end()
        else:
            self.ask("close")

    def end(self) -> None:
        """End the process, however it is."""
        self.process.kill()
        self.process.communicate()


@pytest.fixture(scope="module")
def pool() -> Iterator[list[Peer]]:
    """Processes that have loaded everything: each test opens files in them anew."""
    peers: list[Peer] = []
    yield peers
    for peer in peers:
        peer.end()


@pytest.fixture
def peers(pool: list[Peer]) -> Iterator[list[Peer]]:
    """Three processes, without an open file; those that a test has killed are replaced."""
    pool[:] = [peer for peer in pool if peer.process.poll() is None]
    pool.extend(Peer() for _ in range(3 - len(pool)))
    yield pool
    for peer in pool:
        peer.close()


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A file that is not there yet."""
    return str(tmp_path / "memory.db")


def read(path: str, thread_id: str = "t") -> tuple[list[RecordedEvent], list[str]]:
    """A thread's log and the first words of its state, after checking that all of the file holds together."""

    async def look() -> tuple[list[RecordedEvent], list[str]]:
        async with opened(Scripted(), NEVER, path) as engine:
            assert [] == [report for report in await engine.verify() if not report.ok]
            thread = engine.thread(thread_id)
            return await log(thread), await texts(thread)

    return asyncio.run(look())


def kinds(path: str) -> list[str]:
    """The compaction events of the thread."""

    async def look() -> list[str]:
        async with opened(Scripted(), NEVER, path) as engine:
            return await types(engine.thread("t"))

    return asyncio.run(look())


def names(who: int, count: int) -> list[str]:
    """Event ids of one process, in its order."""
    return [f"{who}-{n:03}" for n in range(count)]


def all_open(peers: list[Peer], path: str, *rest: str) -> None:
    """Open the file in every process, with the thread `t`."""
    for peer in peers:
        assert ["opened"] == peer.insist("open", path, *rest)
    peers[0].insist("create", "t")


@pytest.mark.parametrize("count", [2, 3])
def test_a_thread_that_several_processes_write_to_is_whole(peers: list[Peer], path: str, count: int) -> None:
    """Appended to at once, a thread holds every event once, without gaps, each sender's in its order."""
    some = peers[:count]
    all_open(some, path)
    for who, peer in enumerate(some):
        peer.tell("append", "t", *names(who, 60))
    receipts = [place for peer in some for place in places(peer.hear())]
    events, _ = read(path)
    assert list(range(1, 60 * count + 1)) == [event.seq for event in events]
    assert sorted(receipts, key=str) == sorted([[event.id, event.seq] for event in events], key=str)
    for who in range(count):
        assert names(who, 60) == [event.id for event in events if event.id.startswith(f"{who}-")]


def test_batches_of_several_processes_do_not_mix(peers: list[Peer], path: str) -> None:
    """What was dispatched together stands together, whoever else writes."""
    all_open(peers, path)
    for who, peer in enumerate(peers):
        for at in range(0, 30, 3):
            peer.tell("together", "t", *names(who, 30)[at : at + 3])
    for peer in peers:
        for _ in range(10):
            peer.hear()
    events, _ = read(path)
    batches = [[event.id for event in events[at : at + 3]] for at in range(0, 90, 3)]
    assert sorted(batches) == [names(who, 30)[at : at + 3] for who in range(3) for at in range(0, 30, 3)]


def test_threads_of_their_own_do_not_hinder_each_other(peers: list[Peer], path: str) -> None:
    """Three processes with a thread each: every thread is its writer's, from 1 on."""
    all_open(peers, path)
    for who, peer in enumerate(peers):
        peer.ask("create", f"t{who}")
        peer.tell("append", f"t{who}", *names(who, 60))
    for peer in peers:
        peer.hear()
    for who in range(3):
        assert names(who, 60) == [event.id for event in read(path, f"t{who}")[0]]


def test_the_first_open_may_be_raced(peers: list[Peer], tmp_path: Path) -> None:
    """Processes that open a new file and make the same thread at once: all succeed, one makes it."""
    for n in range(8):
        path = str(tmp_path / f"{n}.db")
        for peer in peers:
            peer.tell("open", path)
            peer.tell("create", "t")
        assert [["opened"]] * 3 == [peer.hear() for peer in peers]
        assert ["created", "exists", "exists"] == sorted(str(peer.hear()[0]) for peer in peers)
        for peer in peers:
            peer.ask("close")


def test_one_id_from_several_processes_is_one_event(peers: list[Peer], path: str) -> None:
    """The same event under the same id, dispatched everywhere at once: recorded once, equal receipts."""
    all_open(peers, path)
    for peer in peers:
        peer.tell("append", "t", *names(0, 40))
    first, *others = [peer.hear() for peer in peers]
    assert [first, first] == others
    assert names(0, 40) == [event.id for event in read(path)[0]]


def test_another_payload_under_an_id_is_a_conflict(peers: list[Peer], path: str) -> None:
    """An id that another process has used for something else is refused, naming its place."""
    all_open(peers, path)
    peers[0].ask("append", "t", "a")
    kind, error, text = peers[1].ask("conflict", "t", "a")
    assert ("error", "IdempotencyConflict", True) == (kind, error, "seq 1" in str(text))


@pytest.mark.parametrize("blocking", ["whole", "commit"])
def test_a_compaction_stands_beside_what_others_write_meanwhile(peers: list[Peer], path: str, blocking: str) -> None:
    """Another process's events during a compaction are kept, after the summary, in order."""
    all_open(peers, path, "20", "", blocking)
    peers[0].ask("append", "t", *names(0, 4))
    peers[0].ask("compact", "t")
    peers[1].ask("append", "t", *names(1, 3))
    assert ["1.0", "2.0", "3.0", "4.0"] == peers[0].ask("release")
    assert ["4", "1-000", "1-001", "1-002"] == read(path)[1]
    assert ["compaction_started", "compaction_completed"] == kinds(path)


@pytest.mark.parametrize("blocking", ["whole", "commit"])
def test_a_compaction_does_not_undo_what_another_process_forgets(peers: list[Peer], path: str, blocking: str) -> None:
    """If a covered chunk is forgotten elsewhere meanwhile, the compaction fails on record and replaces nothing."""
    all_open(peers, path, "20", "", blocking)
    peers[0].ask("append", "t", *names(0, 4))
    peers[0].ask("compact", "t")
    peers[1].ask("forget", "t", "2.0")
    assert ["error", "CompactorFailed"] == peers[0].ask("release")[:2]
    assert ["0-000", "0-002", "0-003"] == read(path)[1]
    assert ["compaction_started", "compaction_failed"] == kinds(path)


@pytest.mark.parametrize("blocking", ["whole", "commit"])
def test_two_processes_that_compact_at_once_do_it_once(peers: list[Peer], path: str, blocking: str) -> None:
    """Of two compactions of the same chunks the second waits for the first, pays no model, and says that it is done."""
    all_open(peers, path, "20", "", blocking)
    peers[0].ask("append", "t", *names(0, 4))
    peers[0].ask("compact", "t")
    peers[1].tell("compact", "t")
    assert ["1.0", "2.0", "3.0", "4.0"] == peers[0].ask("release")
    peers[1].hear()
    assert ["error", "NothingToCompact"] == peers[1].ask("release")[:2]
    assert ["4"] == read(path)[1]
    assert ["compaction_started", "compaction_completed"] == kinds(path)


@pytest.mark.parametrize("blocking", ["whole", "commit"])
def test_processes_that_compact_one_thread_as_they_write_lose_nothing(
    peers: list[Peer], path: str, blocking: str
) -> None:
    """With automatic compactions in all three, every event is there once and every compaction has its end."""
    all_open(peers, path, "20", "5", blocking)
    for who, peer in enumerate(peers):
        peer.tell("append", "t", *names(who, 60))
    for peer in peers:
        assert 60 == len(places(peer.hear()))
    for peer in peers:
        peer.ask("close")
    events, _ = read(path)
    said = [event.id for event in events if not event.type.startswith("compaction")]
    assert sorted(name for who in range(3) for name in names(who, 60)) == sorted(said)
    for who in range(3):
        assert names(who, 60) == [event_id for event_id in said if event_id.startswith(f"{who}-")]
    ends = [kind for kind in kinds(path) if kind != "compaction_started"]
    assert (kinds(path).count("compaction_started"), True) == (len(ends), "compaction_completed" in ends)


@pytest.mark.parametrize("blocking", ["whole", "commit"])
def test_a_compactor_that_dies_leaves_the_thread_to_others(peers: list[Peer], path: str, blocking: str) -> None:
    """Killed in the middle of a compaction: the next to open the thread records it as abandoned, and goes on."""
    all_open(peers, path, "20", "", blocking)
    peers[0].ask("append", "t", *names(0, 4))
    peers[0].ask("compact", "t")
    peers[0].end()
    assert names(0, 4) == read(path)[1]
    assert ["compaction_started", "compaction_abandoned"] == kinds(path)


def test_a_failed_write_frees_the_lock(peers: list[Peer], path: str) -> None:
    """After a refused write the next process writes at once: nobody holds the lock."""
    all_open(peers, path, "0.5")
    peers[0].ask("append", "t", "a")
    for refused in (
        ("conflict", "t", "a"),
        ("create", "t"),
        ("append", "nowhere", "b"),
        ("forget", "t", "9.0"),
    ):
        assert peers[0].ask(*refused)[0] in ("error", "exists")
        assert "error" != peers[1].ask("append", "t", f"after-{refused[0]}")[0]


def test_a_lock_held_too_long_is_an_error_that_can_be_retried(peers: list[Peer], path: str) -> None:
    """Past the timeout a write raises `StorageBusy`, nothing is applied, and a retry succeeds."""
    all_open(peers, path, "0.1")
    lock = FileLock(path, 1.0)
    with lock:
        kind, error, text = peers[0].ask("append", "t", "a")
        assert ("error", "StorageBusy", True) == (kind, error, "try again" in str(text))
        assert "StorageBusy" == peers[1].ask("create", "u")[1]
    lock.close()
    assert [] == read(path)[0]
    assert [["a", 1]] == places(peers[0].insist("append", "t", "a"))
    assert ["created"] == peers[1].insist("create", "u")


def test_opening_waits_for_a_writer_no_longer_than_it_may(peers: list[Peer], path: str) -> None:
    """A file that is locked cannot be opened within the timeout: `StorageBusy`, and later it can."""
    with FileLock(path, 1.0) as lock:
        assert "StorageBusy" == peers[0].ask("open", path, "0.1")[1]
    lock.close()
    assert ["opened"] == peers[0].insist("open", path)


@pytest.mark.parametrize("fate", [signal.SIGCONT, signal.SIGKILL])
def test_a_writer_that_stands_still_stops_nobody_for_ever(peers: list[Peer], path: str, fate: signal.Signals) -> None:
    """A stopped process that holds the lock makes others busy; woken or killed, it lets them go on."""
    all_open(peers, path, "0.1")
    holder = peers[2]
    holder.ask("hold", path)
    holder.process.send_signal(signal.SIGSTOP)
    assert "StorageBusy" == peers[0].ask("append", "t", "a")[1]
    holder.process.send_signal(fate)
    if fate is signal.SIGCONT:
        assert ["released"] == holder.ask("let_go")
    else:
        holder.process.wait()
    assert [["a", 1]] == places(peers[0].insist("append", "t", "a"))


def test_a_pause_holds_in_every_process(peers: list[Peer], path: str) -> None:
    """Paused in one process, a thread takes no event in another until a third resumes it."""
    all_open(peers, path)
    peers[1].ask("append", "t", "a")
    peers[0].ask("pause", "t")
    peers[1].tell("append", "t", "b")
    assert 3 == seq_of(peers[2].ask("resume", "t"))
    assert [["b", 4]] == places(peers[1].hear())


def test_a_waiting_event_notices_that_another_process_resumed(peers: list[Peer], path: str) -> None:
    """An event that waits in one process for a pause to end is taken after another process ends it."""
    all_open(peers, path)
    peers[1].ask("pause", "t")
    peers[1].tell("append", "t", "b")
    assert 2 == seq_of(peers[2].ask("resume", "t"))
    assert [["b", 3]] == places(peers[1].hear())


def test_an_archived_thread_is_closed_in_every_process(peers: list[Peer], path: str) -> None:
    """A process that had the thread open is told that another has archived it."""
    all_open(peers, path)
    peers[1].ask("append", "t", "a")
    assert ["archived"] == peers[0].ask("archive", "t")
    assert "ThreadClosed" == peers[1].ask("append", "t", "b")[1]


def test_an_archivist_who_comes_second_looks_again(peers: list[Peer], path: str) -> None:
    """Archiving a thread that another process has written to meanwhile archives it as it is now."""
    all_open(peers, path)
    peers[0].ask("append", "t", "a")
    peers[1].ask("append", "t", "b")
    assert ["archived"] == peers[0].ask("archive", "t")
    assert ["a", "b"] == [event.id for event in read(path)[0]]
