"""Texts made to hurt: whatever reads what others wrote takes time that grows with its length.

A pattern that may begin at each of many signs, and then looks through all that follow, takes the square of that.
"""

import json
from collections.abc import Callable, Coroutine
from datetime import date
from functools import partial

import pytest

from memory_engine.agents import statements
from memory_engine.compactors import summary_reading
from memory_engine.compactors.extractive import agenda, texts
from memory_engine.context.excerpt import excerpt
from memory_engine.core import excerpts
from memory_engine.core.tokens import EstimatedTokens
from memory_engine.files import facts
from memory_engine.language import dates_relative, identification, prose, rough, secrets, sentences, text
from memory_engine.recall import matter, question, superseding
from memory_engine.views.layers import summaries
from memory_engine.views.patterns.redaction import EmbeddedRedactor, says_anything
from memory_engine.views.playbooks import reactions
from memory_engine.views.promotion import wording
from tests.trust.hostile_files import is_linear

SIZE = 400
SIGNS = "aA0\u6f22\u0301 \n\t.,:;'\"`*_#-<>()[]{}=@/\\|+%$&!?\u201c\u2019\u3002\u00ab\u300c"
BEGINNINGS = """\
a |A |a.|a\n| \n|\t |0,|0.|0 |0-|1/|a-|a_|a'|n't|Aa|aA|: |= |``|```\n|> |- |1. |# |[1]|[1,|<a|<think>|</think>|\u201c*|\
a@|a.b@|http://|a://|www.|password |password: |password is |my |key=|eyJ|-----BEGIN PRIVATE KEY-----|and |, and | the|\
my name is |I am |2024-|3 May |7. Mai |de mayo de |May |last |may |x.com/|Ann |Dr. |no, |but |that |not |please |ein|\
en |##|##a|--|\
\u54ea\u4e9b|\u4e00|(a|a) |a;"""
PIECES = (*SIGNS, *BEGINNINGS.split("|"))

MATTER = matter.read_matter(question.read_question("What is my phone number?"))

READERS: dict[str, Callable[[str], object]] = {
    "prose": prose.prose,
    "sentences": prose.sentences,
    "rough sentences": rough.rough_sentences,
    "clauses": lambda said: list(rough.clause_spans(said, joined=True)),
    "is_all_prose": prose.is_all_prose,
    "secrets": secrets.secrets_in,
    "mask_secrets": secrets.mask_secrets,
    "terms": text.terms,
    "language": identification.language_of,
    "one_line": lambda said: excerpts.one_line(said, 40),
    "escaped": excerpts.escaped,
    "named_days": dates_relative.named_days,
    "relative_days": lambda said: dates_relative.relative_days(said, date(2023, 11, 14)),
    "read_question": question.read_question,
    "read_claims": lambda said: superseding.read_claims(said, MATTER) if MATTER else None,
    "own statements": lambda said: list(statements.statements(said)),
    "fact_key": statements.fact_key,
    "says_anything": says_anything,
    "extracted statements": sentences.statements,
    "extracted lines": lambda said: sentences.statements(said, lines=True),
    "extracted terms": lambda said: texts.SourceText(said).terms,
    "extracted remarks": lambda said: texts.SourceText(said).remarks,
    "extracted records": lambda said: texts.SourceText(json.dumps({"said": said, said: [said]})).records,
    "item_key": agenda.item_key,
    "excerpt": lambda said: excerpt(said, frozenset({"a", "word"}), 100, EstimatedTokens()),
    "facts_of": facts.facts_of,
    "a model's summary": lambda said: summary_reading.read_claims(said, 3),
    "a model's bullet": lambda said: summary_reading.read_claims(f"## Facts\n- {said}", 3),
    "a model's lines": lambda said: summaries.read_lines(f"- a {said} x", ((1,), (2,))),
    "reactions": lambda said: _at_once(reactions.WordingJudge().judge(said, "How many?")),
    "redaction": EmbeddedRedactor().redact,
    "shape_of": wording.shape_of,
    "specifics_of": wording.specifics_of,
}


@pytest.mark.parametrize("reader", READERS)
def test_words_of_others_are_read_in_linear_time(reader: str) -> None:
    """Of any sign, word or beginning of a mark, again and again."""
    read = READERS[reader]
    read("Warm.")
    slow = [piece for piece in PIECES if not is_linear(read, partial(_repeated, piece), SIZE)]
    assert [] == slow


def _at_once(judging: Coroutine[object, object, object]) -> None:
    """Run what waits for nothing: making an event loop takes longer."""
    with pytest.raises(StopIteration):
        judging.send(None)


def _repeated(piece: str, size: int) -> str:
    """A piece again and again, and at the end a sign that no pattern knows."""
    return piece * (size // len(piece)) + "\0"
