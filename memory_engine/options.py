"""The options of `open`: what each must be able to do."""

from memory_engine.errors import InvalidArgument

_MODEL = ("complete", "name", "aclose")
_PARTS: dict[str, tuple[str, ...]] = {
    "compact_model": _MODEL,
    "memory_model": _MODEL,
    "redactor": ("redact",),
    "tokens": ("exact",),
    "clock": ("now_us",),
    "ids": ("event_id",),
    "probe": ("span",),
}


_SEE_MODELS = ", as every language model does (see docs/how-to/write-a-compactor.md)"


def check_parts(*parts: object) -> None:
    """Raise `InvalidArgument` for one of `_PARTS` that cannot do what it is for, and is not a model's name either."""
    for (what, names), part in zip(_PARTS.items(), parts, strict=True):
        is_name = isinstance(part, str) and part and names is _MODEL
        for name in names:
            if part is not None and not is_name and not hasattr(part, name):
                raise InvalidArgument(what, part, f"give an object that has `{name}`{_SEE_MODELS * (names is _MODEL)}")
