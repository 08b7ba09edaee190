"""What a lab run changes: a TOML file, read into a value that also crosses to other processes."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from math import inf
from pathlib import Path
from typing import TypeVar

import attrs
import msgspec
from msgspec.structs import replace

from memory_engine.context.budget import ContextPolicy
from memory_engine.core.arguments import PathLike
from memory_engine.core.bounded import read_file
from memory_engine.core.threads import CompactionPolicy
from memory_engine.errors import InvalidInput, InvalidLabChange
from memory_engine.replay.what_if import Prices

T = TypeVar("T")
RECORDED, DEFAULTS = "recorded", "defaults"
_KEY = re.compile(r" - at `\$\.?(.*)`$")


class RecallQuestion(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A recall question: its answer is in one of the `events` (ids), or says all of the `words`.

    It is asked of the thread of this id, or of every thread of its log.
    """

    question: str
    events: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    thread: str = ""

    def __post_init__(self) -> None:
        if not self.question or not (self.events or self.words):
            raise ValueError('give "question", and "events" or "words"')


class CompactionTable(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Who compacts, and when: recorded compactions are left out, and made again by this.

    `compactor` is a registered name or "module:NAME"; `model` asks a language model for summaries (litellm's name, or
    "module:NAME"); `instructions` are added to its prompt. `policy` are fields of `CompactionPolicy`.
    """

    compactor: str = ""
    model: str = ""
    instructions: str = ""
    policy: dict[str, object] = {}


class ContextsTable(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How contexts are built: their token budget, and fields of `ContextPolicy`."""

    max_tokens: int | None = None
    policy: dict[str, object] = {}


class SearchTable(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What orders hits: "module:NAME" each, for `embedder` also "minilm". A question's answer is among `limit` hits."""

    ranker: str = ""
    embedder: str = ""
    reranker: str = ""
    limit: int = 5


class LabThresholds(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How much worse a change may be, over all threads; `inf` for any amount.

    Numbers: statements of the brief, answers, contexts, compactions and events that the baseline has no fault with.
    Shares: 0.05 is 5 %.
    """

    brief_missing: float = 0
    answers_lost: float = 0
    over_budget: float = 0
    compactions_failed: float = 0
    events_refused: float = 0
    unverified: float = 0
    values_lost: float = 0.01
    cache_lost: float = 0.02
    tokens: float = 0.05
    cost: float = 0.05
    contexts_changed: float = inf


class LabChange(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One side of a lab run. Without `compaction`, compactions are as recorded; an empty one is the defaults.

    `system_prompt` replaces that of every session. `plugins` are "module:NAME" each.
    """

    name: str = ""
    plugins: tuple[str, ...] = ()
    system_prompt: str | None = None
    compaction: CompactionTable | None = None
    contexts: ContextsTable = ContextsTable()
    search: SearchTable = SearchTable()
    prices: Prices | None = None
    questions: tuple[RecallQuestion, ...] = ()
    thresholds: LabThresholds = LabThresholds()

    @property
    def calls_model(self) -> bool:
        """Whether it names a model of a provider."""
        embedder = self.search.embedder
        is_remote = bool(embedder) and embedder != "minilm" and not is_place(embedder)
        return is_remote or bool(self.compaction and self.compaction.model)

    def context_policy(self) -> ContextPolicy:
        """The policy of its contexts. Raises `TypeError`, `ValueError`, `InvalidArgument`."""
        return _made(ContextPolicy, self.contexts.policy)

    def compaction_policy(self, own: CompactionPolicy | None, window: int | None) -> CompactionPolicy:
        """The policy that it compacts by: its fields, on that of a model's `window`, else on the thread's own.

        Raises `InvalidPolicy`, `TypeError`.
        """
        table = self.compaction or CompactionTable()
        base = CompactionPolicy.for_window(window) if window is not None else own or CompactionPolicy()
        given = {**table.policy, **({"instructions": table.instructions} if table.instructions else {})}
        if "threshold" in table.policy:
            given.setdefault("tokens_min", 0)  # as `what-if --threshold`
        return replace(base, **given)


def _made(kind: Callable[..., T], fields: Mapping[str, object]) -> T:
    return kind(**fields)


def is_place(text: str) -> bool:
    """Whether it names an object as "module:NAME"."""
    return re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", text) is not None


def read_change(source: PathLike) -> LabChange:
    """The change in a TOML file, or `"recorded"` and `"defaults"`.

    `questions` are tables `[[questions]]`, or the path of a JSONL file, from the change's folder. Raises
    `InvalidLabChange` with file, key and what to do, and `OSError`.
    """
    if source == RECORDED:
        return LabChange(name="as recorded")
    if source == DEFAULTS:
        return LabChange(name="the defaults", compaction=CompactionTable())
    path = Path(source)
    try:
        table = msgspec.toml.decode(read_file(path), type=dict[str, object])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidLabChange(str(path), "", f"it is not TOML: {error}") from None
    if isinstance(named := table.get("questions"), str):
        table["questions"] = msgspec.to_builtins(read_questions(path.parent / named))
    return _checked_change(change_of(table, str(path)), path)


def change_of(table: Mapping[str, object], source: str) -> LabChange:
    """The change of a table; `source` names it in errors. Raises `InvalidLabChange`."""
    _check_keys(table, LabChange, source)
    try:
        return msgspec.convert({"name": Path(source).stem, **table}, LabChange)
    except msgspec.ValidationError as error:
        found = _KEY.search(str(error))
        raise InvalidLabChange(source, found[1] if found else "", _KEY.sub("", str(error))) from None


def _checked_change(change: LabChange, path: Path) -> LabChange:
    """The change, if its policies can be made. Raises `InvalidLabChange`."""
    for key, make in (
        ("compaction.policy", lambda: change.compaction_policy(None, None)),
        ("contexts.policy", change.context_policy),
    ):
        try:
            make()
        except (TypeError, ValueError, InvalidInput) as error:
            raise InvalidLabChange(str(path), key, str(error)) from None
    return change


_POLICIES = {"compaction.policy": CompactionPolicy.__struct_fields__, "contexts.policy": tuple(
    one.name for one in attrs.fields(ContextPolicy) if one.name != "split"
)}  # fmt: skip


def _check_keys(table: object, kind: object, source: str, where: str = "") -> None:
    """Raise `InvalidLabChange` for a key that the schema lacks, with the nearest that it has."""
    if where in _POLICIES:
        known: Sequence[str] = _POLICIES[where]
    elif isinstance(kind, type) and attrs.has(kind):
        known = tuple(one.name for one in attrs.fields(kind))
    elif isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        known = kind.__struct_fields__
    else:
        return
    for key, value in table.items() if isinstance(table, Mapping) else ():
        name = f"{where}.{key}" if where else key
        if key not in known:
            near = get_close_matches(key, known, n=1)
            advice = f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}"
            raise InvalidLabChange(source, name, f"there is no such key; {advice}")
        if key == "questions" and isinstance(value, list):
            for n, one in enumerate(value):
                _check_keys(one, RecallQuestion, source, f"{name}[{n}]")
        _check_keys(value, _TABLES.get(name), source, name)


_TABLES = {
    "compaction": CompactionTable, "compaction.policy": dict, "contexts": ContextsTable, "contexts.policy": dict,
    "search": SearchTable, "prices": Prices, "thresholds": LabThresholds,
}  # fmt: skip


def read_questions(path: Path) -> list[RecallQuestion]:
    """The questions of a JSONL file, an object a line. Raises `InvalidLabChange` with the line, and `OSError`."""
    found: list[RecallQuestion] = []
    for n, line in enumerate(read_file(path).decode(errors="replace").splitlines(), 1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
            _check_keys(value, RecallQuestion, str(path), "")
            found.append(msgspec.convert(value, RecallQuestion))
        except ValueError as error:
            raise InvalidLabChange(str(path), f"line {n}", str(error)) from None
    return found
