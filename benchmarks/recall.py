"""Search: how fast it finds, what being found costs, and how much room it takes."""

from benchmarks.figures import Figure
from benchmarks.recall_indexing import dispatching, documents
from benchmarks.setting import Setting, say, settle_memory


async def recall(setting: Setting) -> list[Figure]:
    """Search of 10,000 and 100,000 passages and of a tenant, the nearest vectors, the cost of an index elsewhere."""
    try:
        from benchmarks.recall_search import searching
        from benchmarks.recall_tenant import over_tenant
        from benchmarks.recall_vectors import nearest
    except ModuleNotFoundError as error:
        note = f"skipped: vectors need NumPy ({error})"
        return [Figure(bench="recall", case="search, vectors", value=None, unit="", note=note)]
    found: list[Figure] = []
    for bench in (searching, over_tenant, nearest, dispatching, documents):
        say(f"  {bench.__name__}")
        settle_memory()
        found += await bench(setting)
    return found
