"""Sessions of Claude Code: a line for each block of a response, results, and what the client noted.

The lines of one response have one message id and repeat its usage, which grows: it is taken from the last of them.
Sub-agents, whose lines are in files next to the session or in it (`isSidechain`), become threads below it.

A person who goes back in a session and says something else leaves what followed: it becomes a fork of the session. A
file that is followed is read once, so what is left there later was taken before, and stays.
"""

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from attrs import define, evolve, field

from memory_engine.core.moments import moment
from memory_engine.core.recordings import PAUSE, Record, RecordedConversation, RecordedFile
from memory_engine.errors import IngestError
from memory_engine.formats.origin import flagged, unwrapped
from memory_engine.ingest.dialects import Json, objects, text_under, texts, under
from memory_engine.ingest.records import read_records
from memory_engine.ingest.responses import by_response, response_of

_SPOKEN = ("user", "assistant")
_MARKS = ("uuid", "sessionId", "parentUuid", "isSidechain", "leafUuid")
_OTHERS = frozenset({"file-history-snapshot", "queue-operation", "progress", "summary", "system", "attachment"})


class ClaudeCode:
    """Reads a session, and the files of its sub-agents next to it."""

    name = "claude-code"

    def sees(self, file: RecordedFile) -> bool:
        """Return True if any of the first lines is one that the client writes."""
        return any(map(_is_line, file.first_objects))

    def conversations(self, file: RecordedFile) -> Iterator[RecordedConversation | IngestError]:
        """The session, the branches of it that were left, then its sub-agents, each as a thread below it."""
        session = _Session(file, left=_Left.of(file))
        first = next((line for line in file.first_objects if line.get("type") in _SPOKEN), {})
        is_agents = first.get("isSidechain") is True and bool(first.get("agentId"))
        agent_id = text_under(first, "agentId") if is_agents else ""
        tree = session.left.tree
        yield RecordedConversation(session.records(file.live, agent_id), agent_id=agent_id, tree=tree)
        for begin in session.left.lines:
            yield session.branch(begin)
        for agent, lines in session.inside.items():
            records = session.records(iter(lines), agent)
            yield RecordedConversation(records, label=f"agent-{agent}", line=lines[0].line, parent="", agent_id=agent)
        if is_agents:
            return
        for path in _files_of_agents(file.path, session.ids):
            file.also_read.append(path)
            agent = path.stem.removeprefix("agent-")
            if agent not in session.inside:
                records = session.records(read_records(path, file.limits), agent)
                yield RecordedConversation(records, label=path.stem, parent="", agent_id=agent)


def _is_line(line: Mapping[str, object]) -> bool:
    kind = text_under(line, "type")
    if kind in _SPOKEN:
        return "message" in line and any(key in line for key in _MARKS)
    if kind == "summary":
        return "leafUuid" in line
    return kind in _OTHERS and any(key in line for key in (*_MARKS, "messageId"))


def _files_of_agents(path: Path, sessions: set[str]) -> list[Path]:
    """The files of a session's sub-agents: in a folder next to it, or next to it themselves."""
    if not path.is_file():
        return []
    own = sorted((path.with_suffix("") / "subagents").glob("*.jsonl"))
    others = [*sorted((path.parent / "subagents").glob("*.jsonl")), *sorted(path.parent.glob("agent-*.jsonl"))]
    return [*own, *(one for one in others if one != path and _session_of(one) in sessions)]


def _session_of(path: Path) -> str:
    first = next((one for one in read_records(path) if isinstance(one, Record)), None)
    return text_under(first.value, "sessionId") if first is not None else ""


@define
class _Left:
    """The branches of a session that were left, by the ids of the prompts that they begin with.

    `begins` says for each line in which it is, `owners` for each branch which it is a branch of (empty: the session).
    `tree` are the ids of all lines, if there is a branch.
    """

    begins: dict[str, str] = field(factory=dict)
    owners: dict[str, str] = field(factory=dict)
    lines: dict[str, list[Record]] = field(factory=dict)
    tree: Collection[str] = ()

    @classmethod
    def of(cls, file: RecordedFile) -> "_Left":
        """Read a file for the prompts that follow the same line: a person went back, and all but the last are left."""
        found = cls()
        if file.is_followed or not file.path.is_file():
            return found
        parents: dict[str, str] = {}
        prompts: dict[str, list[str]] = {}
        for line in read_records(file.path, file.limits):
            if isinstance(line, IngestError) or not isinstance(line.value, Mapping):
                continue
            uuid, parent = text_under(line.value, "uuid"), text_under(line.value, "parentUuid")
            if uuid and uuid not in parents:
                parents[uuid] = parent
                if parent and _is_prompt(line.value):
                    prompts.setdefault(parent, []).append(uuid)
        left = {uuid for several in prompts.values() for uuid in several[:-1]}
        found.tree = parents.keys() if left else ()
        for uuid, parent in parents.items() if left else ():  # a line comes after the one that it follows
            before = found.begins.get(parent, "")
            if uuid in left:
                found.owners[uuid] = before
            if begin := uuid if uuid in left else before:
                found.begins[uuid] = begin
        return found

    def keep(self, line: Record, uuid: str) -> bool:
        """Return True if a line is in a branch that was left, and keep it."""
        begin = self.begins.get(uuid, "")
        if begin:
            self.lines.setdefault(begin, []).append(line)
        return bool(begin)


