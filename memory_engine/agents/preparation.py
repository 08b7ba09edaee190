"""Knowledge for an agent before it begins: memories, rules and a playbook that fit the task, as one note.

It also makes the events that carry what a run learned from the conversation to the agent's thread.
"""

from collections.abc import Iterable, Sequence

from attrs import field, frozen

from memory_engine.agents.extraction import Fact
from memory_engine.context.ownership import Viewer
from memory_engine.context.rendering import Message
from memory_engine.events import Destination, Layer, MemoryAppended, MemoryShared
from memory_engine.language.secrets import mask_secrets
from memory_engine.scopes import Agent, Scope, User
from memory_engine.thread import handle_of
from memory_engine.views.layers.entries import MemoryHit, ProceduralRule
from memory_engine.views.layers.keywords import MemoryQuery, search_memories
from memory_engine.views.layers.search import applicable
from memory_engine.views.layers.summaries import shortened
from memory_engine.views.layers.view import Memory

STARTED = "started"
"""Episodic entries of this kind say nothing that a later task could use."""
SEARCHED: tuple[Layer, ...] = ("semantic", "episodic")
NOTE_CHARS_MAX = 6_000
MEMORY_CHARS_MAX = 600


@frozen(kw_only=True)
class Preparation:
    """The memory that a run begins with. `messages` are for the model's first call: the context, with `prompt` in it.

    `prompt` is the note on memories, rules and playbook, empty without any.
    """

    task: str
    task_id: str
    seq: int
    prompt: str
    memories: tuple[MemoryHit, ...]
    rules: tuple[ProceduralRule, ...]
    playbook: str
    messages: list[Message] = field(repr=False)


@frozen(kw_only=True)
class Known:
    """The memories, rules and playbook that fit a task."""

    memories: tuple[MemoryHit, ...]
    rules: tuple[ProceduralRule, ...]
    playbook: str = ""

    @property
    def sources(self) -> tuple[str, ...]:
        """The events that memories and rules came with."""
        ids = [hit.entry.event_id for hit in self.memories] + [rule.event_id for rule in self.rules]
        return tuple(dict.fromkeys(ids))

    @property
    def note(self) -> str:
        """For the model, marked as memory; empty for nothing."""
        parts = []
        if self.memories:
            parts += ["From earlier work; check it before you rely on it:", *map(_memory_line, self.memories)]
        if self.rules:
            parts += ["Rules for tasks like this one:", *map(_rule_line, self.rules)]
        if self.playbook:
            parts.append(self.playbook)
        return "\n".join(parts)[:NOTE_CHARS_MAX]


@frozen(kw_only=True)
class Memories:
    """The memories that a run may draw on: the agent's, its lead's as far as granted, and its user's."""

    agent: Agent
    lead: Agent | None
    user: User | None
    viewer: Viewer


async def known_for(of: Memories, task: str, limit: int) -> Known:
    """Memory that fits the task, without other users' words."""
    sought: list[tuple[Scope, Sequence[Layer]]] = [(of.agent, SEARCHED)]
    rules = await Memory(handle_of(of.agent), viewer=of.viewer).rules()
    if of.lead is not None:
        grant = await of.agent.shared(of.lead.scope_id).granted()
        granted = grant.layers if grant is not None else ()
        sought.append((of.lead, [layer for layer in SEARCHED if layer in granted]))
        rules += await Memory(handle_of(of.lead), viewer=of.viewer).rules() if "procedural" in granted else []
    if of.user is not None:
        sought.append((of.user, SEARCHED))
        rules += await of.user.memory.rules()
    wanted = MemoryQuery(query=task, limit=limit * 2, viewer=of.viewer)
    memories = await search_memories([(handle_of(one), some) for one, some in sought], wanted)  # all in one order
    useful = [hit for hit in memories if hit.entry.metadata.get("event") != STARTED]
    return Known(memories=tuple(_different(useful)[:limit]), rules=tuple(applicable(rules, task)))


def _different(hits: Iterable[MemoryHit]) -> list[MemoryHit]:
    """Each content once."""
    return list({hit.content: hit for hit in reversed(list(hits))}.values())[::-1]


def _memory_line(hit: MemoryHit) -> str:
    label = f"{hit.entry.key}: " if hit.entry.key else ""
    return f"- {label}{shortened(hit.content, MEMORY_CHARS_MAX)}"


def _rule_line(rule: ProceduralRule) -> str:
    condition = rule.condition.strip()
    when = condition if condition[:5].casefold() == "when " else f"When {condition}"
    when = f"{when}: " if condition else ""
    return f"- {shortened(when + rule.action, MEMORY_CHARS_MAX)}"


def arrow_joined(texts: Sequence[str], chars_max: int) -> str:
    """Texts that are not empty, each on one line, with an arrow between."""
    return " → ".join(shortened(text, chars_max) for text in texts if text.strip())


TEXT_CHARS_MAX = 500


@frozen(kw_only=True)
class Learned:
    """A fact, whether a person's words are in it, and the seqs of those events of the conversation that said it."""

    fact: Fact
    is_said: bool
    seqs: tuple[int, ...] = ()


@frozen
class Keeper:
    """Makes the events that carry entries from a conversation (`thread_id`) to other memories, as of `now_us`.

    `user` is the conversation's; without one what a person said stays in the conversation.
    """

    agent: Destination
    user: Destination | None
    thread_id: str
    now_us: int

    def episode(self, kind: str, texts: Sequence[str], task_id: str, sources: tuple[str, ...]) -> MemoryShared:
        """That a task started, was completed, or failed: the texts, each shortened to one line, without secrets."""
        return MemoryShared(
            destination=self.agent,
            layer="episodic",
            content=arrow_joined([mask_secrets(text) for text in texts], TEXT_CHARS_MAX),
            metadata={"event": kind, "agent_id": self.agent.id, "task_id": task_id},
            timestamp_us=self.now_us,
            source_thread=self.thread_id,
            sources=sources,
        )

    def knowledge(self, learned: Learned, task_id: str) -> MemoryShared | MemoryAppended:
        """Something that was learned: for the agent if it found it out, else for the user who said it."""
        fact = learned.fact
        destination = self.user if learned.is_said else self.agent
        if destination is None:
            return MemoryAppended(
                layer="semantic",
                content=fact.value,
                key=fact.key,
                metadata={"task_id": task_id},
                timestamp_us=self.now_us,
                source_thread=self.thread_id,
                sources=fact.sources,
                drawn_from=learned.seqs,
            )
        return MemoryShared(
            destination=destination,
            layer="semantic",
            content=fact.value,
            key=fact.key,
            metadata={"task_id": task_id},
            timestamp_us=self.now_us,
            source_thread=self.thread_id,
            sources=fact.sources,
            own=not learned.is_said,
        )
