"""The mask and its placeholders; and that nothing of the library sends texts past it."""

import re
from pathlib import Path

from memory_engine import SecretMask
from memory_engine.language.masking import LOGGERS, Placeholders

KEY = "glpat-Qm3vX8rT2nW5kB9dYz7f"
PASSWORD = "brine-Lantern!58"
TOLD = f"The GitLab token is {KEY}, and the password for the harbour door is {PASSWORD}."


def test_one_secret_is_one_placeholder_in_a_call() -> None:
    """Wherever it occurs, with its name or without; numbered in order, and the same again for the same texts."""
    texts = [TOLD, f"Opened with {PASSWORD}.", f'{{"password": "{PASSWORD}"}}']
    first, again = Placeholders(SecretMask(), texts), Placeholders(SecretMask(), texts)
    hidden = [first.hide(text) for text in texts]
    assert hidden == [again.hide(text) for text in texts]
    assert {"[secret-1:key]", "[secret-2:password]"} == set(re.findall(r"\[secret.*?\]", "".join(hidden)))
    assert (texts[0], texts[2]) == (first.restore(hidden[0]), first.restore(hidden[2]))
    assert "Opened with [secret-2:password]." == hidden[1]


def test_placeholders_that_a_text_has_already_are_nobodys() -> None:
    """A person may write one: the numbers begin after it, and it comes back as it is."""
    hidden = Placeholders(SecretMask(), [f"What is [secret-7:key]? The password is {PASSWORD}."])
    shown = hidden.hide(f"What is [secret-7:key]? The password is {PASSWORD}.")
    assert "What is [secret-7:key]? The password is [secret-8:password]." == shown
    assert [] == hidden.invented(shown)
    assert ["[secret-9:key]"] == hidden.invented("[secret-9:key]")


def test_what_comes_back_without_a_name_gets_one() -> None:
    """A value alone would be no secret to the next reader: neither to a model nor to an embedder."""
    hidden = Placeholders(SecretMask(), [TOLD])
    hidden.hide(TOLD)
    assert f'They gave password: "{PASSWORD}" again.' == hidden.restore("They gave [secret-2:password] again.")
    assert f"The password is {PASSWORD}." == hidden.restore("The password is [secret-2:password].")


_LLM, _RECALL = "memory_engine/llm", "memory_engine/recall"
LEAVING = {
    r"\.complete\(": {f"{_LLM}/base.py", "memory_engine/runtime/probe.py", "compactors/working_history.py"},
    r"\.embed\b|query_method\(": {f"{_LLM}/vectors.py", f"{_RECALL}/embedders.py", f"{_RECALL}/likeness.py"},
    r"\.rerank\(": {f"{_RECALL}/rerankers.py"},
    r"\.compact\(chunks": {
        "memory_engine/compaction/masked.py",
        "memory_engine/files/comparison.py",
        "compactors/pipeline.py",
    },
    r"probe\.span\(": {"memory_engine/runtime/kernel.py", "memory_engine/runtime/probe.py"},
}
"""Calls that send texts away, and the files in which they may be: behind the mask, or within what is behind it."""


def test_texts_leave_by_the_mask_alone() -> None:
    """A new caller of a model, an embedder, a re-ranker, a compactor or a probe goes through these files."""
    sources = {
        str(path.relative_to(ROOT)): path.read_text("utf-8")
        for room in ("memory_engine", "compactors", "reducers", "storage")
        for path in (ROOT / room).rglob("*.py")
        if not path.is_relative_to(ROOT / "memory_engine" / "testing") and (ROOT / room).is_dir()
    }
    sources = {name: text for name, text in sources.items() if not name.startswith(_LINKED)}
    found = {
        pattern: {name for name, text in sources.items() if re.search(pattern, text)} - allowed
        for pattern, allowed in LEAVING.items()
    }
    assert {pattern: set[str]() for pattern in LEAVING} == found


_LINKED = ("memory_engine/compactors", "memory_engine/reducers", "memory_engine/storage")
ROOT = Path(__file__).parents[2]


def test_every_logger_masks() -> None:
    """The list of loggers has each that a module asks for."""
    asked = {
        name
        for room in ("memory_engine", "compactors", "reducers", "storage")
        for path in (ROOT / room).rglob("*.py")
        for name in re.findall(r"getLogger\(\"([^\"]*)\"\)", path.read_text("utf-8"))
    }
    assert set(LOGGERS) == asked
