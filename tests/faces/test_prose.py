"""Docstrings and comments are plain English: few turns of phrase that a reader from elsewhere has to decode."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MARKS_MAX = 15
"""Marks for 10,000 words. Projects that read easily have up to five; some marks are the right word in their place."""
MARKS = re.compile(
    r"""
      \bso\ (?:many|much|few|long)\ (?:as|of|times)\b | \bso\ many\b   # a number of, at most N
    | \banew\b                                                         # again
    | \bbeside\b                                                       # next to, with, besides
    | \b(?:tells?|told|telling)\b                                      # say, show, distinguish, call
    | \b(?:nobody|somebody)\b | (?:^|[.;:]\ )Who\b                     # no one, a caller, a person
    | \bstands?\b(?!-)                                                 # is, replaces, applies
    | \b(?:is|are)\ none\b                                             # without, does not exist
    | (?:^|[.;:]\ )What\b                                              # name the thing
    | \bas\ (?:it|they)\ (?:was|were|is|are)\b                         # unchanged
    | \b[Ii]t\ is\ [^.]{1,60}\ that\b                                  # say it without "it is"
    | \b(?:lets?|letting)\ go\b | \bgives?\ way\b                      # release, yield
    | \bcomes?\ upon\b | \bwhat\ (?:came|has\ come)\b                  # meet; the result
    """,
    re.VERBOSE,
)


def prose(path: Path) -> Iterator[str]:
    """The docstrings of a module, those of its names included, and its comments."""
    source = path.read_text("utf-8")
    for node in ast.walk(ast.parse(source)):
        for inner in getattr(node, "body", None) or () if not isinstance(node, (ast.Lambda, ast.IfExp)) else ():
            match inner:
                case ast.Expr(value=ast.Constant(value=str() as text)):
                    yield text
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.string.lstrip("# ")


@pytest.mark.parametrize("root", ["memory_engine", "storage", "reducers", "compactors", "benchmarks"])
def test_docstrings_read_plainly(root: str) -> None:
    """If this fails, say it in the words that MARKS gives: the listed ones are the first of them."""
    texts = [text for path in sorted(ROOT.joinpath(root).rglob("*.py")) for text in prose(path)]
    found = [text[max(0, mark.start() - 40) : mark.end() + 20] for text in texts for mark in MARKS.finditer(text)]
    words = sum(len(text.split()) for text in texts)
    assert len(found) * 10_000 <= MARKS_MAX * words, found[:40]
