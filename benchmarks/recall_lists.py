"""Questions that ask for several things, each of which was said at another time: "which towns did she stay in?".

Three talks of some forty sessions: two friends on a trip, a couple at home, and a user with an agent on a project. The
answers to a question are in `recall_lists.toml`, in sessions of its own; in one of these the same matter is talked
about at length without adding anything, which must not crowd out the other sessions. Around it is what people say
without saying anything. The same every time.

    python -m benchmarks.recall_lists                   without an embedding model
    python -m benchmarks.recall_lists --embedder        with MiniLM, where its package is installed
"""

import argparse
import asyncio
import json
import random
import tomllib
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

import memory_engine
from benchmarks.ours import WITHOUT_COMPACTION
from memory_engine import LlmTextResponse, NewEvent, Thread, UserMessage
from memory_engine.recall import Embedder

DATA = Path(__file__).with_suffix(".toml")
SESSIONS = 40
BEGIN = datetime(2025, 3, 3, 18, tzinfo=UTC)
IDLE = (3, 8)
"""The number of idle turns of a session, at least and at most."""
CONTEXT_TOKENS = 1_000
FIRST = {"found among five": 5, "found among ten": 10}


class Asked(msgspec.Struct, frozen=True):
    """A question, what answers it, one statement a session, and a word for the matter."""

    subject: str
    question: str
    told: tuple[str, ...]


class Talk(msgspec.Struct, frozen=True):
    """The speakers, and the questions about their talk."""

    name: str
    speakers: tuple[str, str]
    asked: tuple[Asked, ...]


class Turn(msgspec.Struct, frozen=True):
    """A speaker's words, and their time."""

    speaker: str
    text: str
    at: datetime


class _Data(msgspec.Struct, frozen=True):
    idle: tuple[str, ...]
    crowd: tuple[str, ...]
    talk: tuple[Talk, ...]


def talks() -> Iterator[tuple[Talk, list[Turn]]]:
    """The talks with their turns."""
    data = msgspec.convert(tomllib.loads(DATA.read_text("utf-8")), _Data)
    for number, talk in enumerate(data.talk):
        yield talk, list(_turns(random.Random(number), talk, data))


def _turns(chance: random.Random, talk: Talk, data: _Data) -> Iterator[Turn]:
    said: list[list[tuple[str, Sequence[str]]]] = [[] for _ in range(SESSIONS)]
    for asked in talk.asked:
        sessions = sorted(chance.sample(range(SESSIONS), len(asked.told)))
        crowded = chance.choice(sessions)
        for session, text in zip(sessions, asked.told, strict=True):
            crowd = chance.sample(data.crowd, 5) if session == crowded else ()
            said[session].append((text, [one.format(asked.subject) for one in crowd]))
    for number, of_session in enumerate(said):
        blocks = [
            [(_speaker(talk, text), text), *((chance.choice(talk.speakers), one) for one in crowd)]
            for text, crowd in of_session
        ]
        blocks += [[(chance.choice(talk.speakers), one)] for one in chance.sample(data.idle, chance.randint(*IDLE))]
        chance.shuffle(blocks)
        at = BEGIN + timedelta(days=3 * number)
        for minute, (speaker, text) in enumerate(turn for block in blocks for turn in block):
            yield Turn(speaker, text, at + timedelta(minutes=minute))


def _speaker(talk: Talk, text: str) -> str:
    """The speaker of an answer: the one whom the question names, else the first."""
    asked = next(one.question for one in talk.asked if text in one.told)
    return next((speaker for speaker in talk.speakers if speaker in asked), talk.speakers[0])


def _event(turn: Turn) -> UserMessage | LlmTextResponse:
    if turn.speaker == "assistant":
        return LlmTextResponse(content=turn.text)
    return UserMessage(content=turn.text, name="" if turn.speaker == "user" else turn.speaker)


async def found(embedder: Embedder | None = None, half: int | None = None) -> dict[str, float]:
    """The share of answers among the first hits, of answers in a context, and of questions with all of theirs in it.

    In percent; of the first (0) or second (1) half of each talk's questions, or of all.
    """
    shares: dict[str, list[float]] = {}
    for talk, turns in talks():
        async with memory_engine.open(":memory:", config=WITHOUT_COMPACTION, embedder=embedder) as engine:
            thread = await engine.create_thread()
            for turn in turns:
                await thread.dispatch(NewEvent(_event(turn), occurred_at=turn.at))
            await thread.compaction.settle()
            await thread.admin.prepare_search()
            middle = len(talk.asked) // 2
            for asked in talk.asked if half is None else talk.asked[middle * half : middle * (half + 1)]:
                for name, share in (await _shares(thread, asked)).items():
                    shares.setdefault(name, []).append(share)
    return {name: 100 * sum(of) / len(of) for name, of in shares.items()}


async def _shares(thread: Thread, asked: Asked) -> dict[str, float]:
    hits = [hit.text for hit in await thread.search(asked.question, limit=max(FIRST.values()))]
    context = await thread.context(max_tokens=CONTEXT_TOKENS, query=asked.question)
    shown = "\n".join(str(message["content"]) for message in context.messages)
    in_context = [text in shown for text in asked.told]
    return {
        **{name: sum(text in hits[:k] for text in asked.told) / len(asked.told) for name, k in FIRST.items()},
        "in a context": sum(in_context) / len(in_context),
        "all in a context": float(all(in_context)),
    }


def main() -> None:
    """Print the figures, as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--embedder", action="store_true", help="with MiniLM")
    parser.add_argument("--half", type=int, choices=(0, 1), help="the first or the second half of the questions")
    options = parser.parse_args()
    embedder = None
    if options.embedder:
        from benchmarks.recall_quality import MiniLM

        embedder = MiniLM()
    print(json.dumps(asyncio.run(found(embedder, options.half)), indent=2))


if __name__ == "__main__":
    main()
