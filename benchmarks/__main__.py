"""python -m benchmarks NAME ...: the benchmarks that are one command each."""

import importlib
import sys

COMMANDS = {  # name -> module
    "figures": "benchmarks.figures",
    "paper": "benchmarks.paper",
    "peers": "benchmarks.peers.environments",
    "run": "benchmarks.run",
    "tables": "benchmarks.tables",
}


def main() -> None:
    names = ", ".join(COMMANDS)
    if len(sys.argv) < 2 or sys.argv[1] not in COMMANDS:
        sys.exit(f"Usage: python -m benchmarks NAME ..., where NAME is one of: {names}.")
    importlib.import_module(COMMANDS[sys.argv[1]]).main(sys.argv[2:])


if __name__ == "__main__":
    main()
