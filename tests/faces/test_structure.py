"""The house's own rules, read from the source: what a reader may rely on in every file.

Which way imports run is import-linter's part (`tasks.py lint`), naming and docstrings of functions are
ruff's. Here is what neither of them sees. A rule's exceptions stand beside it, each with its reason.
"""

import ast
import functools
import gc
import re
from collections.abc import Callable, Iterator
from itertools import chain, combinations
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LINKED_ROOTS = ("compactors", "reducers", "storage")
MODULE_LINES_MAX = 500
FUNCTION_LINES_MAX = 70
FILES_OF_ONE_NAME_MAX = 3
REASON_WORDS_MIN = 3

# The codec meets bytes of unknown shape, the model adapters a library without types; what moved is typed elsewhere.
ANY_ALLOWED = re.compile(r"codec\.py|memory_engine/(?:llm|integrations)/.*")

# Importing these is dear or binds the core to a back end, so only their room names them, even in a string.
HEAVY: dict[str, str | tuple[str, ...]] = {
    "aiosqlite": "storage/",
    "anthropic": ("memory_engine/llm/", "memory_engine/integrations/anthropic.py"),
    "asyncpg": "storage/",
    "fastembed": "memory_engine/recall/embedders.py",
    "hnswlib": "storage/",
    "litellm": "memory_engine/llm/",
    "numpy": "storage/",
    "openai": "memory_engine/llm/",
    "sentence_transformers": "memory_engine/recall/",
    "sqlite3": "storage/",
    "starlette": ("memory_engine/inspector/", "memory_engine/integrations/mcp_http.py"),
    "tiktoken": "memory_engine/llm/",
    "usearch": "storage/",
    "uvicorn": "memory_engine/inspector/",
}

# Files whose functions take any name, each with the reason.
TAKEN_BY_NAME = {
    "memory_engine/wiring.py": "older names of options, which type checkers see in a TypedDict",
    "memory_engine/core/events/base.py": "an event's metaclass: checkers see the fields of its class",
    "memory_engine/errors/base.py": "an error's facts are declared by its fields, which type checkers read",
    "memory_engine/integrations/llama_index.py": "the framework calls a memory's method with what its kinds take",
    "memory_engine/integrations/strands.py": "the framework's repositories take what its later versions may hand on",
    "memory_engine/sync/facade.py": "calls are handed on as they are; type checkers read a stub with every signature",
}

MUTATION = re.compile(
    r"\b(?:INSERT(?:\s+OR\s+\w+)?\s+INTO|REPLACE\s+INTO|DELETE\s+FROM)\s+(\w+)"
    r"|\bUPDATE(?:\s+OR\s+\w+)?\s+(\w+)(?:\s+AS\s+\w+)?\s+SET\b"
)
# Tables whose rows belong to no thread, each with the reason.
TABLES_WITHOUT_THREAD = {
    "acts": "administrative acts on the whole store: each row by its own id",
    "meta": "one row for the whole file: its schema version",
    "passage_terms": "full text: a row stands at its passage's position, which begins with the thread",
}

SIGNS = re.compile(r"(?<!\\)\[((?:\\.|[^\]\\])+)\]")
# Files with such a set that cuts no sentences, each with the reason.
NO_SENTENCES = {
    "compactors/extractive/edits.py": "names of things that code defines: `valid?`, `save!`, `a.b`",
}

# Files that parse TOML, each with the reason.
READS_TOML = {
    "memory_engine/administration/retention.py": "rules of retention that a user declares in a file",
    "memory_engine/lab/change.py": "a change that a user declares in a file",
    "memory_engine/language/lists.py": "the reader of our own lists",
    "memory_engine/views/preferences/domain.py": "a domain that a user declares in a file",
}

# Files that read pages of a log by themselves, each with the reason; all others take a walk of `store.walk`.
READS_PAGES = {
    "memory_engine/administration/store_copy.py": "commits each page in one unit, up to a row that cannot be read",
    "memory_engine/inspector/routes_log.py": "pages by the bytes of their payloads, as they stand in a broken log",
    "memory_engine/inspector/walks.py": "several loops go on with one walk, under a lock",
    "memory_engine/recall/index.py": "writes the passages of each page, and rests between two",
    "memory_engine/replay/export/export.py": "writes a page at a time, always on a thread",
    "memory_engine/replay/export/redactor.py": "gives the export such pages",
    "memory_engine/runtime/commit.py": "the events that another process was ahead with, few of them",
    "memory_engine/runtime/following.py": "a page for each look at a log that grows",
}
PAGES_READ_IN_MAX = 8

