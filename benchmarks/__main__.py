"""python -m benchmarks NAME ...: the benchmarks that are one command each."""

import sys

from benchmarks import figures, paper

COMMANDS = {"figures": figures.main, "paper": paper.main}


def main() -> None:
    names = ", ".join(COMMANDS)
    if len(sys.argv) < 2 or sys.argv[1] not in COMMANDS:
        sys.exit(f"Usage: python -m benchmarks NAME ..., where NAME is one of: {names}.")
    COMMANDS[sys.argv[1]](sys.argv[2:])


if __name__ == "__main__":
    main()
