"""A small codebase for recorded agents to work in, made by a seed, and the tools that read, search, edit and test it.

Some functions have a fault; their tests fail while it is in the file.
"""

from collections.abc import Iterator, Sequence
from random import Random

import msgspec
from attrs import define, field, frozen

FUNCTIONS_A_THING = 6
FAULTY_SHARE = 0.4
FAULT_AT = 5
"""The line of a function, from 1, that may be wrong."""
SEARCH_LINES_MAX = 40
LOG_LINES = 60


class Project(msgspec.Struct, frozen=True):
    """The words that a codebase is made of."""

    package: str
    about: str
    code: str
    things: list[str]
    verbs: list[str]
    measures: list[str]
    roles: list[str]


@frozen(kw_only=True)
class Function:
    """A function of a service: the places of it and of its test, the line that is right and two that are wrong."""

    name: str
    thing: str
    measure: str
    path: str
    test_path: str
    test: str
    constant: str
    right: str
    wrong: str
    tried: str


@define
class Workspace:
    """The files by path, and what an agent's tools answer about them."""

    project: Project
    files: dict[str, str]
    functions: list[Function]
    settings: dict[str, int]
    edited: dict[str, int] = field(factory=dict)

    def read(self, path: str, start: int = 1, end: int | None = None) -> str:
        """Return lines of a file (from 1, `end` included), each behind its number."""
        lines = self.files[path].splitlines()[start - 1 : end]
        return "\n".join(f"{number:5}\t{line}" for number, line in enumerate(lines, start))

    def line_of(self, path: str, word: str) -> int:
        """Return the number of the first line with `word` in it; 1 without one."""
        lines = self.files[path].splitlines()
        return next((number for number, line in enumerate(lines, 1) if word in line), 1)

    def search(self, word: str) -> str:
        """Return the lines with `word` in them, as `path:line: text`."""
        found = [
            f"{path}:{number}: {line.strip()}"
            for path, text in self.files.items()
            for number, line in enumerate(text.splitlines(), 1)
            if word in line
        ]
        more = [f"… {len(found) - SEARCH_LINES_MAX} more"] if len(found) > SEARCH_LINES_MAX else []
        return "\n".join(found[:SEARCH_LINES_MAX] + more) or "no matches"

    def edit(self, path: str, old: str, new: str) -> str:
        """Replace the first `old` in a file by `new`."""
        if old not in self.files[path]:
            return f"error: no such text in {path}"
        self.files[path] = self.files[path].replace(old, new, 1)
        self.edited[path] = self.edited.get(path, 0) + 1
        return f"edited {path}, line {self.line_of(path, new.splitlines()[-1].strip())}"

    def failing(self, path: str = "") -> list[Function]:
        """Return the functions whose test is red, of one file of tests or of all."""
        asked = [one for one in self.functions if path in ("", one.test_path)]
        return [one for one in asked if self.beginning(one)[-1].strip() != one.right]

    def beginning(self, function: Function) -> list[str]:
        """Return the first lines of a function in the file, up to the one that may be wrong."""
        at = self.line_of(function.path, f"def {function.name}(")
        return self.files[function.path].splitlines()[at - 1 : at - 1 + FAULT_AT]

    def test(self, path: str = "") -> str:
        """Return what pytest prints for one file of tests, or for all."""
        red = self.failing(path)
        count = sum(path in ("", one.test_path) for one in self.functions)
        parts = [self._failure(one) for one in (red if path else ())]
        short = [f"FAILED {one.test_path}::{one.test} - {self._assertion(one)}" for one in red]
        summary = f"{len(red)} failed, {count - len(red)} passed" if red else f"{count} passed"
        return "\n".join([*parts, *short, f"{summary} in {count * 0.031:.2f}s"])

    def _assertion(self, function: Function) -> str:
        """Return the assertion that fails, with what a faulty function returns."""
        limit = self.settings[function.constant]
        got = limit * 100 if self.beginning(function)[-1].strip() == function.wrong else limit - 1
        return f"assert {got} == {limit}"

    def _failure(self, function: Function) -> str:
        at = self.line_of(function.test_path, f"def {function.test}(")
        lines = self.files[function.test_path].splitlines()[at - 1 : at + 4]
        shown = [f"    {line}" for line in lines[:-1]] + [f">   {lines[-1]}"]
        inside = self.line_of(function.path, f"def {function.name}(")
        return "\n".join(
            [
                f"{'_' * 20} {function.test} {'_' * 20}",
                "",
                *shown,
                f"E       {self._assertion(function)}",
                "",
                f"{function.path}:{inside + FAULT_AT - 1}: in {function.name}",
                self.beginning(function)[-1],
                f"{function.test_path}:{at + 4}: AssertionError",
            ]
        )

    def changes(self) -> str:
        """Return the edited files, as `git diff --stat` lists them."""
        rows = [f" {path:<44} | {2 * count:>3} {'+' * count}{'-' * count}" for path, count in self.edited.items()]
        return "\n".join([*rows, f" {len(rows)} files changed"])

    def log(self, about: Function, random: Random) -> str:
        """Return the newest lines of the application's log, some of them about a function."""
        return "\n".join(self._log_lines(about, random))

    def _log_lines(self, about: Function, random: Random) -> Iterator[str]:
        for number in range(LOG_LINES):
            one = about if number % 7 == 3 else random.choice(self.functions)
            level = "WARNING" if one is about else random.choice(("INFO", "INFO", "DEBUG"))
            moment = f"2026-03-{random.randint(1, 28):02} {random.randint(0, 23):02}:{random.randint(0, 59):02}:07"
            key = f"{self.project.code}-{random.randint(10_000, 99_999)}"
            amount = f"{one.measure}={self.settings[one.constant]}"
            said = f"{self.project.package}.{one.thing}: {one.name} {one.thing}_id={key} {amount}"
            yield f"{moment},{number:03} {level} {said}"