FIELDS_MIN, TWIN_SHARE, TWINS_MAX = 3, 0.7, 20

# Files that open or unpack something by themselves, each with what it is; all others use `core.bounded`.
OPENS = {
    "memory_engine/cli/execution.py": "the null device",
    "memory_engine/cli/inspect.py": "a file for a token, which it makes",
    "memory_engine/cli/options.py": "a key, from a file or a pipe that the caller names",
    "memory_engine/cli/standard.py": "a temporary file of its own",
    "memory_engine/compaction/protocol.py": "the kernel's own file about a process",
    "memory_engine/core/bounded.py": "the one opener and unpacker",
    "memory_engine/ingest/readers/inspect.py": "a zip that is open, whose every size is checked before",
    "memory_engine/inspector/app.py": "the page that is installed with it",
    "memory_engine/plugins.py": "lists of installed packages",
    "memory_engine/recall/wordpiece.py": "a list that is installed with it",
    "memory_engine/replay/export/export.py": "packs what it writes",
    "memory_engine/replay/export/log_file.py": "a log line by line, each line and the whole with a limit",
    "memory_engine/views/documents/readers/document.py": "a zip, whose every size is checked before",
    "memory_engine/workspace/folder.py": "parts of a path, one by one, without following links",
    "storage/driver.py": "the first bytes of the database",
    "storage/postgres/schema.py": "scripts that are installed with it",
    "storage/sqlite/backup.py": "a file of its own",
    "storage/sqlite/locking.py": "a file of its own",
    "storage/sqlite/pages.py": "the database: a program of its own, without this package",
    "storage/sqlite/rekeying.py": "a file of its own, and its folder",
    "storage/sqlite/wiping.py": "the database's write-ahead log",
    "storage/vectors/graph_files.py": "files of its own",
}
_OPENERS = frozenset({"read_bytes", "read_text", "decompress", "decompressobj", "ZipFile", "GzipFile"})
_UNSAFE = {"pickle", "marshal", "shelve", "tarfile", "lzma", "bz2", "dill", "cloudpickle"}

# Classes of one name in two modules, each with the reason.
CLASSES_OF_ONE_NAME = {
    "Redacted": "what a redactor of patterns gives, and a definition in the schema of exported logs: both are public",
}

# Names of functions that more files than `FILES_OF_ONE_NAME_MAX` share, each with its reason.
FUNCTIONS_OF_ONE_NAME = {
    "read": "a module of a format or a foreign file is called by this name, and both back ends read a log by it",
    "render": "a module of a format is called by this name; of extractive compaction it is public, beside `extract`",
    **dict.fromkeys(
        ("whole_response", "without_calls", "has_half_call", "made", "blocks_of"),
        "a part of a provider's format: `formats/providers.py` calls it by this name",
    ),
    "sees": "whether a reader of memories knows a file: the table of `interchange/systems.py` calls it by this name",
}

FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)


def python_files(*rooms: str) -> list[Path]:
    """Return the Python files of rooms; links are not followed, so each file comes once, by its real path."""
    found: list[Path] = []
    for room in rooms:
        path = ROOT / room
        found += [path] if path.is_file() else sorted(_walk(path))
    return found


def _walk(folder: Path) -> Iterator[Path]:
    for path in folder.iterdir() if folder.is_dir() else ():
        if path.is_dir() and not path.is_symlink():
            yield from _walk(path)
        elif path.suffix == ".py":
            yield path


SHIPPED = python_files("memory_engine", *LINKED_ROOTS)
OURS = [*SHIPPED, *python_files("tests", "benchmarks", "examples", "website", "conftest.py", "tasks.py")]


@functools.cache
def trees() -> dict[Path, ast.Module]:
    """Parse every file once, and not before a rule asks."""
    return {path: ast.parse(path.read_text(encoding="utf-8"), str(path)) for path in OURS}


@pytest.fixture(autouse=True, scope="module")
def no_tree_left() -> Iterator[None]:
    """Keep a million nodes, none of them garbage, out of garbage collections, and give back their memory at the end."""
    gc.disable()
    yield
    for cached in (trees, nodes, imports):
        cached.cache_clear()
    gc.enable()


