"""python -m benchmarks NAME ...: every benchmark is a command, with the name of its module.

`peers` installs generators, `run` runs a suite of them, and `tables` makes the pages of the docs.
"""

import importlib
import inspect
import sys
from pathlib import Path

ELSEWHERE = {"peers": "benchmarks.peers.environments"}


def commands() -> dict[str, str]:
    """Name -> module, of all modules of this folder that have a `main`."""
    found = {
        path.stem.replace("_", "-"): f"benchmarks.{path.stem}"
        for path in sorted(Path(__file__).parent.glob("*.py"))
        if not path.stem.startswith("__") and "\ndef main(" in path.read_text()
    }
    return dict(sorted((found | ELSEWHERE).items()))


def main() -> None:
    known = commands()
    if len(sys.argv) < 2 or sys.argv[1] not in known:
        names = ", ".join(known)
        sys.exit(f"Usage: python -m benchmarks NAME ..., where NAME is one of: {names}.")
    start = importlib.import_module(known[sys.argv[1]]).main
    if inspect.signature(start).parameters:
        start(sys.argv[2:])
        return
    del sys.argv[1]  # it reads the words itself, as in `python -m benchmarks.NAME`
    start()


if __name__ == "__main__":
    main()
