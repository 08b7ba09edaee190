"""The composition root: the one place that knows every package and puts an engine together."""

import os
from collections.abc import Callable, Coroutine, Generator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from functools import cache
from types import TracebackType
from typing import TYPE_CHECKING, Unpack, cast

import msgspec

from memory_engine.compaction.service import CompactionService
from memory_engine.context.standing import BlockSources
from memory_engine.core.arguments import (
    PathLike,
    checked_flag,
    checked_function,
    checked_list,
    checked_path,
    checked_type,
)
from memory_engine.core.clock import Clock, SystemClock
from memory_engine.core.events.registry import EventRegistry
from memory_engine.core.ids import IdSource, RandomIds
from memory_engine.core.lazy import StandIn, lazy_module, lazy_modules
from memory_engine.core.reduction import ReducerRegistry
from memory_engine.core.tokens import EstimatedTokens, TokenCounter
from memory_engine.engine import BeforeCompaction, Engine, kernel_of
from memory_engine.errors import (
    DuplicateRegistration,
    IntegrityError,
    InvalidArgument,
    KeyUnsupported,
)
from memory_engine.errors.base import shown_place
from memory_engine.language.masking import SECRETS, Mask, MaskInForce, mask_logs
from memory_engine.plugins import Plugin, RecordingReaders, installed_plugins
from memory_engine.projections.base import Projection, check_events
from memory_engine.projections.outbox import folds_of
from memory_engine.recall.extractors import extractors_of
from memory_engine.recall.index import SearchModels
from memory_engine.recall.service import Recall
from memory_engine.reducers import core_plugin
from memory_engine.runtime.config import EngineConfig
from memory_engine.runtime.delivery import Relay
from memory_engine.runtime.kernel import Kernel, ThreadKind
from memory_engine.runtime.probe import MaskedProbe, Probe, ProbedModel
from memory_engine.runtime.thread_runtime import ThreadRuntime
from memory_engine.runtime.threads import Observers, OpenThreads
from memory_engine.storage.places import Durability, open_store
from memory_engine.store.passages import Extractor, OverlaidIndex
from memory_engine.store.protocol import Store
from memory_engine.views.builtin import VIEWS

if TYPE_CHECKING:
    from memory_engine import options
    from memory_engine.compaction import assignment
    from memory_engine.compaction.base import Compactor
    from memory_engine.context import asked, builder, rendering
    from memory_engine.llm import base, vectors
    from memory_engine.llm.base import LanguageModel
    from memory_engine.llm.vectors import Embedder, VectorIndex
    from memory_engine.options import Models, OlderOptions, Parts
    from memory_engine.projections import follower
    from memory_engine.recall.ranking import Ranker
    from memory_engine.recall.rerankers import Reranker
    from memory_engine.recall.vectors import PassageVectors
    from memory_engine.replay import quarantine
    from memory_engine.store.keys import KeySource
    from memory_engine.views.preferences.domain import Domain
else:
    options = lazy_module("memory_engine.options")
    assignment = lazy_module("memory_engine.compaction.assignment")
    follower = lazy_module("memory_engine.projections.follower")
    quarantine = lazy_module("memory_engine.replay.quarantine")
    asked, builder, rendering = lazy_modules("memory_engine.context", "asked builder rendering")
    base, vectors = lazy_modules("memory_engine.llm", "base vectors")

RANK = cast("Ranker", StandIn("memory_engine.recall.ranking:rank"))
"""The built-in ranker, loaded with the first search."""
_EMBEDDED = StandIn(
    "memory_engine.compactors.embedded:EMBEDDED", {"name": "embedded", "works_ahead": True, "calls_model": False}
)


@cache
def builtin_plugins() -> tuple[Plugin, ...]:
    """The plug-ins that every engine has, in order."""
    return _core_plugin(), *(view.loaded for view in VIEWS)


_core_plugin = cache(core_plugin)


def _builtin() -> tuple[Plugin, ...]:
    """The same, where the views' code is loaded with their first use."""
    return _core_plugin(), *VIEWS


@cache
def _builtin_registries() -> tuple[EventRegistry, ReducerRegistry]:
    """The parts of the built-in plug-ins, to be copied: the next engine need not register them again."""
    events, reducers = EventRegistry(), ReducerRegistry()
    for plugin in _builtin():
        plugin.install(events, reducers)
    return events, reducers


