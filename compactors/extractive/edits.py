"""An edit's change, in a few words: the line before and after, or the first definitions in the new text."""

from collections.abc import Sequence

from memory_engine.compactors.extractive.arguments import NEW_KEYS, OLD_KEYS, CallArguments
from memory_engine.compactors.extractive.outputs import FileHits, shorten_middle
from memory_engine.core.lazy import regex

LINE_CHARS_MAX = 56
"""Maximum length of a line shown before and after."""
NAMES_MAX = 3
LINES_READ_MAX, LINE_READ_MAX = 400, 200
"""Maximum number of lines searched for definitions, and of characters read of each."""
_DEFINED = regex(
    r"(?m)^[ \t]*(?:(?:export|default|public|private|protected|static|async|abstract|final|pub|override|inline)\s+)*"
    r"((?:def|defp|defmodule|class|function|func|fn|interface|struct|enum|trait|impl|module|type|const|let|var|test|describe|"
    r"CREATE TABLE|ALTER TABLE|resource|message)\s+[\"'\w.:?!/ ]*[\w\"'?!])"
)
_KEY_WORD = regex(r"[A-Za-z][a-z]*")


def change_of(asked: CallArguments) -> str:
    """Describe the change that a call asks for."""
    texts = [text for _, text in asked.texts]
    if len(texts) == 1:
        patch = _patch(texts[0])
        return patch or _edit_digest(texts[0])
    old, new = _old_and_new(asked.texts)
    return changed(old, new)


def _old_and_new(texts: Sequence[tuple[str, str]]) -> tuple[str, str]:
    """Return the texts before and after: by their arguments' names, otherwise in their order."""
    olds = [
        text
        for key, text in texts
        if OLD_KEYS.intersection(_key_word_list(key)) and not NEW_KEYS.intersection(_key_word_list(key))
    ]
    news = [text for key, text in texts if NEW_KEYS.intersection(_key_word_list(key))]
    if olds and news:
        return "\n".join(olds), "\n".join(news)
    return (texts[0][1], texts[-1][1]) if len(texts) > 1 else ("", "")


def _key_word_list(key: str) -> list[str]:
    return [word.lower() for word in _KEY_WORD.findall(key)]


def changed(old: str, new: str) -> str:
    """Describe the change from one text to the other."""
    before, after = old.splitlines(), new.splitlines()
    first = next(
        (n for n, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), min(len(before), len(after))
    )
    before, after = before[first:], after[first:]
    ends = zip(reversed(before), reversed(after), strict=False)
    last = next((n for n, (a, b) in enumerate(ends) if a != b), min(len(before), len(after)))
    before, after = before[: len(before) - last], after[: len(after) - last]
    before = [line.strip() for line in before if line.strip()]
    after = [line.strip() for line in after if line.strip()]
    if not before and not after:
        return ""
    if len(before) == len(after) == 1 and max(len(before[0]), len(after[0])) <= LINE_CHARS_MAX:
        return _safe(f"`{before[0]}` => `{after[0]}`")
    counts = "/".join(f"{sign}{len(lines)}" for sign, lines in (("+", after), ("-", before)) if lines)
    return _safe(f"{_first_definitions(after or before)} ({counts})")


def _edit_digest(text: str) -> str:
    lines = text.splitlines()
    return _safe(f"{_first_definitions([line for line in lines if line.strip()])} (+{len(lines)})") if lines else ""


def _first_definitions(lines: Sequence[str]) -> str:
    """Return the first definitions in these lines, or else the first line with content."""
    found = list(
        dict.fromkeys(
            " ".join(name.split())
            for name in _DEFINED.findall("\n".join(line[:LINE_READ_MAX] for line in lines[:LINES_READ_MAX]))
        )
    )
    if found:
        return ", ".join(shorten_middle(name, LINE_CHARS_MAX) for name in found[:NAMES_MAX])
    telling = next((line for line in lines if any(map(str.isalnum, line))), lines[0] if lines else "")
    return f"`{shorten_middle(telling, LINE_CHARS_MAX)}`"


def _patch(text: str) -> str:
    """Return the lines that a patch adds, and how many it removes; "" if the text is not a patch."""
    if not text.lstrip().startswith(("*** Begin", "diff --git", "--- ", "@@", "*** Update")):
        return ""
    lines = text.splitlines()
    added = [line[1:].strip() for line in lines if line[:1] == "+" and line[:3] != "+++" and line[1:].strip()]
    removed = [line[1:].strip() for line in lines if line[:1] == "-" and line[:3] != "---" and line[1:].strip()]
    return changed("\n".join(removed), "\n".join(added))


def patched_files(asked: CallArguments) -> tuple[FileHits, ...]:
    """Return the files that a call's texts patch, with the numbers of lines added and removed."""
    from memory_engine.compactors.extractive.outputs import read_output

    return tuple(file for _, text in asked.texts for file in read_output(text).diff)


def _safe(text: str) -> str:
    return " ".join(text.replace(" | ", " ¦ ").replace("; ", ", ").split())
