"""Lint as a test: formatting, lengths, layers, clang-tidy. Usage: lint.py [--junit FILE], in the project's root.

clang-tidy's good results are remembered in the cache, by the content of a file and of what it includes of ours, so that
the next run, also in another clone, looks only at what changed.
"""

import argparse
import concurrent.futures
import hashlib
import json
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
from xml.sax.saxutils import quoteattr

MOST_LINES = {".cc": 500, ".h": 150, ".py": 500, ".sh": 500}
CLEAN = pathlib.Path(".cache/tidy")
MOST_TOGETHER = 8  # files that clang-tidy looks at as one
NOT_IN_DEV = ("_fuzz.cc", "plugin/base/tsan.cc")  # the builds with clang and TSan have these; clang-tidy does not see them
MOST_FUNCTION_LINES = 70  # clang-tidy holds it for C++; this is for Python
COLUMNS = 110

# Who may include what: the first rule whose folder holds the file counts. A prefix that ends in .h allows that header alone.
SERVICE_SEAMS = ["plugin/base/", "csi/", "csi-spec/", "devices/types.h", "devices/node_id.h", "devices/array/array.h",
                 "devices/array/volume_store.h", "devices/array/access_control.h", "devices/array/arrays.h", "devices/array/publish_context.h",
                 "devices/initiator/initiator.h", "devices/filesystem/filesystem.h", "devices/filesystem/mounter.h"]
LAYERS = [
    ("plugin/base/", ["plugin/base/"]),
    ("csi-spec/", ["plugin/base/", "csi-spec/", "csi/"]),
    ("devices/", ["plugin/base/", "devices/"]),
    ("fencing/core/", ["fencing/core/", "devices/types.h", "devices/node_id.h"]),  # the domain's names are plain values
    ("fencing/keeper/", ["plugin/base/", "csi-spec/status.h", "devices/", "fencing/", "node/grant_source.h"]),  # a seam of node's
    ("fencing/", ["plugin/base/", "devices/", "fencing/"]),
    ("identity/", ["identity/", *SERVICE_SEAMS]),
    ("controller/", ["controller/", *SERVICE_SEAMS]),
    ("node/", ["node/", *SERVICE_SEAMS]),
]
# fencing/core is a pure function: it can name no clock, thread, random source, network or Kubernetes type.
IMPURE = re.compile(r"#include <(chrono|ctime|time\.h|thread|mutex|condition_variable|random|sys/.*|netinet/.*|boost/(?!container/).*|grpc.*)>"
                    r'|#include "absl/(time/clock|synchronization|random)')
# The seams' fakes stand in for real devices in the services' tests.
TESTS = re.compile(r"(_test\.cc|_fixture\.(h|cc)|/testing(\.h|/.*))$")
FAKES = re.compile(r"devices/(array|initiator|filesystem)/fake_\w+\.h")


def tracked(*endings):
    names = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], check=True, capture_output=True, text=True).stdout
    return [name for name in names.split("\n") if name.endswith(endings) and pathlib.Path(name).exists()]


def check_format():
    sources = tracked(".cc", ".h")
    run = subprocess.run(["clang-format-16", "--dry-run", "-Werror", *sources], capture_output=True, text=True)
    return [line for line in run.stderr.split("\n") if "error:" in line]


def check_lengths():
    problems = []
    for name in tracked(*MOST_LINES) + ["dev"]:
        path = pathlib.Path(name)
        lines = path.read_text().split("\n")
        most = MOST_LINES.get(path.suffix, 500)
        if len(lines) > most + 1:
            problems.append(f"{name}: {len(lines) - 1} lines, at most {most}")
        if path.suffix == ".cc":
            problems += [f"{name}:{i}: {len(line)} columns, at most {COLUMNS}"
                         for i, line in enumerate(lines, 1) if len(line) > COLUMNS]
    return problems


def check_python_functions():
    import ast
    return [f"{name}:{node.lineno}: {node.name} has {node.end_lineno - node.lineno + 1} lines, at most {MOST_FUNCTION_LINES}"
            for name in tracked(".py")
            for node in ast.walk(ast.parse(pathlib.Path(name).read_text()))
            if isinstance(node, ast.FunctionDef) and node.end_lineno - node.lineno + 1 > MOST_FUNCTION_LINES]


def layer_problems(name, text):
    rule = next((allowed for folder, allowed in LAYERS if name.startswith(folder)), None)
    if rule is None:
        return []
    problems = []
    for number, line in enumerate(text.split("\n"), 1):
        if name.startswith("fencing/core/") and IMPURE.search(line):
            problems.append(f"{name}:{number}: fencing/core includes {line.split()[1]}")
        found = re.match(r'#include "((?:plugin|identity|controller|node|devices|fencing|csi-spec|csi)/[^"]+)"', line)
        if not found or any(found[1].startswith(prefix) for prefix in rule):
            continue
        if TESTS.search(name) and FAKES.fullmatch(found[1]):
            continue
        problems.append(f"{name}:{number}: may not include {found[1]} (allowed here: {', '.join(rule)})")
    return problems


def check_layers():
    return [problem for name in tracked(".cc", ".h") for problem in layer_problems(name, pathlib.Path(name).read_text())]