def place(path: Path, node: ast.AST | None = None) -> str:
    """Return where something stands, in a form that editors open."""
    line = getattr(node, "lineno", None)
    return path.relative_to(ROOT).as_posix() + (f":{line}" if line else "")


@functools.cache
def nodes(path: Path) -> list[ast.AST]:
    """Return every node of a file."""
    return list(ast.walk(trees()[path]))


def find(files: list[Path], wrong: Callable[[ast.AST], bool]) -> list[str]:
    """Return the place of every node for which `wrong` is true."""
    return [place(path, node) for path in files for node in nodes(path) if wrong(node)]


def names_imported(node: ast.AST) -> list[str]:
    """Return the modules that an import statement, or a call that imports by name, asks for."""
    match node:
        case ast.Import():
            return [alias.name for alias in node.names]
        case ast.ImportFrom(module=str(module), level=0):
            return [module]
        case ast.Call(
            func=ast.Name(id="import_module" | "find_spec" | "__import__")
            | ast.Attribute(attr="import_module" | "find_spec"),
            args=[ast.Constant(value=str(module)), *_],
        ):
            return [module]
    return []


@functools.cache
def imports(path: Path) -> list[tuple[ast.AST, set[str]]]:
    """Return what imports in a file, with the first part of each name that it asks for."""
    found = ((node, names_imported(node)) for node in nodes(path))
    return [(node, {name.partition(".")[0] for name in names}) for node, names in found if names]


def importing(files: list[Path], wanted: set[str]) -> list[str]:
    """Return the place of every import of one of these."""
    return [place(path, node) for path in files for node, names in imports(path) if names & wanted]


def test_every_module_says_what_it_is() -> None:
    """Every Python file begins with a docstring."""
    assert [] == [place(path) for path, tree in trees().items() if not ast.get_docstring(tree)]


def test_no_module_is_too_long_to_read() -> None:
    """No module has more than 500 lines."""
    lengths = {place(path): path.read_text(encoding="utf-8").count("\n") for path in OURS}
    assert {} == {name: lines for name, lines in lengths.items() if lines > MODULE_LINES_MAX}


def test_no_function_is_longer_than_a_screen() -> None:
    """No function has more than 70 lines."""

    def too_long(node: ast.AST) -> bool:
        return isinstance(node, FUNCTION) and (node.end_lineno or 0) - node.lineno >= FUNCTION_LINES_MAX

    assert [] == find(OURS, too_long)


def test_signatures_name_what_they_take() -> None:
    """No function of the package takes `**kwargs`, but where type checkers see what it takes."""

    def takes_anything(node: ast.AST) -> bool:
        return isinstance(node, (*FUNCTION, ast.Lambda)) and node.args.kwarg is not None

    found = find(SHIPPED, takes_anything)
    assert TAKEN_BY_NAME.keys() == {spot.partition(":")[0] for spot in found}


def test_no_function_changes_a_modules_names() -> None:
    """No function declares a name `global`."""
    assert [] == find(OURS, lambda node: isinstance(node, ast.Global))


def test_any_stays_where_types_are_unknown() -> None:
    """`Any` is written in the codec and in adapters only."""

    def says_any(node: ast.AST) -> bool:
        match node:
            case ast.Name(id="Any") | ast.Attribute(attr="Any", value=ast.Name(id="typing")):
                return True
            case ast.ImportFrom(module="typing"):
                return any(alias.name == "Any" for alias in node.names)
        return False

    files = [path for path in SHIPPED if not ANY_ALLOWED.fullmatch(place(path)) and path.name != "codec.py"]
    assert [] == find(files, says_any)


def test_no_module_is_a_drawer() -> None:
    """No module is called utils or the like: a name says what is inside."""
    drawers = {"common", "helper", "helpers", "misc", "util", "utils"}
    assert [] == [place(path) for path in OURS if drawers & {path.stem, path.parent.name}]


def test_a_lazy_module_is_the_one_that_type_checkers_see() -> None:
    """Each name that stands for a module stands for the one that the branch for types imports under this name."""
    compared = 0
    for path in SHIPPED:
        for node in nodes(path):
            if isinstance(node, ast.If) and "lazy_module" in "".join(map(ast.unparse, node.orelse)):
                seen = {
                    alias.asname or alias.name: f"{one.module}.{alias.name}"
                    if isinstance(one, ast.ImportFrom)
                    else alias.name
                    for one in node.body
                    if isinstance(one, ast.Import | ast.ImportFrom)
                    for alias in one.names
                }
                for name, module in chain.from_iterable(map(stood_for, node.orelse)):
                    assert seen[name] == module, place(path, node)
                    compared += 1
    assert compared


