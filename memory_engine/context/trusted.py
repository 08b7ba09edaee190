"""Standing blocks by the origin of their lines: those of a lower origin than a policy asks for are left out."""

from collections.abc import Sequence

from msgspec.structs import replace

from memory_engine.context.brief_block import RankedBlock, Weighed
from memory_engine.context.standing import OfferedBlock, StandingBlock, StandingLine
from memory_engine.core.origins import Speaker, at_least
from memory_engine.recall.trust import origins_of
from memory_engine.runtime.kernel import Kernel


async def trusted_blocks(
    kernel: Kernel, blocks: Sequence[OfferedBlock], least: Speaker
) -> tuple[list[OfferedBlock], int]:
    """Return the blocks without lines of a lower origin, and how many lines these are."""
    kept = [(one, await _trusted_block(kernel, one.block, least)) for one in blocks]
    left_out = sum(_line_count(one.block) - _line_count(block) for one, block in kept)
    return [replace(one, block=block) for one, block in kept if block.lines], left_out


def _line_count(block: StandingBlock) -> int:
    return len(block.weighed) if isinstance(block, RankedBlock) else len(block.lines)


async def _trusted_block(kernel: Kernel, block: StandingBlock, least: Speaker) -> StandingBlock:
    lines: Sequence[Weighed | StandingLine] = block.weighed if isinstance(block, RankedBlock) else block.lines
    seqs: dict[str, set[int]] = {}
    for line in lines:
        seqs.setdefault(line.thread_id, set()).add(line.seq)
    found = {thread_id: await origins_of(kernel, thread_id, some) for thread_id, some in seqs.items() if thread_id}
    kept = [one for one in lines if at_least(found.get(one.thread_id, {}).get(one.seq, Speaker.TOOL), least)]
    if isinstance(block, RankedBlock):
        return RankedBlock.whole(block.name, block.heading, [one for one in kept if isinstance(one, Weighed)])
    return replace(block, lines=tuple(one for one in kept if isinstance(one, StandingLine)))
