"""Texts of many kinds to count the tokens of: written ones from `token_texts.toml`, and data that is made by a seed."""

import base64
import json
import random
import string
import tomllib
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

WRITTEN = Path(__file__).resolve().parent / "token_texts.toml"
WORDS = (
    "quay ferry ticket plank barrier harbour cargo crane rope signal tide captain engine anchor cabin deck mooring "
    "passenger route timetable storm repair invoice customs pilot buoy island bridge lantern sailor"
).split()
NAMES = ("Ida Holm", "Piotr Zając", "Mei Lin", "Lucía Ortega", "Tom Baker", "Sanne de Wit", "Aylin Kaya")
LINES = 60


def kinds() -> Iterator[tuple[str, str]]:
    """Each kind's name with its text."""
    for group, texts in tomllib.loads(WRITTEN.read_text("utf-8")).items():
        yield from ((f"{group.replace('_', ' ')}: {name}", text.strip()) for name, text in texts.items())
    for name, make in MADE.items():
        yield f"data: {name}", make(random.Random(name))


def _moment(seeded: random.Random) -> datetime:
    return datetime(2025, 1, 1, tzinfo=UTC) + timedelta(seconds=seeded.randrange(40_000_000))


def _booking(seeded: random.Random) -> dict[str, object]:
    return {
        "booking_id": f"BK-{seeded.randrange(10**6)}",
        "passenger": seeded.choice(NAMES),
        "route": seeded.choice(WORDS),
        "seats": seeded.randrange(1, 9),
        "price_eur": round(seeded.random() * 90, 2),
        "paid": seeded.random() < 0.5,
        "created_at": _moment(seeded).isoformat(),
        "note": None,
    }


def _json(seeded: random.Random, indent: int | None = None) -> str:
    separators = (",", ":") if indent is None else None
    return json.dumps([_booking(seeded) for _ in range(20)], indent=indent, separators=separators)


def _json_of_numbers(seeded: random.Random) -> str:
    return json.dumps([{"lat": seeded.uniform(-90, 90), "n": seeded.randrange(10**8)} for _ in range(LINES)])


def _minified(seeded: random.Random) -> str:
    def letter() -> str:
        return seeded.choice(string.ascii_lowercase)

    return "".join(
        f"function {letter()}{letter()}({letter()},{letter()}){{var {letter()}={letter()}.{seeded.choice(WORDS)}||[];"
        f"return {letter()}?{letter()}({letter()},{seeded.randrange(99)}):!{letter()}.length}}"
        for _ in range(LINES // 2)
    )


def _lines(line: Callable[[random.Random], str], seeded: random.Random) -> str:
    return "\n".join(line(seeded) for _ in range(LINES))


def _csv(seeded: random.Random) -> str:
    cells = (seeded.randrange(10**5), seeded.choice(NAMES), seeded.choice(WORDS), f"{seeded.random() * 500:.2f}")
    return ",".join(map(str, (*cells, _moment(seeded).date())))


def _csv_of_numbers(seeded: random.Random) -> str:
    return ";".join(str(seeded.randrange(10 ** seeded.randrange(1, 7))) for _ in range(8))


def _uuid(seeded: random.Random) -> str:
    return str(uuid.UUID(int=seeded.getrandbits(128)))


def _hex(seeded: random.Random) -> str:
    return f"{seeded.getrandbits(160):040x}"


def _web_log(seeded: random.Random) -> str:
    address = ".".join(str(seeded.randrange(256)) for _ in range(4))
    return (
        f"{address} - - [{_moment(seeded):%d/%b/%Y:%H:%M:%S} +0000] "
        f'"GET /{seeded.choice(WORDS)}/{seeded.randrange(999)} HTTP/1.1" '
        f'{seeded.choice((200, 304, 404))} {seeded.randrange(10**5)} "-" "curl/8.5.0"'
    )


def _application_log(seeded: random.Random) -> str:
    level = seeded.choice(("INFO", "WARNING", "ERROR"))
    return (
        f"{_moment(seeded):%Y-%m-%d %H:%M:%S},{seeded.randrange(1000):03d} {level} [worker-{seeded.randrange(8)}] "
        f"ferry.{seeded.choice(WORDS)}: {seeded.choice(WORDS)} {seeded.randrange(10**4)} took "
        f"{seeded.randrange(900)} ms"
    )


def _table_row(seeded: random.Random) -> str:
    return f"| {seeded.randrange(999)} | {seeded.choice(NAMES)} | {seeded.choice(WORDS)} | {seeded.random() * 90:.2f} |"


def _padded_row(seeded: random.Random) -> str:
    return f"| {seeded.randrange(999):>5} | {seeded.choice(NAMES):<14} | {seeded.choice(WORDS):<12} |"


def _table(row: Callable[[random.Random], str], head: str, seeded: random.Random) -> str:
    return f"{head}\n{_lines(row, seeded)}"


def _url(seeded: random.Random) -> str:
    words = [seeded.choice(WORDS) for _ in range(4)]
    return f"https://www.{words[0]}.example/{words[1]}/{words[2]}-{words[3]}?page={seeded.randrange(99)}&ref={words[0]}"


def _listing(seeded: random.Random) -> str:
    name = f"{seeded.choice(WORDS)}_{seeded.choice(WORDS)}.py"
    return f"-rw-r--r-- 1 ida staff {seeded.randrange(10**6):>8} {_moment(seeded):%b %d %H:%M} src/{name}"


MADE: dict[str, Callable[[random.Random], str]] = {
    "JSON": partial(_json, indent=2),
    "JSON, compact": _json,
    "JSON of numbers": _json_of_numbers,
    "minified JavaScript": _minified,
    "CSV": partial(_lines, _csv),
    "CSV of numbers": partial(_lines, _csv_of_numbers),
    "UUIDs": partial(_lines, _uuid),
    "hex": partial(_lines, _hex),
    "base64": lambda seeded: base64.b64encode(seeded.randbytes(2_000)).decode(),
    "log of a web server": partial(_lines, _web_log),
    "log of an application": partial(_lines, _application_log),
    "Markdown table": partial(_table, _table_row, "| id | name | place | fare |\n|---|---|---|---:|"),
    "padded table": partial(_table, _padded_row, f"|{'-' * 7}|{'-' * 16}|{'-' * 14}|"),
    "URLs": partial(_lines, _url),
    "digits": lambda seeded: " ".join(str(seeded.randrange(10 ** seeded.randrange(1, 12))) for _ in range(250)),
    "listing of files": partial(_lines, _listing),
}
"""The kinds that are made, by a random generator with the kind's name as its seed."""