def builtin_projections() -> tuple[Projection[object], ...]:
    """The read models that every engine has, in order of registration."""
    return tuple(projection for plugin in builtin_plugins() for projection in plugin.projections)


class Opening:
    """The result of `open`: await it for an engine that you close yourself; `async with` closes it for you."""

    def __init__(self, start: Callable[[], Coroutine[object, object, Engine]]) -> None:
        self._start = start
        self._engine: Engine | None = None

    def __await__(self) -> Generator[object, object, Engine]:
        return self._start().__await__()

    async def __aenter__(self) -> Engine:
        self._engine = await self
        return self._engine

    async def __aexit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if self._engine is not None:
            await self._engine.close()


def open(  # noqa: PLR0913 - the one place that takes every part; all but the path by keyword
    path: PathLike | Store = "memory.db",
    *,
    config: EngineConfig = EngineConfig(),  # noqa: B008 - frozen
    plugins: Sequence[Plugin] = (),
    entry_points: bool = False,
    key: "KeySource | None" = None,
    durability: Durability = "normal",
    models: "Models | None" = None,
    compactor: "Compactor | None" = None,
    before_compaction: Sequence[BeforeCompaction] = (),
    domain: "Domain | PathLike | None" = None,
    mask: Mask | None = SECRETS,
    parts: "Parts | None" = None,
    **older: "Unpack[OlderOptions]",
) -> Opening:
    """Open a memory: an SQLite file's path, `":memory:"`, a server's URL, or your own store (closed with the engine).

    `async with open(…) as engine` closes the engine for you, `await open(…)` does not. Nothing happens, and no error is
    raised, before. An engine keeps working in the next `asyncio.run`, unless it is on a server.

    `postgresql://user@host/database` needs the extra `postgres`. `plugins` add events, reducers, compactors,
    projections and renderers; `entry_points=True` also loads those that installed packages publish. `key` encrypts
    the file: a passphrase, 32 bytes, or a function that returns one (extra `encrypted`). `durability="full"` makes
    every commit survive a power failure, at the cost of one fsync each. `models` are those for summaries, for views
    and for search: `Models(compact="openai/gpt-4o-mini", embedder="minilm")`. `compactor` is asked before the built-in
    one. `domain` (or a TOML file's path) declares which preferences exist. `mask` is what may leave for models,
    embedders and the probe (default: no passwords and keys; `None`: all). `parts` are a tokenizer, a clock, a source of
    ids, and a probe. What is in `Models` and `Parts` may also be given by its older name: `compact_model`,
    `memory_model`, or its own.

    Raises `StorageError` if the file cannot be used (`KeyNeeded`, `WrongKey`), `InvalidCompactor` or `TypeError` for
    what is not a compactor, an embedder or a re-ranker, `MissingExtra` for `"minilm"`, a URL or a key without its
    extra, `InvalidKey`, `InvalidArgument`.

        async with memory_engine.open("agent.db") as engine:
            thread = await engine.create_thread(user_id="u1")
    """

    async def opened() -> Engine:
        checked_type("config", config, EngineConfig, give="an EngineConfig")
        is_given = bool(older) or (models, parts) != (None, None)
        given: OlderOptions = options.merge_options(models, parts, older) if is_given else {}
        probed = _watching(given.get("probe"), mask)
        model = _behind(_model(given.get("compact_model")), probed, mask)
        taken = _checked_plugins([*_builtin(), *_given(plugins, entry_points), *_asked_first(compactor, model)])
        place = checked_path("path", path) if isinstance(path, str | os.PathLike) else _checked_store(path)
        sources = _Sources(
            counter=given.get("tokens") or EstimatedTokens(),
            clock=given.get("clock") or SystemClock(),
            ids=given.get("ids") or RandomIds(),
            compact_model=model,
            model=_behind(_model(given.get("memory_model")), probed, mask),
            probe=probed,
            models=_search_models(given.get("embedder"), given.get("ranker", RANK), given.get("reranker")),
            settings={MaskInForce: MaskInForce(mask), **dict(_settings(domain, given))},
            hooks=_hooks(before_compaction),
        )
        return await _started(await _store(place, durability, config, key), config, taken, sources, str(place))

    return Opening(opened)


