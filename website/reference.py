"""The reference: signatures and docstrings of the public names as Markdown, read from the sources and not imported.

Public is what `memory_engine` and its public modules name, what the docs import, and each class that a signature of
those leads to. A class is on the page of its room, under its own name.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TypeAlias

import attrs
import griffe

Documented: TypeAlias = griffe.Class | griffe.Function | griffe.Attribute

PACKAGE = "memory_engine"
PUBLIC = ("memory_engine", "memory_engine.errors", "memory_engine.testing", "memory_engine.compactors")
"""Modules whose names are all public. Those of `memory_engine.events` and `.sync` are names of the first, too."""
INNER = (
    *("cli", "core.arguments", "core.clock", "core.persistent", "core.records.StoredEvent", "core.state.StateDraft"),
    *("core.threads.Head", "core.threads.LoadedThread", "core.threads.ThreadRecord", "inspector", "runtime", "storage"),
    "store",
)
"""Below the public face: a signature that leads there needs no description."""
LED_TO = {"Act", "Backup", "StoreStats", "ThreadFilter", "ScopeHandle", "ThreadHandle"}
"""The exceptions to this."""
SHARED = ("Event", "MemoryEngineError", "ScopeHandle", "Store", "Thread", "ThreadHandle")
"""Classes whose heirs show only what they add."""
FIRST = ("open", "Engine", "Thread", "User", "Tenant", "Agent", "EngineConfig", "Event", "MemoryEngineError")
WORDS = re.compile(r"[A-Za-z_][\w.]*")
FIELD = re.compile(r"^(\w+(?:, \w+)*): ")


@attrs.frozen
class Room:
    """A page of the reference: its file's stem, its title, and its part of the tree."""

    name: str
    title: str
    about: str


ROOMS = (
    Room("engine", "Engine and threads", "What `open` gives you: the engine, its threads, users, tenants and agents."),
    Room("administration", "Erasing, holds and retention", "Acts on a store, each recorded."),
    Room("views", "Views", "The handles of `thread.scratchpad`, `user.preferences` and so on, and what they return."),
    Room("agents", "Agents and tools", "An agent's life, and its memory as tools for a model."),
    Room("context", "Contexts", "What a model sees next, and how it is shared out."),
    Room("recall", "Search", "Hits and their reasons."),
    Room("compaction", "Compaction", "When, what and by whom; the built-in compactors."),
    Room("core", "Values", "Records, chunks, operations, states, reductions."),
    Room("events", "Events", "Every built-in event, with its fields."),
    Room("replay", "Looking back", "Reports of verify, diff, why, bisect, what-if and export."),
    Room("llm", "Models", "What a language model or an embedder of yours has to do."),
    Room("plugins", "Plug-ins", "What a plug-in brings, and the mechanism of views."),
    Room("errors", "Errors", "Each names what, where and what to do next."),
    Room("testing", "Testing", "Fakes, scenarios, faults, and the contracts of a store and an embedder."),
    Room("integrations", "Integrations", "Adapters; each needs the extra of its name."),
)
PAGE_OF = {
    "compactors": "compaction",
    "engine": "engine",
    "files": "replay",
    "formats": "context",
    "ingest": "engine",
    "language": "recall",
    "options": "engine",
    "projections": "plugins",
    "reducers": "plugins",
    "reports": "replay",
    "runtime": "engine",
    "scopes": "engine",
    "storage": "engine",
    "store": "engine",
    "inspector": "engine",
    "interchange": "engine",
    "lab": "replay",
    "sync": "engine",
    "telemetry": "engine",
    "thread": "engine",
    "wiring": "engine",
    "workspace": "engine",
}


def write_reference(folder: Path, root: Path, imported: Iterable[str]) -> dict[str, str]:
    """Write a page a room into the folder, and return the place of each name: name -> `file.md#anchor`.

    `imported`: the paths of further public names, those that the docs import.
    """
    package = griffe.load(PACKAGE, search_paths=[root], resolve_aliases=True)
    if not isinstance(package, griffe.Module):
        raise TypeError(f"{PACKAGE} is not a package in {root}")
    rooms: dict[str, list[Documented]] = defaultdict(list)
    fakes = {*_exported(_module(package, f"{PACKAGE}.testing"))}
    for thing in _reached(package, imported):
        rooms["testing" if thing.name in fakes else _page(thing)].append(thing)
    places = {thing.name: f"{page}.md#{thing.name}" for page, things in rooms.items() for thing in things}
    folder.mkdir(parents=True, exist_ok=True)
    for room in ROOMS:
        things = sorted(rooms.pop(room.name, ()), key=_order)
        parts = [f"# {room.title}\n\n{room.about}\n", *(_written(thing, places) for thing in things)]
        (folder / f"{room.name}.md").write_text("\n".join(parts), "utf-8")
    if rooms:
        raise KeyError(f"no page of the reference for {sorted(rooms)}: add it to PAGE_OF")
    (folder / "index.md").write_text(_index(places), "utf-8")
    return places


