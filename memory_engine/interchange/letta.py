"""Letta's files: an agent file (`.af`, both layouts), the list of an agent's passages, or a list of blocks."""

from memory_engine.interchange.foreign import (
    ForeignFile,
    ForeignMemory,
    Json,
    first_text,
    given_of,
    moment_under,
    objects_in,
)

NAME = "letta"
KEYS = "agents blocks messages core_memory"
PERSONA = "persona"
"""The label of the block in which an agent describes itself: not a memory of its user."""
_OF_PASSAGES = frozenset({"archive_id", "embedding", "embedding_config", "source_id", "file_id", "organization_id"})
_OTHERS = ("tools", "sources", "files", "groups", "mcp_servers", "skills", "tool_exec_environment_variables")
_SAID = frozenset({"user", "assistant"})


def sees(value: object) -> bool:
    """Return True for an agent file of either layout, and for lists of passages or blocks."""
    if isinstance(value, dict):
        is_second = isinstance(value.get("agents"), list) and isinstance(value.get("blocks"), list)
        return is_second or isinstance(value.get("core_memory"), list)
    return any(_is_passage(one) or _is_block(one) for one in objects_in(value))


def _is_passage(one: Json) -> bool:
    return "text" in one and (not _OF_PASSAGES.isdisjoint(one) or first_text(one, "id").startswith("passage-"))


def _is_block(one: Json) -> bool:
    return "label" in one and "value" in one


def read(value: object, into: ForeignFile) -> None:
    """Blocks and passages become facts, what was said becomes episodes."""
    if not isinstance(value, dict):
        for one in objects_in(value):
            _add_listed(one, into)
        return
    for one in (*objects_in(value.get("blocks")), *objects_in(value.get("core_memory"))):
        _add_block(one, into)
    agents = [value, *objects_in(value.get("agents"))]
    for agent in agents:
        for one in objects_in(agent.get("messages")):
            _add_message(one, into)
        for one in (*objects_in(agent.get("passages")), *objects_in(agent.get("archival_memory"))):
            into.add(_passage(one))
    for key in _OTHERS:
        into.leave_out(key.replace("_", " "), value.get(key) or [])


def _add_listed(one: Json, into: ForeignFile) -> None:
    if _is_block(one):
        _add_block(one, into)
    else:
        into.add(_passage(one))


def _add_block(one: Json, into: ForeignFile) -> None:
    label = first_text(one, "label")
    if label == PERSONA:
        into.leave_out("blocks in which an agent describes itself (persona)")
        return
    block = ForeignMemory(
        system=NAME,
        id=first_text(one, "id") or f"block-{label}",
        content=first_text(one, "value"),
        name=label,
        at=moment_under(one, "created_at", "updated_at"),
        updated_at=moment_under(one, "updated_at"),
        given=given_of(one, "description", "metadata", "tags"),
    )
    into.add(block)


def _passage(one: Json) -> ForeignMemory:
    return ForeignMemory(
        system=NAME,
        id=first_text(one, "id"),
        content=first_text(one, "text"),
        at=moment_under(one, "created_at"),
        updated_at=moment_under(one, "updated_at"),
        given=given_of(one, "metadata", "tags", "file_name"),
    )


def _add_message(one: Json, into: ForeignFile) -> None:
    role = first_text(one, "role")
    if role not in _SAID:
        into.leave_out(f"messages of the role {role[:40] or 'of nobody'}".encode("utf-8", "replace").decode())
        return
    said = _letta_text(one)
    if not said.strip():
        into.leave_out("messages without a text")
        return
    into.add(
        ForeignMemory(
            system=NAME,
            id=first_text(one, "id"),
            content=said,
            layer="episodic",
            name=role,
            at=moment_under(one, "created_at", "date"),
            given=given_of(one, "role"),
        )
    )


def _letta_text(one: Json) -> str:
    content = one.get("content", one.get("text"))
    if isinstance(content, str):
        return content
    return "\n".join(filter(None, (first_text(part, "text") for part in objects_in(content))))
