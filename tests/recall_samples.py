"""What the tests of search share: small conversations of our own, and a whole index written out."""

from collections.abc import Sequence

from memory_engine import Thread
from memory_engine.store.passages import LookUp
from memory_engine.thread import handle_of

QUERIES = ("always show totals", "עולם שלום", "x" * 5_000, "é" * 400, "a", "ö b", "a/b %", "", "what did they show?")

TALK: Sequence[tuple[str, str]] = (
    ("Ann", "Morning! Did you sleep well after the long drive?"),
    ("Bo", "Like a stone. The hotel by the harbour was quiet."),
    ("Ann", "What did you name the puppy in the end?"),
    ("Bo", "We settled on Biscuit. My niece insisted."),
    ("Ann", "Lovely. I start my pottery course on Thursday."),
    ("Bo", "Good for you! How much does it cost?"),
    ("Ann", "Ninety euros for six evenings, clay included."),
    ("Bo", "My brother Emil plays the cello in Graz now."),
    ("Ann", "Is the harbour festival in August again?"),
    ("Bo", "No, they moved it to September because of the heat."),
)


async def made_anew(thread: Thread) -> None:
    """Make a thread's index of its log again, whatever it holds: a rebuild leaves one that is right as it is."""
    await handle_of(thread).kernel.store.passages.begin(thread.id, afresh=True)
    await thread.admin.prepare_search()


async def contents(thread: Thread, at: int = 0) -> dict[int, object]:
    """Every passage of a thread's index that stands, or stood at a seq, by place."""
    await thread.search("anything")  # brings the index up to date
    index = handle_of(thread).kernel.store.passages
    places, _ = await index.unembedded(thread.id, "no such model", 100_000)
    looked = await index.look_up(thread.id, LookUp(near=tuple(places), upto=at))
    whole = {place: looked.rows[place] for place in looked.chosen}
    return {**whole, -1: (looked.passages, looked.terms)}