def _reached(package: griffe.Module, imported: Iterable[str]) -> Iterator[Documented]:
    waiting: list[Documented] = [*_seeds(package, imported)]
    seen: set[str] = set()
    while waiting:
        thing = waiting.pop()
        if thing.canonical_path in seen:
            continue
        seen.add(thing.canonical_path)
        yield thing
        for name in sorted(_named_in(thing)):
            found = _found(package, name)
            if found is not None and not _is_inner(found):
                waiting.append(found)


def _seeds(package: griffe.Module, imported: Iterable[str]) -> Iterator[Documented]:
    names = [f"{module}.{name}" for module in PUBLIC for name in _exported(_module(package, module))]
    names += [f"{PACKAGE}.events.{name}" for name in map(str, _module(package, f"{PACKAGE}.events").exports or ())]
    names += imported
    for name in names:
        found = _found(package, name)
        if found is not None:
            yield found


def _exported(module: griffe.Module) -> list[str]:
    """The names that a module imports for others: `import X as X`, which type checkers read as public."""
    return re.findall(r"import (\w+) as \1\b", "\n".join(module.lines))


def _module(package: griffe.Module, path: str) -> griffe.Module:
    module = package if path == PACKAGE else package[path.removeprefix(f"{PACKAGE}.")]
    target = module.final_target if isinstance(module, griffe.Alias) else module
    if not isinstance(target, griffe.Module):
        raise TypeError(f"{path} is not a module")
    return target


def _found(package: griffe.Module, path: str) -> Documented | None:
    """The object at a path, if it is a public thing of ours with a docstring."""
    try:
        found = package[_past_property(package, path.removeprefix(f"{PACKAGE}."))]
        target = found.final_target if isinstance(found, griffe.Alias) else found
    except (KeyError, griffe.AliasResolutionError, griffe.CyclicAliasError):
        return None
    ours = target.canonical_path.startswith(f"{PACKAGE}.") and not target.name.startswith("_")
    if not (ours and target.docstring):
        return None
    if isinstance(target, griffe.Attribute):
        return target if isinstance(target.parent, griffe.Module) else None
    return target if isinstance(target, griffe.Class | griffe.Function) else None


def _past_property(package: griffe.Module, path: str) -> str:
    """The path without the class, where a property is called as the module of its type is: `Thread.screen.Screen`."""
    parts = path.split(".")
    for place in range(1, len(parts) - 1):
        owner = package[parts[:place]]
        if isinstance(owner, griffe.Class):
            return ".".join([*parts[: place - 1], *parts[place:]])
    return path


def _is_inner(thing: Documented) -> bool:
    path = thing.canonical_path.removeprefix(f"{PACKAGE}.")
    inside = f"{path}.".startswith(tuple(f"{inner}." for inner in INNER)) and thing.name not in LED_TO
    return inside or not isinstance(thing, griffe.Class)


def _named_in(thing: Documented) -> set[str]:
    """The paths of ours in the signatures of a thing and of its public members."""
    expressions: list[object] = []
    for part in (thing, *_members(thing).values()):
        if isinstance(part, griffe.Function):
            expressions += [part.returns, *(parameter.annotation for parameter in part.parameters)]
        elif isinstance(part, griffe.Attribute):
            expressions.append(part.annotation)
    return {path for one in expressions if isinstance(one, griffe.Expr) for path in _paths(one)}


def _paths(expression: griffe.Expr) -> Iterator[str]:
    for part in expression.iterate(flat=True):
        if isinstance(part, griffe.Expr):
            path = part.canonical_path
            if path.startswith(f"{PACKAGE}."):
                yield path


