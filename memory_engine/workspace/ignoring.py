"""The files of a folder that are not recorded, by patterns as in `.gitignore`, and paths that no log may name.

The last pattern that fits decides; one that begins with `!` takes files in again. Nothing inside an ignored folder is
taken in.
"""

import re
import unicodedata
from collections.abc import Iterable

from attrs import frozen

from memory_engine.errors import InvalidArgument

DEFAULTS = (
    # made by tools, or not worth their size
    *("node_modules/", "__pycache__/", "*.py[co]", ".venv/", "venv/", ".tox/", ".nox/", ".cache/", "*_cache/"),
    *(".DS_Store", "Thumbs.db", ".terraform/", ".gradle/", ".hg/", ".svn/", ".jj/", "*.swp"),
    # databases: a copy of one in use is worthless, and this memory may be among them
    *("*.db", "*.db-*", "*.db.lock", "*.sqlite", "*.sqlite-*", "*.sqlite3", "*.sqlite3-*"),
    # secrets
    *(".env", ".env.*", ".envrc", ".netrc", "_netrc", ".npmrc", ".pypirc", ".pgpass", ".my.cnf", ".htpasswd"),
    *(".git-credentials", "credentials", "credentials.json", "secrets.json", "secrets.y*ml", "secrets.toml"),
    *("*.tfstate", "*.tfstate.*", "*.tfvars", "*.pem", "*.key", "*.p12", "*.pfx", "*.jks", "*.keystore"),
    *("*.kdbx", "*.ppk", "*.asc", "*.gpg", "id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*"),
    *(".ssh/", ".aws/", ".gnupg/", ".kube/", ".docker/", ".azure/"),
)
"""What is ignored without a pattern of the caller's. Letters of either case match."""
PART_PREFIX = ".memory-engine-"
"""Files with names like this are being written: they are never recorded."""
PATH_BYTES_MAX, NAME_BYTES_MAX, DEPTH_MAX = 1024, 240, 64
_NEVER = frozenset({".git"})
"""Names of files and folders that are neither recorded nor written, in any spelling: hooks in them would be run."""


def unsafe(path: str) -> str:
    """Why a path must be neither recorded nor written; empty for one that may be."""
    parts = path.split("/")
    if not path or any(part in ("", ".", "..") for part in parts):
        return "it is not a plain relative path"
    if "\\" in path or any(ord(sign) < 32 or ord(sign) == 127 for sign in path):
        return "it has a backslash or a control character"
    try:
        sizes = [len(part.encode()) for part in parts]
    except UnicodeEncodeError:
        return "it is not UTF-8"
    if sum(sizes) + len(parts) > PATH_BYTES_MAX or max(sizes) > NAME_BYTES_MAX or len(parts) > DEPTH_MAX:
        return "it is too long"
    if any(_plain(part) in _NEVER or part.startswith(PART_PREFIX) for part in parts):
        return "it is a tool's own"
    return ""


def _plain(name: str) -> str:
    """A name as file systems may read it: without letter case, and without signs that some leave out."""
    shown = "".join(sign for sign in name if unicodedata.category(sign) != "Cf")
    return unicodedata.normalize("NFKC", shown).casefold().rstrip(" .")


@frozen
class _Rule:
    pattern: re.Pattern[str]
    is_taken_in: bool
    only_folders: bool


class Ignored:
    """Decides which paths are not recorded."""

    def __init__(self, patterns: Iterable[str] = ()) -> None:
        self._rules = [*(_rule(one, re.IGNORECASE) for one in DEFAULTS), *(_rule(one) for one in patterns)]

    def entry(self, path: str, *, is_folder: bool) -> bool:
        """Whether a file or folder in a folder that is not ignored is ignored."""
        rule = self._last(path, is_folder=is_folder)
        return rule is not None and not rule.is_taken_in

    def ignores(self, path: str) -> bool:
        """Whether a file is ignored, or any folder that it is in."""
        parts = path.split("/")
        folders = ("/".join(parts[:n]) for n in range(1, len(parts)))
        return any(self.entry(one, is_folder=True) for one in folders) or self.entry(path, is_folder=False)

    def takes_in(self, path: str) -> bool:
        """Whether a pattern of the caller's takes a file in, so that it is recorded whatever it holds."""
        rule = self._last(path, is_folder=False)
        return rule is not None and rule.is_taken_in

    def _last(self, path: str, *, is_folder: bool) -> _Rule | None:
        fitting = (one for one in reversed(self._rules) if is_folder or not one.only_folders)
        return next((one for one in fitting if one.pattern.fullmatch(path)), None)


def _rule(pattern: str, flags: int = 0) -> _Rule:
    is_taken_in = pattern.startswith("!")
    body = pattern.removeprefix("!")
    only_folders = body.endswith("/")
    body = body.rstrip("/")
    is_anchored = "/" in body
    text = ("" if is_anchored else "(?:.*/)?") + _expression(body.removeprefix("/"))
    try:
        return _Rule(re.compile(text, flags | re.DOTALL), is_taken_in, only_folders)
    except re.error as error:
        raise InvalidArgument("ignore", pattern, f"it is not a pattern as in .gitignore ({error})") from None


_SIGNS = re.compile(r"\*\*/|\*\*|\*|\?|\[[!^]?[^\]/]+\]|[\s\S]")


def _expression(body: str) -> str:
    return "".join(map(_sign, _SIGNS.findall(body)))


def _sign(sign: str) -> str:
    match sign:
        case "**/":
            return "(?:.*/)?"
        case "**":
            return ".*"
        case "*":
            return "[^/]*"
        case "?":
            return "[^/]"
        case _ if len(sign) > 1:
            inner = sign[1:-1].replace("\\", r"\\").replace("[", r"\[")
            return f"(?!/)[^{inner[1:]}]" if inner[0] in "!^" else f"[{inner}]"
        case _:
            return re.escape(sign)
