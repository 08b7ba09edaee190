"""Fit the costs of `memory_engine.core.token_classes` to texts: `python -m benchmarks.token_fit FOLDER`.

Each folder in FOLDER is a kind of text (`prose.de`, `json`), each file in it a text of a few kilobytes. Costs go up and
down by one, as long as that brings texts closer to between `LEAST` and `MOST` times their real tokens. Too little
weighs four times as much as too much. It needs tiktoken's tables and NumPy, and prints the new tables with the range of
each kind. The costs in the module are a least-squares fit, rounded and then improved in this way, to 2,200 texts of 340
kinds: translations into 40 languages, manuals, code in 100 languages, web pages, data and logs made by seeds. The texts
of `benchmarks tokens` were not among them. Costs of the first letter of a word were kept from falling below half of a
token, so that words that come again and again are counted each time.
"""

import sys
from collections import defaultdict
from pathlib import Path

import numpy as np

from memory_engine.core import token_classes as classes
from memory_engine.llm import Tokenizer

LEAST, MOST = 1.06, 1.32
TOO_LITTLE = 4.0
SWEEPS_MAX = 6
HALVES = len(classes.CLASSES)
Numbers = np.ndarray[tuple[int, ...], np.dtype[np.float64]]


def texts_of(folder: Path) -> list[tuple[str, str]]:
    """Return each text with its kind."""
    found = (path for path in sorted(folder.glob("*/*")) if path.is_file())
    return [(path.parent.name, path.read_text("utf-8")) for path in found]


def counts(text: str) -> Numbers:
    """Count how often each pair of classes occurs in a text, then each group of blocks."""
    own = np.frombuffer(text.encode().translate(classes._CLASS), np.uint8).astype(int)
    before = np.concatenate([[0], own[:-1]])
    pairs = np.bincount(before * HALVES + own, minlength=HALVES * HALVES)
    blocks = np.bincount(np.frombuffer(text.encode("utf-16-le"), np.uint8)[1::2], minlength=256)
    return np.concatenate([pairs, [blocks[first:end].sum() for first, end, _ in classes.BLOCK_COSTS]]).astype(float)


class Fit:
    """Costs, and how far the counts that they give are from the real tokens."""

    def __init__(self, texts: list[tuple[str, str]]) -> None:
        tokenizer = Tokenizer("o200k_base")
        self.kinds = [kind for kind, _ in texts]
        real = np.array([tokenizer.count(text) for _, text in texts], float)
        self.shares = np.stack([counts(text) for _, text in texts]) / 16 / real[:, None]
        self.bytes = np.array([len(text.encode()) for _, text in texts]) / classes.BYTES_TO_ONE / real
        sizes = {kind: self.kinds.count(kind) for kind in self.kinds}
        self.weights = np.array([sizes[kind] ** -0.5 for kind in self.kinds])
        self.costs = np.array([*np.ravel(classes.COSTS), *(cost for _, _, cost in classes.BLOCK_COSTS)])

    def ratios(self) -> Numbers:
        """Return the counted tokens over the real ones, text by text."""
        ratios: Numbers = self.shares @ self.costs + self.bytes
        return ratios

    def loss(self, ratios: Numbers) -> float:
        """Return how far the ratios are from the allowed range."""
        below, above = np.maximum(0, LEAST - ratios), np.maximum(0, ratios - MOST)
        return float((self.weights * (TOO_LITTLE * below + above)).sum())

    def improve(self) -> None:
        """Move each cost by one where that helps, the most frequent first, until nothing does."""
        ratios = self.ratios()
        best = self.loss(ratios)
        order = [n for n in np.argsort(-self.shares.sum(0)) if self.shares[:, n].any() and self.is_free(int(n))]
        for _ in range(SWEEPS_MAX):
            before = best
            for n in order:
                for step in (1, -1):
                    tried = ratios + step * self.shares[:, n]
                    if 0 <= self.costs[n] + step <= classes.COST_MAX and self.loss(tried) < best - 1e-9:
                        self.costs[n] += step
                        ratios, best = tried, self.loss(tried)
                        break
            if best == before:
                return

    def is_free(self, n: int) -> bool:
        """Return True if a cost may change: a character's continuation bytes cost nothing, its block does."""
        return n != HALVES * HALVES - 1

    def report(self) -> str:
        """Return the tables, and the range of the ratios of each kind."""
        found = defaultdict(list)
        for kind, ratio in zip(self.kinds, self.ratios(), strict=True):
            found[kind].append(float(ratio))
        rows = "\n".join(
            f"    {tuple(map(int, row))}," for row in self.costs[: HALVES * HALVES].reshape(HALVES, HALVES)
        )
        blocks = zip(classes.BLOCK_COSTS, self.costs[HALVES * HALVES :], strict=True)
        scripts = "\n".join(f"    (0x{first:02X}, 0x{end:02X}, {cost})," for (first, end, _), cost in blocks)
        ranges = "\n".join(f"{kind}: {min(one):.2f} to {max(one):.2f}" for kind, one in sorted(found.items()))
        return f"COSTS = (\n{rows}\n)\n\nBLOCK_COSTS = (\n{scripts}\n)\n\n{ranges}"


if __name__ == "__main__":
    fit = Fit(texts_of(Path(sys.argv[1])))
    fit.improve()
    print(fit.report())