def _members(thing: griffe.Object) -> dict[str, griffe.Function | griffe.Attribute]:
    """The public methods, properties and fields of a class, those of bases without an entry of their own among them."""
    if not isinstance(thing, griffe.Class):
        return {}
    found: dict[str, griffe.Function | griffe.Attribute] = {}
    inherited = {name: one for name, one in thing.inherited_members.items() if not (_has_entry(one) or _is_old(one))}
    for name, member in {**inherited, **thing.members}.items():
        target = member.final_target if isinstance(member, griffe.Alias) else member
        if name.startswith("_") or not isinstance(target, griffe.Function | griffe.Attribute):
            continue
        is_set_in_init = isinstance(target, griffe.Attribute) and target.labels == {"instance-attribute"}
        if not (is_set_in_init and target.annotation is None):
            found[name] = target
    return found


def _is_old(member: griffe.Alias | griffe.Object) -> bool:
    """Whether it is a name that moved: it is described where it is now."""
    target = member.final_target if isinstance(member, griffe.Alias) else member
    return target.canonical_path.startswith(f"{PACKAGE}.moved.")


def _has_entry(member: griffe.Alias | griffe.Object) -> bool:
    """Whether the class that a member is of has an entry, so that its heirs need not repeat it."""
    home = (member.final_target if isinstance(member, griffe.Alias) else member).parent
    return home is not None and home.name in SHARED


def _page(thing: Documented) -> str:
    path = thing.canonical_path.split(".")
    room = path[1]
    if "events" in path[1:-1] and room in ("core", "views"):
        return "events"
    if room == "core" and path[2] == "threads":
        return "engine"
    return PAGE_OF.get(room, room)


def _order(thing: Documented) -> tuple[int, bool, str]:
    """First what everyone uses, then functions, then classes, by name."""
    place = FIRST.index(thing.name) if thing.name in FIRST else len(FIRST)
    return place, not isinstance(thing, griffe.Function), thing.name.lower()


def _written(thing: Documented, places: Mapping[str, str]) -> str:
    parts = [f"## `{thing.name}` {{ #{thing.name} }}\n"]
    home = f"`{thing.canonical_path.rpartition('.')[0]}`"
    match thing:
        case griffe.Class():
            parts.append(_code(f"class {thing.name}" + _bases(thing)))
            parts.append(_prose(thing, places))
            parts += [*_fields(thing, places), *_properties(thing, places), *_methods(thing, places)]
        case griffe.Function():
            parts += [_code(_signature(thing)), _types(thing, places), _prose(thing, places)]
        case _:
            parts += [_code(f"{thing.name} = {thing.value}"), _prose(thing, places)]
    return "\n".join([*parts, f"Home: {home}\n"] if _page(thing) != "events" else parts)


def _bases(thing: griffe.Class) -> str:
    bases = ", ".join(map(str, thing.bases))
    return f"({bases})" if bases else ""


def _code(text: str) -> str:
    return f"```text\n{text}\n```\n".replace("```text", "```{.python .no-copy}")


_STARS = {griffe.ParameterKind.var_positional: "*", griffe.ParameterKind.var_keyword: "**"}


def _signature(function: griffe.Function) -> str:
    words: list[str] = []
    star = False
    for parameter in function.parameters:
        if parameter.name in ("self", "cls"):
            continue
        if parameter.kind is griffe.ParameterKind.keyword_only and not star:
            words.append("*")
            star = True
        prefix = _STARS.get(parameter.kind, "") if parameter.kind is not None else ""
        star = star or bool(prefix)
        annotation = f": {parameter.annotation}" if parameter.annotation is not None else ""
        default = f" = {parameter.default}" if parameter.default is not None and not prefix else ""
        words.append(f"{prefix}{parameter.name}{annotation}{default}")
    head = f"{'async ' if 'async' in function.labels else ''}def {function.name}"
    tail = f" -> {function.returns}" if function.returns is not None else ""
    line = f"{head}({', '.join(words)}){tail}"
    return line if len(line) <= 100 else f"{head}(\n    " + ",\n    ".join(words) + f",\n){tail}"


def _types(function: griffe.Function, places: Mapping[str, str]) -> str:
    """Links to the classes that a signature names."""
    annotations = [*(parameter.annotation for parameter in function.parameters), function.returns]
    named = [word.rpartition(".")[2] for one in annotations for word in WORDS.findall(str(one or ""))]
    links = [f"[`{name}`]({places[name]})" for name in dict.fromkeys(named) if name in places]
    return f"See {', '.join(links)}.\n" if links else ""


