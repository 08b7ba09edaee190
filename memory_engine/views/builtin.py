"""What each built-in view adds to an engine, by name: its code is loaded with the first use of any of it.

The plug-ins themselves are in the views' folders (`plugin.py`). A test compares them with this table.
"""

import sys
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, cast

from memory_engine.compaction.base import StandingStatements
from memory_engine.context.standing import BlockSource, Place, Situation, StandingBlock
from memory_engine.core.aside import imported
from memory_engine.core.clock import DAY_US
from memory_engine.core.events.base import Event
from memory_engine.core.events.memory import ThreadCleared
from memory_engine.core.lazy import StandIn
from memory_engine.core.state import Mark
from memory_engine.plugins import DeferredPlugin, Plugin
from memory_engine.projections.base import Projection
from memory_engine.recall.index import DecidedPair, StatementDecisions
from memory_engine.runtime.delivery import Relay
from memory_engine.runtime.handle import ThreadHandle
from memory_engine.runtime.kernel import Kernel, ThreadKind
from memory_engine.runtime.queue import Prepared
from memory_engine.runtime.threads import OpenThreads
from memory_engine.store.protocol import Store

if TYPE_CHECKING:
    from memory_engine.context.rendering import Renderer


def _lazy_object(place: str, known: Mapping[str, object] = MappingProxyType({})) -> StandIn:
    """The object of a view's module, as `"brief.plugin:PLUGIN"`."""
    return StandIn(f"memory_engine.views.{place}", known)


async def _awaited(function: StandIn, *given: object) -> object:
    """What a view's function returns once it is awaited. Its module is loaded beside the loop."""
    await imported(function.module)
    return await cast("Callable[..., Coroutine[object, object, object]]", function.original)(*given)


def _lazy_projection(place: str, name: str, types: str, version: int = 1) -> Projection[object]:
    """A projection, and the types that it reads besides `thread_cleared`."""
    read = frozenset({*types.split(), ThreadCleared.event_type})
    known = {"name": name, "version": version, "mode": "inline", "event_type_names": read}
    return cast("Projection[object]", _lazy_object(place, known))


def _renderer(place: str) -> "Renderer":
    return cast("Renderer", StandIn(f"memory_engine.{place}"))


def _lazy_block(  # noqa: PLR0913 - all that is to be said of a block
    name: str,
    place_of: str,
    needs: Callable[[Situation], Awaitable[object]] | None = None,
    *,
    place: Place = "first",
    share: float = 0.1,
    least: int = 96,
) -> BlockSource:
    """A standing block. Its view is loaded once a context has what the block `needs`."""
    function = _lazy_object(place_of)

    async def read(situation: Situation) -> StandingBlock | None:
        if needs is not None and function.module.__name__ not in sys.modules and not await needs(situation):
            return None
        return cast("StandingBlock | None", await _awaited(function, situation))

    return BlockSource(name=name, read=read, place=place, share=share, least=least)


async def _is_shown(situation: Situation) -> bool:
    return any(True for _ in situation.state.marked(Mark.EPHEMERAL))


_PREFERENCES = _lazy_projection(
    "preferences.fold:PREFERENCES", "preferences", "preference_updated preference_removed memory_forget"
)


async def _has_imported(situation: Situation) -> bool:
    user = await situation.user()
    rows = (await user.rows(_PREFERENCES)).items() if user is not None else ()
    return any(getattr(row, "origin", "") == "imported" for _, row in rows)


async def _standing(thread: ThreadHandle, seq: int) -> Sequence[str]:
    return cast("Sequence[str]", await _awaited(_lazy_object("brief.plugin:standing"), thread, seq))


async def _decisions(kernel: Kernel, thread_id: str, upto: int) -> Sequence[DecidedPair]:
    """The decisions on a thread's statements. Without any, no row is read."""
    runtime = kernel[OpenThreads].get(thread_id)
    if runtime is not None:
        await runtime.follow()
    head = runtime.head if runtime is not None else await kernel.store.head(thread_id)
    if "statements_compared" not in head.marks:
        return ()
    found = await _awaited(_lazy_object("statements.fold:read_decisions"), kernel, thread_id, upto)
    return cast("Sequence[DecidedPair]", found)


def _attach_patterns(kernel: Kernel) -> None:
    """Orphans are withdrawn before facts are delivered, and all shares of a tenant before its thread goes."""

    async def withdrawn(function: str, tenant: ThreadHandle) -> None:
        if tenant.id.startswith("tenant:"):
            await _awaited(_lazy_object(f"patterns.pool:{function}"), tenant)

    async def bereft(store: Store) -> Sequence[str]:
        if not await store.holders("patterns", 1):
            return ()
        return cast("Sequence[str]", await _awaited(_lazy_object("patterns.pool:bereft"), store))

    kernel[OpenThreads].before_delete.append(lambda id_: withdrawn("withdraw_all", ThreadHandle(kernel, id_)))
    kernel[Relay].before.append(lambda tenant: withdrawn("withdraw_orphans", tenant))
    kernel[Relay].owing.append(bereft)


