"""Which statement is true now? Updates in long chats, in four languages, asked through search and context.

`recall_now.toml` has the statements, `recall_now_filler.toml` what the chats around them are made of; each update gets
a chat of its own, the same on every machine. Lines are dealt in turn to two halves: tune on `dev` only.

    python -m benchmarks.recall_now                     both halves, per language
    python -m benchmarks.recall_now --half dev --failures
"""

import argparse
import asyncio
import json
import tomllib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from statistics import fmean

import msgspec
from attrs import frozen

import memory_engine
from memory_engine import CompactionPolicy, Engine, EngineConfig, LlmTextResponse, NewEvent, UserMessage
from memory_engine.language.text import pairs, stop_words, words
from memory_engine.recall import Hit
from memory_engine.recall.superseding import CURRENT

HERE = Path(__file__).resolve().parent
HALVES = ("dev", "held-out")
TURNS = 320
OLDER_AT, FIRST_AT, NEWER_AT, ALSO_AT, SECOND_AT = 24, 58, 190, 212, 230
"""The turns that statements take; the last ninety of a chat are filler."""
TURNS_A_DAY = 12
TOPICAL_EVERY = 4
"""Of so many turns one names a word of the question and says nothing that answers it; so does the assistant's reply."""
LIMIT = 20
CONTEXT_TOKENS = 1_000
BEGUN = datetime(2026, 1, 5, 8, tzinfo=UTC)
TOPIC_CHARS_MIN = 4


class Update(msgspec.Struct, frozen=True, kw_only=True):
    """A statement, the one that takes its place, and a question about now (`ask`) and about then (`before`)."""

    lang: str
    matter: str
    older: str
    newer: str
    ask: str
    was: str
    now: str
    before: str = ""
    also: tuple[str, ...] = ()


class Still(msgspec.Struct, frozen=True, kw_only=True):
    """Two statements of which the second does not take the place of the first, and `why`."""

    lang: str
    why: str
    first: str
    second: str
    ask: str


class _Data(msgspec.Struct, frozen=True):
    updates: list[Update]
    stills: list[Still]


@frozen
class Case:
    """A chat: an update, and a pair that looks like one, of the same language."""

    number: int
    update: Update
    still: Still


@frozen
class Outcome:
    """What became of one chat's questions. `wrong_lifts` are texts wrongly taken for what is true now."""

    case: Case
    newer_first: bool
    in_context: bool
    then_right: bool | None
    wrong_lifts: frozenset[str] = frozenset()


def cases(half: str) -> list[Case]:
    """The chats of a half: in each language its updates in turn, with its stills going round."""
    data = msgspec.convert(tomllib.loads((HERE / "recall_now.toml").read_text("utf-8")), _Data)
    parity = HALVES.index(half)
    found: list[Case] = []
    for lang in dict.fromkeys(update.lang for update in data.updates):
        updates = [update for update in data.updates if update.lang == lang][parity::2]
        stills = [still for still in data.stills if still.lang == lang][parity::2]
        found += [Case(n, update, stills[n % len(stills)]) for n, update in enumerate(updates)]
    return found


def chat(case: Case) -> list[str]:
    """The turns of a case's chat: a person's and the assistant's by turns, statements in their places."""
    filler = tomllib.loads((HERE / "recall_now_filler.toml").read_text("utf-8"))[case.update.lang]
    random = Random(f"{case.update.lang} {case.number} {case.update.matter}")
    things, places = filler["things"].split("|"), filler["places"].split("|")
    topics = _topics(case.update, frozenset(filler["verbs"].split())) or things

    def turn(number: int) -> str:
        about = number % TOPICAL_EVERY
        line: str = random.choice(filler["assistant" if number % 2 else "user" if about else "topical"])
        line = "{topic}: " + line if about == 1 else line
        return line.format(
            thing=random.choice(things),
            place=random.choice(places),
            n=random.randint(2, 19),
            topic=random.choice(topics),
        )

    turns = [turn(number) for number in range(TURNS)]
    turns[OLDER_AT], turns[NEWER_AT] = case.update.older, case.update.newer
    turns[FIRST_AT], turns[SECOND_AT] = case.still.first, case.still.second
    for n, also in enumerate(case.update.also):
        turns[ALSO_AT + 2 * n] = also
    return turns


