"""Writes what type checkers read of `memory_engine.sync`, from the classes that it stands for: `python3 tasks.py sync`.

A signature is the async one, but for its words: a class that there is a handle for is the handle's, and what awaits
does not (`AsyncIterator` is `Iterator`, an async context manager is a context manager).
"""

import ast
import builtins
import inspect
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TypeVar

from memory_engine import moved, wiring
from memory_engine.administration.compactions import ThreadCompactions
from memory_engine.administration.of_store import StoreAdmin, Transfer
from memory_engine.administration.of_thread import Admin, Replay
from memory_engine.engine import Engine
from memory_engine.recall.service import Recall
from memory_engine.runtime.handle import ThreadHandle
from memory_engine.runtime.kernel import Kernel
from memory_engine.storage import places
from memory_engine.store.protocol import Store
from memory_engine.store.reader import LogReader
from memory_engine.sync import facade
from memory_engine.sync.facade import HOMES, MADE_BY_HAND, left_out
from memory_engine.thread import Thread
from memory_engine.views.of_thread import Views

STUB = Path(facade.__file__).with_name("__init__.pyi")
MOVED_STUB = Path(moved.__file__).with_suffix(".pyi")
MOVED_HEAD = "The names that moved, as type checkers see them. Made by `python3 tasks.py sync`; do not edit."
OLD_NAMES: dict[type, tuple[str, Mapping[str, str], dict[str, type]]] = {
    Thread: (
        "OldThreadNames",
        moved.OF_THREADS,
        {"replay": Replay, "admin": Admin, "compaction": ThreadCompactions, "views": Views, "_handle": ThreadHandle},
    ),
    Engine: ("OldEngineNames", moved.OF_ENGINES, {"admin": StoreAdmin, "transfer": Transfer}),
}
"""By class: that of its older names in `memory_engine.moved`, these, and the groups that they lead to."""
MOVED_BODY = """
import os
OF_THREADS: Mapping[str, str]
OF_ENGINES: Mapping[str, str]
MYPY = False

class OldNames: ...

def where_now(kind: type, name: str) -> str: ...
"""
ATTRIBUTES: dict[str, type | str] = {
    "_handle.as_of": "int | None",
    "_handle.kernel": Kernel,
    "_handle.kind": "str",
    "_kernel": Kernel,
    "_kernel.reader": LogReader,
    "_kernel.store": Store,
    "_recall": Recall,
    "_view_of_thread": "Any",
}
"""The types of older names that lead to an attribute."""
INSTEAD = {"AsyncIterator": "Iterator", "AsyncGenerator": "Iterator"}
HEAD = "The public face of the engine for code that does not await. Made by `python3 tasks.py sync`; do not edit."
OPENED = """
    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...
    def close(self) -> None:
        \"\"\"Close the store, when all that is under way has ended. Python's end does it too.\"\"\"

    def call(self, work: Callable[[AsyncEngine], Awaitable[T]]) -> T:
        \"\"\"What a coroutine function gives that takes the engine which awaits: for what the face here lacks.\"\"\"
"""
BLOCK = """
    def __enter__(self) -> Self: ...
    def __exit__(self, *error: object) -> bool | None: ...
"""
Function = ast.FunctionDef | ast.AsyncFunctionDef


