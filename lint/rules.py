"""The rules that need nothing but the files."""

from collections.abc import Callable

from lint import layers, text
from lint.tree import Tree

Check = Callable[[Tree], list[str]]  # finds the problems of a tree; the function's name is the check's

RULES: tuple[Check, ...] = (
    text.check_format,
    text.check_lengths,
    text.check_python_functions,
    text.check_unused_names,
    text.check_comments,
    layers.check_walls,
    layers.check_nevers,
    layers.check_purity,
)
