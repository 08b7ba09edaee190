"""mem0's files: `get_all()` as JSON, a page of its API, or a list of its memories."""

from memory_engine.interchange.foreign import (
    ForeignFile,
    ForeignMemory,
    Json,
    first_text,
    given_of,
    moment_under,
    objects_in,
)

NAME = "mem0"
KEYS = "results id memory user_id created_at"
_LISTS = ("results", "memories", "data")
_GIVEN = ("categories", "metadata", "agent_id", "run_id", "app_id", "actor_id", "role", "hash", "expiration_date")


def sees(value: object) -> bool:
    """Return True if there are objects with a `memory`, in a list or under a key of mem0."""
    return any("memory" in one for one in objects_in(_memory_list(value)))


def _memory_list(value: object) -> object:
    if isinstance(value, dict):
        return next((value[key] for key in _LISTS if isinstance(value.get(key), list)), None)
    return value


def read(value: object, into: ForeignFile) -> None:
    """Each memory becomes a fact."""
    listed = _memory_list(value)
    for one in objects_in(listed):
        into.add(_memory(one))
    if isinstance(listed, list):
        into.leave_out("values that are not objects", [one for one in listed if not isinstance(one, dict)])
    if isinstance(value, dict):
        into.leave_out("relations", value.get("relations") or [])


def _memory(one: Json) -> ForeignMemory:
    return ForeignMemory(
        system=NAME,
        id=first_text(one, "id"),
        content=first_text(one, "memory"),
        at=moment_under(one, "created_at", "updated_at"),
        updated_at=moment_under(one, "updated_at"),
        owner=first_text(one, "user_id"),
        given=given_of(one, *_GIVEN),
    )