def workspace(project: Project, contributing: str, random: Random) -> Workspace:
    """Return a new codebase of a project. `contributing` is the text of its rules for contributors."""
    settings = {
        f"{thing}_{measure}_{end}".upper(): random.randint(12, 980)
        for thing in project.things
        for measure in project.measures
        for end in ("max", "grace")
    }
    functions = [one for thing in project.things for one in _functions(project, thing, settings, random)]
    package = project.package
    files = {
        "README.md": f"# {package}\n\n{project.about.capitalize()}.\n\nSee CONTRIBUTING.md and docs/decisions.md.\n",
        f"{package}/settings.py": _settings(settings, package),
        f"{package}/errors.py": _errors(project.things),
        "config/production.yaml": "".join(f"{name.lower()}: {value}\n" for name, value in settings.items()),
        "CONTRIBUTING.md": contributing,
        "docs/decisions.md": "# Decisions\n\n## Before the handover\n\nNothing was written down.\n",
        "CHANGELOG.md": "# Changelog\n\n## Unreleased\n",
        "tests/conftest.py": _fixtures(project),
        f"{package}/api/routes.py": _routes(package, functions),
    }
    for thing in project.things:
        own = [one for one in functions if one.thing == thing]
        files[f"{package}/models/{thing}.py"] = _model(project, thing)
        files[f"{package}/store/{thing}_store.py"] = _store(package, thing)
        files[f"{package}/services/{thing}_service.py"] = _service(project, thing, own, functions, random)
        files[f"tests/test_{thing}_service.py"] = _tests(package, thing, own)
    faulty = random.sample(functions, int(FAULTY_SHARE * len(functions)))
    made = Workspace(project, files, functions, settings)
    for one in faulty:
        lines = made.beginning(one)
        wrong = [*lines[:-1], f"    {one.wrong}"]
        made.files[one.path] = made.files[one.path].replace("\n".join(lines), "\n".join(wrong), 1)
    return made


