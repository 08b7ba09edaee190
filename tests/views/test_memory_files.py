"""Memory files: an agent's named texts, each change an event, each version readable later."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest

import memory_engine
from memory_engine import Engine, Thread
from memory_engine.errors import InvalidFilePath, MemoryFileExists, UnknownMemoryFile
from memory_engine.thread import handle_of
from memory_engine.views.memory_files.view import MemoryFiles
from tests.command_line import Run


async def listed(files: MemoryFiles, folder: str = "") -> dict[str, str]:
    """Paths and texts."""
    return {file.path: file.content for file in await files.list(folder)}


async def told(files: MemoryFiles, path: str = "") -> list[tuple[str, str, str]]:
    """A history without its times."""
    return [(version.what, version.path, version.content) for version in await files.history(path)]


async def test_a_file_is_kept_byte_for_byte(thread: Thread) -> None:
    """Nothing is trimmed, and line ends stay as they are."""
    text = " \r\na\n\n\tb \u2028\x00é\n"
    await thread.memory_files.create("a/b.md", text)
    assert text == await thread.memory_files.read("a/b.md")
    assert {"a/b.md": text} == await listed(thread.memory_files)


async def test_an_edit_is_a_version_and_the_past_has_the_others(thread: Thread) -> None:
    """Every version can be read as of its event, and the history says how each came about."""
    files = thread.memory_files
    first = await files.create("a.md", "one")
    await files.edit("a.md", lambda text: f"{text} two", how="insert")
    assert "one two" == await files.read("a.md")
    assert "one" == await files.read("a.md", at=first.seq)
    assert "one" == await (await thread.at(first.seq)).memory_files.read("a.md")
    assert [("create", "a.md", "one"), ("insert", "a.md", "one two")] == await told(files, "a.md")
    kept = await files.get("a.md")
    assert kept is not None
    assert kept.created <= kept.changed


async def test_a_folder_moves_and_goes_whole(thread: Thread) -> None:
    """With every file in it, whose history goes with them."""
    files = thread.memory_files
    for path in ("a/1.md", "a/b/2.md", "ab.md"):
        await files.create(path, path)
    await files.move("a", "c/d")
    assert {"ab.md": "ab.md", "c/d/1.md": "a/1.md", "c/d/b/2.md": "a/b/2.md"} == await listed(files)
    assert ["c/d/1.md", "c/d/b/2.md"] == list(await listed(files, "c"))
    await files.delete("c")
    assert ["ab.md"] == list(await listed(files))
    assert [("create", "a/1.md"), ("moved", "c/d/1.md"), ("deleted", "c/d/1.md")] == [
        (what, path) for what, path, _ in await told(files, "c/d/1.md")
    ]
    await files.clear()
    assert await files.clear() is None
    assert {} == await listed(files)


async def test_what_does_not_fit_writes_nothing(thread: Thread) -> None:
    """A path that is taken, one that is not there, a folder into itself, a path out of the memory."""
    files = thread.memory_files
    await files.create("a/b.md", "b")
    before = await handle_of(thread).last_seq()
    for path in ("a/b.md", "a", "a/b.md/c.md"):
        with pytest.raises(MemoryFileExists):
            await files.create(path, "")
    with pytest.raises(MemoryFileExists):
        await files.move("a/b.md", "a/b.md")
    with pytest.raises(InvalidFilePath):
        await files.move("a", "a/c")
    for path in ("", "/a", "a/", "a//b", "../a", "a/../b", ".", "a\0"):
        with pytest.raises(InvalidFilePath):
            await files.create(path, "")
    for lost in (files.read("x"), files.edit("a", str), files.delete("x"), files.move("x", "y")):
        with pytest.raises(UnknownMemoryFile):
            await lost
    assert before == await handle_of(thread).last_seq()


async def test_edits_at_once_are_all_made(thread: Thread) -> None:
    """Each on what the other left: no edit takes another's away."""
    files = thread.memory_files
    await files.create("a.md", "")

    def with_number(n: int) -> Callable[[str], str]:
        return lambda text: f"{text}{n} "

    await asyncio.gather(*(files.edit("a.md", with_number(n)) for n in range(5)))
    assert list("01234") == sorted((await files.read("a.md")).split())


async def test_two_that_make_the_same_file_at_once_make_it_once(thread: Thread) -> None:
    """Also with the same text: the second is told that it is there."""
    made = await asyncio.gather(*(thread.memory_files.create("a.md", "same") for _ in range(2)), return_exceptions=True)
    assert [True, False] == sorted((isinstance(one, MemoryFileExists) for one in made), reverse=True)


