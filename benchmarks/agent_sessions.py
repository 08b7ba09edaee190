"""Recorded sessions of coding agents, made by a seed: a person hands over tickets, an agent reads, edits and tests.

A session holds chat-completions messages. Nothing in it is chosen with a memory in mind: the agent opens what its
ticket needs, and comes back to files and settings when a later ticket is about them. `agent_sessions.toml` has the
words, `agent_workspace.py` the code that is worked on.
"""

import json
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from random import Random

import msgspec
from attrs import define, field, frozen

from benchmarks.agent_workspace import Function, Project, Workspace, workspace

WRITTEN = Path(__file__).resolve().parent / "agent_sessions.toml"
TICKETS = 22
"""Tickets of a session, which take about 60,000 tokens."""
Message = dict[str, object]
Asked = tuple[str, dict[str, str | int]]
"""A tool call: the tool's name, and its arguments."""


class _Written(msgspec.Struct, frozen=True):
    projects: list[Project]
    words: dict[str, str | list[str]]


@frozen
class Session:
    """One recording, and which of its messages a person wrote (indexes, from 0)."""

    name: str
    messages: list[Message]
    requests: list[int]


@cache
def written() -> _Written:
    """Return the projects and the words of `agent_sessions.toml`."""
    return msgspec.convert(tomllib.loads(WRITTEN.read_text("utf-8")), _Written)


def sessions(count: int, *, tickets: int = TICKETS, first: int = 0) -> Iterator[Session]:
    """Yield `count` sessions, from number `first` on, of the projects in turn."""
    projects = written().projects
    for number in range(first, first + count):
        project = projects[number % len(projects)]
        random = Random(f"{project.package} {number}")
        rules = str(written().words["contributing"]).format(package=project.package, about=project.about.capitalize())
        yield _Recorder(random, workspace(project, rules, random)).session(f"{project.package} {number}", tickets)


@frozen
class _Done:
    """A finished ticket: what was asked, of which function, and for a setting its value before."""

    ticket: str
    function: Function
    was: int | None = None


