"""The same seeds give the same rows, scores and weights as when the golden values were taken.

One JSON file per case in tests/golden. Rows are compared as digests, so exactly (numbers to ten
significant digits); weights, losses and scores within TOLERANCE. Kinds of CPU differ in the last
bits of a sum, and optimizers magnify that: in float32, the weights of 60 steps differ by up to a
hundredth, and a row in a hundred. So everything here is computed in float64, which is the same
code. `UPDATE_GOLDEN=1 pytest tests/test_golden.py` takes the values anew; the CHANGELOG says why
rows changed.
"""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest
import torch

from tabmt import TabMT, between, evaluate, known, missing, one_of, pareto, penguins, tune
from tabmt.data import infer
from tabmt.model import generate
from tabmt.netflow import schema as flow_schema
from tabmt.netflow import write_fields
from tests.tables import FLOW_LINES, every_type, mixed_frame, weekly_file

GOLDEN = Path(__file__).parent / "golden"
TORCH = torch.__version__.partition("+")[0]  # other versions may draw other random numbers
TOLERANCE = 1e-6  # relative
TINY = {"width": 16, "depth": 2, "heads": 2, "batch_size": 64, "eval_every": 20, "warmup": 5,
        "threads": 1, "find_rules": False, "precision": "float32"}  # fmt: skip
LEARNED, MASKED = {"missing": "learned"}, {"missing": "masked"}


