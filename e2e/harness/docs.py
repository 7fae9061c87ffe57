"""The commands in the documents. The mark of a block, ```sh test=NAME, names it for the test that runs it."""

import re

from harness.places import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(language: str = "sh") -> list[tuple[str, str, str]]:
    """[(page's name, what follows the language, text)]"""
    return [
        (page.name, rest.strip(), text)
        for page in PAGES
        for found, rest, text in BLOCK.findall(page.read_text())
        if found == language
    ]


def commands(name: str) -> str:
    """The block that is marked with this name."""
    (text,) = [text for _, mark, text in blocks() if mark == f"test={name}"]
    return text


def example(language: str, containing: str) -> str:
    """The block of another language that has this in it."""
    (text,) = [text for _, _, text in blocks(language) if containing in text]
    return text


def inline() -> list[tuple[str, str]]:
    """[(page's name, command)] for what stands in the text as `lunkeeper …`."""
    return [
        (page.name, found) for page in PAGES for found in re.findall(r"`(lunkeeper [^`]+)`", page.read_text())
    ]


GATEWAYS = "Metrics of gateways"  # of an array on Ceph alone


def metrics() -> list[tuple[str, str, set[str]]]:
    """[(section, name, labels)] of docs/monitoring.md."""
    text = (ROOT / "docs/monitoring.md").read_text()
    return [
        (section.partition("\n")[0], name, set(re.findall(r"`(\w+)`", labels)))
        for section in text.split("\n## ")
        for name, labels in re.findall(r"^\| `(lunkeeper_\w+)` \|([^|]*)\|", section, re.MULTILINE)
    ]
