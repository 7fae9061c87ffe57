"""The text of files: formatting, lengths, comments, names that nothing uses."""

import ast
import re
import subprocess

from lint.tree import Tree, folder_of

MOST_LINES = {".cc": 400, ".h": 150, ".py": 400, ".sh": 400, "dev": 400, "docs/architecture.md": 200}
MOST_FUNCTION_LINES = 50
CPP_COLUMNS = 110  # as .clang-format says; it leaves alone what it cannot break
COMMENT = re.compile(r"\s*//(?P<indent> *)(?P<text>\S.*)")
TYPE_ALONE = re.compile(r" +(?:const )?\w+(?:::\w+)*(?:<.*>)?[*&]?")
NAME_ALONE = re.compile(r" +\w+(?: = .*|\{.*\})?;  //")
MOST_UNINTRODUCED = 150  # lines of a .cc without a paragraph at its top
LEAST_COMMENTS = 0.08  # of the lines of .cc files


def check_format(tree: Tree) -> list[str]:
    """C++ is formatted as .clang-format says."""
    run = subprocess.run(
        ["clang-format-16", "--dry-run", "-Werror", *tree.cpp()],
        cwd=tree.root,
        capture_output=True,
        text=True,
    )
    return [line for line in run.stderr.split("\n") if "error:" in line]


def too_long_files(tree: Tree) -> list[str]:
    """The files with more lines than files of their kind may have."""
    problems = []
    for name in tree.names(*MOST_LINES):
        suffix = "." + name.rpartition(".")[2] if "." in name and name not in MOST_LINES else name
        lines = len(tree.lines(name))
        if suffix in MOST_LINES and lines > MOST_LINES[suffix]:
            problems.append(f"{name}: {lines} lines, at most {MOST_LINES[suffix]}")
    return problems


def check_lengths(tree: Tree) -> list[str]:
    """Files are short, and so are the lines of C++."""
    return too_long_files(tree) + [
        f"{name}:{number}: {len(line)} columns, at most {CPP_COLUMNS}"
        for name in tree.cpp()
        for number, line in enumerate(tree.lines(name), 1)
        if len(line) > CPP_COLUMNS
    ]


def too_long_python(tree: Tree) -> list[str]:
    """The functions of Python that are too long."""
    return [
        f"{name}:{node.lineno}: {node.name} has {lines} lines, at most {MOST_FUNCTION_LINES}"
        for name in tree.names(".py")
        for node in ast.walk(ast.parse(tree.text(name)))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (lines := (node.end_lineno or node.lineno) - node.lineno + 1) > MOST_FUNCTION_LINES
    ]


def check_python_functions(tree: Tree) -> list[str]:
    """Functions of Python are short."""
    return too_long_python(tree)


def comment_lines(tree: Tree, names: list[str]) -> tuple[int, int]:
    """(lines that are nothing but a comment, all lines) of some files together."""
    lines = [line for name in names for line in tree.lines(name)]
    return sum(line.lstrip().startswith("//") for line in lines), len(lines)


def product_sources(tree: Tree) -> list[str]:
    """The .cc files of the product."""
    return [name for name in tree.cpp("product") if name.endswith(".cc")]


def comments_by_folder(tree: Tree) -> dict[str, tuple[int, int]]:
    """{folder: comment_lines of its product's .cc files}."""
    sources = product_sources(tree)
    return {
        folder: comment_lines(tree, [name for name in sources if folder_of(name) == folder])
        for folder in sorted({folder_of(name) for name in sources})
    }


def check_comments(tree: Tree) -> list[str]:
    """The product's .cc files, as a whole, say enough about themselves."""
    comments, lines = comment_lines(tree, product_sources(tree))
    if not lines or comments >= LEAST_COMMENTS * lines:
        return []
    folders = sorted(comments_by_folder(tree).items(), key=lambda entry: entry[1][0] / max(entry[1][1], 1))
    return [
        f"{comments} of {lines} lines in the product's .cc files are comments ({comments / lines:.1%}), "
        f"at least {LEAST_COMMENTS:.0%}",
        *(f"{folder}: {there / max(all_lines, 1):.1%}" for folder, (there, all_lines) in folders),
    ]


def is_cut_off(above: str, line: str, below: str) -> bool:
    """Whether the line is the end of the one above it, in the middle of a list's entry."""
    texts = [COMMENT.match(text) for text in (above, line, below)]
    if not all(texts) or len(above) < CPP_COLUMNS - 25:
        return False
    indents, rest = [len(text["indent"]) for text in texts if text], line.strip("/ ")
    return indents[2] > indents[1] + 1 and len(rest) < 20 and not rest.endswith((".", ":", ";", ")"))


def check_comment_lists(tree: Tree) -> list[str]:
    """No list in a comment is broken where clang-format has cut a line that was too long."""
    return [
        f"{name}:{number}: cut off from the line above: {line}"
        for name in tree.cpp()
        for lines in [tree.lines(name)]
        for number, (above, line, below) in enumerate(zip(lines, lines[1:], lines[2:]), 2)
        if is_cut_off(above, line, below)
    ]


def check_broken_declarations(tree: Tree) -> list[str]:
    """No comment behind a declaration is so long that clang-format has broken the declaration for it."""
    return [
        f"{name}:{number}: the comment belongs above: {line.strip()}"
        for name in tree.cpp()
        for lines in [tree.lines(name)]
        for number, (above, line) in enumerate(zip(lines, lines[1:]), 2)
        if TYPE_ALONE.fullmatch(above) and NAME_ALONE.match(line)
    ]


def check_unused_names(tree: Tree) -> list[str]:
    """No using-declaration for nothing. clang-tidy looks for these in the main file alone, see tidy.py."""
    return [
        f"{name}: nothing uses `{found[0]}`"
        for name in tree.names(".cc")
        for found in re.finditer(r"^using (?:\w*::)+(\w+);", tree.text(name), re.MULTILINE)
        if len(re.findall(rf"\b{found[1]}\b", tree.text(name))) == 1
    ]


def introduction(lines: list[str]) -> list[str]:
    """The comment that a source begins with: above its includes, or between them and its code."""
    found: list[str] = []
    for line in lines:
        if line.startswith("//"):
            found.append(line)
        elif found or not re.match(r"$|#include |using |namespace |extern \"C\" \{", line):
            break
    return found


def check_introductions(tree: Tree) -> list[str]:
    """A long source says at its top what it does, on which thread, in what order."""
    return [
        f"{name}: {len(lines)} lines, and no paragraph at the top"
        for name in product_sources(tree)
        for lines in [tree.lines(name)]
        if len(lines) > MOST_UNINTRODUCED and len(introduction(lines)) < 2
    ]