def stood_for(statement: ast.stmt) -> list[tuple[str, str]]:
    """The names that a statement assigns, with the modules that they stand for."""
    names, _, call = ast.unparse(statement).partition(" = ")
    given = ast.literal_eval(f"({call.partition('(')[2].removesuffix(')')},)")
    room = f"{given[0]}." if call.startswith("lazy_modules") else ""
    return [
        (name.strip(), f"{room}{module}")
        for name, module in zip(names.strip("()").split(","), given[-1].split(), strict=True)
    ]


def test_a_class_name_is_used_once() -> None:
    """No two classes of the library have one name, private ones too: each says which one it is."""
    found: dict[str, list[str]] = {}
    for path in SHIPPED:
        for node in nodes(path):
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, []).append(place(path, node))
    twice = {name: places for name, places in found.items() if len(places) > 1}
    assert {} == {name: places for name, places in twice.items() if name not in CLASSES_OF_ONE_NAME}
    assert CLASSES_OF_ONE_NAME.keys() == twice.keys(), "an exception that nothing needs any more"


def test_a_function_name_is_in_few_files() -> None:
    """A name of functions that many files share says in none of them what it gives: each names its own thing."""
    found: dict[str, list[str]] = {}
    for path in SHIPPED:
        for node in trees()[path].body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                found.setdefault(node.name, []).append(place(path, node))
    many = {name: places for name, places in found.items() if len(places) > FILES_OF_ONE_NAME_MAX}
    assert {} == {name: places for name, places in many.items() if name not in FUNCTIONS_OF_ONE_NAME}
    assert FUNCTIONS_OF_ONE_NAME.keys() == many.keys(), "an exception that nothing needs any more"


def test_few_classes_declare_the_same_fields() -> None:
    """A value has one class: a base declares what several have. The pairs that are left only look alike."""
    declared: list[tuple[str, set[str]]] = []
    for path in SHIPPED:
        for node in nodes(path):
            if isinstance(node, ast.ClassDef):
                named = (one.target for one in node.body if isinstance(one, ast.AnnAssign))
                fields = {name.id for name in named if isinstance(name, ast.Name)}
                declared += [(place(path, node), fields)] if len(fields) >= FIELDS_MIN else []
    twins = [
        (one, other)
        for (one, fields), (other, others) in combinations(declared, 2)
        if len(fields & others) >= TWIN_SHARE * max(len(fields), len(others))
    ]
    assert len(twins) <= TWINS_MAX, "\n".join(map(str, twins))


def test_a_broad_except_gives_its_reason() -> None:
    """What handles or suppresses `Exception`, `BaseException` or everything has its reason on the same line."""

    def is_broad(node: ast.AST) -> bool:
        match node:
            case ast.ExceptHandler(type=ast.Tuple(elts=caught)) | ast.Call(func=ast.Name(id="suppress"), args=caught):
                return any(ast.unparse(kind) in {"Exception", "BaseException"} for kind in caught)
            case ast.ExceptHandler(type=kind):
                return kind is None or ast.unparse(kind) in {"Exception", "BaseException"}
        return False

    unexplained = []
    for path in OURS:
        lines = path.read_text(encoding="utf-8").splitlines()
        for node in nodes(path):
            if is_broad(node):
                _code, _hash, reason = lines[getattr(node, "lineno", 0) - 1].partition("#")
                if len(reason.split()) < REASON_WORDS_MIN:
                    unexplained.append(place(path, node))
    assert [] == unexplained


def test_the_linked_roots_go_by_their_installed_names() -> None:
    """Nothing imports `compactors`, `reducers` or `storage` from the top: that would be a second copy."""
    assert [] == importing(OURS, set(LINKED_ROOTS))


@pytest.mark.parametrize(("library", "room"), HEAVY.items(), ids=HEAVY)
def test_a_heavy_library_is_named_in_its_room_only(library: str, room: str | tuple[str, ...]) -> None:
    """A back end's library is imported in one room, by statement or by name."""
    elsewhere = [path for path in SHIPPED if not place(path).startswith(room)]
    assert [] == importing(elsewhere, {library})


