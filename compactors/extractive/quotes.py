"""Sentences from files and pages that tools read, quoted word for word under the name of their source.

A file may hold rules that the next worker must know: binding sentences go first, and a short text is quoted whole.
"""

from collections.abc import Sequence

import msgspec

from memory_engine.compactors.extractive.agenda import Remark
from memory_engine.compactors.extractive.outputs import without_numbers
from memory_engine.compactors.extractive.texts import SourceText, source_text
from memory_engine.core.lazy import regex
from memory_engine.language.phrases import DOUBTS, traits_of

QUOTED_CHARS_MAX = 400
"""Maximum number of characters quoted from one reading of a source."""
BINDING_CHARS_MAX = 800
"""The same for sentences that bind."""
STATEMENT_CHARS_MAX = 300
SAYS = "{source} says: {text}"
_PROSE_FILE = regex(
    r"(?i)(?:^|[/\\])[^./\\]+$|\.(?:md|mdx|markdown|txt|text|rst|adoc|asciidoc|org|tex|html?|pdf|docx?|odt|rtf|eml)$|^https?:"
)
"""Files of natural language; comments in code are not quoted."""
_LICENCE = regex(r"(?i)copyright|licen[sc]|warrant|merchantab|liabil")
_FIELD = regex(r"[\w -]{1,30}:\s*\S+(?: \S+){0,3}|#.*|`.*`")
_HEADINGS = regex(r"(?m)^[ \t]*#{1,6}[ \t].*$")
_STOPS = (".", "!", "?", "。", "\uff01", "\uff1f", ":", ";")


class SourceQuote(msgspec.Struct, frozen=True, gc=False):
    """A quotation from a source; `binds` if any of its sentences demands, forbids or limits something."""

    text: str
    binds: bool


def quote_of(source: str, text: SourceText) -> SourceQuote | None:
    """Return the sentences to quote of a text that a tool read, `None` if it is not prose."""
    if not (text.output.is_prose and _PROSE_FILE.search(source)):
        return None
    printed = without_numbers(text.printed or "")
    told = [remark for remark in source_text(_HEADINGS.sub("", printed)).remarks if _is_quotable(remark)]
    binding = [remark for remark in told if _binds(remark)]
    chosen = _fitting_remarks(binding, BINDING_CHARS_MAX)
    taken = sum(len(remark.text) for remark in chosen)
    chosen += _fitting_remarks([remark for remark in told if remark not in binding], QUOTED_CHARS_MAX - taken)
    if not chosen:
        return None
    said = " ".join(
        remark.text if remark.text.endswith(_STOPS) else f"{remark.text};" for remark in told if remark in chosen
    )
    return SourceQuote(SAYS.format(source=source, text=said.rstrip(";")), any(remark in binding for remark in chosen))


def _is_quotable(remark: Remark) -> bool:
    text = remark.text
    if not remark.tells or len(text) > STATEMENT_CHARS_MAX or remark.asks or _LICENCE.search(text):
        return False
    return remark.words >= 3 and _FIELD.fullmatch(text) is None


def _binds(remark: Remark) -> bool:
    return remark.requests or traits_of(remark.said) & DOUBTS > 0


def _fitting_remarks(remarks: Sequence[Remark], room: int) -> list[Remark]:
    found: list[Remark] = []
    for remark in remarks:
        if len(remark.text) <= room and remark not in found:
            found.append(remark)
            room -= len(remark.text) + 1
    return found
