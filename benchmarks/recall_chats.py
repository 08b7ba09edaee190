"""Long chats of a user with an assistant, and questions about what the user said in passing long ago.

Every chat has over 300 turns in some 25 sessions. Its answers are in `recall_chats.toml`; all around them is made of
templates. A question shares with its answer only words that many other turns hold too, so that no wording gives the
answer away: what is left is who said it, that it is about the user, and what it means. The same every time.

    python -m benchmarks.recall_chats                   without an embedding model
    python -m benchmarks.recall_chats --embedder        with MiniLM, where its package is installed
"""

import argparse
import asyncio
import json
import random
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

import memory_engine
from benchmarks.ours import WITHOUT_COMPACTION
from memory_engine import LlmTextResponse, NewEvent, UserMessage
from memory_engine.recall import Embedder

DATA = Path(__file__).with_suffix(".toml")
CHATS = 3
EXCHANGES = 170
EXCHANGES_A_DAY = 7
BEGIN = datetime(2025, 2, 3, 8, tzinfo=UTC)
KINDS = ("instruction", "preference", "several", "order")
BESIDES = 0.6
"""The share of the other requests that come with a remark too."""
REQUESTS = (
    "Can you help me with the {0}? I am stuck between the {1} and the {2}.",
    "What is the best way to handle the {0} when there is no {1}?",
    "I have a question about the {0} and the {1}.",
    "Give me three ideas for a {0}, one of them with a {1}.",
    "My {0} went wrong yesterday. Should I look at the {1} or at the {2} first?",
    "How do I get from a {0} to a decent {1} without too much {2}?",
)
ADVICE = (
    "Start with the {0}: most people rush to the {1} and regret it later.",
    "A good {0} depends on the {1}, so take your time with both.",
    "If the {0} gives you trouble, compare it with the {1} and change one thing at a time.",
    "You could also leave the {0} for another day and begin with the {1}, which is easier to correct.",
    "Many prefer a simple {0}; when that works, add the {1} and perhaps a second {2}.",
    "Keep an eye on the {0}, since a {1} that looks fine may still spoil the {2}.",
    "As a rule I like to check the {0} twice, before the {1} and after it.",
    "For your {0} I would choose a plain {1}, and I recommend that you write down how the {2} turned out.",
    "When you are done with the {0}, tell me how you like the {1} and what we should do about the {2}.",
    "In the end the {0} matters more than the {1}, whatever others say about the {2}.",
)
NOTED = ("All right.", "Understood.", "Good to know.", "Thank you for telling me.", "Got it.")


class Turn(msgspec.Struct, frozen=True):
    """A turn of one of the two, and its time."""

    role: str
    text: str
    at: datetime


class Asked(msgspec.Struct, frozen=True):
    """A question, its kind, and the numbers of the turns that answer it."""

    kind: str
    question: str
    answers: tuple[int, ...]


class Fact(msgspec.Struct, frozen=True):
    """A user's statement, in one turn or in several, and the later question for it."""

    kind: str
    topic: str
    told: str | list[str]
    asked: str

    @property
    def texts(self) -> list[str]:
        """The statements, in their order."""
        return [self.told] if isinstance(self.told, str) else self.told


class Chat(msgspec.Struct, frozen=True):
    """A chat and its questions."""

    turns: list[Turn]
    asked: list[Asked]


def chats() -> Iterator[Chat]:
    """The chats."""
    data = tomllib.loads(DATA.read_text("utf-8"))
    topics = {name: words.split() for name, words in data["topics"].items()}
    facts = [Fact(kind=kind, **fact) for kind in KINDS for fact in data[kind]]
    for number in range(CHATS):
        yield _chat(random.Random(number), topics, data["besides"], facts)


def _chat(
    chance: random.Random, topics: Mapping[str, Sequence[str]], besides: Sequence[str], facts: Sequence[Fact]
) -> Chat:
    told = {}  # the exchanges with a statement: those of one fact in its order, a few sessions apart
    free = list(range(2, EXCHANGES - 20))
    chance.shuffle(free)
    for number, fact in enumerate(facts):
        for exchange, text in zip(sorted(free.pop() for _ in fact.texts), fact.texts, strict=True):
            told[exchange] = (number, fact.topic, text)
    turns: list[Turn] = []
    answers: dict[int, list[int]] = {}
    names = list(topics)
    for exchange in range(EXCHANGES):
        number, topic, text = told.get(exchange, (-1, chance.choice(names), ""))
        day, hour = divmod(exchange, EXCHANGES_A_DAY)
        at = BEGIN + timedelta(days=2 * day, minutes=20 * hour)
        request = _filled(chance, topics[topic], REQUESTS)
        if text:
            answers.setdefault(number, []).append(len(turns))
        elif chance.random() < BESIDES:
            text = chance.choice(besides)
        said = [request, text] if chance.random() < 0.7 else [text, request]
        turns.append(Turn("user", " ".join(filter(None, said)), at))
        advice = [_filled(chance, topics[topic], ADVICE) for _ in range(chance.randint(3, 7))]
        reply = [chance.choice(NOTED), *advice] if chance.random() < 0.3 else advice
        turns.append(Turn("assistant", " ".join(reply), at + timedelta(minutes=1)))
    asked = [
        Asked(fact.kind, _question(chance, topics[fact.topic], fact.asked), tuple(answers[number]))
        for number, fact in enumerate(facts)
    ]
    return Chat(turns, asked)


def _filled(chance: random.Random, words: Sequence[str], templates: Sequence[str]) -> str:
    return chance.choice(templates).format(*chance.sample(words, 3))


def _question(chance: random.Random, words: Sequence[str], asked: str) -> str:
    return asked.replace("{t}", chance.choice(words))


async def found(embedder: Embedder | None = None, limit: int = 10) -> dict[str, float]:
    """The share of answering turns among the first hits, in percent: by kind of question, and of all."""
    shares: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for chat in chats():
        async with memory_engine.open(":memory:", config=WITHOUT_COMPACTION, embedder=embedder) as engine:
            thread = await engine.create_thread()
            for turn in chat.turns:
                kind = UserMessage if turn.role == "user" else LlmTextResponse
                await thread.dispatch(NewEvent(kind(content=turn.text), occurred_at=turn.at))
            await thread.compaction.settle()
            await thread.admin.prepare_search()
            for one in chat.asked:
                hits = {hit.seq - 1 for hit in await thread.search(one.question, limit=limit)}
                shares[one.kind].append(len(hits.intersection(one.answers)) / len(one.answers))
    every = [share for kind in KINDS for share in shares[kind]]
    return {kind: 100 * sum(of) / len(of) for kind, of in (*shares.items(), ("all", every))}


def main() -> None:
    """Print the figures, as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--embedder", action="store_true", help="with MiniLM")
    embedder = None
    if parser.parse_args().embedder:
        from benchmarks.recall_quality import MiniLM

        embedder = MiniLM()
    print(json.dumps(asyncio.run(found(embedder)), indent=2))


if __name__ == "__main__":
    main()
