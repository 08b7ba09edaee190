"""The options of `open` that come together: the models, and the parts that a test replaces."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypedDict, cast

from attrs import fields_dict, frozen

from memory_engine.core.arguments import checked_type
from memory_engine.errors import InvalidArgument
from memory_engine.recall.ranking import rank

if TYPE_CHECKING:
    from memory_engine.core.clock import Clock
    from memory_engine.core.ids import IdSource
    from memory_engine.core.tokens import TokenCounter
    from memory_engine.llm.base import LanguageModel
    from memory_engine.llm.vectors import Embedder
    from memory_engine.recall.ranking import Ranker
    from memory_engine.recall.rerankers import Reranker
    from memory_engine.runtime.probe import Probe
    from memory_engine.views.patterns.redaction import Redactor
    from memory_engine.views.promotion.scorers import Scorer


@frozen(kw_only=True)
class Models:
    """The models of an engine, and what judges texts in the place of one. They are closed with the engine.

    `compact` writes the summaries of threads: a model's litellm name, or a model; the built-in compactor remains the
    fallback. Views use `memory` to shorten answers, summarise conversations and compact layers; without one they do it
    themselves. `embedder` lets searches match by meaning too: an embedder, `"minilm"` for a small local one, or a
    model's litellm name. `ranker` orders search results in place of the built-in one; `reranker` reads the best of
    them and orders them again. `scorers` judge snippets for promotion, `redactor` cleans what is proposed to an
    industry.
    """

    compact: "str | LanguageModel | None" = None
    memory: "str | LanguageModel | None" = None
    embedder: "str | Embedder | None" = None
    ranker: "Ranker" = rank
    reranker: "Reranker | None" = None
    scorers: "Sequence[Scorer]" = ()
    redactor: "Redactor | None" = None


@frozen(kw_only=True)
class Parts:
    """The parts of an engine that a test replaces, and its probe.

    `tokens` counts exactly if given a tokenizer. `clock` gives the times, `ids` the ids of events. `probe` is told what
    the engine does: pass a `memory_engine.telemetry.OpenTelemetry()`.
    """

    tokens: "TokenCounter | None" = None
    clock: "Clock | None" = None
    ids: "IdSource | None" = None
    probe: "Probe | None" = None


class OlderOptions(TypedDict, total=False):
    """The options of `open` that are now in `Models` and `Parts`, by their names before that."""

    compact_model: "str | LanguageModel | None"
    memory_model: "str | LanguageModel | None"
    embedder: "str | Embedder | None"
    ranker: "Ranker"
    reranker: "Reranker | None"
    scorers: "Sequence[Scorer]"
    redactor: "Redactor | None"
    tokens: "TokenCounter | None"
    clock: "Clock | None"
    ids: "IdSource | None"
    probe: "Probe | None"


_MODEL = ("complete", "name", "aclose")
_NEEDED: dict[str, tuple[str, ...]] = {
    "compact_model": _MODEL,
    "memory_model": _MODEL,
    "redactor": ("redact",),
    "tokens": ("exact",),
    "clock": ("now_us",),
    "ids": ("event_id",),
    "probe": ("span",),
}
"""What a part must have, by the name under which `open` has taken it since its first version."""
_SEE_MODELS = ", as every language model does (see docs/how-to/write-a-compactor.md)"
_NOW = {"compact_model": "compact", "memory_model": "memory"}
"""What is called otherwise in `Models`."""


def merge_options(models: Models | None, parts: Parts | None, older: Mapping[str, object]) -> OlderOptions:
    """All that was given, by its older names. Raises `InvalidArgument` for what is given twice or lacks a part."""
    found: dict[str, object] = {}
    for name in OlderOptions.__annotations__:
        place, kind, group = ("parts", Parts, parts) if name in fields_dict(Parts) else ("models", Models, models)
        now = _NOW.get(name, name)
        given = kind() if group is None else group
        value = getattr(checked_type(place, given, kind, give=f"{kind.__name__}(…)"), now)
        is_given = value != fields_dict(kind)[now].default
        if is_given and name in older:
            raise InvalidArgument(name, older[name], f"it is in {place}={kind.__name__}({now}=…) too; give it once")
        if is_given or name in older:
            found[name] = _checked_part(name, value if is_given else older[name])
    unknown = sorted(older.keys() - OlderOptions.__annotations__.keys())
    if unknown:
        raise TypeError(f"open() got an unexpected keyword argument {unknown[0]!r}")
    return cast("OlderOptions", found)


def _checked_part(what: str, part: object) -> object:
    """The part, if it can do what it is for, or is a model's name. Raises `InvalidArgument`."""
    names = _NEEDED.get(what, ())
    is_name = isinstance(part, str) and part and names is _MODEL
    for name in names:
        if part is not None and not is_name and not hasattr(part, name):
            raise InvalidArgument(what, part, f"give an object that has `{name}`{_SEE_MODELS * (names is _MODEL)}")
    return part
