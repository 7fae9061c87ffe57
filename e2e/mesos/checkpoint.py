"""States on disk, as a Mesos agent keeps them: whole or not at all, and there after a power cut."""

import json
import os
from pathlib import Path
from typing import Any


def save(path: Path, state: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(".new")
    with open(new, "w") as out:
        json.dump(state, out, indent=2)
        out.flush()
        os.fsync(out.fileno())
    new.rename(path)
    folder = os.open(path.parent, os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)


def load(path: Path) -> Any:
    """None when it was never saved."""
    return json.loads(path.read_text()) if path.exists() else None
