"""Passages' vectors in two bytes a number, and how the nearest of many are found without looking at all their numbers.

A vector's code is a bit a number: whether it lies above the middle of all vectors there. Vectors that point the same
way differ in few bits, so those whose codes differ least from the question's are compared exactly, and no others
(binary quantization with rescoring: Charikar 2002). Codes are a sixteenth of the vectors, and take no time to build.
Of very many vectors the first bits of the codes are compared first, and the rest only where those are alike.
"""

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import msgspec

from memory_engine.errors import InvalidVector, MissingExtra
from memory_engine.llm.vectors import QUANTIZED_ONE, Packed, Vector
from memory_engine.storage.vectors.exact import NUMBER_BYTES, unit_rows
from memory_engine.store.passages import VectorRows

if TYPE_CHECKING:
    from types import ModuleType

    import numpy as np
    from numpy.typing import NDArray

    Numbers = NDArray[np.int16]
    Places = NDArray[np.int64]

COMPARED_MIN = 1_000
"""Candidates whose numbers are compared at least."""
COMPARED_NUMBERS = 512_000
"""Numbers that are compared, in a few tenths of a millisecond: the fewer a vector has, the less its code says.

Of 100,000 clustered vectors of 384 numbers, 200 candidates have the nearest ten among them."""
COMPARED_PER_RESULT = 8
AT_ONCE = 4_096
"""Vectors that are converted together: some megabytes."""
MULTIPLIED = 8_192
"""Numbers that one multiplication takes. For more, NumPy's library (OpenBLAS: from 9,216) wakes threads of its own, and
to wait for these takes milliseconds where others compute too: a hundred times as long as to multiply."""
WORD_BITS = 64
FIRST_WORDS = 3
"""Words of a code that are compared first, where it has twice as many: reading a million codes is most
of a search."""
FIRST_FROM = 384
FIRST_MIN = 16
FIRST_SHARE = 32
"""`FIRST_FROM`: vectors for each that is compared exactly from which on this step runs. `FIRST_MIN`, `FIRST_SHARE`: it
leaves at least this number for each, and at least one in this number of all.

It begins at half a million of 384 numbers, and leaves 21,000 or more: of clustered vectors as many are found, of those
with noise in all directions a few in a thousand fewer, of those without structure fewer still."""
SAMPLED = 16_384
SCANNED = 65_536
"""Codes that are compared at a time: half a megabyte a word, which stays close to the processor."""
ROOM_MIN = 1_024
LATER_SHARE = 4
"""Added vectors are kept apart until they are one in this number of the earlier ones; then all are laid out again."""
SCORE_DIGITS = 5
"""Two bytes a number hold no more; rounding makes equal vectors equal whatever their rows."""


def quantized_rows(numpy: "ModuleType", numbers: bytes | bytearray, count: int, dimension: int) -> "Numbers":
    """Stored vectors as rows of two bytes a number. Raises `InvalidVector` where they are not of this dimension."""
    if len(numbers) == 2 * count * dimension:
        return numpy.frombuffer(numbers, dtype="<i2").reshape(count, dimension)  # type: ignore[no-any-return]
    size = NUMBER_BYTES * dimension
    if len(numbers) != count * size:
        raise InvalidVector(
            "the index", f"{count:,} have {len(numbers):,} bytes, which is not {dimension} numbers each"
        )
    rows = numpy.empty((count, dimension), dtype=numpy.int16)
    for at in range(0, count, AT_ONCE):
        some = range(at, min(count, at + AT_ONCE))
        units = unit_rows(numpy, [bytes(numbers[n * size : (n + 1) * size]) for n in some], dimension)
        rows[at : at + AT_ONCE] = numpy.rint(units * QUANTIZED_ONE)
    return rows  # type: ignore[no-any-return]


class _CodedRows(msgspec.Struct, frozen=True):
    """The index at one moment. Arrays except `rows` have room beyond `count`, which later moments fill.

    `later` are the rows after `rows`. `codes` has a row for each word of bits. `order` sorts the places where they do
    not come in order.
    """

    count: int
    places: "Places"
    rows: "Numbers"
    later: "Numbers"
    codes: "NDArray[np.uint64]"
    middle: "NDArray[np.float32]"
    order: "NDArray[np.int64] | None" = None