def _check_pooled(event: Event) -> None:
    _lazy_object("patterns.pool:check_pooled")(event)


def _admit_pooled(prepared: Prepared) -> Prepared:
    return cast("Prepared", _lazy_object("patterns.pool:prepared_for_pool")(prepared))


VIEWS: tuple[DeferredPlugin, ...] = (
    DeferredPlugin(
        Plugin("scratchpad"),
        event_types=("scratchpad_written", "scratchpad_removed"),
        reduced={
            "scratchpad_written": _lazy_object("scratchpad.view:reduce_scratchpad_written"),
            "scratchpad_removed": _lazy_object("scratchpad.view:reduce_scratchpad_removed"),
        },
    ),
    DeferredPlugin(
        Plugin(
            "preferences",
            projections=[_PREFERENCES],
            renderers=[("preferences", _renderer("context.rendering:render_system"))],
            blocks=[_lazy_block("preferences", "preferences.plugin:preferences_block", Situation.user)],
        ),
        event_types=("preference_updated", "preference_removed"),
    ),
    DeferredPlugin(
        Plugin(
            "promotion",
            projections=[
                _lazy_projection("promotion.fold:PROMOTION", "promotion", "promotion_decided memory_forget"),
                _lazy_projection("promotion.finding:FINDINGS", "findings", "finding_noted memory_forget"),
                _lazy_projection(
                    "promotion.agent_md:AGENT_MD",
                    "agent_md",
                    "agent_md_uploaded agent_md_promoted agent_md_removed memory_forget",
                ),
            ],
            renderers=[("agent_md", _renderer("context.rendering:render_system"))],
            blocks=[
                _lazy_block("agent_md", "promotion.plugin:agent_md_block", Situation.tenant, share=0.15),
                _lazy_block("imported_preferences", "promotion.plugin:imported_preferences_block", _has_imported),
            ],
        ),
        event_types=(
            "report_saved",
            "promotion_decided",
            "finding_noted",
            "agent_md_uploaded",
            "agent_md_promoted",
            "agent_md_removed",
        ),
        delivering=("promotion_decided",),
    ),
    DeferredPlugin(
        Plugin(
            "playbooks",
            projections=[
                _lazy_projection(
                    "playbooks.flow:FLOWS", "flows", "flow_completed feedback_given playbook_promoted memory_forget"
                ),
                _lazy_projection(
                    "playbooks.playbook:PLAYBOOKS", "playbooks", "playbook_saved playbook_removed memory_forget"
                ),
            ],
            blocks=[_lazy_block("playbook", "playbooks.plugin:playbook_block", Situation.user, place="turn")],
        ),
        event_types=("flow_completed", "feedback_given", "playbook_promoted", "playbook_saved", "playbook_removed"),
        delivering=("playbook_promoted",),
    ),
    DeferredPlugin(
        Plugin(
            "conversation",
            projections=[
                _lazy_projection(
                    "conversation.fold:CONVERSATION",
                    "conversation",
                    "cycle_started exchange_finished summary_rolled memory_forget",
                    version=2,
                )
            ],
        ),
        event_types=("cycle_started", "exchange_finished", "summary_rolled"),
    ),
    DeferredPlugin(
        Plugin(
            "tool_cache",
            projections=[
                _lazy_projection(
                    "tool_cache.view:TOOL_CACHE",
                    "tool_cache",
                    "tool_result_cached tool_cache_hit tool_cache_dropped"
                    " exchange_finished screen_injected memory_forget",
                )
            ],
        ),
        event_types=("tool_result_cached", "tool_cache_hit", "tool_cache_dropped"),
    ),
    DeferredPlugin(
        Plugin(
            "screen",
            projections=[
                _lazy_projection(
                    "screen.view:SCREEN", "screen", "screen_injected session_started session_ended memory_forget"
                )
            ],
            renderers=[("screen", _renderer("context.rendering:render_assistant"))],
            blocks=[_lazy_block("screen", "screen.plugin:screen_block", _is_shown, place="turn")],
        ),
        event_types=("screen_injected",),
        reduced={"screen_injected": _lazy_object("screen.view:reduce_screen_injected")},
    ),
    DeferredPlugin(
        Plugin(
            "checkpoints",
            projections=[
                _lazy_projection(
                    "checkpoints.fold:CHECKPOINTS",
                    "checkpoints",
                    "checkpoint_saved checkpoint_written checkpoints_dropped memory_forget",
                )
            ],
        ),
        event_types=("checkpoint_saved", "checkpoint_written", "checkpoints_dropped"),
    ),
    DeferredPlugin(
        Plugin(
            "layers",
            projections=[
                _lazy_projection(
                    "layers.fold:EPISODIC",
                    "episodic",
                    "memory_appended memory_removed memory_compacted memory_cleared memory_forget",
                ),
                _lazy_projection(
                    "layers.fold:LAYERS",
                    "layers",
                    "memory_appended memory_removed memory_compacted memory_cleared session_ended memory_forget",
                ),
                _lazy_projection("layers.grants:GRANTS", "grants", "memory_granted memory_revoked memory_forget"),
            ],
            blocks=[
                _lazy_block("user_memory", "layers.plugin:user_block", Situation.user),
                _lazy_block("agent_memory", "layers.plugin:agent_block", Situation.agent),
            ],
        ),
        event_types=(
            "memory_appended",
            "memory_removed",
            "memory_compacted",
            "memory_cleared",
            "memory_granted",
            "memory_revoked",
            "memory_shared",
            "memory_recalled",
            "results_offloaded",
        ),
        delivering=("memory_shared",),
        reduced={
            "memory_recalled": _lazy_object("layers.offloads:reduce_memory_recalled"),
            "results_offloaded": _lazy_object("layers.offloads:reduce_results_offloaded"),
        },
    ),
    DeferredPlugin(
        Plugin(
            "patterns",
            projections=[
                _lazy_projection(
                    "patterns.fold:PATTERNS",
                    "patterns",
                    "patterns_joined patterns_left pattern_proposed pattern_approved pattern_rejected pattern_revoked"
                    " agent_md_removed memory_forget",
                ),
                _lazy_projection(
                    "patterns.pool:POOL", "pattern_pool", "pattern_published pattern_withdrawn memory_forget"
                ),
            ],
            kinds=[ThreadKind(name="industry", check=_check_pooled, admit=_admit_pooled, grain_us=DAY_US, pooled=True)],
            attachments=[_attach_patterns],
        ),
        event_types=(
            "patterns_joined",
            "patterns_left",
            "pattern_proposed",
            "pattern_approved",
            "pattern_rejected",
            "pattern_revoked",
            "pattern_published",
            "pattern_withdrawn",
        ),
        delivering=("pattern_approved", "pattern_revoked"),
    ),
    DeferredPlugin(
        Plugin(
            "documents",
            projections=[
                _lazy_projection(
                    "documents.fold:DOCUMENTS", "documents", "document_added document_removed memory_forget"
                )
            ],
        ),
        event_types=("document_added", "document_removed"),
    ),
    DeferredPlugin(
        Plugin(
            "memory_files",
            projections=[
                _lazy_projection(
                    "memory_files.fold:MEMORY_FILES",
                    "memory_files",
                    "memory_file_written memory_files_moved memory_files_deleted memory_forget",
                )
            ],
        ),
        event_types=("memory_file_written", "memory_files_moved", "memory_files_deleted"),
    ),
    DeferredPlugin(
        Plugin(
            "workspace",
            projections=[_lazy_projection("workspace.fold:WORKSPACE", "workspace", "workspace_recorded memory_forget")],
        ),
        event_types=("workspace_recorded",),
    ),
    DeferredPlugin(
        Plugin(
            "sessions",
            projections=[
                _lazy_projection(
                    "sessions.fold:SESSIONS",
                    "sessions",
                    "session_begun session_entry_kept shared_state_set memory_forget",
                )
            ],
        ),
        event_types=("session_begun", "session_entry_kept", "shared_state_set"),
        delivering=("session_begun", "session_entry_kept"),
    ),
    DeferredPlugin(
        Plugin(
            "items", projections=[_lazy_projection("items.fold:ITEMS", "items", "item_put items_deleted items_used")]
        ),
        event_types=("item_put", "items_deleted", "items_used"),
    ),
    DeferredPlugin(
        Plugin(
            "session_items",
            projections=[
                _lazy_projection(
                    "session_items.fold:SESSION_ITEMS",
                    "session_items",
                    "session_item_added session_item_removed memory_forget",
                )
            ],
        ),
        event_types=("session_item_added", "session_item_removed"),
    ),
    DeferredPlugin(
        Plugin(
            "statements",
            projections=[
                _lazy_projection("statements.fold:STATEMENTS", "statements", "statements_compared memory_forget")
            ],
            settings=[StatementDecisions(_decisions)],
        ),
        event_types=("statements_compared",),
    ),
    DeferredPlugin(
        Plugin(
            "brief",
            projections=[_lazy_projection("brief.fold:PINS", "brief", "brief_pinned brief_unpinned memory_forget")],
            renderers=[("brief", _renderer("views.brief.plugin:rendered"))],
            blocks=[_lazy_block("brief", "brief.plugin:brief_block", share=0.25, least=300)],
            settings=[StandingStatements(_standing)],
        ),
        event_types=("brief_pinned", "brief_unpinned"),
    ),
)
"""The views that every engine has."""