class _Stub:
    """The text, and the names that it needs."""

    def __init__(self) -> None:
        self.imports: dict[str, str] = {
            "Awaitable": "collections.abc",
            "Callable": "collections.abc",
            "Self": "typing",
            "TypeVar": "typing",
        }
        self.variables = {"T"}

    def text(self) -> str:
        """All of it, as ruff formats it."""
        classes = [self._class(name) for name in HOMES]
        functions = [self._function(wiring.open, "Engine"), self._function(places.restore)]
        lines = [f"from {module} import {name}" for name, module in self.imports.items()]
        lines += ["from memory_engine.engine import Engine as AsyncEngine", "import os", "", "MYPY = False"]
        lines += [f'{name} = TypeVar("{name}")' for name in sorted(self.variables)]
        text = "\n".join([f'"""{HEAD}"""', *lines, *classes, *functions])
        return self._formatted(text, STUB)

    def _formatted(self, text: str, place: Path) -> str:
        for words in (["check", "--fix", "--select", "I,F401"], ["format"]):
            command = [sys.executable, "-m", "ruff", *words, "--quiet", "--stdin-filename", str(place), "-"]
            text = subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout
        return text

    def _class(self, name: str) -> str:
        kind = _kind(name)
        base = next((one for one in kind.__mro__[1:] if one.__name__ in HOMES), object)
        bases = [base.__name__] if base is not object else []
        for parameter in getattr(kind, "__parameters__", ()):
            self.imports["Generic"] = "typing"
            self.variables.add(parameter.__name__)
            bases.append(f"Generic[{parameter.__name__}]")
        body = [f"class {name}{'(' * bool(bases)}{', '.join(bases)}{')' * bool(bases)}:", f'    """{_first(kind)}"""']
        body += [f"    {line}" for line in self._attributes(kind, base)]
        for member in sorted(set(dir(kind)) - left_out(kind)):
            held = inspect.getattr_static(kind, member)
            is_own = held is not inspect.getattr_static(base, member, None)
            if is_own and not member.startswith("_") and not (kind is Engine and member in vars(facade.Closable)):
                body.append(textwrap.indent(self._member(held), "    "))
        if kind in OLD_NAMES:
            body += self._old_names(kind)
        body += [OPENED] if kind is Engine else [BLOCK] if hasattr(kind, "__aenter__") else []
        if name in MADE_BY_HAND:
            body.append(textwrap.indent(self._function(inspect.getattr_static(kind, "__init__")), "    "))
        return "\n".join(body)

    def _old_names(self, kind: type) -> Iterator[str]:
        """Those of a class, with what they give. Completion shows no names that only `__getattr__` knows.

        mypy takes any name by `__getattr__`, so it gets annotations instead: it reads `MYPY` as true. pyright does not,
        and would show the annotated names; but it knows `os.name`, which mypy does not.
        """
        _, known, groups = OLD_NAMES[kind]
        told = {old: self._leads_to(groups, path) for old, path in known.items() if self._has(kind, old, path)}
        self.imports |= {"Any": "typing", "Literal": "typing", "overload": "typing"}
        yield "    if MYPY:"
        yield '        if os.name == "mypy":'
        yield from (f"            {old}: {type_}" for old, type_ in told.items())
        yield "    else:"
        for type_ in dict.fromkeys(told.values()):
            literal = ", ".join(f'"{old}"' for old, one in told.items() if one == type_)
            yield f"        @overload\n        def __getattr__(self, name: Literal[{literal}]) -> {type_}: ..."

    def _has(self, kind: type, old: str, path: str) -> bool:
        """Whether the face that waits has an older name."""
        return old not in left_out(kind) and not path.startswith(("_kernel", "_recall"))

    def _leads_to(self, groups: Mapping[str, type], path: str) -> str:
        """The type of what is at a path."""
        attribute = ATTRIBUTES.get(path)
        if attribute is not None:
            return attribute if isinstance(attribute, str) else self._name(attribute.__name__, attribute.__module__)
        group, name = path.split(".")
        held = inspect.getattr_static(groups[group], name)
        function = held.fget if isinstance(held, property) else held
        tree = _tree(function)
        assert tree.returns is not None
        told = "Any" if _is_generic(tree) else self._type(tree.returns, inspect.unwrap(function).__module__)  # type: ignore[arg-type]
        return told if isinstance(held, property) else self._callable(tree, told)

    def _callable(self, tree: Function, told: str) -> str:
        return f"Callable[..., {told}]"

    def _attributes(self, kind: type, base: type) -> Iterator[str]:
        """What `__init__` sets, with the types that it says, or those of the parameters."""
        own = [one for one in kind.__mro__ if "__init__" in vars(one) and one not in base.__mro__]
        found: dict[str, str] = {}
        for one in reversed(own):
            function = _tree(inspect.getattr_static(one, "__init__"))
            given = {argument.arg: argument.annotation for argument in (*function.args.args, *function.args.kwonlyargs)}
            for node in ast.walk(function):
                match node:
                    case ast.AnnAssign(target=ast.Attribute(attr=name), annotation=annotation):
                        told = annotation
                    case ast.Assign(targets=[ast.Attribute(attr=name)], value=ast.Name(id=value)):
                        told = given.get(value) or ast.Name("object")
                    case ast.Assign(targets=[ast.Attribute(attr=name)], value=ast.Constant(value=constant)):
                        told = ast.Name(type(constant).__name__)
                    case _:
                        continue
                if not name.startswith("_") and name not in left_out(kind):
                    found[name] = self._type(told, one.__module__)
        for name, text in found.items():
            yield f"{name}: {text}"

    def _member(self, held: object) -> str:
        if isinstance(held, property):
            assert held.fget is not None
            return f"@property\n{self._function(held.fget)}"
        return self._function(held)

    def _function(self, held: object, returns: str = "") -> str:
        function, module = _tree(held), inspect.unwrap(held).__module__  # type: ignore[arg-type]
        arguments = function.args
        every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        for argument in (*every, *filter(None, (arguments.vararg, arguments.kwarg))):
            if argument.annotation is not None:
                argument.annotation = ast.Name(self._type(argument.annotation, module))
        arguments.defaults = [_default(one) for one in arguments.defaults]
        arguments.kw_defaults = [one and _default(one) for one in arguments.kw_defaults]
        assert function.returns is not None
        told = returns or self._type(function.returns, module)
        if any("asynccontextmanager" in ast.unparse(one) for one in function.decorator_list):
            self.imports["AbstractContextManager"] = "contextlib"
            told = told.replace("Iterator[", "AbstractContextManager[", 1)
        doc = ast.get_docstring(function)
        body = f'\n    """{doc.splitlines()[0]}"""' if doc else " ..."
        return f"def {function.name}({ast.unparse(arguments)}) -> {told}:{body}"

    def _type(self, annotation: ast.expr, module: str) -> str:
        """An annotation of a module in the words of the stub."""
        match annotation:
            case ast.Constant(value=str(text)):
                return self._type(ast.parse(text, mode="eval").body, module)
            case ast.Constant():
                return ast.unparse(annotation)
            case ast.Subscript(value=ast.Name(id="Awaitable"), slice=inner):
                return self._type(inner, module)
            case ast.Subscript(value=ast.Name(id="Literal")):
                self.imports["Literal"] = "typing"
                return ast.unparse(annotation)
            case ast.Subscript(value=value, slice=inner):
                return f"{self._type(value, module)}[{self._type(inner, module)}]"
            case ast.Tuple(elts=parts):
                return ", ".join(self._type(part, module) for part in parts)
            case ast.List(elts=parts):
                return f"[{', '.join(self._type(part, module) for part in parts)}]"
            case ast.BinOp(left=left, right=right):
                return " | ".join(dict.fromkeys((self._type(left, module), self._type(right, module))))
            case ast.Attribute(value=ast.Name(id=prefix), attr=name):
                return self._name(name, imported_names(module)[prefix])
            case ast.Name(id=name):
                return self._name(name, imported_names(module).get(name, "").rpartition(".")[0] or module)
        raise ValueError(f"{module}: {ast.unparse(annotation)}")

    def _name(self, name: str, home: str) -> str:
        found = getattr(import_module(home), name, None)
        if isinstance(found, TypeVar):
            self.variables.add(name)
        elif name in HOMES and found is _kind(name):
            return name
        elif name in INSTEAD:
            return self._name(INSTEAD[name], home)
        elif found is not None or not hasattr(builtins, name):
            known = self.imports.setdefault(name, home)
            assert found is getattr(import_module(known), name, None), f"{name}: {home} and {known}"
        return name


