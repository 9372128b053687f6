"""The import arrows point one way. See docs/architecture.md."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "tabmt"
BASE = {
    "config",
    "errors",
    "fingerprint",
    "json_files",
    "memory",
    "outputs",
    "parallel",
    "printable",
    "progress",
    "seeds",
    "tokens",
    "writing",
}  # single modules that all may use
CHAIN = [  # a folder may import only from earlier lines
    {"data", "method"},
    {"codec", "netflow", "private"},
    {"conditions"},
    {"rules"},
    {"model"},
    {"estimator", "demo"},
    {"evaluation"},
    {"search", "synthesis"},
    {"serve"},
    {"cli"},
]
LEVEL = {name: level for level, names in enumerate(CHAIN, 1) for name in names}
LEVEL |= dict.fromkeys(BASE, 0)
TABLES = {"pandas", "polars", "pyarrow"}
FORBIDDEN = {  # tables and tensors meet in `model`
    "method": TABLES,
    **{folder: {"torch"} for folder in ("data", "codec", "conditions", "rules", "netflow", "demo")},
    "private": {"torch"},
    **{folder: {"torch"} for folder in ("evaluation", "search", "synthesis", "serve", "cli")},
    **{module: TABLES | {"torch"} for module in BASE},
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
        if root == "tabmt" and rest and rest[0] != here and {here, rest[0]} - BASE:
            assert LEVEL[rest[0]] < LEVEL[here], f"{here} may not import {rest[0]}"


def test_every_module_is_imported_by_another():
    modules = {
        ".".join(("tabmt", *path.relative_to(PACKAGE).with_suffix("").parts))
        for path in FILES
        if path.name not in ("__init__.py", "__main__.py")
    }
    used = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom):
                used |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    assert modules - used == set()


def test_functions_are_shorter_than_seventy_lines():
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef):
                lines = node.end_lineno - node.lineno + 1
                assert lines < 70, f"{path.name}: {node.name} has {lines} lines"


# Words that the glossary replaces: missing value, temperature, validation check, index, chunk, ...
PRIVATE_WORDS = {"gap", "gaps", "heat", "told", "lens", "judge", "judged", "look", "looks", "place",
                 "places", "keeper", "stint", "spelled", "oddest"}  # fmt: skip


def test_names_keep_to_the_glossary():
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text())):
            name = (
                getattr(node, "id", None)
                or getattr(node, "arg", None)
                or getattr(node, "name", None)
            )
            words = set(name.strip("_").lower().split("_")) if isinstance(name, str) else set()
            assert not words & PRIVATE_WORDS, f"{path.name}: {name}"


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
