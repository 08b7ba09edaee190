"""The reference of the command line, made of its parser."""

import argparse
from collections.abc import Iterable, Iterator
from pathlib import Path

from memory_engine.cli.program import COMMANDS, GROUPS, build_parser

SHARED = ("-h", "--db", "--json", "--plugins", "--no-plugins")


def write_commands(path: Path) -> None:
    """Write the page: the options that all commands share, then each group with its commands."""
    parser = build_parser(COMMANDS)
    about = "`memory-engine COMMAND --help` prints the same. [The command line](../tools/cli.md) shows them in use.\n"
    parts = ["# Commands\n", about, "## Options of every command\n", *_table(_options(parser, shared=True))]
    for name, group in GROUPS.items():
        parts.append(f"## {name}: {group.help}\n")
        for word, command in group.commands.items():
            inner = _choices(parser)[command]
            parts += _command(inner, COMMANDS[command].help, "" if word == command else f"`{name} {word}`")
    path.write_text("\n".join(parts), "utf-8")


def _command(parser: argparse.ArgumentParser, about: str, other: str) -> Iterator[str]:
    name = parser.prog.removeprefix("memory-engine ")
    yield f"### `{name}` {{ #{name.replace(' ', '-')} }}\n"
    yield f"{about[0].upper()}{about[1:]}.{f' Also {other}.' if other else ''}\n"
    arguments = [_name(one) for one in parser._positionals._group_actions if not _inner(one)]
    words = [parser.prog, "[OPTION …]", *arguments, *(["ACTION …"] if _choices(parser) else [])]
    yield f"```sh\n{' '.join(words)}\n```\n"
    yield from _table(_options(parser, shared=False))
    for inner in _choices(parser).values():
        yield from _command(inner, inner.description or "", "")


def _choices(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    return {name: one for action in parser._actions for name, one in (_inner(action) or {}).items()}


def _inner(action: argparse.Action) -> dict[str, argparse.ArgumentParser]:
    return action.choices if isinstance(action, argparse._SubParsersAction) else {}


def _options(parser: argparse.ArgumentParser, *, shared: bool) -> Iterator[tuple[str, str]]:
    for action in parser._actions:
        is_shared = bool({*action.option_strings} & {*SHARED, "--version"})
        if is_shared is shared and not _inner(action) and action.help is not argparse.SUPPRESS:
            words = parser._get_formatter()._expand_help(action) if action.help else ""
            yield ", ".join(_option(action, text) for text in action.option_strings) or f"`{_name(action)}`", words


def _option(action: argparse.Action, text: str) -> str:
    return f"`{text}`" if action.nargs == 0 else f"`{text} {_name(action)}`"


def _name(action: argparse.Action) -> str:
    word = (
        action.metavar
        if isinstance(action.metavar, str)
        else "|".join(map(str, action.choices or (action.dest.upper(),)))
    )
    match action.nargs:
        case "?":
            return f"[{word}]"
        case "*":
            return f"[{word} …]"
        case "+":
            return f"{word} …"
    return word


def _table(rows: Iterable[tuple[str, str]]) -> Iterator[str]:
    listed = [f"| {name.replace('|', chr(92) + '|')} | {words.replace('|', chr(92) + '|')} |" for name, words in rows]
    if listed:
        yield "\n".join(["| | |", "|---|---|", *listed]) + "\n"
