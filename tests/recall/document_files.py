"""Files for tests of documents, and how they are read."""

import io
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

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


def pdf(*pages: str) -> bytes:
    """A PDF file with a line of text on each page."""
    kids = " ".join(f"{4 + 2 * n} 0 R" for n in range(len(pages)))
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for n, text in enumerate(pages):
        stream = f"BT /F1 12 Tf 72 720 Td ({text}) Tj ET" if text else ""
        resources = "<< /Font << /F1 3 0 R >> >>"
        objects.append(
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Resources {resources} /Contents {5 + 2 * n} 0 R >>"
        )
        objects.append(f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream")
    objects.append("<< /Title (Prices) /Author (Ann) /CreationDate (D:20241103100000+01'00') >>")
    out = io.BytesIO()
    out.write(b"%PDF-1.4\n")
    places = []
    for n, one in enumerate(objects, 1):
        places.append(out.tell())
        out.write(f"{n} 0 obj\n{one}\nendobj\n".encode())
    start = out.tell()
    table = "".join(f"{place:010} 00000 n \n" for place in places)
    out.write(f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}".encode())
    trailer = f"<< /Size {len(objects) + 1} /Root 1 0 R /Info {len(objects)} 0 R >>"
    out.write(f"trailer\n{trailer}\nstartxref\n{start}\n%%EOF\n".encode())
    return out.getvalue()


_WORD = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'


def docx(body: str, **others: str) -> bytes:
    """A Word file with this body. `others` are the contents of its `styles`, `footnotes` and `core` properties."""
    places = {name: "docProps/core.xml" if name == "core" else f"word/{name}.xml" for name in others}
    return word_file(
        f'<?xml version="1.0"?><w:document {_WORD}>{body}</w:document>',
        {places[name]: f"<w:{name} {_WORD}>{content}</w:{name}>" for name, content in others.items()},
    )


def word_file(document: str, others: Mapping[str, str] = MappingProxyType({})) -> bytes:
    """A Word file of these files of XML, the others by their places in it."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("word/document.xml", document)
        for place, content in others.items():
            packed.writestr(place, content)
    return out.getvalue()


def paragraph(text: str, *, style: str = "", described: str = "") -> str:
    """A paragraph of a Word file: the id of its style, and what else describes it."""
    styled = f'<w:pStyle w:val="{style}"/>' if style else ""
    return f'<w:p><w:pPr>{styled}{described}</w:pPr><w:r><w:t xml:space="preserve">{text}</w:t></w:r></w:p>'


def word_row(*cells: str, described: str = "") -> str:
    """A row of a table of a Word file."""
    return f"<w:tr>{described}{''.join(f'<w:tc>{cell}</w:tc>' for cell in cells)}</w:tr>"
