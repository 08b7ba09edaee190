"""Any value of an SDK's type, drawn by walking the type itself: a new type of a new release is drawn as well."""

import types
from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from hypothesis import strategies as st
from pydantic import BaseModel

from memory_engine.formats.native import Json

TEXTS = st.text(min_size=1, max_size=8).map(lambda text: f"t{text}t") | st.sampled_from(
    ["a\ud800b", "naïve \U0001f600"]
)
IDS = st.integers(0, 10**12).map("id_{}".format)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | TEXTS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text("abc", min_size=1), inner, max_size=2),
    max_leaves=4,
)
_PLAIN: dict[object, st.SearchStrategy[Any]] = {
    str: TEXTS,
    int: st.integers(0, 2**40),
    float: st.floats(0, 1e6, allow_nan=False) | st.integers(0, 9),
    bool: st.booleans(),
    type(None): st.none(),
    object: JSON,
    Any: JSON,
    datetime: st.just("2026-01-02T03:04:05Z"),
}


def members(union: object) -> list[type[BaseModel]]:
    """The classes that a union names."""
    if get_origin(union) is Annotated:
        return members(get_args(union)[0])
    if get_origin(union) in (Union, types.UnionType):
        return [one for inner in get_args(union) for one in members(inner)]
    assert isinstance(union, type)
    assert issubclass(union, BaseModel), f"a member that is no class of fields: {union}"
    return [union]


def objects_of(model: type[BaseModel]) -> st.SearchStrategy[Json]:
    """JSON objects of a class: each required field, and any of the others."""
    required: dict[str, st.SearchStrategy[Any]] = {}
    optional: dict[str, st.SearchStrategy[Any]] = {}
    for name, found in model.model_fields.items():
        key = found.alias or name
        values = IDS if key == "id" or key.endswith("_id") else _values(found.annotation)
        (required if found.is_required() else optional)[key] = values
    return st.fixed_dictionaries(required, optional=optional)


def _values(annotation: object) -> st.SearchStrategy[Any]:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if annotation in _PLAIN:
        return _PLAIN[annotation]
    if origin is Annotated:
        return _values(arguments[0])
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin in (Union, types.UnionType):
        return st.one_of(*map(_values, arguments))
    if origin is list:
        return st.lists(_values(arguments[0]), max_size=2)
    if origin is dict:
        return st.dictionaries(st.text("abc", min_size=1, max_size=3), _values(arguments[1]), max_size=2)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return st.deferred(_deferred(annotation))
    raise AssertionError(f"a field of a type that is not drawn: {annotation}")


def _deferred(model: type[BaseModel]) -> Callable[[], st.SearchStrategy[Json]]:
    return lambda: objects_of(model)
