"""The tools as JSON schema, for chat-completions and for Anthropic's messages."""

from collections.abc import Mapping
from typing import Literal, cast

import msgspec

from memory_engine.selfop.arguments import ARGUMENTS, Arguments

ToolFormat = Literal["openai", "anthropic"]

_KEPT = ("type", "enum", "minimum", "maximum", "minLength", "maxLength", "description")


def memory_tools(format: ToolFormat = "openai") -> list[dict[str, object]]:
    """The definitions of all tools, to be given to a model with each call.

    `"openai"`: chat-completions (which litellm takes for any provider), in strict mode: every field is required,
    and one that may be left out may be null. `"anthropic"`: such fields are optional. Raises `ValueError` for another.
    """
    if format == "openai":
        return [
            {
                "type": "function",
                "function": {
                    "name": cls.tool,
                    "description": cls.purpose,
                    "strict": True,
                    "parameters": parameters(cls, strict=True),
                },
            }
            for cls in ARGUMENTS
        ]
    if format == "anthropic":
        return [
            {"name": cls.tool, "description": cls.purpose, "input_schema": parameters(cls, strict=False)}
            for cls in ARGUMENTS
        ]
    raise ValueError(f'a format is "openai" or "anthropic", not {format!r}')


def parameters(cls: type[Arguments], *, strict: bool) -> dict[str, object]:
    """The schema of one tool's arguments: an object, all of it in one place, nothing beside its fields allowed."""
    _, components = msgspec.json.schema_components([cls])
    whole = cast("Mapping[str, object]", components[cls.__name__])
    fields = cast("Mapping[str, Mapping[str, object]]", whole.get("properties", {}))
    required = set(cast("list[str]", whole.get("required", [])))
    return {
        "type": "object",
        "properties": {
            name: _field(field, is_optional=name not in required, strict=strict) for name, field in fields.items()
        },
        "required": list(fields) if strict else [name for name in fields if name in required],
        "additionalProperties": False,
    }


def _field(field: Mapping[str, object], *, is_optional: bool, strict: bool) -> dict[str, object]:
    """One field; strict mode knows no bounds, so they are said in words."""
    choices = cast("list[Mapping[str, object]]", field.get("anyOf", [field]))
    chosen = dict(next(choice for choice in choices if choice.get("type") != "null"))
    chosen |= {"description": field.get("description", chosen.get("description", ""))}
    if "enum" in chosen:
        chosen["type"] = "string"
    made = {name: chosen[name] for name in _KEPT if name in chosen}
    if not strict:
        return made
    least, most = made.pop("minimum", None), made.pop("maximum", None)
    made.pop("minLength", None)
    made.pop("maxLength", None)
    if least is not None:
        made["description"] = (
            f"{made['description']} At least {least}{f', at most {most}' if most is not None else ''}."
        )
    if is_optional:
        made["type"] = [made["type"], "null"]
        if "enum" in made:
            made["enum"] = [*cast("list[object]", made["enum"]), None]
    return made
