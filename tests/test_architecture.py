"""The import arrows point one way. See docs/architecture.md."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "tabmt"
LAYERS = [  # a module may import only from earlier lines
    {"errors", "tokens", "seeds"},
    {"config", "grid", "text", "loss", "store", "processes"},
    {"spelling"},
    {"identifiers", "quantize", "schema", "rules", "engine"},
    {"tables", "codecs", "fields", "where", "values", "devices"},
    {"codec_parts", "networks", "prompts", "netflow", "many_files"},
    {"rulebook", "batches", "encoding", "looking"},
    {"train", "sample", "likelihood"},
    {"artifact", "card", "calibrate"},
    {"learned", "checkpoints"},
    {"generate"},
    {"completion"},
    {"partial"},
    {"score", "partitions", "fit"},
    {"synthesizer", "demo", "metrics"},
    {"evaluate", "search"},
    {"report"},
    {"console", "arguments"},
    {"cli_search", "cli_netflow", "cli_rows"},
    {"cli"},
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
TABLES = {"pandas", "polars", "pyarrow"}
FORBIDDEN = {
    "fields": TABLES,
    "loss": TABLES,
    "networks": TABLES,
    "train": TABLES,
    "batches": TABLES,
    "processes": TABLES,
    "sample": TABLES,
    "calibrate": TABLES,
    "likelihood": TABLES,
    "prompts": {"torch"},
    "codecs": {"torch"},
    "metrics": {"torch"},
    "netflow": {"torch"},
    "evaluate": {"torch"},
    "quantize": {"torch", "pyarrow"},
    "schema": {"torch"},
    "tables": {"torch"},
    "store": {"torch", "pyarrow"},
    "many_files": {"torch"},
    "encoding": {"torch"},
    "looking": {"torch"},
    "engine": TABLES | {"torch"},
}
FILES = [path for path in sorted(PACKAGE.rglob("*.py")) if path != PACKAGE / "__init__.py"]


def imported(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name}: use absolute imports"
            if node.module == "tabmt":  # `from tabmt import text` names a module
                yield from (f"tabmt.{alias.name}" for alias in node.names)
            else:
                yield node.module


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_down(path):
    here = path.relative_to(PACKAGE).with_suffix("").parts[0]
    for name in imported(path):
        root, *rest = name.split(".")
        assert root not in FORBIDDEN.get(here, ()), f"{here} must not import {root}"
        if root == "tabmt" and rest and rest[0] != here:
            assert LEVEL[rest[0]] < LEVEL[here], f"{here} may not import {rest[0]}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_files_stay_readable(path):
    assert len(path.read_text().splitlines()) <= 500


def test_nothing_is_pickled():
    for path in FILES:
        words = path.read_text()
        for way in ("pickle", " torch.load", " torch.save", "joblib", " eval(", " exec("):
            assert way not in words, f"{path.name} mentions {way}"


def test_the_library_never_touches_global_randomness():
    for path in FILES:
        words = path.read_text()
        for way in ("torch.manual_seed", "np.random.seed", "random.seed(", "np.random.rand"):
            assert way not in words, f"{path.name} uses {way}"


def test_help_does_not_import_what_is_heavy():
    code = (
        "import sys\n"
        "from tabmt.cli import main\n"
        "try: main(['fit', '--help'])\n"
        "except SystemExit: pass\n"
        "print(sorted({'torch', 'pyarrow', 'numpy', 'sklearn', 'rich'} & set(sys.modules)))\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.splitlines()[-1] == "[]"
