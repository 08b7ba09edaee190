"""What the embedded compactor keeps: the figures of `benchmarks.compaction_quality`, as lines."""

import importlib
from collections.abc import Mapping

from benchmarks.figures import Figure, Reference
from benchmarks.setting import Setting, say


async def compaction_quality(setting: Setting) -> list[Figure]:
    """Informative. The recordings lie beside the repository; where they do not, a line says so."""
    module = importlib.import_module("benchmarks.compaction_quality")
    found: list[Figure] = []
    try:
        say("  an agent and its tools")
        figures = module.tau_bench()
        truncation = Reference("the last words alone, as many tokens", float(figures["truncation kept%"]))
        found.append(_line("values kept of recorded agent conversations", figures, "kept%", truncation))
        if not setting.quick:
            say("  two people")
            for share, kept in module.locomo().items():
                found.append(_line(f"answers kept in {share} of the tokens", kept, "strict", None))
    except module.SharedDataMissing as missing:
        found.append(Figure(bench="compaction_quality", case="skipped", value=None, unit="", note=str(missing)))
    return found


def _line(case: str, figures: Mapping[str, float | int | str], key: str, reference: Reference | None) -> Figure:
    return Figure(
        bench="compaction_quality",
        case=case,
        value=float(figures[key]),
        unit="%",
        reference=reference,
        asserted=False,
        detail=dict(figures),
    )
