"""What the benches are made of: figures and bars, the page, the chart. They run in `benchmarks/test_quick.py`."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks import kept
from benchmarks.__main__ import main
from benchmarks.chart import draw
from benchmarks.figures import Bar, Figure, Reference
from benchmarks.page import write_page
from benchmarks.payloads import conversation
from benchmarks.peer_process import Peers, how_to_make

COMPARED = Figure(
    bench="dispatch",
    case="on, against bare",
    value=120.0,
    unit="us",
    reference=Reference("bare", 100.0),
    bar=Bar("ratio", "<=", 1.5),
)
MISSING = Figure(
    bench="dispatch",
    case="on, against a peer",
    value=120.0,
    unit="us",
    reference=Peers().missing_reference("a peer"),
    bar=Bar("ratio", "<=", 0.5),
)


def test_the_benches_are_listed_with_what_they_do(capsys: pytest.CaptureFixture[str]) -> None:
    """`--list` names each bench once and runs none."""
    assert 0 == main(["--list"])
    names = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert "dispatch" in names
    assert len(names) == len(set(names))


@pytest.mark.parametrize("words", [("--write", "--quick"), ("speed",)])
def test_a_command_that_makes_no_sense_is_refused(words: tuple[str, ...]) -> None:
    """Quick figures are not kept, and an unknown bench is named."""
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert 2 == ended.value.code


def test_a_bar_is_reached_or_missed() -> None:
    """The ratio is the value over the reference's, and the bar is held against it."""
    assert (1.2, True) == (COMPARED.ratio, COMPARED.ok)
    assert not Bar("ratio", ">=", 0.35).allows(0.34)


def test_a_missing_reference_is_never_a_pass() -> None:
    """A bar that could not be checked is not reached, and the line says how to make the reference."""
    line = MISSING.as_json()
    assert line["ok"] is False
    assert {"name": "a peer", "value": None} == line["reference"]
    assert how_to_make("peers") in str(line["note"])


def test_the_page_holds_every_figure_of_every_bench(tmp_path: Path) -> None:
    """A table for each bench with the run that it is of; a bench that ran again takes its own place."""
    path = tmp_path / "results.json"
    first = [kept.measured(name, [COMPARED, MISSING], Peers(), 0.5) for name in ("size", "dispatch", "gone")]
    kept.write(path, kept.joined(kept.read(path), first, ["dispatch", "size"]))
    again = kept.measured("size", [COMPARED], Peers(), 7)
    known = kept.joined(kept.read(path), [again], ["dispatch", "size"])
    assert [first[1], again] == known
    page = write_page(known, {"dispatch": "What one append takes."})
    assert page.index("## dispatch\n\nWhat one append takes.") < page.index("## size")
    assert 2 == page.count("| on, against bare | 120 us | bare: 100 | 1.2 |")
    assert 1 == page.count("a peer: missing")
    assert how_to_make("peers") in page
    assert "load 7.0" in page
    assert "results.svg" in page


def test_the_chart_is_well_formed() -> None:
    """The chart parses as XML, knows both colour schemes, and has a mark for the compared figure."""
    chart = draw([COMPARED, MISSING])
    ElementTree.fromstring(chart)
    assert "prefers-color-scheme: dark" in chart
    assert "memory_engine, on" in chart


def test_payloads_are_the_same_for_the_same_seed() -> None:
    """A seed gives one conversation, without a text that comes twice."""
    messages = conversation(3, 400)
    assert messages == conversation(3, 400)
    said = [message.text for message in messages if message.text]
    assert len(said) == len(set(said))
    assert 450 < sum(len(json.dumps(message.chat())) for message in messages) / len(messages) < 800
