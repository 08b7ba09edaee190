"""The page's own files: those of the package's folder `page`, each by its bare name, and nothing else."""

from importlib.resources import files

KINDS = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
INDEX = "index.html"


def page_file(name: str) -> tuple[bytes, str] | None:
    """A file's bytes and media type by its name (none: the page itself), `None` where there is no such file.

    The name is compared with those that there are, and never made part of a path.
    """
    name = name or INDEX
    for file in files("memory_engine.inspector").joinpath("page").iterdir():
        kind = KINDS.get(name[name.rfind(".") :]) if file.name == name else None
        if kind is not None and file.is_file():
            return file.read_bytes(), kind
    return None
