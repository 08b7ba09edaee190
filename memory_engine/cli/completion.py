"""The command that prints a shell's completion script for commands, options and thread ids."""

import argparse
from collections.abc import Iterable, Iterator, Mapping, Sequence

from attrs import frozen

from memory_engine.cli.commands import Command, WrongArgument, existing
from memory_engine.cli.options import CHOSEN, KeyChoice
from memory_engine.cli.program import COMMANDS, GROUPS, build_parser
from memory_engine.cli.terminal import Terminal
from memory_engine.core.lazy import regex
from memory_engine.errors import MemoryEngineError

SHELLS = ("bash", "zsh", "fish")
THREADS_MAX = 500
_THREADS = ("thread", "within")
_PLAIN = regex(r"[A-Za-z0-9_][A-Za-z0-9_./@+-]*")
"""Thread ids that are offered. A shell would expand or split others."""


def _declare_completion(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", metavar="SHELL", nargs="?", choices=SHELLS, help=f"{', '.join(SHELLS)}")
    parser.add_argument("--threads", action="store_true", help="print thread ids instead, as the scripts ask for them")


async def completion(asked: argparse.Namespace, terminal: Terminal) -> int:
    """Print the script of a shell, or the ids that it offers."""
    if asked.threads:
        return await _put_threads(asked, terminal)
    if asked.shell is None:
        raise WrongArgument(f"name the shell: {', '.join(SHELLS)}")
    script = _fish() if asked.shell == "fish" else _bash(is_zsh=asked.shell == "zsh")
    terminal.json({"shell": asked.shell, "script": script})
    terminal.say(script.removesuffix("\n"))
    return 0


async def _put_threads(asked: argparse.Namespace, terminal: Terminal) -> int:
    """The ids of the threads that were written to last; none if there is no database."""
    CHOSEN.set(KeyChoice(may_ask=False))
    try:
        async with existing(asked.db, read_only=True) as engine:
            found = [info.id for info in await engine.threads(order="updated", limit=THREADS_MAX)]
    except MemoryEngineError:
        found = []
    plain = [thread_id for thread_id in found if _PLAIN.fullmatch(thread_id)]
    terminal.json(plain)
    for thread_id in plain:
        terminal.put(thread_id)
    return 0


@frozen
class _Option:
    """An option of a command."""

    names: Sequence[str]
    help: str
    takes_value: bool
    choices: Sequence[str] = ()


@frozen
class _Usage:
    """The words that may follow a command, and the words that call it: `why`, `debug why`."""

    calls: Sequence[str]
    help: str
    options: Sequence[_Option]
    actions: Sequence[str] = ()
    takes_thread: bool = False


def _usages() -> Iterator[_Usage]:
    """The usages of all commands; actions of a command (`docs add`) come before it."""
    top = next(_inner(build_parser(COMMANDS)))
    for name, parser in top.items():
        within = [f"{group} {word}" for group, of in GROUPS.items() for word, at in of.commands.items() if at == name]
        calls = [name, *within]
        actions = next(_inner(parser), {})
        for action, inner in actions.items():
            yield _usage([f"{call} {action}" for call in calls], inner, ())
        yield _usage(calls, parser, [*actions, *(GROUPS[name].commands if name in GROUPS else ())])


def _actions(parser: argparse.ArgumentParser) -> Sequence[argparse.Action]:
    return parser._actions


def _inner(parser: argparse.ArgumentParser) -> Iterator[Mapping[str, argparse.ArgumentParser]]:
    """The parsers of a parser's commands, by name."""
    for action in _actions(parser):
        if isinstance(action.choices, Mapping):
            yield action.choices


def _usage(calls: Sequence[str], parser: argparse.ArgumentParser, actions: Sequence[str]) -> _Usage:
    found = [
        _Option(one.option_strings, one.help or "", one.nargs != 0, [*map(str, one.choices or ())])
        for one in _actions(parser)
        if one.option_strings
    ]
    takes_thread = any(one.dest in _THREADS and not one.option_strings for one in _actions(parser))
    return _Usage(calls, parser.description or "", found, actions, takes_thread)


_BASH = """\
_memory_engine() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} said=" " db="" n
    local flags="" valued="" among="" follows="" thread=""
    COMPREPLY=()
    for ((n = 1; n < COMP_CWORD; n++)); do
        case ${COMP_WORDS[n]} in
            --db) n=$((n + 1)); db=${COMP_WORDS[n]} ;;
            --plugins) n=$((n + 1)) ;;
            -*) ;;
            *) said="$said${COMP_WORDS[n]} " ;;
        esac
    done
    case $said in
@ARMS@
    esac
    if [[ -n $among ]]; then
        COMPREPLY=($(compgen -W "$among" -- "$cur"))
    elif [[ $prev == --thread || ( -n $thread && $cur != -* && " $valued " != *" $prev "* ) ]]; then
        COMPREPLY=($(compgen -W "$(memory-engine completion --threads ${db:+--db "$db"} 2>/dev/null)" -- "$cur"))
    elif [[ " $valued " == *" $prev "* ]]; then
        return
    elif [[ $cur == -* ]]; then
        COMPREPLY=($(compgen -W "$flags" -- "$cur"))
    else
        COMPREPLY=($(compgen -W "$follows" -- "$cur"))
    fi
}
complete -o bashdefault -o default -F _memory_engine memory-engine
"""


def _bash(*, is_zsh: bool) -> str:
    """A bash function; zsh reads it with `bashcompinit`."""
    usages = sorted(_usages(), key=lambda one: (one.calls[0] in GROUPS, -one.calls[0].count(" ")))  # `threads` last
    arms = [_arm(one) for one in usages]
    arms += [_group_arm(name) for name in GROUPS if name not in COMMANDS]
    every = " ".join(dict.fromkeys([*GROUPS, *COMMANDS]))
    arms.append(f"""        " ") flags="--help --version {_SHARED}"; valued="--db --plugins"; follows="{every}" ;;""")
    head = "autoload -U +X compinit bashcompinit && compinit && bashcompinit\n" if is_zsh else ""
    return head + _BASH.replace("@ARMS@", "\n".join(arms))


_SHARED = "--db --json --plugins --no-plugins"


def _group_arm(name: str) -> str:
    return f'        " {name} ") follows="{_word_list(GROUPS[name].commands)}" ;;'


def _arm(usage: _Usage) -> str:
    """A command's case: its options, those with a value, and what else may follow."""
    patterns = "|".join(f'" {call} "*' for call in sorted(usage.calls, key=len, reverse=True))
    said = [
        f'flags="{_word_list(name for one in usage.options for name in one.names)}"',
        f'valued="{_word_list(name for one in usage.options if one.takes_value for name in one.names)}"',
    ]
    if usage.actions:
        said.append(f'follows="{_word_list(usage.actions)}"')
    if usage.takes_thread:
        said.append("thread=1")
    said += [
        f'if [[ $prev == {name} ]]; then among="{_word_list(one.choices)}"; fi'
        for one in usage.options
        if one.choices
        for name in one.names
    ]
    return f"        {patterns}) {'; '.join(said)} ;;"


def _word_list(names: Iterable[str]) -> str:
    return " ".join(names)


def _fish() -> str:
    """`complete` lines, each on the condition that its command was typed."""
    lines = ["complete -c memory-engine -n __fish_use_subcommand -f"]
    for name, group in GROUPS.items():
        if name not in COMMANDS:
            lines.append(f"complete -c memory-engine -n __fish_use_subcommand -a {name} -d {_fish_quoted(group.help)}")
        lines += [
            f"complete -c memory-engine -n '__fish_seen_subcommand_from {name}' -f -a {word} -d "
            + _fish_quoted(COMMANDS[of].help)
            for word, of in group.commands.items()
        ]
    for usage in _usages():
        *_, name = usage.calls[0].split(" ")
        seen = f"complete -c memory-engine -n '__fish_seen_subcommand_from {_word_list(usage.calls[0].split())}'"
        if name in COMMANDS:
            lines.append(f"complete -c memory-engine -n __fish_use_subcommand -a {name} -d {_fish_quoted(usage.help)}")
        lines += [f"{seen} -f -a {action}" for action in usage.actions if name not in GROUPS]
        if usage.takes_thread:
            lines.append(f"{seen} -f -a '(memory-engine completion --threads 2>/dev/null)'")
        lines += [f"{seen} {_fish_option(one)}" for one in usage.options]
    before = _usage((), build_parser(), ()).options
    lines += [f"complete -c memory-engine -n __fish_use_subcommand {_fish_option(one)}" for one in before]
    return "\n".join(lines) + "\n"


def _fish_option(one: _Option) -> str:
    long = " ".join(f"-l {word[2:]}" for word in one.names if word.startswith("--"))
    value = f" -r -f -a '{_word_list(one.choices)}'" if one.choices else " -r" if one.takes_value else ""
    return f"{long}{value} -d {_fish_quoted(one.help)}"


def _fish_quoted(text: str) -> str:
    """A word quoted for fish."""
    text = text.replace("%%", "%").replace("\\", "\\\\").replace("'", "\\'")
    return f"'{text}'"


COMPLETION = Command(_declare_completion, completion)