async def test_two_processes_change_the_same_files(tmp_path: Path) -> None:
    """An engine that has read the files sees what another wrote before it changes them."""
    path = str(tmp_path / "m.db")
    async with memory_engine.open(path) as one, memory_engine.open(path) as other:
        first, second = (engine.agent("a").memory_files for engine in (one, other))
        await first.create("a.md", "1")
        assert "1" == await second.read("a.md")
        for _ in range(3):
            await first.edit("a.md", lambda text: text + "f")
            await second.edit("a.md", lambda text: text + "s")
        assert "1" + "fs" * 3 == await second.read("a.md")


async def test_forgetting_a_version_hides_the_file_and_later_versions(thread: Thread) -> None:
    """They may hold its words; search does not find them, and the path is free."""
    files = thread.memory_files
    await files.create("a.md", "Ann likes tea.")
    secret = await files.edit("a.md", lambda text: f"{text} Her number is 555.")
    await files.edit("a.md", lambda text: f"{text} And coffee.")
    await files.create("b.md", "Ben likes tea.")
    await thread.forget(event_ids=[secret.event_id], reason="asked to")
    assert ["b.md"] == list(await listed(files))
    assert [("create", "a.md", "Ann likes tea.")] == await told(files, "a.md")
    assert ["Ben likes tea."] == [hit.text for hit in await thread.search("who likes tea or coffee?")]
    await files.create("a.md", "anew")
    assert "anew" == await files.read("a.md")


async def test_a_forgotten_file_takes_no_other_of_its_path_from_the_history(thread: Thread) -> None:
    """Two files had the path one after the other: forgetting the first leaves the second, and its later events."""
    files = thread.memory_files
    first = await files.create("a.md", "one")
    await files.move("a.md", "b.md")
    await files.create("a.md", "two")
    await files.move("b.md", "c.md")
    await files.delete("c.md")
    await files.create("c.md", "three")
    await thread.forget(event_ids=[first.event_id])
    await files.move("c.md", "d.md")
    assert {"a.md": "two", "d.md": "three"} == await listed(files)
    assert [("create", "a.md", "two")] == await told(files, "a.md")
    assert [("create", "c.md", "three"), ("moved", "d.md", "three")] == await told(files, "d.md")
    assert [] == await told(files, "c.md")


async def test_search_finds_the_current_text_alone(thread: Thread) -> None:
    """An edit takes the old passages' place, also after a move; a deleted file is not found."""
    files = thread.memory_files
    await files.create("jdk.md", "The build needs Java 17.")
    await files.move("jdk.md", "build/jdk.md")
    await files.edit("build/jdk.md", lambda text: text.replace("17", "21"))
    assert ["The build needs Java 21."] == [hit.text for hit in await thread.search("which Java does the build need")]
    await files.delete("build")
    assert [] == list(await thread.search("which Java does the build need"))


async def test_files_can_be_made_after_all_were_erased(engine: Engine) -> None:
    """Erasing destroys what the view remembers of its last change, and does not end it."""
    agent = engine.agent("a")
    made = await agent.memory_files.create("a.md", "secret")
    await agent.admin.erase([made.event_id], by="ann", reason="asked to")
    assert {} == await listed(agent.memory_files)
    await agent.memory_files.create("a.md", "anew")
    assert {"a.md": "anew"} == await listed(agent.memory_files)
    assert (await agent.replay.verify()).ok


async def test_a_scope_without_files_has_none(engine: Engine) -> None:
    """Looking makes no thread."""
    files = engine.agent("a").memory_files
    assert ([], [], None) == (await files.list(), await files.history(), await files.get("a.md"))
    assert [] == await engine.threads()


async def test_the_command_line_shows_files_and_their_history(tmp_path: Path, run: Run) -> None:
    """The list, a text as it is and as it was, and what each event changed."""
    path = str(tmp_path / "m.db")
    async with memory_engine.open(path) as engine:
        files = engine.agent("a").memory_files
        first = await files.create("a.md", "one\ntwo\n")
        await files.edit("a.md", lambda text: text.replace("two", "three"), how="str_replace")
        await files.move("a.md", "b.md")

    def said(*words: str) -> str:
        code, out, err = run("memory-files", "--db", path, "agent:a", *words)
        assert (0, "") == (code, err)
        return out

    assert "b.md" in await asyncio.to_thread(said)
    assert "one\nthree\n" == await asyncio.to_thread(said, "b.md")
    assert "one\ntwo\n" == await asyncio.to_thread(said, "a.md", "--at", str(first.seq))
    history = await asyncio.to_thread(said, "b.md", "--history")
    headings = [line for line in history.splitlines() if line.startswith("event")]
    assert ["create · a.md", "str_replace · a.md", "moved · b.md"] == [" · ".join(h.split(" · ")[2:]) for h in headings]
    assert ["  +one", "  +two", "  -two", "  +three"] == [
        line for line in history.splitlines() if line.startswith(("  +", "  -"))
    ]
    versions = json.loads(await asyncio.to_thread(said, "b.md", "--history", "--json"))
    assert ["create", "str_replace", "moved"] == [version["what"] for version in versions]
