"""What the C++ code declares, as universal-ctags finds it."""

import dataclasses
import functools
import json
import re
import subprocess

from lint.tree import Tree

# Annotations between a declaration's ")" and its end, which are no part of its name.
IGNORED = (
    "ABSL_GUARDED_BY",
    "ABSL_PT_GUARDED_BY",
    "ABSL_EXCLUSIVE_LOCKS_REQUIRED",
    "ABSL_SHARED_LOCKS_REQUIRED",
    "ABSL_LOCKS_EXCLUDED",
    "ABSL_ACQUIRED_BEFORE",
    "ABSL_ACQUIRED_AFTER",
    "ABSL_NO_THREAD_SAFETY_ANALYSIS",
    "ABSL_ASSERT_EXCLUSIVE_LOCK",
    "ABSL_EXCLUSIVE_LOCK_FUNCTION",
    "ABSL_UNLOCK_FUNCTION",
)
ANONYMOUS = "__anon"  # begins the names that ctags gives to what has none


@dataclasses.dataclass(frozen=True)
class Tag:
    """One declaration."""

    name: str
    kind: str  # function, prototype, class, struct or enum
    path: str
    line: int
    end: int
    scope: str  # namespaces and classes around it, "::" between them
    bases: tuple[str, ...]  # of a class: the names of those it inherits from, without scopes and arguments
    is_override: bool

    @property
    def lines(self) -> int:
        """From the first line of the declaration to the last of its body."""
        return self.end - self.line + 1

    @property
    def place(self) -> str:
        """Where it is."""
        return f"{self.path}:{self.line}"

    @property
    def full_name(self) -> str:
        """With its scope."""
        return f"{self.scope}::{self.name}" if self.scope else self.name

    @property
    def in_class(self) -> bool:
        """Whether a class encloses it: ours begin with a capital, namespaces do not."""
        return re.search(r"(^|::)[A-Z]", self.scope) is not None


def base_names(inherits: str) -> tuple[str, ...]:
    """The last parts of the names in a list of base classes."""
    flat, before = inherits, ""
    while flat != before:  # innermost arguments first
        flat, before = re.sub(r"<[^<>]*>", "", flat), flat
    return tuple(name.split("::")[-1].strip() for name in flat.split(",") if name)


def tag_of(entry: dict[str, object]) -> Tag:
    """A Tag from ctags' JSON."""
    line = int(str(entry["line"]))
    return Tag(
        name=str(entry["name"]),
        kind=str(entry["kind"]),
        path=str(entry["path"]),
        line=line,
        end=int(str(entry.get("end", line))),
        scope=str(entry.get("scope", "")),
        bases=base_names(str(entry.get("inherits", ""))),
        is_override="override" in str(entry.get("properties", "")).split(","),
    )


@functools.cache
def tags_of(tree: Tree) -> tuple[Tag, ...]:
    """Everything that the C++ files of a tree declare, but what has no name."""
    command = [
        "ctags",
        "-I",
        ",".join(f"{name}+" for name in IGNORED),
        "--language-force=C++",
        "--kinds-C++=fpcsg",
        "--fields=+SaneKZpi",
        "--fields-C++=+{properties}",
        "--output-format=json",
        "-f",
        "-",
        "-L",
        "-",
    ]
    run = subprocess.run(
        command, cwd=tree.root, check=True, input="\n".join(tree.cpp()), capture_output=True, text=True
    )
    tags = (tag_of(json.loads(line)) for line in run.stdout.splitlines() if line)
    return tuple(tag for tag in tags if not tag.name.startswith(ANONYMOUS))


def tags_in(tree: Tree, *kinds: str) -> list[Tag]:
    """The declarations in files of these kinds (product, simulation, support, test)."""
    return [tag for tag in tags_of(tree) if tree.layout.kind_of(tag.path) in kinds]