def _topics(update: Update, verbs: frozenset[str]) -> list[str]:
    """Words of the question that may be the topic of a chat."""
    asked = [word for word in words(update.ask) if word.casefold() not in stop_words() | verbs]
    if update.lang == "zh":
        return [pair for run in asked for pair in pairs(run) if pair in update.older and pair not in verbs]
    return [word for word in asked if len(word) >= TOPIC_CHARS_MIN]


async def tried(engine: Engine, case: Case) -> Outcome:
    """Fill a chat and ask its questions."""
    thread = await engine.create_thread()
    await thread.dispatch_all([_event(n, text) for n, text in enumerate(chat(case))])
    update, still = case.update, case.still
    found = await thread.search(update.ask, limit=LIMIT)
    order = [hit.text for hit in found]
    context = await thread.context(max_tokens=CONTEXT_TOKENS, query=update.ask)
    then = await thread.search(update.before, limit=LIMIT) if update.before else None
    others = await thread.search(still.ask, limit=LIMIT)
    wrong = (_lifted(found) - {update.newer}) | _lifted(others) | (_lifted(then or ()) - {update.older})
    return Outcome(
        case,
        newer_first=_above(order, update.newer, update.older),
        in_context=any(update.now in str(message.get("content")) for message in context.messages),
        wrong_lifts=wrong,
        then_right=_above([hit.text for hit in then], update.older, update.newer) if then is not None else None,
    )


def _event(number: int, text: str) -> NewEvent:
    said = BEGUN + timedelta(days=number // TURNS_A_DAY, minutes=number % TURNS_A_DAY)
    return NewEvent(LlmTextResponse(content=text) if number % 2 else UserMessage(content=text), occurred_at=said)


def _above(order: Sequence[str], one: str, other: str) -> bool:
    return one in order and (other not in order or order.index(one) < order.index(other))


def _lifted(found: Sequence[Hit]) -> frozenset[str]:
    """The hits that stand where they do since they are taken for what is true at the time that is asked about."""
    return frozenset(hit.text for hit in found if hit.why.startswith(CURRENT))


async def outcomes(half: str, at_most: int | None = None) -> list[Outcome]:
    """The first so many cases of a half (default: all), in an engine in memory that compacts nothing."""
    config = EngineConfig(compaction=CompactionPolicy(enabled=False))
    async with memory_engine.open(":memory:", config=config) as engine:
        return [await tried(engine, case) for case in cases(half)[:at_most]]


def figures(found: Sequence[Outcome]) -> dict[str, dict[str, float]]:
    """Shares in percent, by language and over all ("all")."""
    groups: Mapping[str, list[Outcome]] = defaultdict(list)
    for one in found:
        groups["all"].append(one)
        groups[one.case.update.lang].append(one)
    return {name: _shares(some) for name, some in groups.items()}


def _shares(some: Sequence[Outcome]) -> dict[str, float]:
    then = [one.then_right for one in some if one.then_right is not None]
    return {
        "updates": len(some),
        "newer_first": 100 * fmean(one.newer_first for one in some),
        "in_context": 100 * fmean(one.in_context for one in some),
        "then_right": 100 * fmean(then) if then else 0.0,
        "wrong_lifts": sum(len(one.wrong_lifts) for one in some),
    }


def main() -> None:
    """Print the figures of each half as JSON, one object a half."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--half", choices=HALVES, help="only this half")
    parser.add_argument("--failures", action="store_true", help="list what went wrong")
    options = parser.parse_args()
    for half in (options.half,) if options.half else HALVES:
        found = asyncio.run(outcomes(half))
        print(json.dumps({half: figures(found)}, indent=1))
        if options.failures:
            for one in found:
                _print_failures(one)


def _print_failures(one: Outcome) -> None:
    wrong = [name for name, ok in (("order", one.newer_first), ("context", one.in_context)) if not ok]
    if one.then_right is False:
        wrong.append("then")
    if wrong:
        update = one.case.update
        print(
            f"{update.lang} {update.matter}: {', '.join(wrong)}\n   {update.older}\n   {update.newer}\n   {update.ask}"
        )
    for text in one.wrong_lifts:
        print(f"{one.case.update.lang} LIFTED: {text}")


if __name__ == "__main__":
    main()
