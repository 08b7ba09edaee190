"""The commands `erase`, `delete` and `acts`: what they destroy, whom they ask, and the proof that it is gone."""

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest

import memory_engine
from memory_engine import events as e
from memory_engine.engine import kernel_of
from memory_engine.errors import ErasureUnfinished
from tests.command_line import Run
from tests.patterns import approved, joined, texts
from tests.trust.test_erasing import SAID, SECRET, held, talked


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with a conversation around the secret, of user u1 of acme."""
    path = tmp_path / "m.db"
    monkeypatch.setenv("MEMORY_ENGINE_DB", str(path))

    async def write() -> None:
        async with memory_engine.open(str(path)) as engine:
            await talked(await engine.create_thread("t", user_id="u1", tenant_id="acme"))
            await (await engine.create_thread("other")).dispatch(e.UserMessage(content="Untouched"))

    asyncio.run(write())
    return path


def test_a_dry_run_counts_then_the_act_destroys_and_proves(run: Run, path: Path) -> None:
    """By seq; the act is listed with who asked for it and why."""
    code, out, err = run("erase", "t", "--seq", "2", "--dry-run")
    assert (0, "") == (code, err)
    assert "the texts of 1 event in 1 thread: nothing was written (a dry run)" == out.splitlines()[0]
    assert held(path)
    code, out, err = run("erase", "t", "--seq", "2", "--by", "officer", "--reason", "asked for", "--yes", "--json")
    report = json.loads(out)
    assert (0, "", True, []) == (code, err, report["is_done"], report["proof"]["left"])
    assert not held(path)
    (act,) = json.loads(run("acts", "--json")[1])
    assert (report["act"], "erase", "officer", "asked for") == (act["id"], act["kind"], act["by"], act["reason"])
    assert list(act["plan"]["events"]) == ["t"]
    assert 0 == run("verify")[0]


def test_a_text_is_looked_for_in_all_files(run: Run, path: Path) -> None:
    """In rows, and in the index for search, which keeps words in another form; exit code 1 where it is found."""
    code, out, err = run("erase", "--prove", "--text", SAID, "--json")
    found = json.loads(out)
    assert (1, "", False) == (code, err, found["ok"])
    assert any("events.payload of thread t, event 2" in place for place in found["left"])
    assert any("m.db at byte" in place for place in found["left"])
    assert 1 == run("erase", "--prove", "--text", SECRET)[0]
    assert 0 == run("erase", "--prove", "--text", "never said 31337")[0]
    run("erase", "t", "--seq", "2", "--yes")
    code, out, err = run("erase", "--prove", "--text", SAID, "--text", SECRET)
    assert (0, "") == (code, err)
    assert out.rstrip().endswith("nothing is left")


def test_words_are_found_that_stand_in_the_index_alone(run: Run, path: Path) -> None:
    """A word whose passage was taken away behind the engine's back is still in the full-text index."""

    async def write() -> None:
        async with memory_engine.open(str(path)) as engine:
            thread = await engine.create_thread("many")
            for n in range(80):
                await thread.dispatch(e.UserMessage(content=f"Number {n} says Zanzibar{n:03}"))
            await thread.admin.prepare_search()
            await thread.compaction.settle()

    asyncio.run(write())
    found = json.loads(run("erase", "--prove", "--text", "zanzibar007", "--json")[1])
    assert any("full-text index" in place for place in found["left"])


def test_all_of_a_user_and_of_a_tenant(run: Run, path: Path) -> None:
    """The threads are named before anything happens."""
    code, out, _ = run("erase", "--user", "u1", "--tenant", "acme", "--dry-run", "--json")
    assert (0, ["t"]) == (code, json.loads(out)["deleted"])
    code, out, _ = run("erase", "--tenant", "acme", "--yes")
    assert (0, True) == (code, "1 whole thread (t)" in out)
    assert not held(path)
    assert ["other"] == [info["id"] for info in json.loads(run("threads", "--json")[1])]


def test_a_thread_is_deleted_after_its_forks(run: Run, path: Path) -> None:
    """The error names them."""
    run("fork", "t", "--id", "fork")
    code, _, err = run("delete", "t", "--yes")
    assert (2, True) == (code, "fork" in err)
    assert 0 == run("delete", "fork", "--yes")[0]
    assert 0 == run("delete", "t", "--yes")[0]
    assert not held(path)
    assert 2 == run("delete", "t", "--yes")[0]