def _prose(thing: griffe.Object, places: Mapping[str, str]) -> str:
    """A docstring as Markdown: its `name: what` lines become a list."""
    text = thing.docstring.value if thing.docstring else ""
    lines: list[str] = []
    for line in text.splitlines():
        found = FIELD.match(line)
        if found and line[0].islower():
            if not (lines and lines[-1].startswith(("- ", "  "))):
                lines.append("")
            lines.append(FIELD.sub(lambda match: f"- `{match[1]}`: ", line))
        else:
            lines.append(line)
    return linked("\n".join(lines), places).replace("<", "&lt;") + "\n"


def linked(text: str, places: Mapping[str, str], to: str = "") -> str:
    """Make a link of each name in backquotes that the reference has."""
    return re.sub(
        r"(?<![\[`])`(?:memory_engine\.)?(\w+)`(?!`)",
        lambda found: f"[`{found[1]}`]({to}{places[found[1]]})" if found[1] in places else found[0],
        text,
    )


def _type(annotation: object, places: Mapping[str, str]) -> str:
    """An annotation in a table's cell, with links to the classes that it names."""
    parts: list[str] = []
    text, last = str(annotation or ""), 0
    for found in WORDS.finditer(text):
        name = found[0].rpartition(".")[2]
        if name in places:
            parts += [_cell(text[last : found.start()]), f"[`{name}`]({places[name]})"]
            last = found.end()
    return "".join([*parts, _cell(text[last:])])


def _cell(text: str) -> str:
    shown = text.replace("|", "\\|")
    return f"`{shown}`" if text.strip() else text


def _fields(thing: griffe.Class, places: Mapping[str, str]) -> Iterator[str]:
    fields = [
        one for one in _members(thing).values() if isinstance(one, griffe.Attribute) and "property" not in one.labels
    ]
    if fields:
        yield "| field | type | default | |\n|---|---|---|---|"
        for one in fields:
            type_, default = _type(one.annotation, places), _cell(_default(one.value))
            yield f"| `{one.name}` | {type_} | {default} | {_line(one, places)} |"
        yield ""


def _default(value: object) -> str:
    """A field's default; the rest of attrs' and msgspec's `field(…)` is none."""
    text = str(value) if value is not None else ""
    if text.startswith(("field(", "attrs.field(", "msgspec.field(")):
        found = re.search(r"(?:default|factory|default_factory)=((?:[^,()]|\([^()]*\))+)", text)
        return found[1] if found else ""
    return text


def _properties(thing: griffe.Class, places: Mapping[str, str]) -> Iterator[str]:
    found = [one for one in _members(thing).values() if isinstance(one, griffe.Attribute) and "property" in one.labels]
    if found:
        yield "| property | type | |\n|---|---|---|"
        for one in found:
            yield f"| `{one.name}` | {_type(one.annotation, places)} | {_line(one, places)} |"
        yield ""


def _line(thing: griffe.Object, places: Mapping[str, str]) -> str:
    text = " ".join(thing.docstring.value.split()) if thing.docstring else ""
    return linked(text.replace("|", "\\|"), places).replace("<", "&lt;")


def _methods(thing: griffe.Class, places: Mapping[str, str]) -> Iterator[str]:
    for name, one in sorted(_members(thing).items()):
        if isinstance(one, griffe.Function):
            yield f"### `{name}` {{ #{thing.name}.{name} }}\n"
            yield _code(_signature(one))
            yield _types(one, places)
            yield _prose(one, places)


def _index(places: Mapping[str, str]) -> str:
    rooms = "\n".join(f"| [{room.title}]({room.name}.md) | {room.about} |" for room in ROOMS)
    names: Iterable[str] = sorted(places, key=str.lower)
    listed = ", ".join(f"[`{name}`]({places[name]})" for name in names)
    return (
        "# Reference\n\nMade of the signatures and docstrings of this version. Most names come from `memory_engine`,"
        " errors from `memory_engine.errors`; under each stands the module that it is in. `memory_engine.sync` has the"
        " same handles for code that does not await: the same methods, without `await`.\n\n"
        f"| | |\n|---|---|\n{rooms}\n| [Commands](commands.md) | Every command, from its parser. |\n\n"
        f"## All names\n\n{listed}\n"
    )
