"""Which statement is true now? Updates in long chats, in four languages, asked through search and context.

`recall_now.toml` has the statements, `recall_now_kinds.toml` more of them of many kinds, written in another hand;
`recall_now_filler.toml` what the chats around them are made of. Each update gets a chat of its own, the same on every
machine. Lines are dealt in turn to a dev half and a held-out half (of the kinds, two thirds): tune on `dev` only.

    python -m benchmarks.recall_now                     both halves, per language
    python -m benchmarks.recall_now --half dev --failures
    python -m benchmarks.recall_now --kinds             statements of many kinds, per kind
    python -m benchmarks.recall_now --decider oracle    after decisions that are all right: what they can give at most
    python -m benchmarks.recall_now --decider URL       after those of a model on a server that speaks OpenAI's protocol
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
from typing import Literal

import msgspec
from attrs import frozen

import memory_engine
from memory_engine import (
    CompactionPolicy,
    Engine,
    EngineConfig,
    Event,
    LlmTextResponse,
    LlmToolCall,
    NewEvent,
    ToolCall,
    ToolResult,
    UserMessage,
)
from memory_engine.language.text import pairs, stop_words, words
from memory_engine.llm import Completion, LanguageModel, OpenAIModel
from memory_engine.recall import Hit
from memory_engine.recall.superseding import CURRENT

HERE = Path(__file__).resolve().parent
HALVES = ("dev", "held-out")
TURNS = 320
OLDER_AT, FIRST_AT, NEWER_AT, ALSO_AT, SECOND_AT = 24, 58, 190, 212, 230
"""The turns that statements take; the last ninety of a chat are filler."""
TURNS_A_DAY = 12
TOPICAL_EVERY = 4
"""One turn in this number has a word of the question and does not answer it; so does the assistant's reply."""
LIMIT = 20
CONTEXT_TOKENS = 1_000
PAIRS_MAX = 20
"""Pairs of statements about which a decider is asked for each question."""
By = Literal["user", "assistant", "tool"]
BEGUN = datetime(2026, 1, 5, 8, tzinfo=UTC)
TOPIC_CHARS_MIN = 4


class Update(msgspec.Struct, frozen=True, kw_only=True):
    """A statement, the one that takes its place, and a question about now (`ask`) and about then (`before`)."""

    lang: str = "en"
    matter: str = ""
    kind: str = ""
    by: By = "user"
    older: str
    newer: str
    ask: str
    now: str = ""
    was: str = ""
    before: str = ""
    also: tuple[str, ...] = ()


class Still(msgspec.Struct, frozen=True, kw_only=True):
    """Two statements of which the second does not take the place of the first, and `why`."""

    lang: str = "en"
    why: str = ""
    kind: str = ""
    by: By = "user"
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
    """The results of one chat's questions.

    `wrong_lifts` are texts wrongly taken for what is true now; `demoted` are true answers below one of them.
    """

    case: Case
    newer_first: bool
    in_context: bool
    then_right: bool | None
    wrong_lifts: frozenset[str] = frozenset()
    demoted: frozenset[str] = frozenset()
    still_first: bool = True


def cases(half: str) -> list[Case]:
    """The chats of a half: in each language its updates in turn, with its stills going round."""
    data = _data("recall_now.toml")
    parity = HALVES.index(half)
    found: list[Case] = []
    for lang in dict.fromkeys(update.lang for update in data.updates):
        updates = [update for update in data.updates if update.lang == lang][parity::2]
        stills = [still for still in data.stills if still.lang == lang][parity::2]
        found += [Case(n, update, stills[n % len(stills)]) for n, update in enumerate(updates)]
    return found


