"""Names: one class name for one thing, function names that say what they do to what, short functions."""

import collections
import re

from lint.tags import ANONYMOUS, Tag, tags_in
from lint.text import MOST_FUNCTION_LINES
from lint.tree import Tree

MOST_ONE_WORD = 1 / 3  # of the product's functions
MOST_THINGS = 2  # that one name of one word may stand for
# Names that methods of any class may have: the object before the dot says the rest. Free functions may not.
IDIOMS = {
    "Create": "makes an object of the class, or says why it cannot",
    "Open": "the same, of a class that stands for something outside, such as a file or a connection",
    "Close": "ends what Open began",
    "Start": "begins the work of an object that has a thread or a process",
    "Stop": "ends what Start began",
    "Run": "works until it is told to stop: the body of a thread or of a program",
    "Parse": "makes an object of the class from bytes or text",
    "Add": "puts an element into a collection",
    "Find": "looks an element of a collection up by its key",
    "Remove": "removes an element from a collection",
}

# Words that the project once used for what the field has its own word for: {word: the field's}.
RETIRED = {
    "judge": "classify",
    "verdict": "classification",
    "chronicle": "recorder",
    "herd": "hollow cluster",
    "conduit": "splice pipe",
    "census": "list",
    "tamper": "fault injection",
    "by hand": "manual",
    "superseded": "replaced",
    "namesake": "instance",
    "tidier": "sweeper",
    "rails": "safety limits",
    "keeper": "coordinator, heartbeat LUN, store",
    "patience": "timeout, limit",
    "told to": "requested",
}

Things = dict[str, dict[str, list[str]]]  # {name: {thing: places}}


def is_nested(tree: Tree, tag: Tag) -> bool:
    """Whether a declaration is part of a class or a function. What a namespace has is not indented."""
    return tag.in_class or tree.lines(tag.path)[tag.line - 1].startswith(" ")


# What the simulator runs of the product, and the headers by which it does.
SIMULATOR = "fencing/sim/"
SIMULATED = (
    "fencing/core/",
    "fencing/failover/",
    "fencing/kube/",
    "fencing/coordinator/known_replicas",
    "fencing/coordinator/node_requests",
    "fencing/agent/coordinator_grant_source",
    "fencing/agent/heartbeat_lun_access",
    "fencing/agent/heartbeat_sender",
    "fencing/agent/path_watch",
    "fencing/agent/replica_table",
    "fencing/agent/storage_heartbeats",
)
RUNS = (
    "fencing/coordinator/known_replicas.h",
    "fencing/coordinator/node_requests.h",
    "fencing/failover/failover.h",
    "fencing/failover/pod_use_check.h",
    "fencing/failover/replica_poll.h",
    "fencing/agent/coordinator_grant_source.h",
    "fencing/agent/heartbeat_sender.h",
    "fencing/agent/replica_table.h",
    "fencing/agent/storage_heartbeats.h",
)


def twice_named_classes(tree: Tree) -> list[str]:
    """Class names that two classes of product and tests have; nested ones aside, which have two names."""
    places: dict[str, set[str]] = collections.defaultdict(set)
    for tag in tags_in(tree, "product", "support", "test"):
        if tag.kind in ("class", "struct", "enum") and not is_nested(tree, tag):
            places[tag.name].add(tag.place)
    return [f"{name}: {', '.join(sorted(where))}" for name, where in sorted(places.items()) if len(where) > 1]


def is_named_function(tag: Tag) -> bool:
    """Whether we chose a function's name: not that of a constructor, an operator, main or an accessor."""
    return (
        tag.kind == "function"
        and re.fullmatch(r"[A-Z][A-Za-z0-9]*", tag.name) is not None
        and tag.scope.split("::")[-1] != tag.name
    )


def words_in(name: str) -> int:
    """The words of a name in CamelCase: ReleaseGrant has two, so has ToIQN."""
    return len(re.findall(r"[A-Z]+(?![a-z])|[A-Z][a-z0-9]*", name))


def named_functions(tree: Tree) -> list[Tag]:
    """The product's functions whose names count."""
    return [tag for tag in tags_in(tree, "product") if is_named_function(tag)]


def one_word_functions(tree: Tree) -> list[Tag]:
    """Those whose name is a single word."""
    return [tag for tag in named_functions(tree) if words_in(tag.name) == 1]


class Hierarchies:
    """Which classes declare a method for which others."""

    def __init__(self, tags: list[Tag]):
        self._bases = {tag.full_name: tag.bases for tag in tags if tag.kind in ("class", "struct")}
        self._by_name: dict[str, list[str]] = collections.defaultdict(list)
        for full_name in self._bases:
            self._by_name[full_name.split("::")[-1]].append(full_name)
        self._methods = {(tag.scope, tag.name) for tag in tags if tag.kind in ("function", "prototype")}
        self._overrides = {(tag.scope, tag.name) for tag in tags if tag.is_override}

    def declared_by(self, scope: str, method: str, below: tuple[str, ...] = ()) -> str | None:
        """The highest class that gives a class its method; None when no class of ours does."""
        for base in self._bases.get(scope, ()):
            for full_name in self._by_name[base]:
                if full_name != scope and full_name not in below:
                    higher = self.declared_by(full_name, method, (*below, scope))
                    if higher or (full_name, method) in self._methods:
                        return higher or full_name
        return None

    def is_given(self, scope: str, method: str) -> bool:
        """Whether the name was given by a class that is not ours, such as the generated one of a service."""
        return (scope, method) in self._overrides and self.declared_by(scope, method) is None


