"""Where graphs of vectors lie: beside the database, a pair of files for a thread and a model. All can be deleted."""

from hashlib import sha256
from pathlib import Path

from memory_engine.llm.vectors import VectorIndex


class GraphFolder:
    """See `memory_engine.recall.vectors.Graphs`. The folder is made when the first graph is written.

    An engine without an embedder only drops graphs, so the code that builds them loads with the first vectors.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def load(self, index: VectorIndex, thread_id: str, model: str) -> bool:
        """Load the graph of an earlier process, as far as it fits these vectors; a damaged file is passed over."""
        from memory_engine.storage.vectors.adaptive import AdaptiveIndex
        from memory_engine.storage.vectors.graph_files import Origin

        if not isinstance(index, AdaptiveIndex) or len(index) <= index.threshold:
            return False
        return index.load(self._path(thread_id, model), Origin(model, thread_id)) is None

    def save(self, index: VectorIndex, thread_id: str, model: str) -> None:
        """Write the graph. Raises `OSError`."""
        from memory_engine.storage.vectors.adaptive import AdaptiveIndex
        from memory_engine.storage.vectors.graph_files import Origin

        if isinstance(index, AdaptiveIndex) and len(index) > index.threshold:
            self._folder.mkdir(exist_ok=True)
            index.save(self._path(thread_id, model), Origin(model, thread_id))

    def drop(self, thread_id: str) -> None:
        """Delete the graphs of a thread."""
        for path in self._folder.glob(f"{_digest(thread_id)}-*"):
            path.unlink(missing_ok=True)

    def _path(self, thread_id: str, model: str) -> Path:
        return self._folder / f"{_digest(thread_id)}-{_digest(model)}"


def _digest(name: str) -> str:
    return sha256(name.encode(errors="replace")).hexdigest()[:24]
