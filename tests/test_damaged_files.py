"""Files with wrong content are refused, also by `python -O`, which leaves out every `assert`."""

import copy
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tabmt import Front, TabMT
from tabmt.codec.large_tables import encode_into, fit_table_codec
from tabmt.config import CodecConfig
from tabmt.data.dataset import Dataset
from tabmt.model.model_file import FileKind, read_file, write_file
from tabmt.search.pareto_front import Point
from tests.conftest import TINY
from tests.tables import mixed_frame

SETTINGS = {**TINY, "steps": 40, "threads": 1}
LOAD_ALL = f"""
import json, sys
from pathlib import Path
from tabmt import Front, TabMT, UserError
from tabmt.codec.large_tables import read_encoded

folder = Path(sys.argv[1])
table = folder / "table.parquet"
loaders = {{
    "model": TabMT.load,
    "front": Front.load,
    "store": read_encoded,
    "checkpoint": lambda path: TabMT(**{SETTINGS}).fit(table, checkpoint=path, resume=True),
    "schema": lambda path: TabMT(**{SETTINGS}).fit(table, schema=path),
}}
errors = {{}}
for path in sorted(path for path in folder.iterdir() if path != table):
    try:
        loaders[path.suffix[1:]](path)
        errors[path.stem] = None
    except UserError as error:
        errors[path.stem] = str(error).replace(str(path), "FILE")
print(json.dumps([__debug__, errors]))
"""

Change = Callable[[Any], object]


def changed_json(path: Path, name: str, change: Change) -> None:
    """The same file with another content, beside it."""
    content = json.loads(path.read_text())
    change(content)
    path.with_stem(name).write_text(json.dumps(content))


def changed_tensors(path: Path, kind: FileKind, name: str, change: Change) -> None:
    """The same model or checkpoint with other metadata or tensors; `change` gets both."""
    metadata, tensors = read_file(path, kind)
    del metadata["format"], metadata["kind"]
    content = (copy.deepcopy(metadata), dict(tensors))
    change(content)
    write_file(path.with_stem(name), kind, *content)


def changed_store(path: Path, name: str, change: Change) -> None:
    """The same folder of tokens with other arrays of its codec."""
    copied = shutil.copytree(path, path.with_stem(name))
    with np.load(path / "codec.npz") as stored:
        arrays = dict(stored)
    change(arrays)
    with (copied / "codec.npz").open("wb") as file:
        np.savez(file, **arrays)


def write_models(folder: Path) -> None:
    path = folder / "good model.model"
    table = folder / "table.parquet"
    TabMT(**{**SETTINGS, "steps": 2}).fit(table).save(path)
    edges = "codec/2.edges"  # of the column height
    for name, change in {
        "model with a codec array of another length": lambda parts: parts[1].update(
            {edges: parts[1][edges][:-1]}
        ),
        "model with centres that are no numbers": lambda parts: parts[1].update(
            {"codec/2.centres": torch.full_like(parts[1]["codec/2.centres"], torch.nan)}
        ),
        "model without a codec array": lambda parts: parts[1].pop(edges),
        "model without a weight": lambda parts: parts[1].pop("net/norm.bias"),
        "model with another tensor": lambda parts: parts[1].update(other=torch.zeros(2)),
        "model without a schema": lambda parts: parts[0].pop("schema"),
        "model with fewer codecs": lambda parts: parts[0]["codecs"].pop(),
        "model with an unknown codec": lambda parts: parts[0]["codecs"][0].update(codec=[]),
        "model with another depth": lambda parts: parts[0]["card"]["settings"].update(depth=2),
        "model with text as rows": lambda parts: parts[0]["card"].update(rows="many"),
    }.items():
        changed_tensors(path, "model", name, change)


def write_checkpoints(folder: Path) -> None:
    path = folder / "good checkpoint.checkpoint"

    def interrupt(progress: Any) -> None:
        if progress.step == 25:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        TabMT(**SETTINGS).fit(folder / "table.parquet", checkpoint=path, on_step=interrupt)
    for name, change in {
        "checkpoint without a state": lambda parts: parts[0].pop("state"),
        "checkpoint whose state lacks an entry": lambda parts: parts[0]["state"].pop("step"),
        "checkpoint whose state has another entry": lambda parts: parts[0]["state"].update(x=1),
        "checkpoint whose early stopping lacks an entry": lambda parts: parts[0]["state"][
            "early_stopping"
        ].pop("kept_step"),
        "checkpoint without a weight": lambda parts: parts[1].pop("net/norm.bias"),
        "checkpoint without a moment": lambda parts: parts[1].pop("step/norm.bias"),
    }.items():
        changed_tensors(path, "checkpoint", name, change)


