"""Exact token counts: the same as tiktoken's, from files on this machine, or an error that says so."""

import importlib.util
import sys
from pathlib import Path

import pytest
import tiktoken

import memory_engine
from memory_engine import UserMessage
from memory_engine.core.tokens import TokenCounter
from memory_engine.errors import InvalidIdentifier, MissingExtra
from memory_engine.llm import Tokenizer
from memory_engine.llm.tokens import PIECE_CHARS_MAX


@pytest.mark.parametrize("name", ["o200k_base", "cl100k_base", "p50k_base"])
def test_counts_are_those_of_tiktoken(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The encoding that we build from litellm's file is the one that tiktoken builds."""
    spec = importlib.util.find_spec("litellm")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    folder = Path(spec.submodule_search_locations[0], "litellm_core_utils", "tokenizers")
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(folder))
    theirs, ours = tiktoken.get_encoding(name), Tokenizer(name)
    texts = [
        "",
        "Hello, world!  I'VE seen IT'S 1234567 things\r\n\n\t x",
        "今天去北京。 Größe ÀÉÎ ñandú \u0301 🙂🙂",
        "def f(x):\n    return {'a': [1, 2, 3]}\n" * 3,
        "<|endoftext|> stays text",
        "a\ud800b\x00",
    ]
    assert [len(theirs.encode_ordinary(text)) for text in texts] == [ours.count(text) for text in texts]


@pytest.mark.parametrize(
    ("model", "encoding"),
    [
        ("gpt-4o-mini", "o200k_base"),
        ("openai/gpt-4o", "o200k_base"),
        ("azure/gpt-4", "cl100k_base"),
        ("gpt-oss-120b", "o200k_harmony"),
        ("text-davinci-edit-001", "p50k_edit"),
        ("p50k_base", "p50k_base"),
    ],
)
def test_a_models_tokenizer_is_found(model: str, encoding: str) -> None:
    """Models and encodings name a tokenizer, which is an exact counter."""
    counter: TokenCounter = Tokenizer(model)
    assert (encoding, True, 2) == (counter.name, counter.exact, counter.count("Hello world"))


def test_a_model_of_another_tokenizer_is_refused() -> None:
    """A count that would be another model's is not given."""
    with pytest.raises(InvalidIdentifier, match="its tokenizer is not known"):
        Tokenizer("anthropic/claude-sonnet-4")


def test_a_table_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No tokenizer goes to the network: it says which table is missing and how to get it."""
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    with pytest.raises(InvalidIdentifier, match=r"r50k_base.*fetch it once"):
        Tokenizer("gpt2")


def test_without_tiktoken_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says what to install."""
    monkeypatch.setitem(sys.modules, "tiktoken", None)
    monkeypatch.setitem(sys.modules, "tiktoken.model", None)
    with pytest.raises(MissingExtra, match=r"'\.\[tokenizer\]'"):
        Tokenizer("gpt-4o")


def test_counts_are_remembered_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """A text is encoded once while it is among the latest, and the memory does not grow without end."""
    monkeypatch.setattr("memory_engine.llm.tokens.CACHED_COUNTS_MAX", 3)
    counter = Tokenizer("o200k_base")
    encoded: list[str] = []

    class Spy:
        def encode_ordinary(self, text: str) -> list[int]:
            encoded.append(text)
            return [0] * len(text)

    monkeypatch.setattr(counter, "_encoding", Spy())
    long = "x" * 10_000
    for text in ("a", "b", long, "a", long, "c", "a", "b"):
        assert len(text) == counter.count(text)
    assert ["a", "b", long, "c", "b"] == encoded


async def test_a_context_is_counted_exactly(tmp_path: Path) -> None:
    """An engine that is given a tokenizer says that its contexts' tokens are exact."""
    path = str(tmp_path / "memory.db")
    async with memory_engine.open(path, tokens=Tokenizer("gpt-4o")) as engine:
        short, long = await engine.create_thread(), await engine.create_thread()
        await short.dispatch(UserMessage(content=" hello" * 100))
        await long.dispatch(UserMessage(content=" hello" * 300))
        contexts = [await thread.context() for thread in (short, long)]
    assert [True, True] == [context.tokens_exact for context in contexts]
    assert 200 == contexts[1].tokens - contexts[0].tokens


def test_a_long_text_is_counted_in_pieces() -> None:
    """Where tiktoken itself can count a text of many pieces, the count is the same."""
    counter = Tokenizer("o200k_base")
    text = "A word,  a number 1234, a line.\n\n  def f(x):\n\treturn x  \n" * 5_000
    assert len(text) > 2 * PIECE_CHARS_MAX
    assert len(counter._encoding.encode_ordinary(text)) == counter.count(text)


@pytest.mark.parametrize("character", [" ", "\n", "a", "1", "=", "今"])
def test_a_long_run_of_one_character_is_counted(character: str) -> None:
    """A million blanks make tiktoken panic, with an exception that no handler of `Exception` sees; not us."""
    assert 1_000 < Tokenizer("o200k_base").count(character * 1_000_000) <= 1_000_000
