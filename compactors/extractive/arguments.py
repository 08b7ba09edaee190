"""A call's request, recognised by the form of its arguments: files and lines, a command, texts, other values.

Agents name their tools and arguments as they like. An argument's name is used only as a hint where the form is
ambiguous.
"""

import re
from collections.abc import Iterator

import msgspec

from memory_engine.compactors.extractive.shell import PROGRAMS, CommandRead, looks_like_command, read_command
from memory_engine.compactors.extractive.structured import Json, read_json
from memory_engine.core.lazy import regex

TEXT_CHARS_MIN = 80
"""Minimum length of an argument that is content. Longer or multi-line arguments are content, not names."""
DEPTH_MAX = 6
_PATH = regex(r"(?:[A-Za-z]:[\\/]|~[\\/]|\.{1,2}[\\/]|[\\/])?[\w.@+~*-]+(?:[\\/][\w.@+~*() \[\]-]+)*[\\/]?")
_SUFFIX = regex(r"(?:^|[\w\])])\.[A-Za-z]\w{0,9}$")
_NO_PATH = regex(r"\d+(?:[/.\-]\d+)*|\w+/\d+|[\w.+-]+@[\w.-]+|v?\d+(?:\.\w+)+")
_URL = regex(r"(?:https?|file|s3|gs|git|ssh)://\S+")
_KEY_WORD = regex(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
PATH_KEYS = frozenset(
    "path paths file files filename filepath dir directory folder target uri url notebook document cwd".split()
)
COMMAND_KEYS = frozenset("command cmd commands shell script bash commandline".split())
SEARCH_KEYS = frozenset("pattern query regex search glob term needle keyword keywords q find".split())
OLD_KEYS = frozenset("old original before search find from".split())
NEW_KEYS = frozenset("new replace replacement insert content contents text patch diff edits edit after body".split())
FIRST_KEYS = frozenset("start from offset begin first line min".split())
LAST_KEYS = frozenset("end to stop last max".split())
COUNT_KEYS = frozenset("limit count lines length num n".split())
NOTE_KEYS = frozenset("description explanation reason thought reasoning justification rationale".split())


class CallArguments(msgspec.Struct, frozen=True, gc=False):
    """A call's request; fields are empty if it does not ask for that."""

    paths: tuple[str, ...] = ()
    first: int = 0
    last: int = 0
    """`first` and `last` are the lines asked for, 0 if open."""
    command: CommandRead | None = None
    texts: tuple[tuple[str, str], ...] = ()
    """Texts to write, each under the name of its argument."""
    values: tuple[tuple[str, str], ...] = ()
    """Short values, paths included, each under the name of its argument."""
    writes: bool = False
    """True if the arguments' names say that a text is to be written."""
    searches: bool = False
    is_url: bool = False

    @property
    def shown(self) -> str:
        """Return the short values, each under its name, as a summary line shows them."""
        return " ".join(f"{key} {value}" if key else value for key, value in self.values)


def read_arguments(arguments: str) -> CallArguments:
    """Parse a call's arguments; a text that is not JSON is a command, or a value without a name."""
    value = read_json(arguments)
    leaves = list(_leaves("", value, 0)) if value is not None else []
    if value is None and arguments.strip():
        if looks_like_command(arguments):
            return CallArguments(command=read_command(arguments))
        first, _, rest = arguments.strip().partition("\n")
        leaves = [("", first), ("", rest)] if rest else [("", first)]
    command = _command(value, leaves)
    paths = tuple(dict.fromkeys(text for key, text in leaves if is_path(key, text)))
    is_verb = command is not None and len(command.split()) == 1 and command not in PROGRAMS
    if command is not None and not (is_verb and any(path != command for path in paths)):
        return CallArguments(command=read_command(command))
    notes = [(key, text) for key, text in leaves if not NOTE_KEYS.intersection(_key_words(key))]
    keys = {word for key, text in notes if text not in paths for word in _key_words(key)}
    is_written = keys & NEW_KEYS
    texts = tuple((key, text) for key, text in notes if text not in paths and _is_text(key, text, bool(is_written)))
    values = tuple((key, text.strip()) for key, text in notes if (key, text) not in texts and text.strip())
    from_line, to_line = _line_range(leaves)
    return CallArguments(
        paths=paths,
        first=from_line,
        last=to_line,
        texts=texts,
        values=values,
        writes=bool(is_written),
        searches=bool(keys & SEARCH_KEYS) and not is_written,
        is_url=bool(paths) and _URL.fullmatch(paths[0]) is not None,
    )


def _leaves(key: str, node: Json, depth: int) -> Iterator[tuple[str, str]]:
    """Yield a value's texts with their argument names; a list of lines or a range is one text."""
    if isinstance(node, dict) and depth < DEPTH_MAX:
        for name, child in node.items():
            yield from _leaves(name, child, depth + 1)
    elif isinstance(node, list) and depth < DEPTH_MAX:
        for child in node:
            yield from _leaves(key, child, depth + 1)
    elif isinstance(node, str):
        inner = read_json(node) if depth < 2 and node[:1] == "{" else None
        if isinstance(inner, dict):
            yield from _leaves(key, inner, depth + 1)
        else:
            yield key, node
    elif node is True:
        yield key, "true"


def _key_words(key: str) -> list[str]:
    return [word.lower() for word in _KEY_WORD.findall(key)]


def is_path(key: str, text: str) -> bool:
    """Return True if a text names a file, folder or address: by its form, or because its argument's name says so."""
    if not 0 < len(text) <= 400 or "\n" in text:
        return False
    if _URL.fullmatch(text):
        return True
    if _PATH.fullmatch(text) is None or _NO_PATH.fullmatch(text):
        return False
    if PATH_KEYS.intersection(_key_words(key)):
        return True
    has_folder = "/" in text or "\\" in text
    if " " in text and not text.startswith(("/", "./", "~/")):
        return False
    return (has_folder and ("." in text or text[0] in "/~." or text.count("/") > 1)) or _SUFFIX.search(text) is not None


def _is_text(key: str, text: str, is_written: bool) -> bool:
    named = is_written and (NEW_KEYS | OLD_KEYS).intersection(_key_words(key))
    return "\n" in text or len(text) > TEXT_CHARS_MIN or bool(named)


def _command(value: Json, leaves: list[tuple[str, str]]) -> str | None:
    """Return the command line among the arguments."""
    if isinstance(value, dict):
        for key, child in value.items():
            if isinstance(child, list) and COMMAND_KEYS.intersection(_key_words(key)):
                words = [one for one in child if isinstance(one, str)]
                if len(words) >= 3 and words[1] in ("-c", "-lc", "-Command", "/c"):
                    return words[2]
                return " ".join(words) if words else None
    for key, text in leaves:
        if COMMAND_KEYS.intersection(_key_words(key)) and text.strip():
            return text
    telling = [text for key, text in leaves if not NOTE_KEYS.intersection(_key_words(key)) and "\n" not in text]
    lines = [text for text in telling if " " in text.strip() and looks_like_command(text)]
    return lines[0] if len(lines) == 1 and len(telling) <= 2 else None


def _line_range(leaves: list[tuple[str, str]]) -> tuple[int, int]:
    """Return the line range that the numbers ask for: a pair, or what the arguments' names say."""
    found = [(key, int(text)) for key, text in leaves if re.fullmatch(r"-?\d{1,7}", text)]
    by_key: dict[str, list[int]] = {}
    named: dict[str, int] = {}
    for key, number in found:
        by_key.setdefault(key, []).append(number)
        words = set(_key_words(key))
        for name, keys in (("count", COUNT_KEYS), ("last", LAST_KEYS), ("first", FIRST_KEYS)):
            if words & keys and name not in named:
                named[name] = number
                break
    for numbers in by_key.values():
        if len(numbers) == 2 and 0 <= numbers[0] <= numbers[1]:
            return numbers[0], numbers[1]
    first = max(named.get("first", 0), 0)
    if "last" in named and named["last"] >= first:
        return first, named["last"]
    if "count" in named and named["count"] > 0:
        return max(first, 1), max(first, 1) + named["count"] - 1
    return first, 0