def _search_models(embedder: "str | Embedder | None", ranker: "Ranker", reranker: "Reranker | None") -> SearchModels:
    checked_function("ranker", ranker)
    return SearchModels(
        embedder=_embedder(embedder, reranker),
        vector_index=_vector_index,
        passage_vectors=_passage_vectors,
        passage_overlay=_passage_overlay,
        ranker=ranker,
        reranker=reranker,
    )


def _hooks(given: Sequence[BeforeCompaction]) -> Sequence[BeforeCompaction]:
    hooks = checked_list("before_compaction", given, object, each="functions")
    return [checked_function("before_compaction", hook) for hook in hooks]


def _checked_store(store: Store) -> Store:
    if not hasattr(store, "commit"):
        raise InvalidArgument("path", store, "give a path, a URL, or a store")
    return store


async def _store(place: str | Store, durability: Durability, config: EngineConfig, key: "KeySource | None") -> Store:
    if durability not in ("normal", "full"):
        raise InvalidArgument("durability", durability, 'give "normal" or "full"')
    if isinstance(place, str):
        return await open_store(place, durability, config, key)
    if key is not None:
        raise KeyUnsupported(type(place).__name__)
    return place


async def _started(
    store: Store, config: EngineConfig, plugins: Sequence[Plugin], sources: "_Sources", place: str
) -> Engine:
    closing = AsyncExitStack()
    try:
        engine = Engine(_kernel(store, config, plugins, sources), closing, shown_place(place))
    except BaseException:  # any error: nothing stays open behind it; it goes on to the caller
        await store.close()
        raise
    for hook in sources.hooks:
        engine.before_compaction(hook)
    for model in filter(None, (sources.compact_model, sources.model)):
        closing.push_async_callback(base.close, model, config.search_model_timeout_s)
    closing.push_async_callback(kernel_of(engine)[Recall].aclose)
    return await engine.__aenter__()


def _given(plugins: Sequence[Plugin], entry_points: bool) -> Sequence[Plugin]:
    checked_flag("entry_points", entry_points)
    given = checked_list("plugins", plugins, Plugin, each="plug-ins: `memory_engine.Plugin`")
    return [*(installed_plugins() if entry_points else ()), *given]


def _checked_plugins(plugins: Sequence[Plugin]) -> Sequence[Plugin]:
    """The plug-ins, if each of their compactors can compact: said before any file is made."""
    for compactor in (compactor for plugin in plugins for compactor, _ in plugin.compactors):
        assignment.checked_compactor(compactor)
    return plugins


def model_compactor(model: "str | LanguageModel") -> "Compactor":
    """A compactor that asks a model, given by litellm name or as an object: what `compact_model` uses."""
    from memory_engine.compactors.working_history import WorkingHistoryCompactor

    return WorkingHistoryCompactor(_litellm_model(model) if isinstance(model, str) else model)


def _model(given: "str | LanguageModel | None") -> "LanguageModel | None":
    return _litellm_model(given) if isinstance(given, str) else given


def _watching(probe: Probe | None, mask: Mask | None) -> Probe | None:
    """The probe behind the mask. The program's log is masked in any case."""
    mask_logs()
    if mask is None:
        return probe
    checked_function("mask", mask)
    return probe and MaskedProbe(probe, mask)


def _behind(model: "LanguageModel | None", probe: Probe | None, mask: Mask | None) -> "LanguageModel | None":
    """The model behind the mask, which the probe does not see behind either."""
    if model is None or probe is None:
        return model and base.masked_model(model, mask)
    return base.masked_model(ProbedModel(model, probe), mask)


def _litellm_model(name: str) -> "LanguageModel":
    """The model of a litellm name. Its adapter loads only where an option of `open` needs it."""
    from memory_engine.llm.litellm import LiteLLM

    return LiteLLM(name)