def one_word_things(tree: Tree) -> Things:
    """Every name of one word with the different things that it stands for.

    One thing is a method with all its overloads and overrides, or the free functions of a header and its .cc.
    """
    hierarchies = Hierarchies(tags_in(tree, "product"))
    things: Things = collections.defaultdict(lambda: collections.defaultdict(list))
    for tag in one_word_functions(tree):
        if not tag.in_class:
            thing = f"{tag.path.rpartition('.')[0]} {ANONYMOUS in tag.scope}"
        elif tag.name in IDIOMS or hierarchies.is_given(tag.scope, tag.name):
            continue
        else:
            thing = hierarchies.declared_by(tag.scope, tag.name) or tag.scope
        things[tag.name][thing].append(tag.place)
    return things


def overused_names(tree: Tree) -> list[str]:
    """Names of one word for more things than MOST_THINGS, the most used first."""
    things = sorted(one_word_things(tree).items(), key=lambda entry: (-len(entry[1]), entry[0]))
    return [
        f"{name} names {len(places)} things: {', '.join(where[0] for where in places.values())}"
        for name, places in things
        if len(places) > MOST_THINGS
    ]


def too_long_functions(tree: Tree) -> list[str]:
    """The functions of C++ that are too long."""
    return [
        f"{tag.place}: {tag.name} has {tag.lines} lines, at most {MOST_FUNCTION_LINES}"
        for tag in tags_in(tree, "product", "simulation", "support")
        if tag.kind == "function" and tag.lines > MOST_FUNCTION_LINES
    ]


def too_long_cases(tree: Tree) -> list[str]:
    """The test cases that are too long: macros, which are no tags."""
    return [
        f"{name}: {case.splitlines()[0]} has {case.count(chr(10)) + 1} lines, at most {MOST_FUNCTION_LINES}"
        for name in tree.cpp("test")
        for case in re.findall(r"^(?:\w+_)?TEST_CASE\w*\(.*?^}$", tree.text(name), re.MULTILINE | re.DOTALL)
        if case.count("\n") >= MOST_FUNCTION_LINES
    ]


def check_cpp_functions(tree: Tree) -> list[str]:
    """Functions of C++ are short, test cases too."""
    return too_long_functions(tree) + too_long_cases(tree)


def check_class_names(tree: Tree) -> list[str]:
    """No two classes of the product have one name."""
    return [f"two things are called {problem}" for problem in twice_named_classes(tree)]


def check_simulator(tree: Tree) -> list[str]:
    """The simulator runs the product's own code, and has none of its classes anew."""
    tags = [tag for tag in tags_in(tree, "product", "simulation") if tag.kind in ("class", "struct")]
    there = {tag.name for tag in tags if tag.path.startswith(SIMULATED) and not is_nested(tree, tag)}
    problems = [
        f"{tag.place}: the simulator has a {tag.name} of its own, but is to run the product's"
        for tag in tags
        if tag.path.startswith(SIMULATOR) and tag.name in there
    ]
    files = [name for name in tree.cpp("simulation") if name.startswith(SIMULATOR)]
    included = {header for name in files for _, header in tree.includes(name)}
    missing = [header for header in RUNS if files and header not in included]
    return problems + [
        f"{SIMULATOR}: nothing includes {header}, so it does not run the product's" for header in missing
    ]


def check_one_word_share(tree: Tree) -> list[str]:
    """Most functions say in their name what they do to what."""
    functions, one_word = named_functions(tree), one_word_functions(tree)
    if len(one_word) <= MOST_ONE_WORD * len(functions):
        return []
    return [
        f"{len(one_word)} of {len(functions)} functions have a name of one word "
        f"({len(one_word) / len(functions):.1%}), at most {MOST_ONE_WORD:.1%}"
    ]


def check_overused_names(tree: Tree) -> list[str]:
    """No name of one word stands for more than two things."""
    return overused_names(tree)


def words_of(name: str) -> str:
    """The words of an identifier, in lower case between spaces: " by hand " of ByHand and by_hand."""
    return f" {re.sub(r'(?<=[a-z])(?=[A-Z])|_', ' ', name).lower().strip()} "


def identifiers_in(tree: Tree, name: str) -> list[tuple[int, str]]:
    """The words of a file's code: [(line number, identifier)]; comments, texts and paths aside."""
    return [
        (number, identifier)
        for number, line in enumerate(tree.lines(name), 1)
        for identifier in re.findall(r"\b[A-Za-z_]\w+", re.sub(r'"(?:\\.|[^"\\])*"|//.*', "", line))
    ]


def check_retired_words(tree: Tree) -> list[str]:
    """No identifier, of the product or its tests, has a word that was replaced by the field's own."""
    old = re.compile(rf" (?P<word>{'|'.join(RETIRED)})(?:s|d|ed)? ")
    return [
        f"{name}:{number}: {identifier}: the word is {RETIRED[found['word']]}"
        for name in tree.cpp()
        for number, identifier in identifiers_in(tree, name)
        if (found := old.search(words_of(identifier)))
    ]