def test_sentences_are_cut_in_one_room() -> None:
    """No regular expression outside `language/` has a set of signs with both a full stop and a question mark.

    That is how sentences are told apart: ask `language.rough` or `language.sentences` for them.
    """
    found = []
    for path in SHIPPED:
        room = path.relative_to(ROOT).parts[:2]
        if room != ("memory_engine", "language"):
            for call in filter(_is_pattern, nodes(path)):
                sets = [signs for _, text in _texts(call) for signs in SIGNS.findall(text)]
                found += [place(path)] if any(map(_ends_sentences, sets)) else []
    assert list(NO_SENTENCES) == found


def test_data_files_are_read_in_one_place() -> None:
    """Lists of words have one form and one reader, `language.lists`: no other module parses TOML of ours."""

    def reads_toml(node: ast.AST) -> bool:
        return "tomllib" in names_imported(node) or (
            isinstance(node, ast.Attribute) and ast.unparse(node) == "msgspec.toml"
        )

    assert READS_TOML.keys() == {spot.partition(":")[0] for spot in find(SHIPPED, reads_toml)}


def test_pages_of_a_log_are_read_in_few_places() -> None:
    """Whoever reads a log takes a walk, which turns pages, gives way and reports progress for all."""

    def reads(node: ast.AST) -> bool:
        match node:
            case ast.Call(func=ast.Attribute(attr="pages" | "raw_pages")):
                return True
            case ast.Call(func=ast.Attribute(attr="read", value=ast.Name(id=name) | ast.Attribute(attr=name))):
                return name.strip("_") == "store"
        return False

    seam = ("storage/", "memory_engine/store/", "memory_engine/testing/")  # they are the pages
    files = [path for path in SHIPPED if not place(path).startswith(seam)]
    assert READS_PAGES.keys() == {spot.partition(":")[0] for spot in find(files, reads)}
    assert len(READS_PAGES) <= PAGES_READ_IN_MAX


def test_files_of_others_are_opened_in_one_place() -> None:
    """A path may name a pipe, and a few bytes unpack to gigabytes: `core.bounded` reads both within limits."""

    def opens(node: ast.AST) -> bool:
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="memory_engine" | "sync" | "memory"), attr="open")):
                return False
            case (
                ast.Call(func=ast.Name(id="open")) | ast.Call(func=ast.Attribute(value=ast.Name(id="os"), attr="open"))
            ):
                return True
            case ast.Call(func=ast.Attribute(attr="open"), args=[ast.Constant(value=str(mode)), *_]):
                return not mode.strip("rbt+") and "r" in mode
            case ast.Call(func=ast.Attribute(attr=name)):
                return name in _OPENERS
        return False

    assert OPENS.keys() == {spot.partition(":")[0] for spot in find(SHIPPED, opens)}
    assert [] == importing(SHIPPED, _UNSAFE)


def _is_pattern(node: ast.AST) -> bool:
    """Return True for a call that compiles a regular expression or uses one."""
    return isinstance(node, ast.Call) and (
        (isinstance(node.func, ast.Name) and node.func.id == "regex")
        or (isinstance(node.func, ast.Attribute) and ast.unparse(node.func.value) == "re")
    )


def _ends_sentences(signs: str) -> bool:
    return any(stop in signs for stop in ".\u3002") and any(mark in signs for mark in "?\uff1f")


def test_every_mutation_of_the_store_carries_the_thread() -> None:
    """Every INSERT, UPDATE and DELETE in storage/ names the thread, but on tables that have none."""
    unkeyed = []
    for path in python_files("storage"):
        for node, text in _texts(trees()[path]):
            mutation = MUTATION.search(text)
            if mutation is None or re.search(r"\b(tid|thread_id)\b", text):
                continue
            if (mutation[1] or mutation[2]).lower() not in TABLES_WITHOUT_THREAD:
                unkeyed.append(f"{place(path, node)}: {' '.join(text.split())[:60]}")
    assert [] == unkeyed


def _texts(tree: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    """Yield the string literals; a formatted one comes whole, with `_` for what is filled in."""
    inner: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            inner.update(node.values)
            yield node, "".join(_text(part) or "_" for part in node.values)
        elif node not in inner and (text := _text(node)):
            yield node, text


def _text(node: ast.AST) -> str:
    """Return the text of a plain string literal, of anything else none."""
    match node:
        case ast.Constant(value=str(text)):
            return text
    return ""
