"""Generate the pages of the docs from benchmarks/results, or check that they are up to date.

    python -m benchmarks tables
    python -m benchmarks tables --check

The same pages as `make docs`. With --check nothing is written, and a page that does not agree with
the results is an error.
"""

import argparse
import sys
from collections.abc import Sequence


def main(argv: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks tables", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--check", action="store_true", help="write nothing; fail on a difference")
    arguments = parser.parse_args(argv)
    from docs import generate  # it imports tables of this package

    stale = generate.stale_pages()
    names = ", ".join(str(path.relative_to(generate.DOCS.parent)) for path in stale)
    if arguments.check:
        if stale:
            sys.exit(f"Not what the results say: {names}. Run `python -m benchmarks tables`.")
        print("The pages are what the results say.")
        return
    generate.write_pages()
    print(f"wrote {names}" if stale else "nothing has changed")
