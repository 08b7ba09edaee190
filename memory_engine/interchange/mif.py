"""The Memory Interchange Format, version 2: one JSON object with a list of memories."""

from memory_engine.interchange.foreign import ForeignFile, ForeignMemory, first_text, given_of, moment_under, objects_in

NAME = "mif"
KEYS = "mif_version memories generator export_meta"
_GIVEN = ("memory_type", "tags", "metadata", "source", "entities", "agent_id", "external_id", "parent_id")


def sees(value: object) -> bool:
    """Return True for an object that names its version of the format."""
    return isinstance(value, dict) and "mif_version" in value


def read(value: object, into: ForeignFile) -> None:
    """Each memory becomes a fact."""
    if not isinstance(value, dict):
        return
    owner = first_text(value.get("export_meta"), "user_id")
    for one in objects_in(value.get("memories")):
        memory = ForeignMemory(
            system=NAME,
            id=first_text(one, "id"),
            content=first_text(one, "content"),
            at=moment_under(one, "created_at"),
            updated_at=moment_under(one, "updated_at"),
            owner=owner,
            given=given_of(one, *_GIVEN),
        )
        into.add(memory)
    graph = value.get("knowledge_graph")
    for key, found in graph.items() if isinstance(graph, dict) else ():
        into.leave_out(f"{key[:40]} of the knowledge graph".encode("utf-8", "replace").decode(), found)
    into.leave_out("vendor extensions", value.get("vendor_extensions") or {})
