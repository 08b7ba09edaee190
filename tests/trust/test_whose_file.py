"""Whose thread an imported file may become: only the importer says, whatever the file says of itself."""

import asyncio
import hashlib
import json
from pathlib import Path

import pytest

import memory_engine
from memory_engine import CompactionPolicy, Engine, UserMessage, errors
from memory_engine.replay.export.log_file import LogFile
from tests.command_line import Run
from tests.exports import Spoil, lines_of, spoilt, with_line


@pytest.fixture
async def file(tmp_path: Path) -> Path:
    """The export of a conversation of nobody."""
    async with memory_engine.open(":memory:") as engine:
        thread = await engine.create_thread("talk")
        await thread.dispatch(UserMessage(content="Two chairs, please."))
        await thread.replay.export(tmp_path / "talk.jsonl")
    return tmp_path / "talk.jsonl"


def claiming(**facts: object) -> Spoil:
    """Another header, and the hash that fits it: whoever writes a file can compute one."""

    def spoil(lines: list[bytes]) -> list[bytes]:
        said = with_line(1, lambda header: header["thread"].update(facts))(lines)  # type: ignore[attr-defined]
        digest = hashlib.sha256(said[0]).hexdigest()
        return list(with_line(len(said), lambda end: end.update(header=digest))(said))

    return spoil  # type: ignore[return-value]


CLAIMS: dict[str, tuple[dict[str, object], dict[str, object]]] = {
    "a tenant": ({"tenant_id": "globex"}, {"tenant_id": "globex"}),
    "a user": ({"user_id": "ann"}, {"user_id": "ann"}),
    "an agent": ({"agent_id": "helper"}, {"agent_id": "helper"}),
    "a parent": ({"parent_id": "the boss's thread"}, {"parent_id": "the boss's thread"}),
    "a kind": ({"kind": "playbook"}, {"kinds": ["playbook"]}),
    "a user's own thread": (
        {"id": "user:acme/ann", "kind": "user", "user_id": "ann", "tenant_id": "acme"},
        {"kinds": ["conversation", "user"], "user_id": "ann", "tenant_id": "acme"},
    ),
    "a tenant's own thread": (
        {"id": "tenant:acme", "kind": "tenant", "tenant_id": "acme"},
        {"kinds": {"tenant"}, "tenant_id": "acme"},
    ),
}


@pytest.mark.parametrize("name", CLAIMS)
async def test_a_claim_needs_the_argument_that_allows_it(file: Path, name: str) -> None:
    """The error names what the file says and the argument; with that, or as exported, it is taken."""
    says, allows = CLAIMS[name]
    claimed = spoilt(file, claiming(**says))
    async with memory_engine.open(":memory:") as engine:
        with pytest.raises(errors.ScopeNotAllowed) as refused:
            await engine.transfer.import_log(claimed)
        claims = {field: (said, may) for field, said, may in refused.value.claims}
        assert {field for field in says if field != "id"} == set(claims)
        for field, value in says.items():
            assert field == "id" or repr(value) in str(refused.value)
        for argument in allows:
            assert f"{argument}=" in str(refused.value)
        assert [] == await engine.threads()
        report = await engine.transfer.import_log(claimed, **allows)  # type: ignore[arg-type]
        info = await engine.thread(report.thread_id).info()
        assert says == {field: getattr(info, field) for field in says}
        await engine.transfer.import_log(claimed, scopes="as exported")


async def test_a_file_of_nobody_is_not_somebodys(file: Path) -> None:
    """The arguments say exactly whose thread it is: a file of another's, or of nobody's, is refused."""
    async with memory_engine.open(":memory:") as engine:
        assert 1 == (await engine.transfer.import_log(file)).added
        for allows in ({"tenant_id": "acme"}, {"user_id": "ann"}, {"kinds": ["user"]}):
            with pytest.raises(errors.ScopeNotAllowed):
                await engine.transfer.import_log(file, thread_id="other", **allows)
        assert ["talk"] == [info.id for info in await engine.threads()]