def unused_names(name, text):
    """clang-tidy looks for these in the main file alone, which ours are not, see tidy()."""
    return [f"{name}: nothing uses `{found[0]}`" for found in re.finditer(r"^using (?:\w*::)+(\w+);", text, re.MULTILINE)
            if len(re.findall(rf"\b{found[1]}\b", text)) == 1]


def check_unused_names():
    return [problem for name in tracked(".cc") for problem in unused_names(name, pathlib.Path(name).read_text())]


def check_rules_bite():
    """The rules themselves, on lines that break them."""
    breaking = [("node/x.cc", '#include "controller/controller.h"'), ("devices/array/x.cc", '#include "node/node.h"'),
                ("fencing/core/x.cc", "#include <chrono>"), ("controller/x.h", '#include "devices/array/tgt_array.h"')]
    problems = [f"no rule forbids {line} in {name}" for name, line in breaking if not layer_problems(name, line)]
    return problems if unused_names("x.cc", "using std::swap;\n") else [*problems, "no rule forbids a name that nothing uses"]


def included(name, found):
    """Adds to `found` the headers of ours that a file includes, and those they include."""
    for header in re.findall(r'^#include "([^"]+)"', pathlib.Path(name).read_text(), re.MULTILINE):
        if header not in found and pathlib.Path(header).exists():
            found.add(header)
            included(header, found)


def compiled():
    """[(source, command)] of the dev build; the files of one that is compiled together with others are what it includes."""
    found = []
    for entry in json.loads(pathlib.Path("build/dev/compile_commands.json").read_text()):
        file = pathlib.Path(entry["file"])
        together = re.findall(r'^#include "(.+)"', file.read_text(), re.MULTILINE) if file.parent.name == "Unity" else [file]
        found += [(str(pathlib.Path(name).relative_to(pathlib.Path.cwd())), entry["command"]) for name in together]
    return found


def unknown_to_be_clean():
    """Of each target, the files that clang-tidy has not seen as they are now: {(target, options): [(file, stamp)]}."""
    # The generated headers follow from the .proto files.
    common = "".join(pathlib.Path(name).read_text() for name in tracked(".clang-tidy", ".proto"))
    root = str(pathlib.Path.cwd())  # taken out of the options: they are those of every clone
    # Tests are Catch2's macros more than functions: the compiler's warnings are enough for them.
    sources = {name for name in tracked(".cc") if not name.endswith("_test.cc")}
    unknown = {}
    for name, command in compiled():
        if name not in sources:
            continue
        words = shlex.split(command)
        output = words.index("-o")
        target, options = words[output + 1].partition(".dir/")[0], words[1:output]  # "-o x.o -c x.cc" are the last
        headers = set()
        included(name, headers)
        texts = [common, " ".join(options).replace(root, ""), *(pathlib.Path(file).read_text() for file in [name, *sorted(headers)])]
        stamp = CLEAN / hashlib.sha256("\0".join(texts).encode()).hexdigest()
        if not stamp.exists():
            unknown.setdefault((target, *options), []).append((name, stamp))
    return unknown


def tidy(options, files):
    """Files of one target, looked at as one: most of the time goes to the headers that they share."""
    with tempfile.NamedTemporaryFile("w", suffix=".cc", dir="build") as together:
        together.writelines(f'#include "{pathlib.Path(name).absolute()}"\n' for name, _ in files)
        together.flush()
        run = subprocess.run(["clang-tidy-16", "--quiet", together.name, "--", *options, "-Wno-unknown-warning-option", "-Wno-error"],
                             capture_output=True, text=True)
    if run.returncode == 0:
        CLEAN.mkdir(parents=True, exist_ok=True)
        for _, stamp in files:
            stamp.touch()
        return []
    names = ", ".join(name for name, _ in files)
    return [line for line in run.stdout.split("\n") if "error:" in line] or [f"{names}: clang-tidy failed: {run.stderr[-300:]}"]


def check_all_are_compiled():
    """What the dev build does not know, clang-tidy does not see."""
    known = {name for name, _ in compiled()}
    return [f"{name}: no target of the dev build has it" for name in tracked(".cc")
            if name not in known and not name.endswith(NOT_IN_DEV)]


def check_tidy():
    batches = [(options, files[at:at + MOST_TOGETHER]) for (_, *options), files in unknown_to_be_clean().items()
               for at in range(0, len(files), MOST_TOGETHER)]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        return [problem for found in pool.map(lambda batch: tidy(*batch), batches) for problem in found]


CHECKS = [check_format, check_lengths, check_python_functions, check_layers, check_unused_names, check_rules_bite,
          check_all_are_compiled, check_tidy]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--junit")
    arguments = parser.parse_args()
    cases, failed = [], 0
    for check in CHECKS:
        problems = check()
        failed += bool(problems)
        print(f"{check.__name__}: {'ok' if not problems else 'FAILED'}", *problems, sep="\n  ", flush=True)
        body = f"<failure message={quoteattr(problems[0])}/>" if problems else ""
        cases.append(f'<testcase classname="lint" name="{check.__name__}">{body}</testcase>')
    if arguments.junit:
        pathlib.Path(arguments.junit).write_text(f"<testsuite name=\"lint\">{''.join(cases)}</testsuite>")
    print(f"{len(CHECKS) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
