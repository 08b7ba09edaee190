"""Memories of other systems come in once, are shown with their origin, and a user's memory goes out with its proof."""

import gzip
import json
from pathlib import Path

import pytest

import memory_engine
from memory_engine import Engine, UserMessage
from memory_engine import events as e
from memory_engine.errors import ImportRefused
from memory_engine.interchange import check_memories
from memory_engine.interchange.systems import PAGE
from tests.command_line import Run
from tests.foreign_memories import (
    FORMS,
    LETTA_FIRST,
    MEM0,
    MIF,
    PASSAGES,
    ZEP,
    filled,
    held,
    log_of,
    made_bundle,
    reseal,
    written,
)


@pytest.mark.parametrize("form", FORMS)
async def test_each_form_is_taken_once_and_what_is_not_taken_is_counted(
    engine: Engine, tmp_path: Path, form: str
) -> None:
    """A second import adds nothing: not one event."""
    value, words, left_out = FORMS[form]
    path = written(tmp_path, value)
    first = await engine.transfer.import_memories(path, user_id="ines")
    assert left_out == dict(first.left_out)
    assert first.found == first.added == len(await held(engine, "ines"))
    contents = " ".join(content for _, content in await held(engine, "ines"))
    assert [] == [word for word in words if word not in contents]
    events = await log_of(engine, "ines")
    second = await engine.transfer.import_memories(path, user_id="ines")
    assert (0, first.found, events) == (second.added, second.known, await log_of(engine, "ines"))


async def test_an_entry_says_where_it_comes_from_and_when_it_was_learned(engine: Engine, tmp_path: Path) -> None:
    """In its metadata, in its event, in a search, in a context, and in `why`."""
    await engine.transfer.import_memories(written(tmp_path, MEM0), user_id="ines")
    ines = engine.user("ines")
    (entry,) = [one for one in await ines.memory.entries("semantic") if "dahlias" in one.content]
    assert ("imported", "mem0", "5d1f") == tuple(entry.metadata[key] for key in ("origin", "system", "id"))
    assert {"categories": ["hobbies"], "hash": "0c", "metadata": {"season": "spring"}} == entry.metadata["given"]
    assert "2025-04-02T16:30:00.250000+00:00" == entry.timestamp.isoformat() if entry.timestamp else ""
    event = await anext(ines.events())
    assert event.occurred_at == entry.timestamp
    (hit, *_) = await engine.search("dahlias", user_id="ines")
    assert "[2 April 2025] memory: imported from mem0: Grows dahlias on the balcony" == hit.rendered()
    talk = await engine.create_thread(user_id="ines")
    await talk.dispatch(UserMessage(content="Good morning"))
    (block,) = (await talk.context()).standing
    assert "- Grows dahlias on the balcony (imported from mem0)" in block.text
    tree = await ines.replay.why("view:layers/semantic/mem0:5d1f")
    assert (True, True, [1]) == ("imported" in tree.text, "mem0" in tree.text, [child.seq for child in tree.children])


async def test_a_fact_that_has_ended_is_no_longer_known(engine: Engine, tmp_path: Path) -> None:
    """It is found as an episode that says until when it was true, and is not in the block of what is known."""
    await engine.transfer.import_memories(written(tmp_path, ZEP), user_id="ines")
    (hit, *_) = await engine.search("Leuven", user_id="ines")
    assert "imported from zep, true until 2025-03-01" in hit.rendered()
    talk = await engine.create_thread(user_id="ines")
    await talk.dispatch(UserMessage(content="Good morning"))
    (block,) = (await talk.context()).standing
    assert ("Mechelen" in block.text, "Leuven" in block.text) == (True, False)


async def test_a_changed_memory_replaces_itself_and_an_older_file_changes_nothing(
    engine: Engine, tmp_path: Path
) -> None:
    """Facts by key and episodes by id alike."""
    old = written(tmp_path, {"edges": [edge("old", "2025-01-01")], "episodes": [said("before")]}, "old.json")
    new = written(tmp_path, {"edges": [edge("new", "2025-02-01")], "episodes": [said("after")]}, "new.json")
    await engine.transfer.import_memories(old, user_id="ines")
    report = await engine.transfer.import_memories(new, user_id="ines")
    assert (0, 2) == (report.added, report.changed)
    assert {("semantic", "new"), ("episodic", "after")} == await held(engine, "ines")
    again = await engine.transfer.import_memories(old, user_id="ines")
    assert {"memories that are older than what is here": 2} == dict(again.left_out)
    assert {("semantic", "new"), ("episodic", "after")} == await held(engine, "ines")


