"""Read exports of Zep and Graphiti: edges (facts), episodes and nodes of a graph, and a user with a summary.

A fact that has ended (`invalid_at`, `expired_at`) becomes an episode, because it is no longer true.
"""

from memory_engine.interchange.foreign import (
    ForeignFile,
    ForeignMemory,
    Json,
    first_text,
    given_of,
    moment_under,
    objects_in,
)

NAME = "zep"
KEYS = "edges nodes episodes facts user uuid fact valid_at invalid_at"
_FACTS = ("edges", "facts", "relevant_facts", "entity_edges")
_GIVEN = ("name", "attributes", "episodes", "episode_uuids", "source_node_uuid", "target_node_uuid", "rating")
_OWNERS = ("user_id", "group_id", "graph_id")


def sees(value: object) -> bool:
    """Return True for facts, in a list or under a key of Zep, and for a user with a summary."""
    if isinstance(value, dict):
        listed = (one for key in _FACTS for one in objects_in(value.get(key)))
        has_summary = bool(_summary_of(value)[0]) or any(_is_node(one) for one in objects_in(value.get("nodes")))
        return any("fact" in one for one in listed) or has_summary
    return any("fact" in one for one in objects_in(value))


def _is_node(one: Json) -> bool:
    return "uuid" in one and "summary" in one


def _summary_of(value: Json) -> tuple[str, Json]:
    """The summary of a user, and the user."""
    user = value.get("user")
    user = user if isinstance(user, dict) else {}
    return first_text(value, "user_summary") or first_text(user, "summary"), user


def read(value: object, into: ForeignFile) -> None:
    """Facts, summaries of a user and of nodes, and what was said."""
    if not isinstance(value, dict):
        for one in objects_in(value):
            into.add(_fact(one))
        return
    owner = first_text(value, *_OWNERS)
    summary, user = _summary_of(value)
    if summary:
        owner = first_text(user, "user_id") or owner
        told = ForeignMemory(
            system=NAME,
            id=f"summary-{owner}",
            content=summary,
            name="summary",
            owner=owner,
            at=moment_under(user, "updated_at", "created_at"),
            updated_at=moment_under(user, "updated_at"),
        )
        into.add(told)
    for key in _FACTS:
        for one in objects_in(value.get(key)):
            into.add(_fact(one, owner))
    for one in objects_in(value.get("episodes")):
        into.add(_episode(one, owner))
    for one in objects_in(value.get("nodes")):
        _add_node(one, owner, into)
    for key in ("communities", "messages", "threads", "sessions"):
        into.leave_out(key, value.get(key) or [])


def _fact(one: Json, owner: str = "") -> ForeignMemory:
    ended = moment_under(one, "invalid_at", "expired_at")
    return ForeignMemory(
        system=NAME,
        id=first_text(one, "uuid", "id"),
        content=first_text(one, "fact"),
        layer="semantic" if ended is None else "episodic",
        at=moment_under(one, "valid_at", "created_at"),
        updated_at=moment_under(one, "expired_at", "created_at"),
        valid_at=moment_under(one, "valid_at"),
        invalid_at=ended,
        owner=first_text(one, *_OWNERS) or owner,
        given=given_of(one, *_GIVEN),
    )


def _episode(one: Json, owner: str) -> ForeignMemory:
    return ForeignMemory(
        system=NAME,
        id=first_text(one, "uuid", "id"),
        content=first_text(one, "content"),
        layer="episodic",
        name=first_text(one, "role") or first_text(one, "role_type"),
        at=moment_under(one, "valid_at", "reference_time", "created_at"),
        owner=first_text(one, *_OWNERS) or owner,
        given=given_of(one, "name", "source", "source_description", "metadata", "thread_id", "session_id"),
    )


def _add_node(one: Json, owner: str, into: ForeignFile) -> None:
    if not first_text(one, "summary").strip():
        into.leave_out("nodes without a summary")
        return
    into.add(
        ForeignMemory(
            system=NAME,
            id=first_text(one, "uuid", "id"),
            content=first_text(one, "summary"),
            name=first_text(one, "name"),
            at=moment_under(one, "created_at"),
            owner=first_text(one, *_OWNERS) or owner,
            given=given_of(one, "labels", "attributes"),
        )
    )