@pytest.mark.parametrize(
    "words",
    [
        ("erase", "t", "--seq", "2"),
        ("erase", "t", "--seq", "2", "--json"),
        ("erase", "--user", "u1", "--tenant", "acme"),
        ("delete", "t"),
    ],
)
def test_nobody_is_destroyed_unasked(run: Run, path: Path, words: tuple[str, ...]) -> None:
    """Without a terminal, or with --json, it takes --yes."""
    code, out, err = run(*words)
    assert (2, True) == (code, "--yes" in out + err)
    assert held(path)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("erase",), "name a thread and its events"),
        (("erase", "t"), "name a thread and its events"),
        (("erase", "t", "--seq", "1", "--user", "u1"), "not both"),
        (("erase", "t", "--seq", "99"), ", not 99"),
        (("erase", "t", "--event", "nope"), "has no event 'nope'"),
        (("erase", "nobody", "--seq", "1"), "does not exist"),
        (("erase", "t", "--text", "x"), "needs --prove"),
        (("erase", "--prove"), "name what to look for"),
        (("erase", "--prove", "--text", " "), "is everywhere"),
        (("erase", "t", "--prove", "--text", "x"), "texts only"),
    ],
)
def test_wrong_words_are_refused(run: Run, path: Path, words: tuple[str, ...], expected: str) -> None:
    """With what to say instead; nothing is written."""
    code, _, err = run(*words, "--yes")
    assert (2, True) == (code, expected in err)
    assert held(path)
    assert "[]" == run("acts", "--json")[1].strip()


def test_an_act_that_was_cut_off_is_listed_and_finished(run: Run, path: Path) -> None:
    """Listing changes nothing; exit code 1 says that one is open."""

    async def begin() -> None:
        async with memory_engine.open(str(path)) as engine:
            real, kernel_of(engine).store.wipe = engine.store.wipe, _never  # type: ignore[method-assign]
            with pytest.raises(ErasureUnfinished, match="cut off"):
                await engine.thread("t").admin.erase([(await kernel_of(engine).store.read_at("t", [2]))[0].id])
            kernel_of(engine).store.wipe = real  # type: ignore[method-assign]

    asyncio.run(begin())
    code, out, _ = run("acts")
    assert (1, True) == (code, "not finished" in out)
    assert (0, True) == ((found := run("acts", "--finish"))[0], "done" in found[1])
    assert not held(path)


async def _never() -> bool:
    raise OSError("cut off")


@pytest.mark.parametrize(("answer", "is_gone"), [(b"n\n", False), (b"y\n", True)])
def test_a_person_is_asked(path: Path, answer: bytes, is_gone: bool) -> None:
    """On a terminal, what will be destroyed is said before the question."""
    pty = pytest.importorskip("pty")
    pid, terminal = pty.fork()
    if not pid:
        os.execv(sys.executable, [sys.executable, "-m", "memory_engine", "delete", "t", "--db", str(path)])
    shown = b""
    while b"[y/N]" not in shown:
        shown += os.read(terminal, 4096)
    os.write(terminal, answer)
    try:
        while more := os.read(terminal, 4096):
            shown += more
    except OSError:  # Linux says so where the other end is closed
        pass
    os.waitpid(pid, 0)
    os.close(terminal)
    assert b"Destroy 1 whole thread (t)?" in shown
    assert is_gone is not held(path)


def test_a_dry_run_withdraws_nothing(run: Run, path: Path) -> None:
    """What a tenant shares with an industry stays shared until it is meant."""

    async def share() -> int:
        async with memory_engine.open(str(path)) as engine:
            await joined(engine, "acme", "other")
            await approved(engine, "acme", "Ask for the order number first")
            await engine.settle()
            return (await engine.stats()).events

    async def seen() -> tuple[int, int]:
        async with memory_engine.open(str(path)) as engine:
            await engine.settle()
            return (await engine.stats()).events, len(await texts(engine, "other"))

    events = asyncio.run(share())
    assert 0 == run("erase", "--tenant", "acme", "--dry-run")[0]
    assert (events, 1) == asyncio.run(seen())
    assert 0 == run("erase", "--tenant", "acme", "--yes")[0]
    assert 0 == asyncio.run(seen())[1]
