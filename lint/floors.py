"""Floors: includes run downwards, no two folders include each other, each .cc has its header."""

import collections
import re

from lint.layout import GENERATED, SUPPORT_NAME
from lint.tree import Tree, folder_of, room_of

CODE = ("product", "simulation")
TESTS = ("test", "support")
# Implementation files without a header, and why.
NO_HEADER = {"base/tsan.cc": "it replaces functions of absl's own headers in builds with TSan"}

Edges = dict[tuple[str, str], list[str]]  # (including folder, included folder): places


def upward_includes(tree: Tree, *kinds: str) -> list[str]:
    """The includes in files of these kinds that do not run to a lower floor.

    What is no product may include testing/ of every floor.
    """
    layout, problems = tree.layout, []
    for name in tree.cpp(*kinds):
        own = room_of(name) if layout.kind_of(name) in TESTS else folder_of(name)
        for number, header in tree.includes(name):
            target = room_of(header)
            if target == own or header.split("/")[0] in GENERATED:
                continue
            if layout.support.search(header) and layout.kind_of(name) != "product":
                continue
            here, there = layout.floor_of(own), layout.floor_of(target)
            if here is None or there is None or there >= here:
                problems.append(f"{name}:{number}: {header} is not on a lower floor")
    return problems


def folder_edges(tree: Tree, depth: int | None = None) -> Edges:
    """Which folder includes which, tests aside; with `depth` 1, of top-level folders only."""
    edges: Edges = collections.defaultdict(list)
    for name in tree.cpp(*CODE):
        for number, header in tree.includes(name):
            own, target = ("/".join(folder_of(file).split("/")[:depth]) for file in (name, header))
            if own != target:
                edges[own, target].append(f"{name}:{number}")
    return edges


def mutual_pairs(edges: Edges) -> list[str]:
    """The pairs of folders that include each other, with one place each way."""
    return [
        f"{one} and {other} include each other: {edges[one, other][0]}, {edges[other, one][0]}"
        for one, other in sorted(edges)
        if one < other and (other, one) in edges
    ]


def without_header(tree: Tree) -> list[str]:
    """The .cc files of the product and the simulations that have no header of their name in their folder."""
    return [
        name
        for name in tree.cpp(*CODE)
        if name.endswith(".cc")
        and not name.endswith(tuple(NO_HEADER))
        and not tree.is_program(name)
        and re.sub(r"\.cc$", ".h", name) not in tree
    ]


def check_floors(tree: Tree) -> list[str]:
    """Every folder is on a floor, and includes run downwards, those of tests too."""
    known = {folder for folders in tree.layout.floors for folder in folders}
    strangers = sorted({room_of(name) for name in tree.cpp()} - known)
    return [f"{folder}: on no floor of lint/layout.py" for folder in strangers] + upward_includes(tree)


def check_pairs(tree: Tree) -> list[str]:
    """No two folders include each other, nor do two top-level folders."""
    return mutual_pairs(folder_edges(tree)) + mutual_pairs(folder_edges(tree, depth=1))


def check_headers(tree: Tree) -> list[str]:
    """Each .cc has a header of its own name beside it; tests, fuzzers and programs need none."""
    return [f"{name}: no header of this name in its folder" for name in without_header(tree)]


def check_support_is_apart(tree: Tree) -> list[str]:
    """What is for tests stands in testing/ folders."""
    return [
        f"{name}: belongs into a testing/ folder"
        for name in tree.cpp("product", "simulation")
        if SUPPORT_NAME.search(name)
    ]
