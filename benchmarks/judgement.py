"""The share of right judgements without a model: of labelled replies, statements and snippets.

The tables are in `judgement/`, each in two halves. Rules are made by looking at `dev` alone; `held_out` measures
them. `python -m benchmarks.judgement` prints both, and each line of `dev` that was judged wrongly.
"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Literal

import msgspec
from attrs import frozen

from benchmarks.figures import Bar, Figure
from benchmarks.setting import Setting
from memory_engine.agents.extraction import Finished, Said, StatedFacts
from memory_engine.views.playbooks.reactions import WordingJudge
from memory_engine.views.promotion.judge import Judge, route_by_wording
from memory_engine.views.promotion.scorers import PromotionContext
from memory_engine.views.scratchpad.view import Snippet

TABLES = Path(__file__).resolve().parent / "judgement"
PRECISION_MIN = 0.95
ASKED = "Show revenue by month"
Half = Literal["dev", "held_out"]
HALVES: tuple[Half, ...] = ("dev", "held_out")
LEARNED_FROM = {
    "replies": frozenset({"satisfied", "moves_on"}),
    "statements": frozenset({"fact"}),
    "snippets": frozenset({"rule", "preference"}),
}
"""The labels, by table, of the lines from which something should be learned."""


class Line(msgspec.Struct, frozen=True):
    """A line of a table, its label, and whether it should teach anything."""

    language: str
    text: str
    label: str
    teaches: bool


def table(name: str, half: Half) -> list[Line]:
    """The lines of one half of a table, `replies`, `statements` or `snippets`."""
    rows = (TABLES / f"{name}_{half}.tsv").read_text("utf-8").splitlines()[1:]
    cells = (row.split("\t") for row in rows)
    return [
        Line(language, text.replace("\\n", "\n"), label, label in LEARNED_FROM[name]) for language, label, text in cells
    ]


@frozen
class Outcome:
    """The lines that taught something and should have, those that should not have, and those missed."""

    right: list[Line]
    wrong: list[Line]
    missed: list[Line]

    @property
    def precision(self) -> float:
        """Return the share of the learned lines that should have been learned; 1 if nothing was learned."""
        learned = len(self.right) + len(self.wrong)
        return len(self.right) / learned if learned else 1.0

    @property
    def recall(self) -> float:
        """Return the share of the lines that should be learned that were learned."""
        return len(self.right) / max(1, len(self.right) + len(self.missed))


async def measure(name: str, half: Half) -> Outcome:
    """Judge each line of one half of a table by itself."""
    outcome = Outcome([], [], [])
    for line in table(name, half):
        learned = await LEARNS[name](line.text)
        if learned or line.teaches:
            kept = outcome.missed if not learned else outcome.right if line.teaches else outcome.wrong
            kept.append(line)
    return outcome


async def _promotes(text: str) -> bool:
    return (await WordingJudge().judge(text, ASKED)).kind in ("satisfaction", "request")


async def _states(text: str) -> bool:
    return bool(await StatedFacts().extract(Finished(task="", said=(Said(text=text),))))


async def _rises(text: str) -> bool:
    return bool(await placed(text))


async def placed(text: str) -> str:
    """Return where promotion puts a snippet judged by itself: `agent_md`, `preferences`, or an empty string."""
    snippet = Snippet(id="1.0", text=text, flow="", seq=1, recalled=False)
    (judgement,) = await Judge(()).judge([snippet], PromotionContext(snippets=[snippet]), {})
    return route_by_wording(snippet).target if judgement.rises else ""


LEARNS: dict[str, Callable[[str], Awaitable[bool]]] = {"replies": _promotes, "statements": _states, "snippets": _rises}


async def judgement(_setting: Setting) -> list[Figure]:
    """Precision and recall of the embedded judges, per table and half."""
    figures = []
    for name in LEARNS:
        for half in HALVES:
            outcome = await measure(name, half)
            figures += [
                _figure(f"{name}, {half}: precision", outcome.precision, Bar("value", ">=", 100 * PRECISION_MIN)),
                _figure(f"{name}, {half}: recall", outcome.recall, None),
            ]
    return figures


def _figure(case: str, share: float, bar: Bar | None) -> Figure:
    return Figure(bench="judgement", case=case, value=100 * share, unit="%", bar=bar)


async def main() -> None:
    """Print the figures, and what went wrong on the half that rules are made by."""
    for name in LEARNS:
        for half in HALVES:
            outcome = await measure(name, half)
            learned = len(outcome.right) + len(outcome.wrong)
            print(
                f"{name} {half}: precision {outcome.precision:.1%} ({len(outcome.right)} of {learned}), "
                f"recall {outcome.recall:.1%} ({len(outcome.right)} of {len(outcome.right) + len(outcome.missed)})"
            )
            if half == "dev":
                for title, lines in (("wrong", outcome.wrong), ("missed", outcome.missed)):
                    for line in lines:
                        print(f"  {title}: [{line.language}] {line.text!r}")


if __name__ == "__main__":
    asyncio.run(main())