class QuantizedVectors:
    """See `memory_engine.recall.vectors.PassageVectors`. Raises `MissingExtra` without NumPy.

    One caller at a time may add; others may search meanwhile.
    """

    def __init__(self, dimension: int) -> None:
        try:
            import numpy
        except ModuleNotFoundError as error:
            raise MissingExtra("similarity by vectors", "vectors") from error
        self._numpy = numpy
        self.dimension = dimension
        self._held = self._laid_out(numpy.zeros(0, numpy.int64), numpy.zeros((0, dimension), numpy.int16), 0)

    def __len__(self) -> int:
        return self._held.count

    def add(self, pieces: Sequence[VectorRows]) -> None:
        """Add vectors of places that are not there yet. Raises `InvalidVector`; then none is added."""
        numpy, held = self._numpy, self._held
        begin, count = held.count, held.count + sum(len(piece.places) for piece in pieces)
        if not begin and len(pieces) == 1:  # no copy: this array is most of what a process holds
            rows = self._rows(pieces[0])
            self._held = self._laid_out(numpy.asarray(pieces[0].places, dtype=numpy.int64), rows, count)
            return
        own = len(held.rows)
        if is_laid_out := count > own + own // LATER_SHARE + ROOM_MIN:
            places, rows = numpy.empty(count, numpy.int64), numpy.empty((count, self.dimension), numpy.int16)
            places[:begin], rows[:own], rows[own:begin] = held.places[:begin], held.rows, held.later[: begin - own]
        else:  # the rows stay where they are: to copy a million takes a second, and room for them twice
            held = held if len(held.places) > own else self._with_room(held)
            places, rows = held.places, held.later
        at = begin
        for piece in pieces:
            end = at + len(piece.places)
            begins = at if is_laid_out else at - own
            places[at:end], rows[begins : begins + end - at] = piece.places, self._rows(piece)
            at = end
        if is_laid_out:
            self._held = self._laid_out(places, rows, count)
            return
        self._encode(rows[begin - own : count - own], held.middle, held.codes[:, begin:count])
        self._held = self._ordered(msgspec.structs.replace(held, count=count))

    def _with_room(self, held: _CodedRows) -> _CodedRows:
        """The same, with room for as many more as are added before all is laid out again."""
        numpy, own = self._numpy, len(held.rows)
        room = own // LATER_SHARE + ROOM_MIN
        places, codes = numpy.empty(own + room, numpy.int64), numpy.empty((len(held.codes), own + room), numpy.uint64)
        places[:own], codes[:, :own] = held.places[:own], held.codes[:, :own]
        later = numpy.empty((room, self.dimension), numpy.int16)
        return msgspec.structs.replace(held, places=places, later=later, codes=codes)

    def _rows(self, piece: VectorRows) -> "Numbers":
        return quantized_rows(self._numpy, piece.numbers, len(piece.places), self.dimension)

    def nearest(self, vector: Vector | Packed, limit: int, among: Collection[int] | None = None) -> list[int]:
        """The places of the nearest `limit` (of these places, if given), best first, equal ones in order."""
        return [place for place, _ in self._best(vector, limit, among)]

    def cosines(self, vector: Vector | Packed, places: Collection[int]) -> dict[int, float]:
        """The cosines of places that have vectors."""
        return dict(self._best(vector, len(places), places))

    def _best(self, vector: Vector | Packed, limit: int, among: Collection[int] | None) -> list[tuple[int, float]]:
        numpy, held = self._numpy, self._held
        unit = unit_rows(numpy, [vector], self.dimension)[0]
        chosen = None if among is None else self._found(held, among)
        compared = max(COMPARED_MIN, COMPARED_NUMBERS // self.dimension, COMPARED_PER_RESULT * limit)
        chosen = self._candidates(held, unit, compared, chosen)
        scores = numpy.empty(len(chosen), dtype=numpy.float32)
        for at in range(0, len(chosen), AT_ONCE):
            some = chosen[at : at + AT_ONCE]
            scores[at : at + AT_ONCE] = self._products(self._rows_at(held, some), unit)
        scores = numpy.round(numpy.clip(scores.astype(numpy.float64) / QUANTIZED_ONE, -1.0, 1.0), SCORE_DIGITS)
        places = held.places[chosen]
        best = numpy.lexsort((places, -scores))[: max(limit, 0)]
        return list(zip(places[best].tolist(), scores[best].tolist(), strict=True))

    def _rows_at(self, held: _CodedRows, at: "NDArray[np.int64]") -> "Numbers":
        """The rows at these positions."""
        is_later = at >= len(held.rows)
        if not is_later.any():
            return held.rows[at]
        rows: Numbers = self._numpy.empty((len(at), self.dimension), self._numpy.int16)
        rows[~is_later], rows[is_later] = held.rows[at[~is_later]], held.later[at[is_later] - len(held.rows)]
        return rows

    def _products(self, rows: "Numbers", unit: "NDArray[np.float32]") -> "NDArray[np.float32]":
        """The dot product of each row with a vector, of few rows at a time.

        The library adds up rows in fours, and the one to three after them in another order: with rows of zeros these
        are four, too, and a product is the same to the last bit whatever rows are multiplied with it.
        """
        numpy, each = self._numpy, max(4, MULTIPLIED // self.dimension // 4 * 4)
        numbers = numpy.zeros((-(-len(rows) // 4) * 4, self.dimension), numpy.float32)
        numbers[: len(rows)] = rows
        whole = len(numbers) // each * each
        stacked = numbers[:whole].reshape(-1, each, self.dimension) @ unit
        return numpy.concatenate([stacked.ravel(), numbers[whole:] @ unit])[: len(rows)]  # type: ignore[no-any-return]

    def _found(self, held: _CodedRows, among: Collection[int]) -> "NDArray[np.int64]":
        """The positions of the vectors of these places, if they exist."""
        numpy, places = self._numpy, held.places[: held.count]
        wanted = numpy.sort(numpy.fromiter(among, numpy.int64, len(among)))
        wanted = wanted[numpy.diff(wanted, prepend=-1) > 0]  # `numpy.unique` would import masked arrays: 10 ms
        at = numpy.searchsorted(places, wanted, sorter=held.order)
        wanted, at = wanted[at < held.count], at[at < held.count]
        at = at if held.order is None else held.order[at]
        return at[places[at] == wanted]  # type: ignore[no-any-return]

    def _candidates(
        self, held: _CodedRows, unit: "NDArray[np.float32]", compared: int, chosen: "NDArray[np.int64] | None"
    ) -> "NDArray[np.int64]":
        """The positions (among those chosen, if any) of about `wanted` vectors that are worth comparing."""
        numpy = self._numpy
        count = held.count if chosen is None else len(chosen)
        if count <= 2 * compared:
            return numpy.arange(count) if chosen is None else chosen
        code = numpy.empty((len(held.codes), 1), dtype=numpy.uint64)
        self._encode((unit * QUANTIZED_ONE)[None], held.middle, code)
        if chosen is None and count > FIRST_FROM * compared and len(code) >= 2 * FIRST_WORDS:
            chosen = self._alike_at_first(held, code, max(FIRST_MIN * compared, count // FIRST_SHARE))
        apart = self._apart(held.codes[:, :count] if chosen is None else held.codes[:, chosen], code)
        # in order of places among those as far apart, so that the same vectors give the same candidates
        reached = numpy.cumsum(numpy.bincount(apart))
        far = int(numpy.searchsorted(reached, compared))
        near, edge = numpy.flatnonzero(apart < far), numpy.flatnonzero(apart == far)
        found = numpy.concatenate([near, edge[: compared - len(near)]])
        return found if chosen is None else chosen[found]  # type: ignore[no-any-return]

    def _alike_at_first(self, held: _CodedRows, code: "NDArray[np.uint64]", wanted: int) -> "NDArray[np.int64]":
        """The positions of about `wanted` vectors whose codes begin most alike, estimated from a sample."""
        numpy = self._numpy
        apart = self._apart(held.codes[:FIRST_WORDS, : held.count], code[:FIRST_WORDS])
        step = max(1, held.count // SAMPLED)
        reached = numpy.cumsum(numpy.bincount(apart[::step]))
        near: NDArray[np.int64] = numpy.flatnonzero(apart <= numpy.searchsorted(reached, wanted / step))
        return near

    def _apart(self, codes: "NDArray[np.uint64]", code: "NDArray[np.uint64]") -> "NDArray[np.uint16]":
        """In how many bits each code differs from another."""
        numpy, count = self._numpy, codes.shape[1]
        apart: NDArray[np.uint16] = numpy.zeros(count, dtype=numpy.uint16)
        words = numpy.empty(min(count, SCANNED), dtype=numpy.uint64)
        bits = numpy.empty(len(words), dtype=numpy.uint8)
        for at in range(0, count, SCANNED):
            sums = apart[at : at + SCANNED]
            for n, (word,) in enumerate(code):
                numpy.bitwise_xor(codes[n, at : at + SCANNED], word, out=words[: len(sums)])
                sums += numpy.bitwise_count(words[: len(sums)], out=bits[: len(sums)])
        return apart

    def _laid_out(self, places: "Places", rows: "Numbers", count: int) -> _CodedRows:
        """Vectors with their codes, from the middle of all of them."""
        numpy = self._numpy
        words = -(-self.dimension // WORD_BITS)
        codes = numpy.zeros((words, len(places)), dtype=numpy.uint64)
        sample = rows[:: max(1, count // AT_ONCE)]
        middle = sample.mean(axis=0, dtype=numpy.float32) if count else numpy.zeros(self.dimension, numpy.float32)
        self._encode(rows, middle, codes)
        return self._ordered(_CodedRows(count, places, rows, rows[:0], codes, middle))

    def _encode(self, rows: "NDArray[np.generic]", middle: "NDArray[np.float32]", codes: "NDArray[np.uint64]") -> None:
        """Write the codes of rows, a row of the codes for each word of bits."""
        numpy = self._numpy
        padded = numpy.zeros((min(len(rows), AT_ONCE), len(codes) * WORD_BITS), dtype=numpy.bool_)
        least = numpy.rint(middle).astype(rows.dtype)
        for at in range(0, len(rows), AT_ONCE):
            some = rows[at : at + AT_ONCE]
            numpy.greater(some, least, out=padded[: len(some), : self.dimension])
            codes[:, at : at + AT_ONCE] = numpy.packbits(padded[: len(some)], axis=1).view(numpy.uint64).T

    def _ordered(self, held: _CodedRows) -> _CodedRows:
        """The same, with an order of its places where they do not come in one."""
        numpy, places = self._numpy, held.places[: held.count]
        if (places[:-1] < places[1:]).all():
            return held
        return msgspec.structs.replace(held, order=numpy.argsort(places, kind="stable"))
