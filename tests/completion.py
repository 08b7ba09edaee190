"""Asks pyright's language server what an editor would show: the names that completion offers."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Self, cast

ROOT = Path(__file__).resolve().parents[1]


class LanguageServer:
    """Pyright's, for one file of Python in a folder."""

    def __init__(self, folder: Path, text: str) -> None:
        self._text = text
        self._file = folder / "asked.py"
        self._file.write_text(text, "utf-8")
        settings = {"include": ["asked.py"], "extraPaths": [str(ROOT)], "pythonVersion": "3.11"}
        (folder / "pyrightconfig.json").write_text(json.dumps(settings), "utf-8")
        command = [str(Path(sys.executable).with_name("pyright-langserver")), "--stdio"]
        # it asks the `python` on the path where packages are
        paths = {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=folder, env={**os.environ, **paths}
        )
        self._asked = 0

    def __enter__(self) -> Self:
        folder = self._file.parent.as_uri()
        self._ask("initialize", {"processId": None, "rootUri": folder, "capabilities": {}})
        self._send({"method": "initialized", "params": {}})
        opened = {"uri": self._file.as_uri(), "languageId": "python", "version": 1, "text": self._text}
        self._send({"method": "textDocument/didOpen", "params": {"textDocument": opened}})
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.kill()
        self._process.communicate()

    def names_after(self, words: str) -> set[str]:
        """The public names that completion offers at the end of a line that ends with these words."""
        [line] = [n for n, one in enumerate(self._text.splitlines()) if one.endswith(words)]
        place = {"line": line, "character": len(self._text.splitlines()[line])}
        found = self._ask("textDocument/completion", {"textDocument": {"uri": self._file.as_uri()}, "position": place})
        items = cast("Mapping[str, list[dict[str, str]]]", found)["items"]
        return {item["label"] for item in items if not item["label"].startswith("_")}

    def _ask(self, method: str, params: Mapping[str, object]) -> object:
        self._asked += 1
        self._send({"id": self._asked, "method": method, "params": params})
        while True:
            message = self._received()
            if "method" in message and "id" in message:  # it asks for settings, and takes none
                self._send({"id": message["id"], "result": None})
            elif message.get("id") == self._asked:
                return message["result"]

    def _send(self, message: Mapping[str, object]) -> None:
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        to = cast("IO[bytes]", self._process.stdin)
        to.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        to.flush()

    def _received(self) -> dict[str, object]:
        source, size = cast("IO[bytes]", self._process.stdout), 0
        while line := source.readline().strip():
            name, _, value = line.partition(b":")
            size = int(value) if name.lower() == b"content-length" else size
        return cast("dict[str, object]", json.loads(source.read(size)))
