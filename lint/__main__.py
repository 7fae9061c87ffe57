"""Runs the checks, in the project's root.

Usage: python3 -m lint [--junit FILE] [CHECK…]      all checks, or those named, such as check_floors
       python3 -m lint counts [--layout FILE]       the rules' figures; of a version with other folders, too
"""

import argparse
import pathlib
import sys
from xml.sax.saxutils import quoteattr

from lint import bite, counts, tidy
from lint.layout import NOW, read_layout
from lint.rules import RULES, Check
from lint.tree import Tree

CHECKS = (*RULES, bite.check_rules_bite, tidy.check_all_are_compiled, tidy.check_tidy)


def arguments() -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser(prog="python3 -m lint")
    parser.add_argument(
        "what", nargs="*", metavar="CHECK", help="a check's name, or `counts`; default: all checks"
    )
    parser.add_argument("--junit", type=pathlib.Path, help="write the results to this file, too")
    parser.add_argument(
        "--layout", type=pathlib.Path, help="of counts: the layout of another version, in JSON"
    )
    parsed = parser.parse_args()
    unknown = set(parsed.what) - {check.__name__ for check in CHECKS} - {"counts"}
    if unknown:
        parser.error(f"no such check: {', '.join(sorted(unknown))}")
    return parsed


def run(checks: list[Check], junit: pathlib.Path | None) -> int:
    """Runs checks and prints their problems, and how many passed as the last line; returns the exit code."""
    tree, cases, failed = Tree.here(), [], 0
    for check in checks:
        problems = check(tree)
        failed += bool(problems)
        print(f"{check.__name__}: {'FAILED' if problems else 'ok'}", *problems, sep="\n  ", flush=True)
        body = f"<failure message={quoteattr(problems[0])}/>" if problems else ""
        cases.append(f'<testcase classname="lint" name="{check.__name__}">{body}</testcase>')
    if junit:
        junit.write_text(f'<testsuite name="lint">{"".join(cases)}</testsuite>')
    print(f"{len(checks) - failed} passed, {failed} failed")
    return 1 if failed else 0


def main() -> int:
    """Counts, or checks."""
    given = arguments()
    if "counts" in given.what:
        counts.print_counts(Tree.here(read_layout(given.layout) if given.layout else NOW))
        return 0
    return run([check for check in CHECKS if not given.what or check.__name__ in given.what], given.junit)


if __name__ == "__main__":
    sys.exit(main())
