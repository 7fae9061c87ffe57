"""English: how wide documents are, and phrases that make a reader stop."""

import ast
import io
import re
import tokenize

from lint.tree import Tree

COLUMNS = 100
URL = re.compile(r"https?://\S+|(?<=\]\()[^)\s]+(?=\))")  # an address, or the target of a link
FENCE = re.compile(r"\s*(```|~~~)")

# Phrases to avoid, with what to write in their place. A space also stands for the end of a line.
PHRASES = (
    (r"whoever", "name who: the node that …"),
    (r"who(?:ever)? (?:waits|asks)", "use a noun: the waiting node"),
    (r"(?:who|what) (?:is|was|were|are) cut off", "use a noun: the isolated node"),
    (r"what (?:is|was|are) left", "use a noun: the remaining devices"),
    (r"those that", "use a noun: the nodes that"),
    (r"such an? one", "name the thing"),
    (r"(?:is|are|was|were|be|been|being) looked at", "say who checks it"),
    (r"(?:is|are|was|were|be|been|being) heard", "say who receives it"),
    (r"hear[sd]? of", "learn of, receive"),
    (r"(?:what|is|are|was|were|be|been) told", "report, notify; say who does it"),
    (r"carr(?:y|ies|ied|ying) on with", "continue"),
    (r"(?:can|could|to|may) be had", "is available, can be acquired"),
    (r"put(?:s|ting)? right", "repair, correct"),
    (r"put(?:s|ting)? back", "restore"),
    (r"t(?:ake|akes|aken|aking|ook) away", "remove, unmount"),
    (r"g(?:ive|ives|iven|iving|ave) back", "release, return"),
    (r"knock(?:s|ed|ing)?", "probe"),
)
ANY_PHRASE = tuple(
    (re.compile(rf"\b{phrase}\b".replace(" ", r"\s+"), re.IGNORECASE), instead) for phrase, instead in PHRASES
)


def without_code(text: str) -> list[str]:
    """The lines of a document, those of code blocks empty."""
    lines, in_block = [], False
    for line in text.splitlines():
        is_fence = bool(FENCE.match(line))
        in_block ^= is_fence
        lines.append("" if in_block or is_fence else line)
    return lines


def too_wide(tree: Tree, name: str) -> list[str]:
    """The lines of a document that are too wide; code, tables and addresses aside."""
    return [
        f"{name}:{number}: {len(line)} columns, at most {COLUMNS}"
        for number, line in enumerate(without_code(tree.text(name)), 1)
        if not line.lstrip().startswith("|") and len(URL.sub("", line)) > COLUMNS
    ]


def comment_of(line: str) -> str:
    """The comment on a line of C++, or a character that no phrase has."""
    _, slashes, comment = re.sub(r'"(?:\\.|[^"\\])*"', '""', line).partition("//")
    return comment if slashes else "\0"


def python_prose(text: str) -> list[str]:
    """The lines of a Python file; what is no comment and no docstring is a character that no phrase has."""
    source, prose = text.splitlines(), ["\0"] * len(text.splitlines())
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            prose[token.start[0] - 1] = token.string
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node):
            first, last = node.body[0].lineno - 1, node.body[0].end_lineno
            prose[first:last] = source[first:last]
    return prose


def prose_of(tree: Tree, name: str) -> str:
    """What a file says to people, each line of it in its place."""
    if name.endswith(".md"):
        return "\n".join(re.sub(r"`[^`]*`", "``", line) for line in without_code(tree.text(name)))
    if name.endswith(".py"):
        return "\n".join(python_prose(tree.text(name)))
    return "\n".join(comment_of(line) for line in tree.lines(name))


def phrases_to_avoid(tree: Tree, names: list[str]) -> list[str]:
    """Where files use one of PHRASES."""
    problems = []
    for name in names:
        prose = prose_of(tree, name)
        for pattern, instead in ANY_PHRASE:
            problems += [
                f"{name}:{prose.count(chr(10), 0, found.start()) + 1}: "
                f'"{" ".join(found[0].split())}": {instead}'
                for found in pattern.finditer(prose)
            ]
    return problems


def check_columns(tree: Tree) -> list[str]:
    """Documents are narrow enough for a terminal and a diff."""
    return [problem for name in tree.names(".md") for problem in too_wide(tree, name)]


def check_phrases(tree: Tree) -> list[str]:
    """Documents and comments do without the phrases to avoid."""
    return phrases_to_avoid(tree, tree.names(".md", ".py") + tree.cpp())
