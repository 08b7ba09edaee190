"""Files for tests of documents, and how they are read."""

import subprocess
import sys
from pathlib import Path

from memory_engine import errors
from memory_engine.views.documents.readers.document import Loaded
from memory_engine.views.documents.readers.files import File, absolute, load


class Files:
    """Writes files into a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __call__(self, name: str, content: bytes | str) -> Path:
        """A file with this content."""
        path = self._folder / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path


def read(path: Path) -> list[Loaded]:
    """The documents of a file; raises what is broken in it."""
    documents = []
    for one in load(File(path, absolute(path))):
        if isinstance(one, errors.UnreadableDocument):
            raise one
        documents.append(one)
    return documents


def shown(document: Loaded) -> list[tuple[str, str, str]]:
    """Its sections: about, speaker, text."""
    return [(section.about, section.speaker, section.text) for section in document.sections]


def without(package: str, code: str) -> str:
    """What Python prints that runs code and cannot import a package."""
    program = f"import sys; sys.modules[{package!r}] = None\n{code}"
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
