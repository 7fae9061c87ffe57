"""The rules that need nothing but the files."""

from collections.abc import Callable

from lint import clocks, floors, layers, names, prose, python, text
from lint.tree import Tree

Check = Callable[[Tree], list[str]]  # finds the problems of a tree; the function's name is the check's

RULES: tuple[Check, ...] = (
    text.check_format,
    text.check_lengths,
    text.check_python_functions,
    text.check_unused_names,
    text.check_comments,
    text.check_introductions,
    text.check_comment_lists,
    text.check_broken_declarations,
    python.check_python_columns,
    python.check_types,
    prose.check_columns,
    prose.check_sections,
    prose.check_phrases,
    prose.check_links,
    layers.check_walls,
    layers.check_nevers,
    layers.check_purity,
    clocks.check_steady_waits,
    floors.check_floors,
    floors.check_pairs,
    floors.check_headers,
    floors.check_support_is_apart,
    names.check_class_names,
    names.check_simulator,
    names.check_one_word_share,
    names.check_overused_names,
    names.check_cpp_functions,
    names.check_retired_words,
)