def write_fronts(folder: Path) -> None:
    path = folder / "good front.front"
    points = [Point({"a": 1.2}, 0.1, 0.8, 0.1, 0.8, 0.1, 0.7, uniform) for uniform in (None, 1.2)]
    real = {"privacy": 0.1, "quality": 0.9, "valid_quality": 0.9}
    search = {"model": "fingerprint", "trials": 2}
    Front("dcr", "mle", "a", (points[0],), (points[1],), ((0.1, 0.8),), real, search).save(path)
    for name, change in {
        "front without points": lambda front: front.update(points=[]),
        "front with a temperature of zero": lambda front: front["points"][0].update(
            temperatures={"a": 0}
        ),
        "front with a uniform point that is not": lambda front: front["uniform"][0].update(
            uniform_temperature=None
        ),
        "front without scores of real rows": lambda front: front.update(real={}),
        "front of an unnamed model": lambda front: front["search"].pop("model"),
        "front with an unknown score": lambda front: front.update(quality="beauty"),
        "front of another format": lambda front: front.update(format=3),
    }.items():
        changed_json(path, name, change)


def write_stores(folder: Path) -> None:
    path = folder / "good store.store"
    dataset = Dataset.open(folder / "table.parquet")
    encode_into(
        path, dataset, lambda: fit_table_codec(dataset, CodecConfig(), None, 0), {}, "local"
    )
    for name, change in {
        "store with a codec array of another length": lambda arrays: arrays.update(
            {"2.edges": arrays["2.edges"][:-1]}
        ),
        "store without a codec array": lambda arrays: arrays.pop("2.edges"),
        "store with text as codec array": lambda arrays: arrays.update(
            {"2.edges": np.array(["x"])}
        ),
    }.items():
        changed_store(path, name, change)
    for name, change in {
        "store without rows": lambda content: content.pop("rows"),
        "store with more rows": lambda content: content.update(rows=content["rows"] + 1),
        "store with fewer codecs": lambda content: content["codecs"].pop(),
    }.items():
        changed_store(path, name, lambda arrays: None)
        content = json.loads((path / "content.json").read_text())
        change(content)
        (path.with_stem(name) / "content.json").write_text(json.dumps(content))


def write_schemas(folder: Path) -> None:
    path = folder / "good schema.schema"
    path.write_text('{"columns": [{"name": "height", "max_bins": 7}]}')
    for name, change in {
        "schema without names": lambda schema: schema["columns"][0].pop("name"),
        "schema with an unknown entry": lambda schema: schema["columns"][0].update(bins=7),
        "schema with an unknown kind": lambda schema: schema["columns"][0].update(kind="number"),
        "schema with one bin": lambda schema: schema["columns"][0].update(max_bins=1),
        "schema with a list of rules": lambda schema: schema.update(rules=["height > 1"]),
        "schema with a number as missing text": lambda schema: schema.update(missing_text=9),
    }.items():
        changed_json(path, name, change)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A good file of each kind, and others in which one thing is wrong."""
    folder = tmp_path_factory.mktemp("damaged")
    mixed_frame().to_parquet(folder / "table.parquet")
    for write in (write_models, write_checkpoints, write_fronts, write_stores, write_schemas):
        write(folder)
    return folder


def load_all(folder: Path, *flags: str) -> tuple[bool, dict[str, str | None]]:
    """Whether asserts are checked, and the error of each file, in a new Python."""
    command = [sys.executable, *flags, "-c", LOAD_ALL, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    checks_asserts, errors = json.loads(done.stdout)
    return checks_asserts, errors


def test_files_with_wrong_content_are_refused_also_under_optimization(folder):
    checks_asserts, errors = load_all(folder)
    assert checks_asserts and len(errors) == 5 + 10 + 6 + 7 + 6 + 6
    assert {name for name, error in errors.items() if error is None} == {
        f"good {kind}" for kind in ("model", "checkpoint", "front", "store", "schema")
    }
    parts = "The TabMT model 'FILE' is inconsistent ({}); the file is damaged."
    assert errors["model with a codec array of another length"] == parts.format(
        "the number of edges does not fit that of bins"
    )
    assert errors["model with centres that are no numbers"] == parts.format(
        "the array centres holds NaN"
    )
    assert errors["front without points"] == (
        "'FILE' is not a front that `tabmt pareto search` of this version wrote "
        "(there are no points)."
    )
    assert errors["checkpoint whose state lacks an entry"] == (
        "The checkpoint 'FILE' is damaged or from another version of TabMT; delete the file to "
        "start again."
    )
    assert errors["store with a codec array of another length"] == (
        "The folder 'FILE' is damaged; delete it to encode the table again."
    )
    assert errors["schema with one bin"] == (
        "The schema sets max_bins of column 'height' to 1; it must be a whole number from 2 to "
        "2147483648."
    )
    assert load_all(folder, "-O") == (False, errors)