def _is_prompt(value: Mapping[str, object]) -> bool:
    """Return True if a person wrote a line of the session: no result, no notice of the client, no summary."""
    if value.get("type") != "user" or value.get("isSidechain") is True:
        return False
    if any(block.get("type") == "tool_result" for block in objects(value, "message", "content")):
        return False
    said = texts(under(value, "message", "content"))
    return bool(said) and flagged(value, said) is None


@define
class _Session:
    """The state of reading a session. `inside` holds the lines of sub-agents in its file."""

    file: RecordedFile
    ids: set[str] = field(factory=set)
    left: _Left = field(factory=_Left)
    inside: dict[str, list[Record]] = field(factory=dict)
    _roots: dict[str, str] = field(factory=dict)
    _passed: dict[str, str] = field(factory=dict)
    _seen: set[str] = field(factory=set)

    def records(self, lines: Iterator[Record | IngestError], agent: str) -> Iterator[Record | IngestError]:
        """The messages of the session, or of an agent."""
        return _usage_once(self._messages(lines, agent))

    def branch(self, begin: str) -> RecordedConversation:
        """The branch that was left of which a prompt is the first line, once the session's messages are read."""
        first, *lines = self.left.lines[begin]
        value = first.value if isinstance(first.value, Mapping) else {}
        parent = text_under(value, "parentUuid")
        after = self._passed.get(parent, parent)
        alone = evolve(first, value={**value, "parentUuid": None})  # what it follows is in the thread that it leaves
        owner = self.left.owners[begin]
        return RecordedConversation(
            self.records(iter([alone, *lines]), begin),
            label=f"branch-{begin}",
            line=first.line,
            branch_of=f"branch-{owner}" if owner else "",
            after=after if after in self._seen else "",
            tree=self.left.tree,
        )

    def _messages(self, lines: Iterator[Record | IngestError], agent: str) -> Iterator[Record | IngestError]:
        for line in lines:
            if isinstance(line, IngestError) or line.value is PAUSE:
                yield line
                continue
            if not isinstance(line.value, Mapping):
                self.file.left_out["a line that is not an object"] += 1
                continue
            if not agent and (self._is_inside(line) or self.left.keep(line, text_under(line.value, "uuid"))):
                continue
            self.ids.add(text_under(line.value, "sessionId"))
            yield from self._message(line, line.value)

    def _is_inside(self, line: Record) -> bool:
        """Return True if a line in the session's file is a sub-agent's, and keep it."""
        value = line.value if isinstance(line.value, Mapping) else {}
        if value.get("isSidechain") is not True:
            return False
        uuid, parent = text_under(value, "uuid"), text_under(value, "parentUuid")
        agent = text_under(value, "agentId") or self._roots.get(parent, uuid)
        self._roots[uuid] = agent
        self.inside.setdefault(agent, []).append(line)
        return True

    def _message(self, line: Record, value: Mapping[str, object]) -> Iterator[Record]:
        uuid, parent = text_under(value, "uuid"), text_under(value, "parentUuid")
        parent = self._passed.get(parent, parent)
        if uuid and uuid in self._seen:
            self.file.left_out["a line that is in the file twice"] += 1
            return
        said = _flagged_message(value)
        if said is None:
            self._passed[uuid] = parent
            self.file.left_out[_line_kind(value)] += 1
            return
        self._seen.add(uuid)
        yield evolve(line, value=said, format="anthropic", at=moment(value.get("timestamp")), key=uuid, parent=parent)


def _line_kind(value: Mapping[str, object]) -> str:
    kind = str(value.get("type") or "a line without a type")
    if kind in _SPOKEN:
        return f"{kind} without a message that could be read"
    more = text_under(value, "subtype") or text_under(value, "data", "type") or text_under(value, "attachment", "type")
    return f"{kind}/{more}" if more else kind


def _flagged_message(value: Mapping[str, object]) -> Json | None:
    """The message of a line, with the flags of the client; `None` if it has none."""
    if value.get("type") == "attachment" and under(value, "attachment", "type") == "queued_command":
        prompt = under(value, "attachment", "prompt")
        return {"role": "user", "content": prompt} if isinstance(prompt, str | list) and prompt else None
    message = under(value, "message")
    if value.get("type") not in _SPOKEN or not isinstance(message, Mapping):
        return None
    if not isinstance(message.get("content"), str | list):
        return None
    if message.get("role") not in _SPOKEN:
        message = {**message, "role": value["type"]}
    said = unwrapped({**value, "message": {**message, "content": _as_blocks(message["content"])}})
    if said.get("role") == "user":
        return {key: one for key, one in said.items() if key in ("role", "content") or key.startswith("is")}
    if message.get("id"):
        said = {"stop_reason": None, **said, "type": "message"}
    return said


def _as_blocks(content: object) -> object:
    """The blocks, a bare text among them as one."""
    if not isinstance(content, list) or not any(isinstance(one, str) for one in content):
        return content
    return [{"type": "text", "text": one} if isinstance(one, str) else one for one in content]


def _usage_once(records: Iterator[Record | IngestError]) -> Iterator[Record | IngestError]:
    """The records, with the usage of a response on the last of its lines only."""
    for *before, last in by_response(records):
        yield from (_without_usage(record) if response_of(record) else record for record in before)
        yield last


def _without_usage(record: Record | IngestError) -> Record | IngestError:
    if isinstance(record, IngestError) or not isinstance(record.value, dict):
        return record
    return evolve(record, value={key: one for key, one in record.value.items() if key != "usage"})
