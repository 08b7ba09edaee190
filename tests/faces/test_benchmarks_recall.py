"""What the benches of search are made of: talk, questions, vectors, peers. They run in `benchmarks/test_quick.py`."""

import io
import json
import subprocess
from array import array
from pathlib import Path

import pytest

from benchmarks import kept, recall_peers
from benchmarks.figures import Figure
from benchmarks.page import write_page
from benchmarks.peer_process import Peers, peers_python
from benchmarks.recall_against import Remembered
from benchmarks.recall_texts import FUNCTION_WORDS, Talk, questions
from memory_engine.testing import HashEmbedder

ROOT = Path(__file__).resolve().parents[2]


def test_talk_is_the_same_for_the_same_seed() -> None:
    """A seed gives one talk of 8 to 60 words a sentence, most of the words common ones."""
    texts = [str(message.content) for message in Talk(4).messages(500)]
    assert texts == [str(message.content) for message in Talk(4).messages(500)]
    words = [text.casefold().strip(".!?").split() for text in texts]
    assert {8, 59} <= set(map(len, words)) <= set(range(8, 61))
    common = sum(word in FUNCTION_WORDS for sentence in words for word in sentence) / sum(map(len, words))
    assert 0.5 < common < 0.6
    assert len(texts) == len(set(texts))


def test_questions_are_about_texts() -> None:
    """A question has 4 to 12 words; some of its rarer ones stand in its text."""
    texts = [str(message.content) for message in Talk(4).messages(300)]
    for text, question in zip(texts, questions(texts, 300), strict=True):
        words = question.strip("?").split()
        assert 4 <= len(words) <= 12
        assert set(words) & set(text.casefold().strip(".!?").split()) - set(FUNCTION_WORDS)


async def test_what_was_embedded_is_not_embedded_again() -> None:
    """The model behind is asked once for each text."""
    embedder = Remembered(HashEmbedder(8))
    first = await embedder.embed(["a", "b", "a"])
    assert (2, list(first)) == (embedder.asked, list(await embedder.embed(["a", "b", "a"])))
    assert 2 == embedder.asked


class Nearest:
    """A peer for the protocol's sake: its search gives what was added last."""

    @staticmethod
    def open(place: recall_peers.Place) -> recall_peers.Store:
        """A store whose vectors are looked up as they must be."""
        added: list[tuple[int, list[float]]] = []

        def add(number: int, text: str) -> None:
            added.append((number, place.vectors[text]))

        def search(question: str, limit: int) -> list[int]:
            (wanted,) = place.embed([question])
            near = sorted(added, key=lambda one: sum((a - b) ** 2 for a, b in zip(one[1], wanted, strict=True)))
            return [number for number, _ in near[:limit]]

        return recall_peers.Store(add, search)


def test_a_peer_is_asked_by_the_vectors_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts and vectors come from files; each question is answered with numbers within its conversation."""
    monkeypatch.setitem(recall_peers.PEERS, "nearest", recall_peers.Peer("attrs", Nearest.open))
    texts, vectors = tmp_path / "texts.json", tmp_path / "vectors.f32"
    texts.write_text(json.dumps(["one", "two", "three", "which?"]))
    vectors.write_bytes(array("f", [1, 0, 2, 0, 9, 0, 3, 0]).tobytes())
    job = {
        "peer": "nearest",
        "texts": str(texts),
        "vectors": str(vectors),
        "limit": 2,
        "conversations": [{"texts": [0, 2], "questions": [3]}, {"texts": [2, 1, 0], "questions": [3]}],
    }
    jobs = [job, {"peer": "nobody"}]
    answers = io.StringIO()
    recall_peers.serve(io.StringIO("\n".join(map(json.dumps, jobs))), answers)
    hello, found, failed = map(json.loads, answers.getvalue().splitlines())
    assert "nearest" in hello
    assert [[0, 1], [1, 2]] == found["found"]
    assert "KeyError" in failed["missing"]


@pytest.mark.skipif(peers_python("recall-peers") is None, reason="their environment is not there")
def test_every_peer_that_is_installed_finds_something(tmp_path: Path) -> None:
    """The adapters speak the installed versions' language; a peer that cannot run here says why."""
    (tmp_path / "texts.json").write_text(json.dumps(texts := ["a cat", "a dog", "a tree", "where is the dog?"]))
    rows = [(1.0, 0.0, 0.1), (0.0, 1.0, 0.1), (0.5, 0.5, 0.9), (0.1, 0.9, 0.1)]
    numbers = array("f", [number for row in rows for number in row])
    (tmp_path / "vectors.f32").write_bytes(numbers.tobytes())
    job = {
        "texts": str(tmp_path / "texts.json"),
        "vectors": str(tmp_path / "vectors.f32"),
        "limit": 2,
        "conversations": [{"texts": list(range(len(texts) - 1)), "questions": [len(texts) - 1]}],
    }
    jobs = "\n".join(json.dumps({**job, "peer": peer}) for peer in recall_peers.PEERS)
    ended = subprocess.run(
        [str(peers_python("recall-peers")), "-m", "benchmarks.recall_peers"],
        cwd=ROOT,
        input=jobs,
        capture_output=True,
        text=True,
        check=True,
    )
    for answer in map(json.loads, ended.stdout.splitlines()[1:]):
        assert answer.get("missing") or 1 == answer["found"][0][0]


def test_the_page_says_what_was_skipped() -> None:
    """A line without a value has its reason among the details."""
    skipped = Figure(bench="recall_quality", case="skipped", value=None, unit="", note="no recordings")
    page = write_page([kept.measured("recall_quality", [skipped], Peers(), 0)], {})
    assert "## recall_quality" in page
    assert "| skipped |  |" in page
    assert "no recordings" in page
