"""The questions of the annotated conversations, asked here and in other engines by the same vectors."""

import json
import statistics
import subprocess
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter_ns
from typing import cast

import msgspec
from attrs import frozen

import memory_engine
from benchmarks.compaction_quality import quality_module
from benchmarks.figures import Figure, Reference
from benchmarks.ours import WITHOUT_COMPACTION
from benchmarks.peer_process import ROOT, how_to_make, peers_python
from benchmarks.recall_quality import Unit, as_event, said_at
from benchmarks.setting import Setting, say
from memory_engine.core.records import NewEvent
from memory_engine.recall import Embedder, Vector

LIMIT = 20
PEERS = "recall-peers"


class Remembered:
    """An embedder that gives what another gave before, so that its time is in no figure."""

    def __init__(self, inner: Embedder) -> None:
        self._inner = inner
        self._vectors: dict[str, Vector] = {}
        self.asked = 0

    @property
    def name(self) -> str:
        """The other's name."""
        return self._inner.name

    @property
    def dimension(self) -> int:
        """The other's dimension."""
        return self._inner.dimension

    async def embed(self, texts: Sequence[str]) -> Sequence[Vector]:
        """One vector a text; the other is asked for those that it has not been asked for, counted in `asked`."""
        new = list(dict.fromkeys(text for text in texts if text not in self._vectors))
        if new:
            self.asked += len(new)
            self._vectors.update(zip(new, await self._inner.embed(new), strict=True))
        return [self._vectors[text] for text in texts]

    async def aclose(self) -> None:
        """It is used by one engine after the other."""


@frozen
class Conversation:
    """One conversation: its turns, questions, and the numbers of the turns that answer each.

    `texts` are the turns after their date and speaker, as the engine embeds them: what other engines are given.
    """

    turns: tuple[NewEvent, ...]
    texts: tuple[str, ...]
    questions: tuple[str, ...]
    gold: tuple[frozenset[int], ...]


class Answered(msgspec.Struct, kw_only=True):
    """Turns that were found for each question, over all conversations, best first, and what that took."""

    found: list[list[int]] = []
    added_ns: int = 0
    searched_ns: list[int] = []
    missing: str = ""


def conversations() -> list[Conversation]:
    """The annotated conversations. Raises `SharedDataMissing`."""
    data = quality_module("qdata")

    def one(units: Sequence[Unit], questions: Sequence[dict[str, object]]) -> Conversation:
        number = {unit["id"]: at for at, unit in enumerate(units)}
        asked = [question for question in questions if question["gold"]]
        return Conversation(
            turns=tuple(NewEvent(as_event(unit), occurred_at=said_at(unit["date"])) for unit in units),
            texts=tuple(data.render(unit, "date+speaker+cap") for unit in units),
            questions=tuple(str(question["question"]).strip() for question in asked),
            gold=tuple(frozenset(map(number.__getitem__, cast(list[str], question["gold"]))) for question in asked),
        )

    return [one(store["units"], store["questions"]) for store in data.load()]


async def against(setting: Setting, embedder: Remembered) -> list[Figure]:
    """Each turn added by itself, each question asked once; what is found, what finding and adding take."""
    asked = conversations()
    say("  vectors of all turns and questions")
    for one in asked:
        await embedder.embed([*one.texts, *one.questions])
    known = embedder.asked
    say("  memory_engine")
    ours = await _ours(setting, asked, embedder)
    found: list[Figure] = []
    with _running() as process:
        if process is None:
            return [_missing(_recall(ours, asked), how_to_make(PEERS))]
        for name, version in json.loads(process.stdout.readline() if process.stdout else "{}").items():
            say(f"  {name}")
            theirs = await _theirs(setting, process, name, (asked, embedder))
            found += _compared(f"{name} {version}", asked, ours, theirs)
    for figure in found:
        figure.detail["vectors_beyond_those_given"] = embedder.asked - known
    return found


