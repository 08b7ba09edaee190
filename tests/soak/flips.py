"""Bytes of a database are flipped; what is read then must be what was written, or a typed error."""

import random
import shutil
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from attrs import define, field

from tests.soak.specimen import Answers, Refused, ask, write_specimen

TRUTH = frozenset({"events", "blobs"})
"""The tables of the log: whatever is damaged there, no answer may differ."""
UNSEALED = frozenset({"threads", "acts"})
"""Tables whose rows no hash covers: whose a thread is and when it was made, who asked for an erasure."""


@define
class FlipReport:
    """What came of all flips. A flip is one of these, by the worst of its answers.

    `right`: every answer as before. `refused`: some answers are typed errors. `found`: an answer differs that was made
    from rows which derive from the log, and `verify` says so (`rebuild` mends them). `wrong`: an answer differs and
    nothing says so. `untyped`: another exception than ours. `unsealed`: as `wrong`, in a row that no hash covers.
    """

    seed: int
    flips: int = 0
    right: int = 0
    refused: int = 0
    found: int = 0
    wrong: int = 0
    untyped: int = 0
    unsealed: int = 0
    by_place: dict[str, dict[str, int]] = field(factory=dict)
    failures: list[str] = field(factory=list)
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether no flip gave a wrong answer that nothing names, or an untyped exception."""
        return not self.failures

    def count(self, outcome: str, place: str) -> None:
        """One flip more."""
        self.flips += 1
        setattr(self, outcome, getattr(self, outcome) + 1)
        of_place = self.by_place.setdefault(place, {})
        of_place[outcome] = of_place.get(outcome, 0) + 1


Progress = Callable[[FlipReport], None]


async def flip(
    count: int, seed: int, folder: Path, progress: Progress, places: frozenset[str] | None = None
) -> FlipReport:
    """Flip one byte of a fresh copy, that many times, by turns in rows and in pages; `places` names tables alone.

    Flip n of a seed is the same however many there are: `random.Random(f"{seed}/{n}")` chooses it.
    """
    report, began = FlipReport(seed), time.monotonic()
    whole = folder / "specimen.db"
    await write_specimen(str(whole))
    rows = _rows(whole, places)
    right = await ask(str(_copied(whole, folder)))
    assert ([], True) == (right.broken, right.verified)
    for n in range(count):
        dice = random.Random(f"{seed}/{n}")
        file = _copied(whole, folder)
        place = _flip_row(file, dice, rows) if n % 2 or places is not None else _flip_page(file, dice)
        damaged = _damaged(file, whole) or frozenset({place.partition(".")[0]})
        outcome, why = judged(await ask(str(file)), right, damaged)
        report.count(outcome, place.partition(".")[0])
        if outcome in ("wrong", "untyped"):
            report.failures.append(f"seed {seed}, flip {n}, {place}: {outcome}: {why}")
        if n % 100 == 99:
            report.seconds = time.monotonic() - began
            progress(report)
    report.seconds = time.monotonic() - began
    for file in folder.glob("*.db*"):
        shutil.rmtree(file) if file.is_dir() else file.unlink()
    return report


def judged(answers: Answers, right: Answers, damaged: frozenset[str]) -> tuple[str, str]:
    """The worst of a file's answers, and which."""
    if answers.broken:
        return "untyped", "; ".join(answers.broken)
    differing = [
        name for name, one in answers.given.items() if not isinstance(one, Refused) and one != right.given[name]
    ]
    # a broken log can be exported, and a look-up by an index cannot know what it does not lead to
    shown = [name for name in differing if not name.startswith("export of ") and not _lacks(name, answers, right)]
    if differing and damaged <= UNSEALED:
        return "unsealed", ""
    if differing and (answers.verified is True or (shown and damaged & TRUTH)):
        return "wrong", ", ".join(differing)
    if differing:
        return "found", ""
    given = (*answers.given.values(), answers.verified)
    return ("refused" if any(isinstance(one, Refused) for one in given) else "right"), ""