def cases_of_kinds(half: str) -> list[Case]:
    """The chats of statements of many kinds: each update with a still, both said by the same in the same language."""
    data = _data("recall_now_kinds.toml")
    updates = [one for n, one in enumerate(data.updates) if (n % 3 == 0) == (half == "dev")]
    waiting = [one for n, one in enumerate(data.stills) if (n % 3 == 0) == (half == "dev")]
    found: list[Case] = []
    for n, update in enumerate(updates):
        of_lang = [still for still in waiting if still.lang == update.lang]
        still = of_lang[-1] if of_lang else waiting[-1]
        if len(waiting) > 1:
            waiting.remove(still)
        found.append(Case(n, update, still))
    return found


def _data(name: str) -> _Data:
    return msgspec.convert(tomllib.loads((HERE / name).read_text("utf-8")), _Data)


def chat(case: Case) -> list[str]:
    """The turns of a case's chat: a person's and the assistant's by turns, statements in their places (`_said_by`)."""
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


class Oracle:
    """A language model that knows of each pair of statements whether it is one of the updates."""

    name = "oracle"

    def __init__(self) -> None:
        self.updates: set[tuple[str, str]] = set()

    async def complete(
        self, messages: Sequence[Mapping[str, object]], *, temperature: float, max_tokens: int, timeout_s: float
    ) -> Completion:
        """Say whether the pair in a message is an update."""
        shown = str(messages[-1]["content"])
        is_one = any(
            f"\n{older}\n</earlier>" in shown and f"\n{newer}\n</later>" in shown for older, newer in self.updates
        )
        return Completion(text="REPLACED" if is_one else "UNRELATED", model=self.name)

    async def aclose(self) -> None:
        """Nothing is open."""


async def tried(engine: Engine, case: Case, decider: LanguageModel | None = None) -> Outcome:
    """Fill a chat and ask its questions, after the decisions of a model where there is one."""
    thread = await engine.create_thread()
    await thread.dispatch_all(_events(case))
    update, still = case.update, case.still
    if decider is not None:
        if isinstance(decider, Oracle):
            decider.updates = {(update.older, update.newer)}
        for question in filter(None, (update.ask, update.before, still.ask)):
            done = await thread.views.statements.compare(question, pairs_max=PAIRS_MAX, model=decider)
            if done.failure:
                print(f"{update.ask}: {done.failure}")
    found = await thread.search(update.ask, limit=LIMIT)
    order = [hit.text for hit in found]
    context = await thread.context(max_tokens=CONTEXT_TOKENS, query=update.ask)
    then = await thread.search(update.before, limit=LIMIT) if update.before else None
    others = await thread.search(still.ask, limit=LIMIT)
    still_order = [hit.text for hit in others]
    wrong = _lifted(found) - {update.newer}, _lifted(others), _lifted(then or ()) - {update.older}
    asked = (order, update.newer), (still_order, still.first)
    return Outcome(
        case,
        newer_first=_above(order, update.newer, update.older),
        in_context=any((update.now or update.newer) in str(message.get("content")) for message in context.messages),
        wrong_lifts=frozenset().union(*wrong),
        demoted=frozenset(
            true
            for (texts, true), lifted in zip(asked, wrong, strict=False)
            if any(_above(texts, one, true) for one in lifted)
        ),
        still_first=_above(still_order, still.first, still.second),
        then_right=_above([hit.text for hit in then], update.older, update.newer) if then is not None else None,
    )


