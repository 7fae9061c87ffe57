"""Adds up the JUnit files of one test run and prints `N passed, N failed, N skipped` as the last line.

Under each failed test stand the lines that say what was wrong. A file of Catch2 programs has a line of its
own: how many they are, and how many tests they ran.

Usage: results.py FOLDER [PART…]. A PART is one whose command failed. When its file has no failed test (the
build failed, or it crashed) it counts as one failure. The exit code is 1 on any failure, and when no test
ran.
"""

import pathlib
import re
import sys
import xml.etree.ElementTree as ET


def reasons(case):
    """The failed checks of a Catch2 program, which another test may have run; else how the message begins."""
    failure = case.find("failure")
    message = "" if failure is None else failure.get("message", "")
    lines = [*message.splitlines(), *case.findtext("system-out", "").splitlines()]
    checks = [lines[at : at + 4] for at, line in enumerate(lines) if line.endswith(": FAILED:")]
    return [line for check in checks[:3] for line in check] or message.splitlines()[:3]


def count_catch2(cases):
    """The tests that each Catch2 program among them ran, by its last lines."""
    end = re.compile(r" in (\d+) test case|^test cases: +(\d+) ", re.MULTILINE)
    ends = (end.findall(case.findtext("system-out", "")) for case in cases)
    return [int(found[-1][0] or found[-1][1]) for found in ends if found]


def counted(path):
    passed = failed = skipped = 0
    cases = list(ET.parse(path).getroot().iter("testcase"))
    if ran := count_catch2(cases):
        print(f"   {path.stem}: {len(ran)} programs ran {sum(ran)} tests")
    for case in cases:
        if case.find("failure") is not None or case.find("error") is not None or case.get("status") == "fail":
            failed += 1
            print(f"   FAILED  {path.stem}: {case.get('classname', '')} {case.get('name')}")
            print(*(f"      {line[:200]}\n" for line in reasons(case)), sep="", end="")
        elif case.find("skipped") is not None:
            skipped += 1
        else:
            passed += 1
    return passed, failed, skipped


def main():
    folder, failed_parts = pathlib.Path(sys.argv[1]), sys.argv[2:]
    totals = {path.stem: counted(path) for path in sorted(folder.glob("*.xml"))}
    failed = sum(total[1] for total in totals.values())
    for part in failed_parts:
        if not any(total[1] for name, total in totals.items() if name.split("-")[0] == part):
            print(f"   FAILED  {part}: did not run to its end")
            failed += 1
    passed = sum(total[0] for total in totals.values())
    skipped = sum(total[2] for total in totals.values())
    print(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
