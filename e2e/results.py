"""Adds up the JUnit files of one test run and prints `N passed, N failed, N skipped` as the last line.

Usage: results.py FOLDER [PART…]. A PART is one whose command failed. When its file has no failed test (the
build failed, or it crashed) it counts as one failure. The exit code is 1 on any failure, and when no test
ran.
"""

import pathlib
import sys
import xml.etree.ElementTree as ET


def counted(path):
    passed = failed = skipped = 0
    for case in ET.parse(path).getroot().iter("testcase"):
        if case.find("failure") is not None or case.find("error") is not None or case.get("status") == "fail":
            failed += 1
            print(f"   FAILED  {path.stem}: {case.get('classname', '')} {case.get('name')}")
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
