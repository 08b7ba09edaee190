"""The names of masks: vectors that were made behind one are never taken for those of another."""

from functools import partial
from pathlib import Path

import pytest

import memory_engine
from memory_engine import Mask, SecretMask
from memory_engine.engine import kernel_of
from memory_engine.errors import InvalidArgument
from memory_engine.language.masking import Destination
from memory_engine.language.secrets import SecretKind
from tests.engine.test_masking import Embedder, history


def shouted(text: str, _destination: Destination) -> str:
    """Mask by a function of a module."""
    return text.upper()


class Quiet:
    """A mask without a name of its own."""

    def __call__(self, text: str, _destination: Destination) -> str:
        """Mask it."""
        return text.lower()


PASSWORDS: tuple[SecretKind, ...] = ("password",)
KEYS: tuple[SecretKind, ...] = ("key",)
MASKS: list[Mask | None] = [SecretMask(), SecretMask(PASSWORDS), SecretMask(KEYS), shouted, Quiet(), None]


async def test_no_two_masks_share_vectors(tmp_path: Path) -> None:
    """Also those that nobody gave a name, and none at all: each embeds again, and finds its own when it comes back."""
    path, names = tmp_path / "m.db", list[str]()
    async with memory_engine.open(path) as engine:
        await history(engine)
    for mask in MASKS:
        async with memory_engine.open(path, embedder=Embedder(), mask=mask) as engine:
            await engine.thread("t").admin.prepare_search()
            names += await kernel_of(engine).store.passages.models("t")
        again = Embedder()
        async with memory_engine.open(path, embedder=again, mask=mask) as engine:
            await engine.thread("t").admin.prepare_search()
        assert [] == again.asked
    assert "hash-16" == names[0]
    assert len(MASKS) == len(set(names))


def made(word: str) -> Mask:
    """A mask that a function returns: another word, another mask."""

    def mask(text: str, _destination: Destination) -> str:
        return text.replace(word, "")

    return mask


@pytest.mark.parametrize(
    "mask", [lambda text, _destination: text, partial(shouted), made("harbour")], ids=["lambda", "partial", "made"]
)
async def test_a_mask_that_no_name_tells_from_others_is_refused(mask: Mask) -> None:
    """Where there are vectors to keep apart; with a name it is taken."""
    with pytest.raises(InvalidArgument, match=r"mask\.name"):
        async with memory_engine.open(":memory:", embedder=Embedder(), mask=mask):
            pass
    async with memory_engine.open(":memory:", mask=mask):
        pass
    mask.name = "mine"  # type: ignore[attr-defined]
    async with memory_engine.open(":memory:", embedder=Embedder(), mask=mask) as engine:
        await (await history(engine)).admin.prepare_search()
        assert ["hash-16+mine"] == list(await kernel_of(engine).store.passages.models("t"))