async def test_nothing_is_added_to_the_thread_of_another(file: Path, tmp_path: Path) -> None:
    """A log that goes on from somebody's continues no thread of theirs, even where its header names nobody."""
    async with memory_engine.open(":memory:") as engine:
        thread = await engine.create_thread("talk", user_id="ann", tenant_id="acme")
        await thread.dispatch(UserMessage(content="I like tea."))
        await thread.replay.export(tmp_path / "short.jsonl")
        async with memory_engine.open(":memory:") as elsewhere:
            await elsewhere.transfer.import_log(tmp_path / "short.jsonl", scopes="as exported")
            await elsewhere.thread("talk").dispatch(UserMessage(content="I like coffee."))
            await elsewhere.thread("talk").replay.export(tmp_path / "long.jsonl")
        nobodys = spoilt(tmp_path / "long.jsonl", claiming(user_id="", tenant_id=""))
        with pytest.raises(errors.ThreadDiffers, match="user_id is 'ann', not ''"):
            await engine.transfer.import_log(nobodys)
        assert 1 == (await thread.info()).events
        report = await engine.transfer.import_log(tmp_path / "long.jsonl", user_id="ann", tenant_id="acme")
        assert (1, 2) == (report.added, (await thread.info()).events)


async def test_an_archive_is_taken_as_it_is_where_the_host_says_so(tmp_path: Path) -> None:
    """By default only conversations of nobody are; the others are named, with the argument."""
    async with memory_engine.open(":memory:") as engine:
        await (await engine.create_thread("plain")).dispatch(UserMessage(content="hello"))
        await (await engine.create_thread("anns", user_id="ann")).dispatch(UserMessage(content="hello"))
        await engine.user("ann").preferences.update("verbosity", "concise")
        await engine.transfer.export_all(tmp_path / "all")
    async with memory_engine.open(":memory:") as other:
        report = await other.transfer.import_all(tmp_path / "all")
        assert ({"anns", "user:ann"}, ["plain"]) == (set(report.failed), [info.id for info in await other.threads()])
        assert all('scopes="as exported"' in why for why in report.failed.values())
        assert {} == (await other.transfer.import_all(tmp_path / "all", scopes="as exported")).failed
        assert "concise" == await other.user("ann").preferences.get("verbosity")
        for call in (
            other.transfer.import_all(tmp_path / "all", scopes="all"),  # type: ignore[arg-type]
            other.transfer.import_log("x", scopes=None),  # type: ignore[arg-type]
        ):
            with pytest.raises(errors.InvalidArgument, match="scopes"):
                await call
        with pytest.raises(errors.InvalidArgument, match="scopes"):
            await other.transfer.import_log("x", scopes="as exported", user_id="ann")


HEADERS: dict[str, dict[str, object]] = {
    "tenant_id": {"tenant_id": "globex"},
    "user_id": {"user_id": "ben"},
    "kind": {"kind": "agent"},
    "policy": {"policy": {"enabled": False}},
    "metadata": {"metadata": {"role": "admin"}},
    "created_at_us": {"created_at_us": 1},
    "id": {"id": "another"},
}


@pytest.mark.parametrize("name", HEADERS)
async def test_a_changed_header_is_found(file: Path, name: str) -> None:
    """The last line has its hash, whatever the importer allows."""
    changed = spoilt(file, with_line(1, lambda header: header["thread"].update(HEADERS[name])))  # type: ignore[attr-defined]
    async with memory_engine.open(":memory:") as engine:
        with pytest.raises(errors.ImportRefused, match="the first line has another hash"):
            await engine.transfer.import_log(changed, scopes="as exported")
        assert [] == await engine.threads()


async def test_a_header_without_its_hash_is_refused(file: Path) -> None:
    """Leaving the hash out helps nobody; a file that says it is older is taken, and the report says what that means."""
    bare = spoilt(file, with_line(len(lines_of(file)), lambda end: end.pop("header")))
    async with memory_engine.open(":memory:") as engine:
        assert (await engine.transfer.import_log(file)).header_hashed
        with pytest.raises(errors.ImportRefused, match="lacks the hash of the first"):
            await engine.transfer.import_log(bare, thread_id="bare")
        older = spoilt(bare, with_line(1, lambda header: header.update(version=1)))
        report = await engine.transfer.import_log(older, thread_id="older")
        assert (1, False) == (report.added, report.header_hashed)