def _settings(domain: "Domain | PathLike | None", given: "OlderOptions") -> Iterator[tuple[type, object]]:
    """The parts outside the views themselves. Their modules load when an option of `open` needs them."""
    if domain is not None:
        from memory_engine.views.preferences.domain import Domain

        yield Domain, domain if isinstance(domain, Domain) else Domain.from_toml(domain)
    scorers, redactor = given.get("scorers", ()), given.get("redactor")
    if scorers != ():
        from memory_engine.views.promotion.scorers import Scorers

        for scorer in checked_list("scorers", scorers, object, each="scorers"):
            if not hasattr(scorer, "score"):
                raise InvalidArgument("scorers", scorer, "give objects with a method `score`")
        yield Scorers, Scorers(scorers)
    if redactor is not None:
        from memory_engine.views.patterns.redaction import Redactors

        yield Redactors, Redactors(redactor)


def _asked_first(compactor: "Compactor | None", model: "LanguageModel | None") -> Iterator[Plugin]:
    """The user's compactor and the one of their model, which are asked before the embedded one."""
    if compactor is not None:
        yield Plugin("compactor", compactors=[(compactor, 2)])
    if model is not None:
        yield Plugin("compact_model", compactors=[(model_compactor(model), 1)])


class _Sources(msgspec.Struct, frozen=True, kw_only=True):
    """The sources of counts, times, ids and judgements. `settings` are those of views, by type."""

    counter: TokenCounter
    clock: Clock
    ids: IdSource
    compact_model: "LanguageModel | None"
    model: "LanguageModel | None"
    models: SearchModels
    settings: Mapping[type, object]
    probe: Probe | None
    hooks: Sequence[BeforeCompaction] = ()


def _embedder(given: "str | Embedder | None", reranker: "Reranker | None") -> "Embedder | None":
    """The embedder that is given, or that of a model's name. Raises `TypeError` for objects of other types."""
    if reranker is not None and not hasattr(reranker, "rerank"):
        raise TypeError(f"{reranker!r} is not a re-ranker: it has no `rerank` (see docs/how-to/embeddings.md)")
    if isinstance(given, str):
        from memory_engine.llm.embedder import LiteLLMEmbedder
        from memory_engine.recall.embedders import CachedEmbedder, MiniLMEmbedder

        if given == "minilm":
            return CachedEmbedder(MiniLMEmbedder())
        return CachedEmbedder(LiteLLMEmbedder(given))
    return None if given is None else vectors.checked_embedder(given)


def _kernel(store: Store, config: EngineConfig, plugins: Sequence[Plugin], sources: _Sources) -> Kernel:
    """Everything the plug-ins bring, in their order.

    Raises `DuplicateRegistration` for a name given twice, `UntrackedEvents` for a view that lists untracked events.
    """
    known, run = _builtin_registries()
    events, reducers = known.copy(), run.copy()
    builtin = frozenset(map(id, _builtin()))
    projections: dict[str, Projection[object]] = {}
    kinds: dict[str, ThreadKind] = {}
    embedded = cast("Compactor", _EMBEDDED)
    compactors: list[tuple[Compactor, int]] = [(embedded, 0)]
    extractors: dict[str, Extractor] = {}
    for plugin in plugins:
        is_builtin = id(plugin) in builtin
        if not is_builtin:
            plugin.install(events, reducers)
        for projection in plugin.projections:
            if not is_builtin:
                check_events(projection)  # here, since the classes may be declared after the projection was added
            if projection.name in projections:
                raise DuplicateRegistration("projection", projection.name)
            projections[projection.name] = projection
        compactors += plugin.compactors
        extractors.update(plugin.extractors)
        kinds.update((kind.name, kind) for kind in plugin.kinds)
    projections |= {fold.name: cast("Projection[object]", fold) for fold in folds_of(events)}
    kernel = Kernel(
        store=store,
        probe=sources.probe,
        config=config,
        events=events,
        reducers=reducers,
        projections=tuple(projections.values()),
        extractors=extractors_of(extractors),
        kinds=kinds,
        clock=sources.clock,
        ids=sources.ids,
    )
    kernel.provide_later("memory_engine.context.builder:ContextBuilder", lambda: _builder(plugins, sources.counter))
    kernel.provide(BlockSources, BlockSources(tuple(block for plugin in plugins for block in plugin.blocks)))
    kernel.provide_later("memory_engine.llm.base:MemoryModel", lambda: base.MemoryModel(sources.model))
    kernel.provide(RecordingReaders, RecordingReaders(tuple(reader for plugin in plugins for reader in plugin.readers)))
    for kind, setting in sources.settings.items():
        kernel.provide(kind, setting)
    for setting in (setting for plugin in plugins for setting in plugin.settings):
        kernel.provide(type(setting), setting)
    attachments = [attach for plugin in plugins for attach in plugin.attachments]
    _services(kernel, sources.models, CompactionService(kernel, compactors, embedded), attachments)
    return kernel


