"""`memory-engine search`: what a person and a program see of a search."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import anyio
import pytest

import memory_engine
from memory_engine.cli import main
from memory_engine.events import ToolResult, UserMessage
from tests.recall_samples import TALK

Run = Callable[..., tuple[int, str, str]]
LIVED = "I live in Leeds, right behind the station."
MOVED = "All the boxes are unpacked, I moved into the new flat in Utrecht."


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], db: str) -> Run:
    """Call the command on the database; gives the exit code and what was printed on either stream."""

    def call(*words: str) -> tuple[int, str, str]:
        code = main(["search", "--db", db, *words])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return call


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A database with a conversation of a user, and one of another tenant."""
    path = str(tmp_path_factory.mktemp("cli") / "talk.db")

    async def fill() -> None:
        async with memory_engine.open(path) as engine:
            talk = await engine.create_thread("talk", user_id="u1", tenant_id="acme")
            await talk.dispatch_all([UserMessage(content=text, name=name) for name, text in TALK])
            rival = await engine.create_thread("rival", user_id="u1", tenant_id="rival")
            await rival.dispatch(UserMessage(content="Our puppy is a secret.\x1b[31m"))
            home = await engine.create_thread("home", user_id="u2", tenant_id="acme")
            for day, text in ((3, LIVED), (20, MOVED)):
                await home.dispatch(UserMessage(content=text), occurred_at=datetime(2026, 5, day, tzinfo=UTC))

    anyio.run(fill)
    return path


def test_a_person_sees_texts_with_their_places_and_reasons(run: Run) -> None:
    """Best first: where it stands, who said it, and why it was found."""
    code, out, _ = run("What is the puppy called?", "--thread", "talk", "--limit", "3")
    assert 0 == code
    assert "We settled on Biscuit. My niece insisted." in out
    assert "event 4 · message · Bo" in out


def test_a_program_gets_every_field(run: Run) -> None:
    """As JSON a hit names its event, and with --explain what its score is made of."""
    code, out, _ = run("cello", "--thread", "talk", "--json", "--explain")
    found = json.loads(out)
    assert (0, "lexical", "cello") == (code, found["how"], found["query"])
    hit = found["hits"][0]
    assert ("My brother Emil plays the cello in Graz now.", 8, "talk") == (hit["text"], hit["seq"], hit["thread_id"])
    assert pytest.approx(hit["score"], abs=1e-4) == sum(hit["parts"].values())


def test_a_user_is_searched_within_a_tenant(run: Run) -> None:
    """--user and --tenant match exactly: no other tenant's threads are searched."""
    found = json.loads(run("puppy", "--user", "u1", "--tenant", "acme", "--json")[1])
    assert {"talk"} == {hit["thread_id"] for hit in found["hits"]}
    assert [] == json.loads(run("puppy", "--user", "u1", "--json")[1])["hits"]
    assert "\x1b" not in run("puppy", "--tenant", "rival")[1]


def test_a_hit_among_several_threads_names_its_own(run: Run) -> None:
    """Also where all hits are of one: the seq alone would not say whose it is."""
    out = run("cello", "--thread", "talk", "--thread", "rival", "--limit", "1")[1]
    assert out.startswith(" 1 talk 8 · message")


def test_nothing_found_says_what_was_searched(run: Run) -> None:
    """No thread of that user, or a kind that there is not, is no mere miss."""
    assert "no thread of user u1 without a tenant: nothing was searched" in run("puppy", "--user", "u1")[1]
    assert "no thread in tenant acm: nothing was searched" in run("puppy", "--tenant", "acm")[1]
    assert "nothing was found; did you mean message?\n" == run("puppy", "--thread", "talk", "--kind", "messages")[1]
    assert "kinds are message, tool" in run("puppy", "--thread", "talk", "--kind", "xyz")[1]
    assert "nothing was found\n" == run("zebra", "--thread", "talk")[1]


def test_a_search_as_of_an_event_ends_there(run: Run) -> None:
    """--at searches what had been said by then."""
    assert "nothing was found" in run("cello", "--thread", "talk", "--at", "5")[1]


def test_a_search_as_of_a_time_asks_what_was_true_then(run: Run) -> None:
    """--as-of counts nothing that was said later, in one thread or in several: nothing supersedes a hit yet."""
    now = json.loads(run("Where do I live?", "--thread", "home", "--json")[1])["hits"]
    assert [MOVED, LIVED] == [hit["text"] for hit in now]
    for where in (("--thread", "home"), ("--user", "u2", "--tenant", "acme")):
        for time in ("2026-05-10", "2026-05-10T02:00+02:00"):
            code, out, _ = run("Where do I live?", *where, "--as-of", time, "--json")
            (then,) = json.loads(out)["hits"]
            assert (0, LIVED) == (code, then["text"])
    assert "nothing was found" in run("Where do I live?", "--thread", "home", "--as-of", "2026-05-01")[1]


def test_a_time_that_is_none_is_refused(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """A seq is for --at."""
    for wrong in ("1", "yesterday", "2026-13-01"):
        with pytest.raises(SystemExit):
            run("x", "--thread", "talk", "--as-of", wrong)
        assert f"--as-of: {wrong} is not a time" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("x", "--thread", "talk", "--user", "u1"), "name what to search"),
        (("x", "--user", "u1", "--at", "1"), "--at is a seq within one thread"),
        (("x", "--thread", "talk", "--at", "99"), "has seqs 1 to"),
        (("x", "--thread", "talk", "--at", "1", "--as-of", "2026-05-01"), "give --at or --as-of"),
        (("x", "--thread", "nobody"), "nobody"),
        (("x", "--thread", "talk", "--limit", "2000"), "1 to 1000"),
    ],
)
def test_what_cannot_be_searched_is_said(run: Run, words: tuple[str, ...], why: str) -> None:
    """Exit code 2, and what to do."""
    code, _, err = run(*words)
    assert (2, True) == (code, why in err)


def test_no_database_is_made_by_a_search(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A path without a database is an error."""
    assert 2 == main(["search", "--db", str(tmp_path / "none.db"), "x", "--thread", "t"])
    assert not (tmp_path / "none.db").exists()
    assert "none.db" in capsys.readouterr().err


def test_it_leaves_out_a_lower_origin_and_says_how_much(run: Run, tmp_path: Path) -> None:
    """In the output and as JSON; a wrong name is refused with those there are."""
    path = str(tmp_path / "mail.db")

    async def fill() -> None:
        async with memory_engine.open(path) as engine:
            thread = await engine.create_thread("mail")
            await thread.dispatch(UserMessage(content="The shed key is under the pot"))
            await thread.dispatch(ToolResult(call_id="c", content="The shed key is at the gate"))

    anyio.run(fill)
    code, out, _ = run("shed key", "--db", path, "--min-trust", "person")
    assert 0 == code
    assert "under the pot" in out
    assert "at the gate" not in out
    assert "1 of a lower origin were left out" in out
    _, out, _ = run("shed key", "--db", path, "--min-trust", "person", "--json")
    assert 1 == json.loads(out)["untrusted"]
    code, _, err = run("shed key", "--db", path, "--min-trust", "friend")
    assert 0 != code
    assert "operator, person" in err
