"""English: how wide documents are, and phrases that make a reader stop."""

import ast
import io
import posixpath
import re
import tokenize

from lint.tree import Tree

COLUMNS = 100
MOST_WORDS = 250  # below one heading; tables and code aside
LISTS = ("docs/glossary.md", "CHANGELOG.md")  # documents to look things up in
URL = re.compile(r"https?://\S+|(?<=\]\()[^)\s]+(?=\))")  # an address, or the target of a link
LINK = re.compile(r"\]\((?!https?:)(?P<path>[^)#\s]*)(?:#(?P<heading>[^)\s]+))?\)")
SOURCE = re.compile(r"`([\w/]+\.(?:cc|h|py|proto))`")
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
    (r"put(?:s|ting)? (?:\w+ ){0,3}back", "restore"),
    (r"t(?:ake|akes|aken|aking|ook) (?:\w+ ){0,3}away", "remove, unmount"),
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


def slug_of(heading: str) -> str:
    """What a link after # calls a heading."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def headings_of(tree: Tree, name: str) -> set[str]:
    """The headings of a document, as links call them."""
    lines = without_code(tree.text(name)) if name in tree else []
    return {slug_of(line.lstrip("# ")) for line in lines if line.startswith("#")}


def dead_links(tree: Tree, name: str) -> list[str]:
    """The links of a document that lead to no file here, or to no heading of it; addresses aside."""
    problems = []
    for found in LINK.finditer("\n".join(without_code(tree.text(name)))):
        path, heading = found["path"], found["heading"]
        target = posixpath.normpath(posixpath.join(posixpath.dirname(name), path)) if path else name
        if target not in tree or heading and heading not in headings_of(tree, target):
            problems.append(f"{name}: a link leads nowhere: {found[0][2:-1]}")
    return problems


def missing_files(tree: Tree, name: str) -> list[str]:
    """The source files that a document names and that do not exist; `x` stands for any name."""
    paths = set(tree.names(""))
    known = paths | {path.rpartition("/")[2] for path in paths} | {"x.cc", "x_test.cc"}
    named = SOURCE.findall("\n".join(without_code(tree.text(name))))
    return [f"{name}: there is no {file}" for file in named if file not in known]


def check_links(tree: Tree) -> list[str]:
    """What documents lead to and name is there."""
    return [
        problem
        for name in tree.names(".md")
        for problem in dead_links(tree, name) + missing_files(tree, name)
    ]


def check_columns(tree: Tree) -> list[str]:
    """Documents are narrow enough for a terminal and a diff."""
    return [problem for name in tree.names(".md") for problem in too_wide(tree, name)]


def long_sections(tree: Tree, name: str) -> list[str]:
    """The headings of a document with too many words below them."""
    words, heading, problems = 0, "its beginning", []
    for line in [*without_code(tree.text(name)), "# the end"]:
        if not line.startswith("#"):
            words += 0 if line.startswith("|") else len(line.split())
            continue
        if words > MOST_WORDS:
            problems.append(f"{name}: {words} words below {heading}, at most {MOST_WORDS}")
        words, heading = 0, line
    return problems


def check_sections(tree: Tree) -> list[str]:
    """Documents have headings often enough for a reader who looks for one thing."""
    documents = [name for name in tree.names(".md") if name not in LISTS]
    return [problem for name in documents for problem in long_sections(tree, name)]


def check_phrases(tree: Tree) -> list[str]:
    """Documents and comments do without the phrases to avoid."""
    return phrases_to_avoid(tree, tree.names(".md", ".py") + tree.cpp())