def edge(fact: str, day: str) -> dict[str, object]:
    """A fact of Zep."""
    return {"uuid": "e", "fact": fact, "created_at": f"{day}T00:00:00Z"}


def said(content: str) -> dict[str, object]:
    """An episode of Zep."""
    return {"uuid": "p", "content": content, "created_at": "2025-01-01T00:00:00Z"}


@pytest.mark.parametrize("act", ["forget", "remove", "erase"])
async def test_what_went_here_does_not_come_back(engine: Engine, tmp_path: Path, act: str) -> None:
    """Not by the same file, and not by a newer export that changed it a little."""
    path = written(tmp_path, MEM0)
    await engine.transfer.import_memories(path, user_id="ines")
    ines = engine.user("ines")
    if act == "forget":
        await ines.forget(seqs=[1])
    elif act == "remove":
        await ines.memory.remove("mem0:5d1f", "semantic")
    else:
        await ines.admin.erase(seqs=[1])
    newer = json.loads(json.dumps(MEM0).replace("2025-04-03", "2025-09-09"))
    for file in (path, written(tmp_path, newer, "newer.json")):
        report = await engine.transfer.import_memories(file, user_id="ines")
        assert {"memories that were forgotten, removed or replaced here": 1}.items() <= report.left_out.items()
    assert {("semantic", "Works nights at a bakery")} == await held(engine, "ines")


async def test_memories_of_several_users_are_not_mixed(engine: Engine, tmp_path: Path) -> None:
    """Such a file is refused with their names, until one of them is chosen."""
    mixed = [{"id": str(n), "memory": f"of {who}", "user_id": who} for n, who in enumerate(["ana", "bo", "ana"])]
    path = written(tmp_path, mixed)
    with pytest.raises(ImportRefused, match=r"2 users .*'ana', 'bo'.*source_user"):
        await engine.transfer.import_memories(path, user_id="x")
    assert not await engine.user("x").exists()
    report = await engine.transfer.import_memories(path, user_id="x", source_user="bo")
    assert ({("semantic", "of bo")}, {"memories of other users": 2}) == (await held(engine, "x"), dict(report.left_out))


async def test_users_and_tenants_stay_apart(engine: Engine, tmp_path: Path) -> None:
    """One user's import and export hold nothing of another, of the same id in another tenant neither."""
    await engine.transfer.import_memories(written(tmp_path, MEM0), user_id="ines", tenant_id="one")
    await engine.transfer.import_memories(written(tmp_path, PASSAGES), user_id="ines", tenant_id="two")
    await engine.transfer.import_memories(written(tmp_path, MIF), user_id="ines")
    await engine.transfer.import_memories(written(tmp_path, LETTA_FIRST), user_id="bo", tenant_id="one")
    told = await engine.create_thread(user_id="ines", tenant_id="two")
    await told.dispatch(UserMessage(content="My plumber is called Aldo"))
    own = {"one": "dahlias", "two": "Gent", "": "rye"}
    for tenant_id, word in own.items():
        folder = tmp_path / f"of {tenant_id}"
        await engine.transfer.export_memories(folder, user_id="ines", tenant_id=tenant_id)
        texts = all_texts(folder)
        strange = [other for other in (*own.values(), "hens") if other != word] + (
            ["Aldo"] if tenant_id != "two" else []
        )
        assert (True, []) == (word in texts, [other for other in strange if other in texts])