async def _ours(setting: Setting, asked: Sequence[Conversation], embedder: Embedder) -> Answered:
    """The same here, in a file for each conversation."""
    answered = Answered()
    for one in asked:
        path = str(setting.new_path("recall-against"))
        async with memory_engine.open(path, config=WITHOUT_COMPACTION, embedder=embedder) as engine:
            thread = await engine.create_thread()
            begun = perf_counter_ns()
            numbers = {(await thread.dispatch(turn)).event_id: number for number, turn in enumerate(one.turns)}
            await thread.admin.prepare_search()
            answered.added_ns += perf_counter_ns() - begun
            for question in one.questions:
                begun = perf_counter_ns()
                found = await thread.search(question, limit=LIMIT)
                answered.searched_ns.append(perf_counter_ns() - begun)
                answered.found.append([numbers[hit.event_id] for hit in found])
    return answered


async def _theirs(
    setting: Setting,
    process: "subprocess.Popen[str]",
    peer: str,
    given: tuple[Sequence[Conversation], Embedder],
) -> Answered:
    """The same in a peer's process, which reads texts and vectors from files."""
    asked, embedder = given
    places: dict[str, int] = {}
    for one in asked:
        for text in (*one.texts, *one.questions):
            places.setdefault(text, len(places))
    texts, vectors = (setting.new_path("recall-given").with_suffix(end) for end in (".json", ".f32"))
    texts.write_text(json.dumps(list(places)), encoding="utf-8")
    _write(vectors, await embedder.embed(list(places)))
    job = {
        "peer": peer,
        "texts": str(texts),
        "vectors": str(vectors),
        "limit": LIMIT,
        "conversations": [
            {"texts": [places[t] for t in one.texts], "questions": [places[q] for q in one.questions]} for one in asked
        ],
    }
    if process.stdin is None or process.stdout is None:
        raise ChildProcessError("the peers' process has no pipes")
    print(json.dumps(job), file=process.stdin, flush=True)
    line = process.stdout.readline()
    return msgspec.json.decode(line, type=Answered) if line else Answered(missing="its process ended")


def _write(path: Path, vectors: Sequence[Vector]) -> None:
    numbers = array("f", (number for vector in vectors for number in vector))
    path.write_bytes(numbers.tobytes())


def _compared(peer: str, asked: Sequence[Conversation], ours: Answered, theirs: Answered) -> list[Figure]:
    """The finds, the time of a search, and turns a second."""
    if theirs.missing:
        return [_missing(_recall(ours, asked), theirs.missing, peer)]
    turns = sum(len(one.texts) for one in asked)
    sides = (ours, theirs)
    recall = [_recall(side, asked) for side in sides]
    p50 = [statistics.median(side.searched_ns) / 1e6 for side in sides]
    added = [turns / side.added_ns * 1e9 for side in sides]
    lines = (
        ("turns found among ten, MiniLM", recall, "%"),
        ("a search, embedding taken off", p50, "ms, p50"),
        ("turns added and searchable, embedding taken off", added, "turns/s"),
    )
    return [
        Figure(
            bench="recall_quality",
            case=f"{case}, against {peer}",
            value=values[0],
            unit=unit,
            reference=Reference(peer, values[1]),
            asserted=False,
        )
        for case, values, unit in lines
    ]


def _missing(value: float, why: str, peer: str = "other engines") -> Figure:
    return Figure(
        bench="recall_quality",
        case=f"turns found among ten, MiniLM, against {peer}",
        value=value,
        unit="%",
        reference=Reference(peer, None, f"reference missing: {why}"),
        asserted=False,
    )


def _recall(answered: Answered, asked: Sequence[Conversation], among: int = 10) -> float:
    """The share of the turns that answer a question among the first ten, in percent, a mean over questions."""
    gold = [one for conversation in asked for one in conversation.gold]
    shares = [
        len(wanted.intersection(list(dict.fromkeys(found))[:among])) / len(wanted)
        for wanted, found in zip(gold, answered.found, strict=True)
    ]
    return 100 * statistics.fmean(shares)


@contextmanager
def _running() -> "Iterator[subprocess.Popen[str] | None]":
    """The peers' process; none without their environment."""
    python = peers_python(PEERS)
    if python is None:
        yield None
        return
    words = [str(python), "-m", "benchmarks.recall_peers"]
    with subprocess.Popen(words, cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        yield process
