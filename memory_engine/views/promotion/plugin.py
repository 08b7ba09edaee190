"""The plug-in of promotion and `agent.md`."""

from collections.abc import Sequence

from memory_engine.context.rendering import render_system
from memory_engine.context.standing import Situation, StandingBlock, StandingLine
from memory_engine.core.chunks import content_text
from memory_engine.plugins import Plugin
from memory_engine.recall.extractors import PIECE_MAX, pieces
from memory_engine.store.passages import NOTHING, Extracted, Text
from memory_engine.store.protocol import ThreadFilter
from memory_engine.views.preferences import preference
from memory_engine.views.preferences.fold import PREFERENCES
from memory_engine.views.promotion.agent_md import AGENT_MD, AgentMd, PromotedLine, safe_line
from memory_engine.views.promotion.events import (
    AgentMdPromoted,
    AgentMdRemoved,
    AgentMdUploaded,
    FindingNoted,
    PromotionDecided,
    ReportSaved,
    upcast_promotion_decided_v1,
)
from memory_engine.views.promotion.finding import FINDINGS
from memory_engine.views.promotion.fold import PROMOTION
from memory_engine.views.promotion.wording import is_first_person

PLUGIN = Plugin(
    "promotion",
    events=[ReportSaved, PromotionDecided, FindingNoted, AgentMdUploaded, AgentMdPromoted, AgentMdRemoved],
)
PLUGIN.silent(PromotionDecided, FindingNoted)
PLUGIN.projection(PROMOTION)
PLUGIN.projection(FINDINGS)
PLUGIN.projection(AGENT_MD)
PLUGIN.upcaster("promotion_decided", 1)(upcast_promotion_decided_v1)
PLUGIN.renderer("agent_md")(render_system)


@PLUGIN.context_block("agent_md", share=0.15)
async def agent_md_block(situation: Situation) -> StandingBlock | None:
    """Build the block of the tenant's `agent.md`: people's own text, then the promoted lines.

    A line in the first person is shown only to the user in whose conversation it was written.
    """
    tenant = await situation.tenant()
    if tenant is None:
        return None
    own, promoted = await AgentMd(tenant).parts()
    written = own.content.splitlines() if own is not None else ()
    lines = [StandingLine(line, tenant.id, own.seq) for line in written if own is not None and line.strip()]
    others = await _lines_of_others(situation, promoted)
    shown = (line for line in promoted if line.id not in others)
    lines += [StandingLine(f"- {safe_line(line.text)}", tenant.id, line.id) for line in shown]
    return StandingBlock(name="agent_md", heading="From agent.md:", lines=tuple(lines))


@PLUGIN.context_block("imported_preferences")
async def imported_preferences_block(situation: Situation) -> StandingBlock | None:
    """The preferences that another system's file names, with that system.

    They are a note behind all instructions, which they are not: nobody chose them here.
    """
    user = await situation.user()
    rows = (await user.rows(PREFERENCES)).items() if user is not None else ()
    chosen = sorted((row for _, row in rows if row.origin == "imported"), key=lambda row: row.seq)
    if user is None or not chosen:
        return None
    lines = (StandingLine(preference.line_of(row.key, row.value, row.reason), user.id, row.seq) for row in chosen)
    return StandingBlock(
        name="imported_preferences", heading="What other systems say that the user prefers:", lines=tuple(lines)
    )


async def _lines_of_others(situation: Situation, lines: Sequence[PromotedLine]) -> frozenset[int]:
    """Return the ids of lines in which another user speaks of themselves. Earlier versions promoted such lines."""
    store = situation.thread.kernel.store
    others = set()
    for line in lines:
        if is_first_person(line.text):
            threads = {source.source_thread for source in line.promotions}
            found = [record for thread in threads for record, _ in await store.threads(ThreadFilter(id=thread))]
            if all(record.user_id != situation.user_id or not record.user_id for record in found):
                others.add(line.id)
    return frozenset(others)


@PLUGIN.passages(ReportSaved)
def _report(event: ReportSaved, _seq: int) -> Extracted:
    said = tuple(Text(piece, "note", about=event.title) for piece in pieces(content_text(event.content)))
    return Extracted(said or tuple(Text(piece, "note") for piece in pieces(event.title)))


@PLUGIN.passages(AgentMdUploaded)
def _agent_md(event: AgentMdUploaded, _seq: int) -> Extracted:
    texts = (Text(piece, "agent_md", key="agent_md") for piece in pieces(event.content, whole_max=PIECE_MAX))
    return Extracted(tuple(texts), keys=("agent_md",))


@PLUGIN.passages(AgentMdPromoted)
def _agent_md_line(event: AgentMdPromoted, _seq: int) -> Extracted:
    line = " ".join(event.content.split())
    return Extracted((Text(line, "agent_md", key=f"agent_md/{line.casefold()}"),)) if line else NOTHING


@PLUGIN.passages(AgentMdRemoved)
def _agent_md_removed(event: AgentMdRemoved, _seq: int) -> Extracted:
    return Extracted(twins=tuple(int(line) for line in event.lines if line.isdecimal() and len(line) <= 18))