def _builder(plugins: Sequence[Plugin], counter: TokenCounter) -> "builder.ContextBuilder":
    added = {chunk_type: render for plugin in plugins for chunk_type, render in plugin.renderers}
    return builder.ContextBuilder({**rendering.DEFAULT_RENDERERS, **added}, counter)


def _services(
    kernel: Kernel,
    models: SearchModels,
    compaction: CompactionService,
    attachments: Sequence[Callable[[Kernel], None]],
) -> None:
    """Put the services of an engine together, in the order in which they act."""
    threads = kernel.provide(OpenThreads, OpenThreads(kernel))
    asynchronous = tuple(p for p in kernel.projections if p.mode == "async")
    make_worker = lambda: follower.ProjectionWorker(kernel.store, kernel.reader, asynchronous)  # noqa: E731
    kernel.provide_later("memory_engine.projections.follower:ProjectionWorker", make_worker)
    relay = kernel.provide(Relay, Relay(kernel))
    recall = kernel.provide(Recall, Recall(kernel, models))
    kernel.provide(CompactionService, compaction)
    kernel.provide(Observers, Observers(threads.on_commit))

    async def read_window(runtime: ThreadRuntime) -> None:
        if "context_asked" in runtime.head.marks:  # else no context was asked of it yet
            await kernel[asked.AskedWindows].read(runtime)

    async def compacted(thread_id: str) -> None:
        with suppress(IntegrityError):  # nothing is under way in a log that cannot be read
            await compaction.settle(await threads.taken(thread_id))

    kernel.provide_later("memory_engine.context.asked:AskedWindows", lambda: asked.AskedWindows(kernel))
    kernel.provide_later(
        "memory_engine.replay.quarantine:QuarantineKeeper", lambda: quarantine.QuarantineKeeper(kernel)
    )

    async def watched(runtime: ThreadRuntime) -> None:
        if "source_quarantined" in runtime.head.marks:
            kernel[quarantine.QuarantineKeeper].watch(runtime)

    async def quarantined(runtime: ThreadRuntime) -> None:
        if "source_quarantined" in runtime.head.marks:
            await kernel[quarantine.QuarantineKeeper].keep(runtime.id)

    threads.on_open += [read_window, compaction.recover, watched]
    threads.on_event["source_quarantined"].append(lambda runtime, _: kernel[quarantine.QuarantineKeeper].watch(runtime))
    threads.on_due += [compaction.after_commit]
    relay.listen(threads)
    if asynchronous:
        threads.on_commit += [lambda runtime, _: kernel[follower.ProjectionWorker].touched(runtime.id)]
    threads.keeping += [compaction.is_running]
    # work of an event loop that has ended has no waiter any more
    kernel.home.moved += [kernel.moved, kernel.tasks.moved, kernel.entrance.moved, kernel.caches.clear, threads.moved]
    kernel.home.moved += [relay.moved, kernel.store.moved]
    recall.listen(threads)
    threads.before_context += [quarantined, compaction.before_context]
    threads.before_scopes += [relay.recover]
    for attach in attachments:
        attach(kernel)
    threads.before_delete += [compacted]  # plug-ins may dispatch before it


def _vector_index(dimension: int) -> "VectorIndex":
    """Vectors in memory: compared one by one while they are few."""
    from memory_engine.storage.vectors.adaptive import AdaptiveIndex

    return AdaptiveIndex(dimension)


def _passage_vectors(dimension: int) -> "PassageVectors":
    from memory_engine.storage.vectors.quantized import QuantizedVectors

    return QuantizedVectors(dimension)


def _passage_overlay(store: Store) -> OverlaidIndex:
    """The index of an engine that only reads, over that of its store."""
    from memory_engine.storage.sqlite.passage_overlay import PassageOverlay

    return PassageOverlay(store)