def _lacks(name: str, answers: Answers, right: Answers) -> bool:
    """Whether an answer by a correlation id is right but for events that are missing."""
    found, whole = answers.given[name], right.given[name]
    return (
        name == "correlated"
        and isinstance(found, list)
        and isinstance(whole, list)
        and all(map(whole.__contains__, found))
    )


def _damaged(file: Path, whole: Path) -> frozenset[str]:
    """The tables whose rows are not what they were; none where the file cannot be read, or an index alone is hit."""
    try:
        found, right = _content(file), _content(whole)
    except (sqlite3.Error, OverflowError):
        return frozenset()
    return frozenset(name for name in right if found.get(name) != right[name])


def _content(file: Path) -> dict[str, list[tuple[object, ...]]]:
    with closing(sqlite3.connect(f"file:{file}?immutable=1", uri=True)) as raw:
        raw.text_factory = bytes
        names = [row[0].decode() for row in raw.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        return {
            name: raw.execute(f"SELECT * FROM {name} NOT INDEXED").fetchall() for name in names if "terms" not in name
        }


def _copied(whole: Path, folder: Path) -> Path:
    for left in folder.glob("flipped.db*"):
        shutil.rmtree(left) if left.is_dir() else left.unlink()
    return Path(shutil.copyfile(whole, folder / "flipped.db"))


def _rows(whole: Path, places: frozenset[str] | None) -> dict[str, list[object]]:
    """The tables, each with the keys of its rows."""
    with closing(sqlite3.connect(whole)) as raw:
        named = raw.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'table' AND sql NOT LIKE '%VIRTUAL%'")
        names = [name for name, sql in named.fetchall() if sql and (places is None or name in places)]
        counts = {name: raw.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in names}
    return {name: list(range(count)) for name, count in counts.items() if count}


def _flip_page(file: Path, dice: random.Random) -> str:
    content = bytearray(file.read_bytes())
    at = dice.randrange(len(content))
    content[at] ^= 1 << dice.randrange(8)
    file.write_bytes(content)
    return f"pages.{at}"


def _flip_row(file: Path, dice: random.Random, rows: dict[str, list[object]]) -> str:
    """Flip a bit of a value of a row, in a table that is chosen first: small ones are hit as often as large ones."""
    with closing(sqlite3.connect(file, isolation_level=None)) as raw:
        raw.execute("DROP TRIGGER IF EXISTS events_are_immutable")
        while True:
            table = dice.choice(sorted(rows))
            n, columns = dice.choice(rows[table]), [row[1] for row in raw.execute(f"PRAGMA table_info({table})")]
            column = dice.choice(columns)
            primary = [row[1] for row in raw.execute(f"PRAGMA table_info({table})") if row[5]] or ["rowid"]
            row = raw.execute(
                f"SELECT {column}, {', '.join(primary)} FROM {table} ORDER BY {', '.join(primary)} LIMIT 1 OFFSET ?",
                (n,),
            ).fetchone()
            changed = _flipped(row[0], dice)
            if changed is None:
                continue
            value = "CAST(? AS TEXT)" if isinstance(row[0], str) else "?"
            where = " AND ".join(f"{name} = ?" for name in primary)
            try:
                raw.execute(f"UPDATE {table} SET {column} = {value} WHERE {where}", (changed, *row[1:]))
            except sqlite3.Error:  # a value that the schema does not let stand there
                continue
            return f"{table}.{column}"


def _flipped(value: object, dice: random.Random) -> bytes | int | None:
    if isinstance(value, int):
        return value ^ (1 << dice.randrange(40))
    content = bytearray(value.encode() if isinstance(value, str) else value if isinstance(value, bytes) else b"")
    if not content:
        return None
    content[dice.randrange(len(content))] ^= 1 << dice.randrange(8)
    return bytes(content)