def _functions(project: Project, thing: str, settings: dict[str, int], random: Random) -> Iterator[Function]:
    package = project.package
    names = [f"{verb}_{thing}" for verb in project.verbs]
    names += [f"{verb}_{thing}_for_{role}" for verb in project.verbs for role in project.roles]
    for name in random.sample(names, FUNCTIONS_A_THING):
        measure = random.choice(project.measures)
        constant = f"{thing}_{measure}_{random.choice(('max', 'grace'))}".upper()
        other = constant.replace("_MAX", "_GRACE") if constant.endswith("_MAX") else constant.replace("_GRACE", "_MAX")
        right, wrong, tried = random.choice(
            (
                (f"if {measure} >= settings.{constant}:", f"if {measure} > settings.{constant}:", f"if {measure} > 0:"),
                (f"allowed = settings.{constant}", f"allowed = settings.{other}", f"allowed = settings.{constant} - 1"),
                (
                    f"due = {measure} * settings.{constant} // 100",
                    f"due = {measure} * settings.{constant}",
                    f"due = {measure} * settings.{other} // 100",
                ),
            )
        )
        yield Function(
            name=name,
            thing=thing,
            measure=measure,
            path=f"{package}/services/{thing}_service.py",
            test_path=f"tests/test_{thing}_service.py",
            test=f"test_{name}_at_the_limit",
            constant=constant,
            right=right,
            wrong=wrong,
            tried=tried,
        )


def _settings(settings: dict[str, int], package: str) -> str:
    lines = [f'"""Limits of {package}. Production reads config/production.yaml over them."""\n']
    return "\n".join([*lines, *(f"{name} = {value}" for name, value in settings.items())]) + "\n"


def _class(thing: str) -> str:
    return thing.capitalize()


def _errors(things: Sequence[str]) -> str:
    head = '"""What can go wrong."""\n\n\nclass UserFacing(Exception):\n    """Shown to a customer."""\n'
    classes = (
        f"\n\nclass {_class(thing)}{end}(UserFacing):\n    status = {400 + 3 * number}\n"
        for number, thing in enumerate(things)
        for end in ("Closed", "NotFound", "OverLimit")
    )
    return head + "".join(classes)


def _fixtures(project: Project) -> str:
    parts = [
        f"@pytest.fixture\ndef {thing}_factory(store):\n    def make(**fields):\n"
        f'        return {_class(thing)}({thing}_id="{project.code}-{1000 + 7 * number}", state="open", **fields)\n\n'
        "    return make\n"
        for number, thing in enumerate(project.things)
    ]
    imports = [f"from {project.package}.models.{thing} import {_class(thing)}" for thing in project.things]
    return "\n".join(["import pytest\n", *imports, "\n", "\n\n".join(parts)])


def _routes(package: str, functions: Sequence[Function]) -> str:
    head = [f'"""The HTTP interface of {package}."""\n', "from fastapi import APIRouter\n", "router = APIRouter()\n"]
    routes = [
        f'\n@router.post("/{one.thing}s/{{{one.thing}_id}}/{one.name.partition("_")[0]}")\n'
        f"async def post_{one.name}({one.thing}_id: str, body: {_class(one.thing)}Body) -> dict[str, object]:\n"
        f"    {one.thing} = await {one.thing}_store.load({one.thing}_id)\n"
        f"    return as_json({one.thing}_service.{one.name}({one.thing}, body.{one.measure}))\n"
        for one in functions[::3]
    ]
    return "\n".join([*head, *routes])


def _model(project: Project, thing: str) -> str:
    fields = "".join(f"    {measure}: int = 0\n" for measure in project.measures)
    roles = "".join(f"    {role}_id: str | None = None\n" for role in project.roles)
    return (
        f'"""A {thing}, as it is stored."""\n\nfrom attrs import frozen\n\n\n@frozen\nclass {_class(thing)}:\n'
        f"    {thing}_id: str\n    state: str\n{fields}{roles}\n    @property\n    def is_open(self) -> bool:\n"
        f'        return self.state not in ("closed", "void")\n'
    )