def _events(case: Case) -> list[NewEvent]:
    turns: tuple[By, By] = ("user", "assistant")
    by: dict[int, By] = {
        OLDER_AT: case.update.by,
        NEWER_AT: case.update.by,
        FIRST_AT: case.still.by,
        SECOND_AT: case.still.by,
    }
    return [
        NewEvent(event, occurred_at=BEGUN + timedelta(days=n // TURNS_A_DAY, minutes=n % TURNS_A_DAY))
        for n, text in enumerate(chat(case))
        for event in _said_by(by.get(n, turns[n % 2]), n, text)
    ]


def _said_by(by: By, number: int, text: str) -> list[Event]:
    if by == "tool":
        call = ToolCall(id=f"call-{number}", name="look_up", arguments="{}")
        return [LlmToolCall(calls=(call,)), ToolResult(call_id=call.id, name=call.name, content=text)]
    return [LlmTextResponse(content=text) if by == "assistant" else UserMessage(content=text)]


def _above(order: Sequence[str], one: str, other: str) -> bool:
    return one in order and (other not in order or order.index(one) < order.index(other))


def _lifted(found: Sequence[Hit]) -> frozenset[str]:
    """The hits that were moved because they are taken for what is true at the time of the question."""
    return frozenset(hit.text for hit in found if hit.why.startswith(CURRENT))


async def outcomes(
    half: str, at_most: int | None = None, *, of_kinds: bool = False, decider: LanguageModel | None = None
) -> list[Outcome]:
    """The first `at_most` cases of a half (default: all), in an engine in memory that compacts nothing."""
    config = EngineConfig(compaction=CompactionPolicy(enabled=False))
    async with memory_engine.open(":memory:", config=config) as engine:
        found = cases_of_kinds(half) if of_kinds else cases(half)
        return [await tried(engine, case, decider) for case in found[:at_most]]


def figures(found: Sequence[Outcome]) -> dict[str, dict[str, float]]:
    """Shares in percent, by language or kind and over all ("all")."""
    groups: Mapping[str, list[Outcome]] = defaultdict(list)
    for one in found:
        groups["all"].append(one)
        groups[one.case.update.kind or one.case.update.lang].append(one)
    return {name: _shares(some) for name, some in groups.items()}


def _shares(some: Sequence[Outcome]) -> dict[str, float]:
    then = [one.then_right for one in some if one.then_right is not None]
    return {
        "updates": len(some),
        "newer_first": 100 * fmean(one.newer_first for one in some),
        "in_context": 100 * fmean(one.in_context for one in some),
        "then_right": 100 * fmean(then) if then else 0.0,
        "still_first": 100 * fmean(one.still_first for one in some),
        "wrong_lifts": sum(len(one.wrong_lifts) for one in some),
        "demoted": sum(len(one.demoted) for one in some),
    }


def main() -> None:
    """Print the figures of each half as JSON, one object a half."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--half", choices=HALVES, help="only this half")
    parser.add_argument("--kinds", action="store_true", help="the statements of many kinds")
    parser.add_argument("--failures", action="store_true", help="list what went wrong")
    parser.add_argument("--decider", help="oracle, or the URL of a server that speaks OpenAI's protocol")
    parser.add_argument("--at-most", type=int, help="so many chats of each half")
    options = parser.parse_args()
    decider = _decider(options.decider) if options.decider else None
    for half in (options.half,) if options.half else HALVES:
        found = asyncio.run(outcomes(half, options.at_most, of_kinds=options.kinds, decider=decider))
        print(json.dumps({half: figures(found)}, indent=1))
        if options.failures:
            for one in found:
                _print_failures(one)


def _decider(name: str) -> LanguageModel:
    if name == "oracle":
        return Oracle()
    import openai

    return OpenAIModel(openai.AsyncOpenAI(base_url=f"{name}/v1", api_key="x"), "small", retries=0)


def _print_failures(one: Outcome) -> None:
    update, still = one.case.update, one.case.still
    wrong = [name for name, ok in (("order", one.newer_first), ("context", one.in_context)) if not ok]
    if one.then_right is False:
        wrong.append("then")
    if wrong:
        print(
            f"{update.lang} {update.kind or update.matter}: {', '.join(wrong)}"
            f"\n   {update.older}\n   {update.newer}\n   {update.ask}"
        )
    for text in one.wrong_lifts:
        print(f"{update.lang} LIFTED: {text}\n   of {still.first if text == still.second else update.ask}")
    for text in one.demoted:
        print(f"{update.lang} DEMOTED: {text}")


if __name__ == "__main__":
    main()