def all_texts(folder: Path) -> str:
    """All that a folder's files say, unpacked."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return "\n".join((gzip.decompress(f.read_bytes()) if f.suffix == ".gz" else f.read_bytes()).decode() for f in files)


async def test_a_bundle_comes_back_whole_and_comes_in_once(engine: Engine, tmp_path: Path) -> None:
    """Into another store; and what went through two stores is known where it began."""
    await filled(engine, tmp_path)
    report = await engine.transfer.export_memories(tmp_path / "a.mem", user_id="ines")
    checked = check_memories(tmp_path / "a.mem")
    assert (True, report.memories + report.preferences) == (checked.is_whole, checked.records)
    async with memory_engine.open(":memory:") as other:
        first = await other.transfer.import_memories(tmp_path / "a.mem", user_id="i2", tenant_id="t")
        assert (first.found, {}) == (first.added, dict(first.left_out))
        assert await held(other, "i2", "t") == await held(engine, "ines")
        there = other.user("i2", tenant_id="t")
        fact = await there.memory.recall("city")
        assert "Mechelen ✓" == (fact.value if fact else "")
        assert {"short": True, "words": 40} == await there.preferences.get("tone")
        tone = await there.preferences.find("tone")
        assert ("imported", "imported from portable-memory") == ((tone.origin, tone.reason) if tone else ("", ""))
        assert 0 == (await other.transfer.import_memories(tmp_path / "a.mem", user_id="i2", tenant_id="t")).added
        await other.transfer.export_memories(tmp_path / "b.mem", user_id="i2", tenant_id="t")
    before = await log_of(engine, "ines")
    back = await engine.transfer.import_memories(tmp_path / "b.mem", user_id="ines")
    assert (back.found, before) == (back.known, await log_of(engine, "ines"))


async def test_an_import_never_replaces_what_somebody_chose_here(engine: Engine, tmp_path: Path) -> None:
    """Neither a preference nor a fact under the same key."""
    await filled(engine, tmp_path)
    await engine.transfer.export_memories(tmp_path / "a.mem", user_id="ines")
    bo = engine.user("bo")
    await bo.preferences.update("language", "fr")
    await bo.memory.learn("city", "Namur")
    report = await engine.transfer.import_memories(tmp_path / "a.mem", user_id="bo")
    assert ("fr", "Namur") == (await bo.preferences.get("language"), (await fact_of(engine, "bo", "city")))
    assert {"facts whose key has a value here", "preferences that are set here otherwise"} == set(report.left_out)


async def fact_of(engine: Engine, user_id: str, key: str) -> str:
    """The value of a fact."""
    found = await engine.user(user_id).memory.recall(key)
    return found.value if found is not None else ""


async def test_a_memory_names_the_events_that_it_was_drawn_from(engine: Engine, tmp_path: Path) -> None:
    """Of this user's threads, with hashes that the exported logs have; of others' threads they are only counted."""
    for thread_id, owner in (("talk", "ines"), ("others", "bo")):
        talk = await engine.create_thread(thread_id, user_id=owner)
        message = await talk.dispatch(UserMessage(content="No walnuts, please."))
        fact = e.MemoryShared(
            destination=e.Destination("user", "ines"),
            layer="semantic",
            content=f"No walnuts ({owner})",
            key=owner,
            source_thread=talk.id,
            sources=(message.event_id,),
        )
        await talk.dispatch(fact)
        await talk.views.delivered()
    report = await engine.transfer.export_memories(tmp_path / "a.mem", user_id="ines")
    assert {"sources in threads of others": 1} == dict(report.left_out)
    lines = (tmp_path / "a.mem/items/episode.jsonl").read_text().splitlines()
    sources = [one for line in lines for one in json.loads(line)["memoryEngine"]["sources"]]
    assert [("talk", 1)] == [(one["thread"], one["seq"]) for one in sources]
    assert check_memories(tmp_path / "a.mem").is_whole


async def test_what_was_forgotten_or_erased_does_not_go_out(engine: Engine, tmp_path: Path) -> None:
    """Not in a memory, and not in a log."""
    ines = engine.user("ines")
    await ines.memory.learn("pin", "the cat is Quillon")
    await ines.memory.learn("car", "drives a Borgward")
    await ines.preferences.update("nick", "Zuzu")
    await ines.memory.learn("city", "Mechelen")
    talk = await engine.create_thread(user_id="ines")
    await talk.dispatch(UserMessage(content="Call me at Tervuren"))
    await ines.forget(seqs=[1, 3])
    await ines.admin.erase(seqs=[2])
    await talk.forget(seqs=[1])
    await engine.transfer.export_memories(tmp_path / "a.mem", user_id="ines")
    texts = all_texts(tmp_path / "a.mem")
    assert [] == [word for word in ("Quillon", "Borgward", "Zuzu", "Tervuren") if word in texts]
    assert ("Mechelen" in texts, True) == (True, check_memories(tmp_path / "a.mem").is_whole)


@pytest.mark.parametrize(
    ("old", "new"), [("Grows dahlias", "Grows tulips"), ('"seq":1,', '"seq":2,'), ('"hash":"', '"hash":"0')]
)
async def test_a_check_finds_what_was_changed(engine: Engine, tmp_path: Path, old: str, new: str) -> None:
    """Even where the checksums were made to fit."""
    await engine.transfer.import_memories(written(tmp_path, MEM0), user_id="ines")
    folder = tmp_path / "a.mem"
    await engine.transfer.export_memories(folder, user_id="ines")
    items = folder / "items/episode.jsonl"
    items.write_text(items.read_text().replace(old, new))
    with pytest.raises(ImportRefused, match="its digest is another one"):
        check_memories(folder)
    reseal(folder)
    assert not check_memories(folder).is_whole


async def test_a_deletion_in_a_bundle_arrives(engine: Engine, tmp_path: Path) -> None:
    """What it deletes is not taken, and goes if it came from a bundle before; other memories stay."""
    record = {"id": "ep1", "eventTime": "2025-01-01T00:00:00Z", "summary": "s", "details": "Once liked jazz"}
    made_bundle(tmp_path / "one.mem", {"items/episode.jsonl": [record, record | {"id": "ep2", "details": "Sings"}]})
    await engine.transfer.import_memories(tmp_path / "one.mem", user_id="ines")
    tombstone = {"id": "t", "op": "delete", "targetKind": "episode", "targetID": "ep1"}
    made_bundle(tmp_path / "two.mem", {"items/episode.jsonl": [record], "audit/tombstones.jsonl": [tombstone]})
    report = await engine.transfer.import_memories(tmp_path / "two.mem", user_id="ines")
    assert (1, {("semantic", "Sings")}) == (report.removed, await held(engine, "ines"))


async def test_a_dry_run_writes_nothing(engine: Engine, tmp_path: Path) -> None:
    """And says what an import would."""
    path = written(tmp_path, MEM0)
    dry = await engine.transfer.import_memories(path, user_id="ines", dry_run=True)
    assert not await engine.user("ines").exists()
    wet = await engine.transfer.import_memories(path, user_id="ines")
    assert (dry.added, dry.left_out) == (wet.added, wet.left_out)
    await engine.transfer.export_memories(tmp_path / "a.mem", user_id="ines", dry_run=True)
    assert not (tmp_path / "a.mem").exists()


async def test_another_program_accepts_the_bundle(engine: Engine, tmp_path: Path) -> None:
    """The format's own SDK validates it, and what it writes from it comes in again and adds nothing."""
    portable = pytest.importorskip("portable_memory")
    store_module = pytest.importorskip("portable_memory.inmemory")
    await filled(engine, tmp_path)
    await engine.transfer.export_memories(tmp_path / "a.mem", user_id="ines")
    assert [] == portable.BundleValidator().validate(tmp_path / "a.mem").issues
    store = store_module.InMemoryStore()
    portable.BundleImporter().import_bundle(store, tmp_path / "a.mem")
    portable.BundleExporter().export(store, tmp_path / "b.mem")
    before = await log_of(engine, "ines")
    back = await engine.transfer.import_memories(tmp_path / "b.mem", user_id="ines")
    assert (back.found, before) == (back.known, await log_of(engine, "ines"))