def _store(package: str, thing: str) -> str:
    name = _class(thing)
    return f'''"""{name}s in the database."""

from {package}.errors import {name}NotFound
from {package}.models.{thing} import {name}
from {package}.store.base import Store, rows

TABLE = "{package}_{thing}s"


class {name}Store(Store):
    async def load(self, {thing}_id: str) -> {name}:
        found = await rows(self.connection, f"SELECT * FROM {{TABLE}} WHERE {thing}_id = ?", {thing}_id)
        if not found:
            raise {name}NotFound({thing}_id)
        return {name}(**found[0])

    async def save_{thing}(self, {thing}: {name}) -> None:
        await self.upsert(TABLE, "{thing}_id", {thing})

    async def open_{thing}s(self, limit: int = 500) -> list[{name}]:
        found = await rows(self.connection, f"SELECT * FROM {{TABLE}} WHERE state = 'open' LIMIT ?", limit)
        return [{name}(**row) for row in found]
'''


def _service(
    project: Project, thing: str, own: Sequence[Function], functions: Sequence[Function], random: Random
) -> str:
    name, package = _class(thing), project.package
    others = random.sample([one for one in functions if one.thing != thing], len(own))
    imports = sorted({f"from {package}.services import {one.thing}_service" for one in others})
    head = [
        f'"""What can be done with a {thing}."""\n',
        "from attrs import evolve\n",
        f"from {package} import audit, settings",
        f"from {package}.errors import {name}Closed, {name}OverLimit",
        f"from {package}.models.{thing} import {name}",
        *imports,
        "\n",
    ]
    return "\n".join([*head, "\n\n".join(_body(*pair, random) for pair in zip(own, others, strict=True))])


def _body(one: Function, other: Function, random: Random) -> str:
    thing, measure = one.thing, one.measure
    role = one.name.partition("_for_")[2] or thing
    over = f"        raise {_class(thing)}OverLimit({thing}.{thing}_id, {{}})"
    lines = [
        f"def {one.name}({thing}: {_class(thing)}, {measure}: int, *, dry_run: bool = False) -> {_class(thing)}:",
        f'    """{one.name.replace("_", " ").capitalize()}, and tell the {role} what became of it."""',
        f"    if not {thing}.is_open:",
        f"        raise {_class(thing)}Closed({thing}.{thing}_id)",
        f"    {one.right}",
    ]
    if one.right.startswith("if"):
        lines.append(f"        return evolve({thing}, {measure}={measure})")
    elif one.right.startswith("allowed"):
        lines += [f"    if {measure} > allowed:", over.format("allowed")]
    else:
        lines += ["    if due < 0:", over.format("due")]
    if random.random() < 0.6:
        lines += [
            f"    related = {other.thing}_service.{other.name}({thing}.related, {measure}, dry_run=True)",
            f"    if related is not None and related.{other.measure} > settings.{other.constant}:",
            f'        audit.warn("{one.name}", {thing}.{thing}_id, related.{other.thing}_id)',
        ]
    lines += [
        "    if dry_run:",
        f"        return {thing}",
        f'    audit.record("{one.name}", {thing}.{thing}_id, {measure}={measure})',
        f"    return evolve({thing}, {measure}={thing}.{measure} + {measure})",
    ]
    return "\n".join(lines) + "\n"


def _tests(package: str, thing: str, own: Sequence[Function]) -> str:
    names = ", ".join(one.name for one in own)
    tests = [
        f"def {one.test}({thing}_factory):\n"
        f'    """The limit itself still counts."""\n'
        f"    limit = settings.{one.constant}\n"
        f"    changed = {one.name}({thing}_factory({one.measure}=limit), limit)\n"
        f"    assert changed.{one.measure} == limit\n"
        for one in own
    ]
    head = f"from {package} import settings\nfrom {package}.services.{thing}_service import {names}\n\n\n"
    return head + "\n\n".join(tests)