@define
class _Recorder:
    """Writes one session down, ticket by ticket."""

    random: Random
    code: Workspace
    messages: list[Message] = field(factory=list)
    requests: list[int] = field(factory=list)
    done: list[_Done] = field(factory=list)
    calls: int = 0

    def session(self, name: str, tickets: int) -> Session:
        """Return the session of a number of tickets. The first is long, the others are of any kind."""
        project = self.code.project
        system = self._words("system", package=project.package, about=project.about)
        self.messages.append({"role": "system", "content": system})
        kinds = (*[self._fix] * 6, *[self._setting] * 2, *[self._like] * 2, self._back, self._look, self._review)
        for number in range(tickets):
            ticket = f"{project.code}-{self.random.randint(20, 99)}{number:02}"
            if number == 0:
                self._fix(ticket, "first")
            else:
                self.random.choice(kinds)(ticket)
        return Session(name, self.messages, self.requests)

    # Words and deeds.

    def _words(self, kind: str, **names: object) -> str:
        texts = written().words[kind]
        return (texts if isinstance(texts, str) else self.random.choice(texts)).format_map(names)

    def _about(self, kind: str, ticket: str, one: Function, **more: object) -> str:
        names = {"thing": one.thing, "function": one.name, "path": one.path, "constant": one.constant}
        project = self.code.project
        names |= {"measure": one.measure, "package": project.package, "about": project.about, "ticket": ticket}
        return self._words(kind, **{**names, "value": self.code.settings[one.constant], **more})

    def _user(self, text: str) -> None:
        self.requests.append(len(self.messages))
        self.messages.append({"role": "user", "content": text})

    def _agent(self, text: str) -> None:
        self.messages.append({"role": "assistant", "content": text})

    def _use(self, *asked: Asked, text: str = "") -> None:
        """Add one response with its calls, and the results."""
        made: list[Message] = []
        for tool, arguments in asked:
            self.calls += 1
            function = {"name": tool, "arguments": json.dumps(arguments)}
            made.append({"id": f"call_{self.calls}", "type": "function", "function": function})
        self.messages.append({"role": "assistant", "content": text or None, "tool_calls": made})
        for call, (tool, arguments) in zip(made, asked, strict=True):
            self.messages.append({"role": "tool", "tool_call_id": call["id"], "content": self._answer(tool, arguments)})

    def _answer(self, tool: str, asked: dict[str, str | int]) -> str:
        match tool:
            case "read_file":
                return self.code.read(str(asked["path"]), int(asked.get("start", 1)), int(asked.get("end", 400)))
            case "search":
                return self.code.search(str(asked["pattern"]))
            case "edit_file":
                return self.code.edit(str(asked["path"]), str(asked["old"]), str(asked["new"]))
        command = str(asked["command"])
        if command.startswith("tail"):
            return self.code.log(self.random.choice(self.code.functions), self.random)
        return self.code.changes() if command.startswith("git") else self.code.test(command[len("pytest -q") :].strip())

    def _reply(self) -> None:
        """Let the person answer a report: thanks, a rule, both, or nothing but the next ticket."""
        said = [self._words("thanks")] if self.random.random() < 0.5 else []
        said += [self._words("rules")] if self.random.random() < 0.35 else []
        if said:
            self._user(" ".join(said))
            self._agent("Understood.")

    # Tickets.

    def _fix(self, ticket: str, asking: str = "fix") -> None:
        one = self.random.choice(self.code.failing() or self.code.functions)
        self._user(self._about(asking, ticket, one))
        self._find(one)
        self._use(("run", {"command": f"pytest -q {one.test_path}"}))
        if self.random.random() < 0.4:
            self._use(("read_file", {"path": f"{self.code.project.package}/models/{one.thing}.py"}))
        if self.random.random() < 0.45:
            self._try_in_vain(ticket, one)
        self._repair(one)
        self._finish(ticket, one)

    def _find(self, one: Function) -> None:
        """Look for a function and read what it needs: its file, the setting, its test."""
        self._use(("search", {"pattern": one.name}), text=self._about("looks", "", one))
        at = self.code.line_of(one.path, f"def {one.name}(")
        part = {} if self.random.random() < 0.55 else {"start": max(1, at - 10), "end": at + 40}
        self._use(("read_file", {"path": one.path, **part}))
        test_at = self.code.line_of(one.test_path, f"def {one.test}(")
        reads: list[Asked] = [("read_file", {"path": one.test_path, "start": test_at, "end": test_at + 12})]
        if self.random.random() < 0.6:
            settings = f"{self.code.project.package}/settings.py"
            at = self.code.line_of(settings, one.constant)
            reads.append(("read_file", {"path": settings, "start": max(1, at - 12), "end": at + 12}))
        if self.random.random() < 0.2:
            reads.append(("read_file", {"path": "tests/conftest.py"}))
        self._use(*reads)

    def _try_in_vain(self, ticket: str, one: Function) -> None:
        self._change(one, one.tried, self._about("tries", ticket, one))
        self._use(("run", {"command": f"pytest -q {one.test_path}"}))
        if self.random.random() < 0.5:
            self._agent(f"{one.test} is still red after my change of {one.path}. May I change {one.constant}?")
            self._user(self._about("corrections", ticket, one))
        else:
            self._use(
                ("read_file", {"path": f"{self.code.project.package}/store/{one.thing}_store.py"}),
                text=self._about("again", ticket, one),
            )

    def _change(self, one: Function, line: str, text: str = "") -> None:
        before = self.code.beginning(one)
        after = [*before[:-1], f"    {line}"]
        self._use(("edit_file", {"path": one.path, "old": "\n".join(before), "new": "\n".join(after)}), text=text)

    def _repair(self, one: Function) -> None:
        self._change(one, one.right)
        self._use(("run", {"command": f"pytest -q {one.test_path}"}))
        users = [name for name in self.code.files if f"{one.name}(" in self.code.files[name] and name != one.path]
        for path in users[: self.random.randint(0, 2)]:
            at = self.code.line_of(path, f"{one.name}(")
            self._use(("read_file", {"path": path, "start": max(1, at - 15), "end": at + 15}))

    def _finish(self, ticket: str, one: Function) -> None:
        if self.random.random() < 0.5:
            self._use(("run", {"command": "pytest -q"}))
        if self.random.random() < 0.6:
            self._note("CHANGELOG.md", [f"- {ticket}: `{one.name}` honours `{one.constant}` ({one.path})"])
        self.done.append(_Done(ticket, one))
        self._agent(self._about("reports", ticket, one, failing=len(self.code.failing())))
        self._reply()

    def _note(self, path: str, lines: list[str]) -> None:
        """Add lines at the end of a file of notes, which the agent reads first."""
        self._use(("read_file", {"path": path}))
        last = self.code.files[path].splitlines()[-1]
        self._use(("edit_file", {"path": path, "old": last, "new": "\n".join((last, *lines))}))

    def _setting(self, ticket: str) -> None:
        one = self.random.choice(self.code.functions)
        was = self.code.settings[one.constant]
        value = was + self.random.randint(3, 90)
        self._user(self._about("setting", ticket, one, was=was, value=value))
        self._set(ticket, one, value)

    def _set(self, ticket: str, one: Function, value: int) -> None:
        """Change a setting in both of its places."""
        was = self.code.settings[one.constant]
        self._use(("search", {"pattern": one.constant}), ("search", {"pattern": one.constant.lower()}))
        places = (f"{self.code.project.package}/settings.py", " = "), ("config/production.yaml", ": ")
        for path, sign in places:
            name = one.constant if sign == " = " else one.constant.lower()
            at = self.code.line_of(path, f"{name}{sign}")
            self._use(("read_file", {"path": path, "start": max(1, at - 20), "end": at + 20}))
            self._use(("edit_file", {"path": path, "old": f"{name}{sign}{was}", "new": f"{name}{sign}{value}"}))
        self.code.settings[one.constant] = value
        self._use(("run", {"command": f"pytest -q {one.test_path}"}))
        self.done.append(_Done(ticket, one, was))
        self._agent(self._about("set_reports", ticket, one, was=was))
        self._reply()

    def _like(self, ticket: str) -> None:
        """Repair a function as one of an earlier ticket was repaired, and read that one first."""
        if not self.done:
            return self._fix(ticket)
        earlier = self.random.choice(self.done)
        one = self.random.choice(self.code.failing() or self.code.functions)
        self._user(self._about("like", ticket, one, earlier=earlier.ticket))
        at = self.code.line_of(earlier.function.path, f"def {earlier.function.name}(")
        self._use(("read_file", {"path": earlier.function.path, "start": at, "end": at + 20}))
        self._find(one)
        self._repair(one)
        return self._finish(ticket, one)

    def _back(self, ticket: str) -> None:
        """Put a setting back to what it was."""
        changed = [one for one in self.done if one.was is not None]
        if not changed:
            return self._setting(ticket)
        last = self.random.choice(changed)
        one, was = last.function, last.was or 0
        self._user(self._about("back", ticket, one, was=was))
        self._set(ticket, one, was)
        return self._note("CHANGELOG.md", [f"- {ticket}: `{one.constant}` is {was} again"])

    def _look(self, ticket: str) -> None:
        """Read the log for a fault before repairing it."""
        self._user(f"Something odd is in the worker's log ({ticket}). Have a look before you go on.")
        command = "tail -60 logs/worker.log"
        self._use(("run", {"command": command}), ("read_file", {"path": "CONTRIBUTING.md"}))
        self._fix(ticket)

    def _review(self, ticket: str) -> None:
        """Write down all tickets that are done."""
        self._user(self._about("review", ticket, self.code.functions[0]))
        self._use(("run", {"command": "git diff --stat"}))
        path = self.random.choice(("CHANGELOG.md", "docs/decisions.md"))
        self._note(
            path,
            [
                f"- {one.ticket}: `{one.function.name}`, {one.function.path}, {one.function.constant}"
                for one in self.done
            ],
        )
        self._agent(self._words("written", path=path, ticket=ticket))
        self._reply()
