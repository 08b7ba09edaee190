"""Vectors of one tenant, in a file, and which are truly nearest to some questions."""

from pathlib import Path

import numpy as np
from numpy.lib.format import open_memmap
from numpy.typing import NDArray

from memory_engine.llm.vectors import QUANTIZED_ONE

DIMENSION = 384
PARTS = (8, 128, 2_048)
SHARES = (1.2, 0.8, 0.6)
"""Topics, their parts and the parts' parts: how many there are of each, and how far apart."""
WAYS = 16
"""Directions in which vectors differ from the centre of their cluster, besides a little noise in all."""
NOISE = 0.3
ASKED_NOISE = 0.25
"""How far a question is from the vector that it is made from."""
CHUNK = 50_000
LIMIT = 10
ROWS, TRUTH = "rows.npy", "truth.npz"
Rows = NDArray[np.float32]


def _space() -> tuple[Rows, Rows]:
    """The middles of all clusters, and the ways away from them."""
    drawn = np.random.default_rng(0)
    middles = np.zeros((PARTS[-1], DIMENSION))
    for parts, share in zip(PARTS, SHARES, strict=True):
        apart = drawn.normal(size=(parts, DIMENSION)) / DIMENSION**0.5
        middles += share * apart.repeat(PARTS[-1] // parts, axis=0)
    ways = drawn.normal(size=(WAYS, DIMENSION)) / (DIMENSION * WAYS) ** 0.5
    return middles.astype(np.float32), ways.astype(np.float32)


def _unit(rows: Rows) -> Rows:
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), dtype=np.float32)


def write_rows(folder: Path, count: int, asked: int) -> None:
    """Write a number of vectors (two bytes a number, at unit length), the questions, and the nearest to each.

    There are 2,048 clusters in three levels; the n-th largest is 1/n as large as the largest (Zipf).
    """
    middles, ways = _space()
    rows = open_memmap(folder / ROWS, "w+", "<i2", (count, DIMENSION))
    sizes = 1 / np.arange(1, len(middles) + 1)
    order = np.random.default_rng(3).permutation(len(middles))
    for number, begin in enumerate(range(0, count, CHUNK)):
        chance, some = np.random.default_rng([1, number]), min(CHUNK, count - begin)
        found = middles[order[chance.choice(len(order), some, p=sizes / sizes.sum())]]
        found = found + chance.standard_normal((some, WAYS), dtype=np.float32) @ ways
        found += NOISE / DIMENSION**0.5 * chance.standard_normal((some, DIMENSION), dtype=np.float32)
        rows[begin : begin + some] = np.rint(_unit(found) * QUANTIZED_ONE)
    rows.flush()
    chance = np.random.default_rng(9)
    noise = ASKED_NOISE / DIMENSION**0.5 * chance.standard_normal((asked, DIMENSION), dtype=np.float32)
    questions = _unit(numbers_of(rows[chance.integers(0, count, asked)]) + noise)
    np.savez(folder / TRUTH, questions=questions, nearest=_nearest(rows, questions))


def read_rows(folder: Path) -> NDArray[np.int16]:
    """The vectors, mapped: they take no memory until they are read."""
    rows: NDArray[np.int16] = np.load(folder / ROWS, mmap_mode="r")
    return rows


def numbers_of(rows: NDArray[np.int16]) -> Rows:
    """Vectors in four bytes a number."""
    return np.asarray(rows, dtype=np.float32) / np.float32(QUANTIZED_ONE)


def read_truth(folder: Path) -> tuple[Rows, NDArray[np.int64]]:
    """The questions, and the numbers of the nearest to each, best first."""
    with np.load(folder / TRUTH) as truth:
        return truth["questions"], truth["nearest"]


def _nearest(rows: NDArray[np.int16], questions: Rows) -> NDArray[np.int64]:
    best = np.zeros((0, len(questions)), dtype=np.float32)
    numbers = np.zeros((0, len(questions)), dtype=np.int64)
    for begin in range(0, len(rows), CHUNK):
        scores = numbers_of(rows[begin : begin + CHUNK]) @ questions.T
        near = np.argpartition(-scores, LIMIT, axis=0)[:LIMIT]
        best = np.vstack([best, np.take_along_axis(scores, near, 0)])
        numbers = np.vstack([numbers, near + begin])
        order = np.argsort(-best, axis=0, kind="stable")[:LIMIT]
        best, numbers = np.take_along_axis(best, order, 0), np.take_along_axis(numbers, order, 0)
    return numbers.T