def test_the_command_line_both_ways(run: Run, tmp_path: Path) -> None:
    """Import, dry run, export and check, for people and as JSON."""
    path, db, folder = written(tmp_path, MEM0), str(tmp_path / "m.db"), str(tmp_path / "a.mem")
    code, out, _ = run("memories", "import", str(path), "--user", "ines", "--db", db)
    assert (0, True, True) == (code, "2 added of 2 memories of mem0" in out, "not taken: 1 relations" in out)
    code, out, _ = run("memories", "import", str(path), "--user", "ines", "--db", db, "--dry-run", "--json")
    assert (0, 0, 2) == (code, json.loads(out)["added"], json.loads(out)["known"])
    code, out, _ = run("memories", "export", folder, "--user", "ines", "--db", db, "--json")
    assert (0, 2) == (code, json.loads(out)["memories"])
    assert 0 == run("memories", "check", folder)[0]
    reseal_with(Path(folder), "dahlias", "roses")
    assert 1 == run("memories", "check", folder)[0]
    code, _, err = run("memories", "export", folder, "--user", "ines", "--db", db)
    assert (2, True) == (code, "new folder" in err)
    path.write_text("{}")
    code, _, err = run("memories", "import", str(path), "--user", "x", "--db", str(tmp_path / "none.db"))
    assert (code != 0, True, False) == (True, PAGE in err, (tmp_path / "none.db").exists())


def reseal_with(folder: Path, old: str, new: str) -> None:
    """Change a bundle's words, and its checksums with them."""
    items = folder / "items/episode.jsonl"
    items.write_text(items.read_text().replace(old, new))
    reseal(folder)
