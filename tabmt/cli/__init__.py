"""The command line: every command parses its options and calls one function of the library."""

from tabmt.cli.main import main

__all__ = ["main"]
