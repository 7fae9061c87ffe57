"""The files that the rules look at: those of the project, or a few made up to try a rule on."""

from __future__ import annotations

import collections
import contextlib
import pathlib
import posixpath
import re
import subprocess
import tempfile
from collections.abc import Iterator

from lint.layout import GENERATED, NOW, Layout

INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"([^"]+)"|<([^>]+)>)')
MAIN = re.compile(r"^int main\(", re.MULTILINE)


class Tree:
    """Files under a root folder. Reads each once."""

    def __init__(self, root: pathlib.Path, names: list[str], layout: Layout = NOW):
        self.root = root
        self.layout = layout
        self._names = names
        self._texts: dict[str, str] = {}

    @classmethod
    def here(cls, layout: Layout = NOW) -> Tree:
        """The project in the current folder: what git tracks, and what it would."""
        listed = subprocess.run(
            ["git", "ls-files", "-co", "--exclude-standard"], check=True, capture_output=True, text=True
        ).stdout
        names = sorted({name for name in listed.split("\n") if pathlib.Path(name).is_file()})
        return cls(pathlib.Path.cwd(), names, layout)

    @classmethod
    @contextlib.contextmanager
    def of(cls, files: dict[str, str]) -> Iterator[Tree]:
        """A tree of these files, {name: text}, for as long as the context lasts."""
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name, text in files.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text)
            yield cls(root, sorted(files))

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def names(self, *endings: str) -> list[str]:
        """The names with one of these endings."""
        return [name for name in self._names if name.endswith(endings)]

    def cpp(self, *kinds: str) -> list[str]:
        """The C++ files of these kinds; of all kinds when none is named."""
        return [name for name in self.names(".cc", ".h") if not kinds or self.layout.kind_of(name) in kinds]

    def text(self, name: str) -> str:
        """A file's content."""
        if name not in self._texts:
            self._texts[name] = (self.root / name).read_text()
        return self._texts[name]

    def lines(self, name: str) -> list[str]:
        """A file's lines, without their ends."""
        return self.text(name).splitlines()

    def includes(self, name: str) -> list[tuple[int, str]]:
        """The headers of this project that a file includes, generated ones too: [(line number, header)]."""
        return [(number, header) for number, header in self._all_includes(name) if self._is_ours(header)]

    def libraries(self, name: str) -> list[tuple[int, str]]:
        """The headers of libraries that a file includes: [(line number, header)]."""
        return [(number, header) for number, header in self._all_includes(name) if not self._is_ours(header)]

    def _is_ours(self, header: str) -> bool:
        return header.split("/")[0] in self.layout.top_folders() | set(GENERATED)

    def _all_includes(self, name: str) -> Iterator[tuple[int, str]]:
        """Each path as the compiler resolves it: from the file's own folder, then from the root."""
        for number, line in enumerate(self.lines(name), 1):
            if match := INCLUDE.match(line):
                header = posixpath.normpath(match[1] or match[2])
                beside = posixpath.normpath(f"{posixpath.dirname(name)}/{header}")
                yield number, beside if match[1] and beside in self else header

    def is_program(self, name: str) -> bool:
        """Whether a file has a main function."""
        return bool(MAIN.search(self.text(name)))

    def reached_from(self, name: str) -> dict[str, list[str]]:
        """Every header that a file includes, directly or through others, with the way there."""
        ways = {name: [name]}
        waiting = collections.deque([name])
        while waiting:
            at = waiting.popleft()
            for _, header in self.includes(at) if at in self else []:
                if header not in ways:
                    ways[header] = [*ways[at], header]
                    waiting.append(header)
        del ways[name]
        return ways


def folder_of(name: str) -> str:
    """The folder of a file."""
    return name.rpartition("/")[0]


def room_of(name: str) -> str:
    """The folder that a file belongs to: its own, or the one above a testing/ folder."""
    return folder_of(name).removesuffix("/testing")
