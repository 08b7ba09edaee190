"""The commands of documents: add, list, remove and search, as a script would call them."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from memory_engine.cli import main

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    """Run `docs …` for tenant acme on a database of its own; exit code, standard output, standard error."""

    def call(*words: str) -> tuple[int, str, str]:
        code = main(["docs", *words, "--tenant", "acme", "--db", str(tmp_path / "m.db")])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return call


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two documents, a broken one, and a picture."""
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "refunds.md").write_text(
        "---\nauthor: Ann\ndate: 2024-11-03\n---\n# Refunds\n\nRefunds take fourteen days.\n"
    )
    (folder / "news.txt").write_text("The campaign \x1b[31mstarted in November.")
    (folder / "broken.md").write_bytes(b"a\0b")
    (folder / "chart.png").write_bytes(b"\x89PNG")
    return folder


def test_docs_add_says_what_became_of_files(run: Run, folder: Path) -> None:
    """New, unchanged and changed ones; broken ones on standard error, with exit code 1."""
    code, out, err = run("add", str(folder))
    assert (1, f"memory-engine: error: {folder}/broken.md: byte 1: it is binary: a NUL byte stands in it\n") == (
        code,
        err,
    )
    first, second = out.splitlines()
    assert first.startswith("3 files for tenant acme: 2 new documents, 2 passages written in ")
    assert "1 file of other formats skipped; --json lists them" == second
    (folder / "broken.md").unlink()
    (folder / "news.txt").write_text("The campaign ended.")
    code, out, err = run("add", str(folder))
    assert (0, "") == (code, err)
    assert out.startswith("2 files for tenant acme: 1 changed, 1 unchanged documents, 1 passage written, 1 ended in ")


def test_docs_add_as_json(run: Run, folder: Path) -> None:
    """Every count, what failed and what was passed over; nothing on standard error."""
    code, out, err = run("add", str(folder), "--chars", "400", "--overlap", "50", "--json")
    found = json.loads(out)
    assert (1, "") == (code, err)
    assert {"files": 3, "added": 2, "changed": 0, "unchanged": 0, "removed": 0, "passages": 2, "ended": 0} == {
        key: value for key, value in found.items() if isinstance(value, int)
    }
    assert [str(folder / "chart.png")] == found["skipped"]
    why = "it is binary: a NUL byte stands in it"
    assert [{"path": f"{folder}/broken.md", "place": "byte 1", "why": why, "limit": ""}] == (found["failed"])


def test_docs_list(run: Run, folder: Path) -> None:
    """Ids, titles, formats, dates, authors and sizes; as of an earlier seq too."""
    assert 1 == run("add", str(folder))[0]
    _, out, _ = run("list")
    heads, news, refunds = out.splitlines()
    assert ["ID", "TITLE", "FORMAT", "DATE", "AUTHOR", "PASSAGES"] == heads.split()
    assert [str(folder / "news.txt"), "news", "text", "-", "-", "1"] == news.split()
    assert [str(folder / "refunds.md"), "Refunds", "markdown", "2024-11-03", "Ann", "1"] == refunds.split()
    (only,) = json.loads(run("list", "--at", "1", "--json")[1])
    assert (str(folder / "news.txt"), "text", None, 1, [1]) == (
        only["id"], only["format"], only["date"], only["passages"], only["seqs"]
    )  # fmt: skip


def test_docs_remove(run: Run, folder: Path) -> None:
    """By path, by id, or all of a folder; what is not there is named, with exit code 1."""
    run("add", str(folder))
    code, out, err = run("remove", str(folder / "news.txt"), "nothing")
    assert (1, "1 document of tenant acme removed\n") == (code, out)
    assert err.startswith("memory-engine: error: nothing: no document has this id")
    code, out, _ = run("remove", str(folder), "--json", "--reason", "moved")
    assert (0, {"removed": {str(folder): 1}, "unknown": []}) == (code, json.loads(out))
    assert (0, "tenant acme has no documents\n", "") == run("list")


def test_docs_search(run: Run, folder: Path) -> None:
    """Each hit has its title, source, date, score, reason and text, made harmless for a terminal."""
    run("add", str(folder))
    code, out, err = run("search", "how long do refunds take", "--limit", "1")
    title, facts, text = out.splitlines()
    assert (0, "", " 1 Refunds", "   Refunds take fourteen days.") == (code, err, title, text)
    assert facts.startswith(f"   {folder}/refunds.md · Ann · 2024-11-03 · score ")
    assert "\\x1b[31mstarted" in run("search", "campaign")[1]
    found = json.loads(run("search", "refunds", "--json")[1])
    (hit,) = [hit for hit in found["hits"] if hit["document"] == str(folder / "refunds.md")]
    assert ("lexical", "Refunds", "Ann", "Refunds take fourteen days.") == (
        found["how"], hit["title"], hit["speaker"], hit["text"]
    )  # fmt: skip
    assert {"source", "at", "score", "why", "event_id"} <= set(hit)
    assert (0, "nothing was found\n", "") == run("search", "zebra")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("list",), "there is no such file"),
        (("add", "x.md", "--chars", "20"), "no document can have passages of chars=20: use 200 to 4000"),
        (("add", "x.md", "--overlap", "500"), "no document can have an overlap=500: use 0 to 400"),
    ],
)
def test_docs_that_cannot_be_done(run: Run, words: tuple[str, ...], why: str) -> None:
    """One line on standard error, exit code 2."""
    code, out, err = run(*words)
    assert (2, "") == (code, out)
    assert why in err


def test_docs_of_a_seq_that_is_not_there(run: Run, folder: Path) -> None:
    """Is an error that names the seqs that are."""
    run("add", str(folder))
    code, _, err = run("list", "--at", "9")
    assert (2, "memory-engine: error: thread 'tenant:acme' has seqs 1 to 2 (0: before the first), not 9\n") == (
        code,
        err,
    )


@pytest.mark.parametrize("words", [(), ("list",), ("search", "--tenant", "acme")])
def test_docs_without_what_it_needs(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    """An action, a tenant, a question: the refusal says which is missing."""
    with pytest.raises(SystemExit) as ended:
        main(["docs", *words])
    assert 2 == ended.value.code
    assert " needs " in capsys.readouterr().err


def test_a_tenant_without_documents_is_told_the_others(
    run: Run, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The nearest one, or those there are; JSON stays an empty list."""
    run("add", str(folder / "refunds.md"))
    for words in (["list"], ["search", "refunds"]):
        for tenant, said in (("acmee", "did you mean acme?"), ("zoo", "tenants here: acme")):
            assert 0 == main(["docs", *words, "--tenant", tenant, "--db", str(tmp_path / "m.db")])
            assert f"tenant {tenant} has no documents; {said}\n" == capsys.readouterr().out