POLICIES: dict[str, object] = {
    "an endless deadline": {"deadline_s": 1e308},
    "a deadline in the past": {"deadline_s": -1},
    "a negative threshold": {"threshold": -5},
    "a number that no machine counts to": {"keep_recent": 10**30},
    "a share of all": {"ratio": 1.5},
    "a text for a number": {"threshold": "20"},
    "a number for a flag": {"enabled": 1},
    "a way to wait that there is not": {"blocking": "for ever"},
    "a book of instructions": {"instructions": "Say yes. " * 20_000},
    "a list": [1, 2],
}


@pytest.mark.parametrize("name", POLICIES)
async def test_a_hostile_policy_is_refused(file: Path, name: str) -> None:
    """By an error that names it; nothing is made."""
    hostile = spoilt(file, claiming(policy=POLICIES[name]))
    async with memory_engine.open(":memory:") as engine:
        with pytest.raises(errors.ImportRefused, match=r"line 1: .*(olicy|threshold|deadline|ratio|enabled|blocking)"):
            await engine.transfer.import_log(hostile, scopes="as exported")
        assert [] == await engine.threads()


async def test_a_policy_of_ones_own_comes_along(engine: Engine, tmp_path: Path) -> None:
    """What `create_thread` takes within reason is imported."""
    policy = CompactionPolicy(deadline_s=3600.0, instructions="Keep the prices.", keep_recent=2)
    await (await engine.create_thread("t", policy=policy)).replay.export(tmp_path / "t.jsonl")
    async with memory_engine.open(":memory:") as other:
        await other.transfer.import_log(tmp_path / "t.jsonl")
        assert policy == (await other.thread("t").info()).policy


@pytest.mark.parametrize("at", ["thread", "metadata"])
async def test_a_deep_header_is_refused(file: Path, at: str) -> None:
    """JSON that no parser follows to its end."""
    deep = b'{"a":' * 100_000 + b"1" + b"}" * 100_000
    old = b'"metadata":{}' if at == "metadata" else b'"redaction":null'
    first, *rest = lines_of(file)
    assert old in first
    bad = spoilt(file, lambda _: [first.replace(old, old.partition(b":")[0] + b":" + deep), *rest])
    async with memory_engine.open(":memory:") as engine:
        with pytest.raises(errors.ImportRefused):
            await engine.transfer.import_log(bad)


@pytest.mark.parametrize("entry", ["..", ".", "a\0b", "a/b", ""])
async def test_a_list_names_files_of_its_folder_each_once(engine: Engine, tmp_path: Path, entry: str) -> None:
    """Neither another folder nor one file twice."""
    await engine.create_thread("t")
    await engine.transfer.export_all(tmp_path / "out")
    path = tmp_path / "out" / "manifest.json"
    whole = json.loads(path.read_text())
    for threads in ([whole["threads"][0] | {"file": entry}], whole["threads"] * 2):
        path.write_text(json.dumps(whole | {"threads": threads}))
        async with memory_engine.open(":memory:") as other:
            with pytest.raises(errors.ImportRefused):
                await other.transfer.import_all(tmp_path / "out")
    path.write_text('{"format":' + "[" * 100_000 + "]" * 100_000 + "}")
    with pytest.raises(errors.ImportRefused):
        await engine.transfer.import_all(tmp_path / "out")


def test_the_command_says_which_options_allow_it(run: Run, tmp_path: Path) -> None:
    """And makes no database for nothing."""
    old, new, file = (str(tmp_path / name) for name in ("old.db", "new.db", "ann.jsonl"))

    async def write() -> None:
        async with memory_engine.open(old) as engine:
            await engine.user("ann", tenant_id="acme").preferences.update("verbosity", "concise")
            await engine.thread("user:acme/ann").replay.export(file)

    asyncio.run(write())
    code, said, err = run("import", file, "--db", new)
    assert (2, "") == (code, said)
    assert "--tenant acme --user ann --kind user" in err
    assert not Path(new).exists()
    assert 0 == run("import", file, "--db", new, "--tenant", "acme", "--user", "ann", "--kind", "user")[0]
    assert 0 == run("import", file, "--db", str(tmp_path / "third.db"), "--as-exported")[0]
    with LogFile(Path(file)) as log:
        assert "user:acme/ann" == log.header.thread.id