class _MovedStub(_Stub):
    """What type checkers read of `memory_engine.moved`: its names, as the classes that await give them."""

    def text(self) -> str:
        """All of it, as ruff formats it."""
        body = [MOVED_BODY]
        for kind, (name, _, _) in OLD_NAMES.items():
            body += [f"class {name}(OldNames):", *self._old_names(kind)]
        lines = [f"from {module} import {name}" for name, module in self.imports.items()]
        return self._formatted("\n".join([f'"""{MOVED_HEAD}"""', *lines, *body]), MOVED_STUB)

    def __init__(self) -> None:
        super().__init__()
        self.imports["Mapping"] = "collections.abc"

    def _has(self, kind: type, old: str, path: str) -> bool:
        return True

    def _callable(self, tree: Function, told: str) -> str:
        if not isinstance(tree, ast.AsyncFunctionDef):
            return super()._callable(tree, told)
        self.imports["Coroutine"] = "collections.abc"
        return f"Callable[..., Coroutine[Any, Any, {told}]]"

    def _name(self, name: str, home: str) -> str:
        found = getattr(import_module(home), name, None)
        if found is not None or not hasattr(builtins, name):
            self.imports[name] = getattr(found, "__module__", home) if isinstance(found, type) else home
        return name


def _is_generic(tree: Function) -> bool:
    """Whether it gives what it is given the type of: no annotation of an attribute can say that."""
    assert tree.returns is not None
    told = ast.walk(ast.parse(ast.unparse(tree.returns).strip("'"), mode="eval"))
    return any(isinstance(node, ast.Name) and len(node.id) == 1 for node in told)


def _kind(name: str) -> type:
    kind: type = getattr(import_module(f"memory_engine.{HOMES[name]}"), name)
    return kind


def _first(of: object) -> str:
    return (inspect.getdoc(of) or "").splitlines()[0]


def _tree(held: object) -> Function:
    [function] = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(held)))).body  # type: ignore[arg-type]
    assert isinstance(function, Function)
    return function


def _default(value: ast.expr) -> ast.expr:
    return value if isinstance(value, ast.Constant) else ast.Constant(...)


@cache
def imported_names(module: str) -> dict[str, str]:
    """Where the names come from that a module imports, for types only too."""
    tree = ast.parse(inspect.getsource(import_module(module)))
    return {
        alias.asname or alias.name: f"{node.module}.{alias.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def stubs() -> dict[Path, str]:
    """The texts of the stubs, by file."""
    return {STUB: _Stub().text(), MOVED_STUB: _MovedStub().text()}


if __name__ == "__main__":
    for place, text in stubs().items():
        place.write_text(text, "utf-8")
