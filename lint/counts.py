"""The rules' figures, for comparing one version with another: `python3 -m lint counts`."""

from collections.abc import Iterator

from lint import floors, names, prose, text
from lint.tree import Tree

MOST_SHOWN = 20  # of the most used names


def share(part: int, whole: int) -> str:
    """Such as "474 of 22231 (2.1%)"."""
    return f"{part} of {whole} ({part / max(whole, 1):.1%})"


def figures(tree: Tree) -> dict[str, int | str]:
    """Each counter by its name."""
    comments, lines = text.comment_lines(tree, text.product_sources(tree))
    functions, one_word = names.named_functions(tree), names.one_word_functions(tree)
    return {
        "includes that do not run downwards, product and simulations": len(
            floors.upward_includes(tree, "product", "simulation")
        ),
        "includes that do not run downwards, tests": len(floors.upward_includes(tree, "test", "support")),
        "pairs of folders that include each other": len(floors.mutual_pairs(floors.folder_edges(tree))),
        "pairs of top-level folders that include each other": len(
            floors.mutual_pairs(floors.folder_edges(tree, 1))
        ),
        ".cc files without a header of their name": len(floors.without_header(tree)),
        "comment lines in the product's .cc files": share(comments, lines),
        "functions of the product with a name of one word": share(len(one_word), len(functions)),
        "names of one word for more than two things": len(names.overused_names(tree)),
        "class names that two classes have": len(names.twice_named_classes(tree)),
        "functions of more than 50 lines, C++": len(names.too_long_functions(tree)),
        "functions of more than 50 lines, Python": len(text.too_long_python(tree)),
        "files over their limit (400 lines; 150 for headers)": len(text.too_long_files(tree)),
        "lines of more than 100 columns in documents": len(prose.check_columns(tree)),
        "phrases to avoid in documents": len(prose.phrases_to_avoid(tree, tree.names(".md"))),
        "phrases to avoid in comments of C++": len(prose.phrases_to_avoid(tree, tree.cpp())),
        "phrases to avoid in comments of Python": len(prose.phrases_to_avoid(tree, tree.names(".py"))),
    }


def details(tree: Tree) -> Iterator[tuple[str, list[str]]]:
    """What is behind the figures, as far as it fits a page."""
    yield (
        "Comment lines by folder",
        [
            f"{there / max(lines, 1):6.1%}  {folder} ({there} of {lines})"
            for folder, (there, lines) in text.comments_by_folder(tree).items()
        ],
    )
    things = names.one_word_things(tree).items()
    used = sorted(((len(where), sum(map(len, where.values())), name) for name, where in things), reverse=True)
    yield (
        "Most used names of one word, idioms of classes aside: different things, functions",
        [f"{count:3} {functions:4}  {name}" for count, functions, name in used[:MOST_SHOWN]],
    )
    yield "Includes that do not run downwards", floors.upward_includes(tree)
    yield "Folders that include each other", floors.check_pairs(tree)
    yield ".cc files without a header of their name", floors.without_header(tree)
    yield "Class names that two classes have", names.twice_named_classes(tree)
    yield "Functions of more than 50 lines", names.too_long_functions(tree) + text.too_long_python(tree)
    yield "Files over their limit", text.too_long_files(tree)


def print_counts(tree: Tree) -> None:
    """The counters, then what is behind them."""
    for name, value in figures(tree).items():
        print(f"{name}: {value}")
    for title, lines in details(tree):
        print(f"\n{title}:", *(lines or ["none"]), sep="\n  ")