@pytest.fixture(autouse=True)
def float64():
    """In float64, kinds of CPU differ by too little to change a row."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


# --- what is compared -----------------------------------------------------------------------


def digest(*parts) -> str:
    found = hashlib.sha256()
    for part in parts:
        found.update(part if isinstance(part, bytes) else str(part).encode())
    return found.hexdigest()[:16]


def rows_of(table) -> str:
    """A table as a digest: names, types and every value."""
    if not isinstance(table, pa.Table):
        table = pa.Table.from_pandas(table, preserve_index=False)
    columns = [
        (f.name, str(f.type), [rounded(value) for value in table.column(f.name).to_pylist()])
        for f in table.schema
    ]
    return digest(repr(columns))


def rounded(value):
    """Numbers without a unit, such as the centre of a cluster, with ten significant digits."""
    return float(f"{value:.10g}") if isinstance(value, float) else value


def numbers_of(array) -> list[float]:
    """Numbers as two: their mean size, and their scalar product with fixed random weights, which
    depends on each of them and on their order."""
    numbers = np.asarray(array, dtype=np.float64).ravel()
    weights = np.random.default_rng(0).random(len(numbers))
    size = np.abs(numbers).mean() if len(numbers) else 0.0
    return [float(size), float((numbers * weights).sum() / max(size * len(numbers), 1e-12))]


def weights_of(model) -> list[list[float]]:
    """The weights of a network, whatever their names."""
    tensors = model.model_.net.state_dict().values()
    return sorted(numbers_of(tensor.cpu().numpy()) for tensor in tensors)


def check(name: str, values: dict) -> None:
    path = GOLDEN / f"{name}.json"
    if os.environ.get("UPDATE_GOLDEN"):
        content = {"torch": TORCH, "values": values}
        path.write_text(json.dumps(content, indent=1, sort_keys=True) + "\n")
    golden = json.loads(path.read_text())
    if golden["torch"] != TORCH:
        pytest.skip(f"golden values were taken with torch {golden['torch']}, this is {TORCH}")
    assert differences(json.loads(json.dumps(values)), golden["values"]) == []


def differences(found, expected, where: str = "") -> list[str]:
    """Where two nested values differ: numbers by more than TOLERANCE, anything else at all."""
    if isinstance(found, dict) and isinstance(expected, dict) and found.keys() == expected.keys():
        pairs = [(found[key], expected[key], f"{where}/{key}") for key in found]
    elif isinstance(found, list) and isinstance(expected, list) and len(found) == len(expected):
        places = (f"{where}/{index}" for index in range(len(found)))
        pairs = list(zip(found, expected, places, strict=True))
    elif isinstance(found, float) and isinstance(expected, float):
        is_close = found == pytest.approx(expected, rel=TOLERANCE, abs=TOLERANCE / 10)
        return [] if is_close else [f"{where}: {found} instead of {expected}"]
    else:
        return [] if found == expected else [f"{where}: {found} instead of {expected}"]
    return [difference for pair in pairs for difference in differences(*pair)]


def plain(scores: dict) -> dict:
    return {name: None if value is None else float(value) for name, value in scores.items()}


def test_differences_are_found_in_numbers_rows_and_keys():
    golden = {"rows": "ab", "losses": [1.0, {"x": 2.0}], "none": None}
    assert (
        differences({"rows": "ab", "losses": [1.0000001, {"x": 2.0}], "none": None}, golden) == []
    )
    other = {"rows": "ac", "losses": [1.001, {"x": 2.0}], "none": None}
    assert differences(other, golden) == [
        "/rows: ac instead of ab", "/losses/0: 1.001 instead of 1.0",
    ]  # fmt: skip
    assert differences({"rows": "ab"}, golden) != []


# --- fits and samples -----------------------------------------------------------------------


CASES = {
    "any_order": {"network": "any-order", **LEARNED},
    "any_order_masked_gaps": {"network": "any-order", **MASKED, "target": "group"},
    "masked": {"network": "masked", **LEARNED, "target": "city"},
    "masked_masked_gaps": {"network": "masked", **MASKED, "dropout": 0.1, "drop_path": 0.1},
    "paper_like": {"network": "masked", **MASKED, "smoothing": 0.0, "valid_share": 0.0},
}


@pytest.mark.parametrize("name", CASES)
def test_fit_and_sample(name, tmp_path):
    path = tmp_path / "people.csv"
    mixed_frame(600).to_csv(path, index=False)
    model = TabMT(steps=60, seed=3, **CASES[name], **TINY).fit(path)
    model.save(tmp_path / "m.tabmt")
    again = TabMT.load(tmp_path / "m.tabmt")
    summary = model.card_.summary
    check(name, {
        "weights": weights_of(model),
        "loaded": weights_of(again),
        "steps": [summary.steps, summary.best_step, summary.finish_steps, summary.stopped],
        "losses": plain({"train": summary.train_loss, "valid": summary.valid_loss}),
        "sample": rows_of(model.sample(700, seed=1)),
        "sample loaded": rows_of(again.sample(700, seed=1)),
        "centre": rows_of(model.sample(100, seed=2, decode="centre")),
        "complete": rows_of(model.sample(100, seed=3, allow_missing=False)),
        "temperature": rows_of(model.sample(100, seed=4, temperature={"height": 0.3, "city": 2})),
        "cold": rows_of(model.sample(20, seed=4, temperature=0)),
    })  # fmt: skip


def test_early_stop_finish_and_continue(tmp_path):
    frame = mixed_frame(400, seed=1)
    settings = {**TINY, "learning_rate": 4e-2, "patience": 2, "steps": 2000, "seed": 5}
    model = TabMT(**settings).fit(frame)
    summary = model.card_.summary
    assert summary.stopped == "early" and summary.finish_steps
    longer = TabMT(**{**settings, "steps": 40, "seed": 6})
    longer.fit(mixed_frame(300, seed=2).assign(visits=frame["visits"][:300]), continue_from=model)
    check("early_stop", {
        "weights": weights_of(model),
        "steps": [summary.steps, summary.best_step, summary.finish_steps],
        "sample": rows_of(model.sample(300, seed=1)),
        "continued": weights_of(longer),
    })  # fmt: skip


def test_every_type():
    model = TabMT(steps=10, **TINY).fit(every_type())
    check("every_type", {
        "weights": weights_of(model),
        "sample": rows_of(model.sample(200, seed=1)),
        "imputed": rows_of(model.impute(every_type(), seed=1)),
        "scores": numbers_of(model.log_prob(every_type(), orders=2, seed=1)),
    })  # fmt: skip


def many_values() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    word = np.minimum(rng.geometric(0.002, 4000), 1500)
    number = np.round(rng.lognormal(0, 1, 4000), 3)
    number[rng.random(4000) < 0.2] = 0.0
    gap = rng.random(4000) < 0.1
    return pd.DataFrame({
        "word": [f"w{w}" for w in word],
        "number": np.where(gap, np.nan, number),
        "near": number + rng.integers(0, 50, 4000),
        "text": np.where(gap, "NA", np.array(["yes", "no"])[word % 2]),
    })  # fmt: skip


def test_many_values_and_sampled_codes():
    schema = {"columns": [{"name": "word", "kind": "categorical"}]}
    model = TabMT(steps=30, sampled_codes=64, **TINY).fit(many_values(), schema=schema)
    check("many_values", {
        "weights": weights_of(model),
        "sample": rows_of(model.sample(5000, seed=1)),
    })  # fmt: skip


# --- prompts, rules, imputation -------------------------------------------------------------


def test_prompts():
    frame = mixed_frame(600)
    model = TabMT(steps=60, seed=3, **TINY).fit(frame)
    half = frame[["group", "height", "city"]][:50].copy()
    half.loc[::3, "height"] = np.nan
    check("prompts", {
        "value": rows_of(model.sample(200, seed=1, where={"group": "a"})),
        "range": rows_of(model.sample(200, seed=1, where={"height": between(155, 165)})),
        "several": rows_of(model.sample(200, seed=1, where={
            "height": between(150, 170.5), "weight": known(), "since": between("2020-03-01"),
            "group": one_of("a", "b"), "city": missing()})),
        "sentences": rows_of(model.sample(200, seed=1, where=[
            "height in 155..165", "visits >= 1", "city is not missing"])),
        "balance": rows_of(model.sample(300, seed=1, balance="group")),
        "shares": rows_of(model.sample(300, seed=1, balance={"group": {"a": 1, "b": 3}})),
        "complete": rows_of(complete(model, half, seed=1)),
        "like": rows_of(like(model, frame[:3], 100, keep=["group", "height"], seed=1)),
        "like some": rows_of(like(model, frame[:3], 100, keep=3, seed=1)),
    })  # fmt: skip


def complete(model, table, **options):
    return model.complete(table, **options)


def like(model, rows, count, **options):
    return model.like(rows, count, **options)


def ruled() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    start, length = rng.integers(0, 100, 800), rng.integers(1, 30, 800)
    city = rng.integers(0, 4, 800)
    return pd.DataFrame({
        "start": start,
        "end": start + length,
        "length": np.where(rng.random(800) < 0.1, None, length).astype(float),
        "city": np.array(["Oslo", "Bergen", "Paris", "Lyon"])[city],
        "country": np.array(["Norway", "Norway", "France", "France"])[city],
        "price": np.round(rng.lognormal(2, 1, 800), 2),
    })  # fmt: skip


RULES = {
    "order": "end >= start",
    "sum": "start + length == end",
    "place": "together(city, country)",
    "cheap": "if country == 'Norway' then price < 60",
}


def test_rules():
    frame = ruled()
    frame = frame[(frame["country"] != "Norway") | (frame["price"] < 60)].reset_index(drop=True)
    model = TabMT(steps=80, seed=1, **TINY).fit(frame, schema={"rules": RULES})
    gappy = frame[:200].astype(object).where(np.random.default_rng(1).random((200, 6)) > 0.3)
    gappy = gappy.astype({"start": float, "end": float, "length": float, "price": float})
    check("rules", {
        "weights": weights_of(model),
        "sample": rows_of(model.sample(500, seed=1)),
        "where": rows_of(model.sample(100, seed=1, where={"start": between(20, 40)})),
        "imputed": rows_of(model.impute(gappy, seed=1)),
        "mode": rows_of(model.impute(gappy, how="mode")),
        "complete": rows_of(complete(model, gappy[["start", "city"]].dropna(), seed=2)),
    })  # fmt: skip


def test_imputation_and_scores(tmp_path):
    frame = mixed_frame(600)
    model = TabMT(steps=60, seed=3, **TINY).fit(frame)
    gappy = mixed_frame(150, seed=4)
    gappy.loc[::4, ["height", "group"]] = None
    gappy.to_csv(tmp_path / "gappy.csv", index=False)
    several = several_imputations(model, gappy, 2, seed=1)
    scores = model.score(gappy, orders=3, seed=1)
    check("imputation", {
        "draw": rows_of(model.impute(gappy, seed=1)),
        "file": rows_of(model.impute(tmp_path / "gappy.csv", seed=1)),
        "several": [rows_of(one) for one in several],
        "mode": rows_of(model.impute(gappy, how="mode")),
        "mean": rows_of(model.impute(gappy, how="mean")),
        "one column": rows_of(model.impute(gappy, columns=["height"], seed=1)),
        "log_prob": numbers_of(model.log_prob(gappy, orders=2, seed=1)),
        "score": {name: numbers_of(scores[name]) for name in ("log_prob", "anomaly")},
        "least likely": digest(repr(scores["least_likely"].tolist())),
        "predict_proba": numbers_of(model.predict_proba(gappy, "group").to_numpy()),
        "predict_proba bins": numbers_of(model.predict_proba(gappy, "height").to_numpy()),
        "embed": numbers_of(model.embed(gappy)),
    })  # fmt: skip


def several_imputations(model, table, draws, **options):
    return model.impute_many(table, draws, **options)


# --- files, processes, searches -------------------------------------------------------------


def test_large_tables(tmp_path, monkeypatch):
    frame = mixed_frame(700)
    for ending in ("parquet", "csv"):
        (tmp_path / ending).mkdir()
        for part in range(4):
            rows = frame[part * 175 : (part + 1) * 175]
            path = tmp_path / ending / f"{part}.{ending}"
            rows.to_parquet(path, index=False) if ending == "parquet" else rows.to_csv(
                path, index=False
            )
    values = {}
    for ending in ("parquet", "csv"):
        model = TabMT(steps=20, **TINY).fit(tmp_path / ending, store=tmp_path / f"{ending}-store")
        values |= {f"{ending} weights": weights_of(model),
                   f"{ending} rows": rows_of(model.sample(200, seed=1))}  # fmt: skip
    monkeypatch.setattr(infer, "SAMPLED_ROWS", 350)
    model = TabMT(steps=20, **TINY).fit(str(tmp_path / "csv" / "*.csv"))
    values |= {"some rows weights": weights_of(model)}
    # The rounding of compiled kernels depends on the processor; their test compares the rows.
    monkeypatch.setattr(generate, "LEAST_COMPILED", 100_000)
    rows = model.sample_to(tmp_path / "rows", 40_000, seed=1, file_rows=16_384)
    assert rows == 40_000
    written = pa.concat_tables([pa.parquet.read_table(p) for p in parts(tmp_path / "rows")])
    values["folder of rows"] = rows_of(written)
    model.impute_to(tmp_path / "filled", tmp_path / "csv", seed=1)
    written = pa.concat_tables([pa.parquet.read_table(p) for p in parts(tmp_path / "filled")])
    values["imputed folder"] = rows_of(written)
    check("large_tables", values)


def parts(folder: Path) -> list[Path]:
    return sorted(folder.glob("part-*.parquet"))


def test_two_processes(tmp_path):
    mixed_frame(300).to_csv(tmp_path / "people.csv", index=False)
    start = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    program = tmp_path / "tabmt_in_float64.py"
    program.write_text(
        "import torch\ntorch.set_default_dtype(torch.float64)\nfrom tabmt.cli import main\nmain()\n"
    )
    options = ["--width", "16", "--depth", "1", "--heads", "2", "--threads", "1", "--steps", "30",
               "--no-find-rules"]  # fmt: skip
    fit = [str(program), "fit", "people.csv", "-o", "m.tabmt", *options]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run([*start, *fit], cwd=tmp_path, check=True, env=environment, capture_output=True)
    model = TabMT.load(tmp_path / "m.tabmt")
    check("two_processes", {
        "weights": weights_of(model), "sample": rows_of(model.sample(200, seed=1))
    })  # fmt: skip


def test_flows(tmp_path):
    weekly_file(tmp_path / "week.csv", *FLOW_LINES * 60)
    write_fields(tmp_path / "flows.parquet", [tmp_path / "week.csv"], valid_share=0.1)
    schema = flow_schema(rules=True)
    model = TabMT(steps=20, **TINY).fit(tmp_path / "flows.parquet", schema=schema)
    check("flows", {
        "weights": weights_of(model), "sample": rows_of(model.sample(200, seed=1))
    })  # fmt: skip


def old_name(score) -> str:
    """The name of a score when the values were taken."""
    return score.name.replace("missing_", "gap_")


def birds() -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    table = pd.read_csv(penguins()).sample(frac=1, random_state=0).reset_index(drop=True)
    return tuple(
        table[a:b].reset_index(drop=True) for a, b in ((0, 180), (180, 260), (260, len(table)))
    )


def test_evaluation_and_searches():
    train, valid, test = birds()
    quick = {"iterations": 20, "thread_count": 1}
    model = TabMT(steps=200, seed=1, learning_rate=5e-3, **TINY).fit(train)
    rows = model.sample(180, seed=1)
    found = evaluate(rows, train, test, valid=valid, target="species", catboost_settings=quick)
    front = pareto(model, train, valid, "species", test=test, trials=12, workers=1,
                   catboost_settings=quick)  # fmt: skip
    fixed = {**{k: v for k, v in TINY.items() if k not in ("depth", "batch_size", "find_rules")},
             "steps": 5}  # fmt: skip
    tuned = tune(train, "species", valid=valid, trials=2, space="paper", objective="likelihood",
                 fixed=fixed, workers=1)  # fmt: skip
    check("searches", {
        "scores": plain({old_name(score): score.value for score in found.scores}),
        "references": plain({old_name(score): score.reference for score in found.scores}),
        "columns": {name: list(pair) for name, pair in found.columns.items()},
        "front": [[p.test_privacy, p.test_quality, *p.temperatures.values()]
                  for p in (*front.points, *front.uniform)],
        "tried": [list(pair) for pair in front.tried],
        "tuned": [tuned.default.score, tuned.found.score, tuned.best.settings],
    })  # fmt: skip


# --- schemas --------------------------------------------------------------------------------


def test_schemas(tmp_path):
    mixed_frame().to_csv(tmp_path / "people.csv", index=False)
    odd = pd.DataFrame({
        "code": ["00123", "00124"] * 20,
        "date": ["31.12.2020", "01.02.2021"] * 20,
        "price": ["1.50", "NA"] * 20,
        "same": ["x"] * 40,
        "key": [f"k{i:04}" for i in range(40)],
        "grade": ["NA", "A"] * 20,
        "text": [f"word {i % 30}" for i in range(40)],
    })  # fmt: skip
    odd.to_csv(tmp_path / "odd.csv", index=False)
    many_values().to_csv(tmp_path / "many.csv", index=False)
    values = {}
    for path in ("people.csv", "odd.csv", "many.csv", penguins()):
        values[Path(path).name] = entries(schema_of(tmp_path / path))
    every_type().to_pandas().to_parquet(tmp_path / "types.parquet")
    values["types.parquet"] = entries(schema_of(tmp_path / "types.parquet"))
    check("schemas", values)


def schema_of(path):
    run = subprocess.run([Path(sys.executable).parent / "tabmt", "schema", path],
                         capture_output=True, text=True, check=True)  # fmt: skip
    return json.loads(run.stdout)


RENAMED = {"missing": "gaps", "missing_text": "gap_text"}  # since the values were taken


def entries(schema) -> list[str]:
    """What a schema says of each column, but for the reasons, which are prose."""
    return [
        json.dumps(
            {RENAMED.get(k, k): v for k, v in column.items() if k != "reason"}, sort_keys=True
        )
        for column in schema["columns"]
    ]
