"""Every benchmark is a command of `python -m benchmarks`."""

import sys
from types import SimpleNamespace

import pytest

from benchmarks import __main__ as entry


def test_every_benchmark_is_a_command():
    known = entry.commands()
    expected = {"paper", "figures", "netflow", "flow-scale", "run", "tables", "peers"}
    assert expected <= set(known)
    assert known["flow-scale"] == "benchmarks.flow_scale"
    assert "machine" not in known and "published" not in known


def test_an_unknown_name_lists_the_commands(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["benchmarks", "none"])
    with pytest.raises(SystemExit, match=r"NAME is one of: .*netflow, .*run, .*tables"):
        entry.main()


@pytest.mark.parametrize("takes_words", [True, False])
def test_words_after_the_name_reach_the_benchmark(takes_words, monkeypatch):
    seen = []

    def with_words(argv):
        seen.extend(argv)

    def without_words():
        seen.extend(sys.argv[1:])

    module = SimpleNamespace(main=with_words if takes_words else without_words)
    monkeypatch.setattr(entry.importlib, "import_module", lambda name: module)
    monkeypatch.setattr(sys, "argv", ["benchmarks", "netflow", "--data", "DATA"])
    entry.main()
    assert seen == ["--data", "DATA"]
