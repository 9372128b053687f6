"""Commands take a folder of CSV files, or a pattern, wherever they take a table."""

import json
from pathlib import Path

import pandas as pd
import pytest

from tabmt import Front, TabMT
from tests.tables import mixed_frame
from tests.test_cli import FIT, run

WAYS = ("table.csv", "parts", "parts/*.csv")  # one file, and the same rows in two


def write_table(folder: Path, frame: pd.DataFrame) -> None:
    """A table as one file and, in a folder, as two."""
    (folder / "parts").mkdir(parents=True)
    half = len(frame) // 2
    frame.to_csv(folder / "table.csv", index=False)
    frame[:half].to_csv(folder / "parts" / "1.csv", index=False)
    frame[half:].to_csv(folder / "parts" / "2.csv", index=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Three tables in these forms, and a model of the first."""
    folder = tmp_path_factory.mktemp("files")
    for seed, (name, rows) in enumerate({"train": 200, "valid": 60, "few": 16}.items()):
        write_table(folder / name, mixed_frame(rows, seed=seed))
    (folder / "catboost.json").write_text('{"iterations": 5}')
    succeeds("fit", folder / "train" / "parts", "-o", folder / "m.tabmt", *FIT)
    return folder


def succeeds(*arguments) -> None:
    result = run(*arguments)
    assert result.exit_code == 0, result.output


def test_impute_score_and_embed_give_the_same_for_one_file_a_folder_and_a_pattern(folder, tmp_path):
    for command in ("impute", "score", "embed"):
        outputs = []
        for number, way in enumerate(WAYS):
            output = tmp_path / f"{command}{number}.csv"
            succeeds(command, folder / "m.tabmt", folder / "train" / way, "-o", output)
            outputs.append(output.read_text())
        assert len(pd.read_csv(output)) == 200
        assert outputs[0] == outputs[1] == outputs[2]


def test_evaluate_gives_the_same_for_one_file_a_folder_and_a_pattern(folder, tmp_path):
    output = tmp_path / "scores.json"
    evaluations = []
    for way in WAYS:
        succeeds("evaluate", folder / "few" / way, "--train", folder / "train" / way,
                 "--test", folder / "valid" / way, "--json", output)  # fmt: skip
        (evaluation,) = json.loads(output.read_text())
        path = folder / "few" / way
        assert evaluation.pop("name") == (path.name if path.exists() else str(path))
        evaluations.append(evaluation)
    assert evaluations[0]["rows"] == {"synthetic": 16, "train": 200, "valid": 200, "test": 60}
    assert evaluations[0] == evaluations[1] == evaluations[2]


def test_a_pareto_search_gives_the_same_for_one_file_a_folder_and_a_pattern(folder, tmp_path):
    fronts = []
    for number, way in enumerate(WAYS):
        output = tmp_path / f"front{number}.json"
        succeeds("pareto", "search", folder / "m.tabmt", "--train", folder / "train" / way,
                 "--valid", folder / "valid" / way, "--test", folder / "few" / way,
                 "--target", "group", "--catboost", folder / "catboost.json", "--trials", 1,
                 "--rows", 50, "--final-rows", 50, "--workers", 1, "-o", output)  # fmt: skip
        front = Front.load(output)
        fronts.append((front.points, front.uniform, front.real, front.search["tables"]))
    assert fronts[0] == fronts[1] == fronts[2]


@pytest.mark.parametrize("way", WAYS[1:])
def test_tune_takes_a_folder_and_a_pattern(folder, tmp_path, way):
    succeeds("tune", folder / "train" / way, "--valid", folder / "valid" / way, "--trials", 1,
             "--minutes", 0.005, "--workers", 1, "-o", tmp_path / "m.tabmt")  # fmt: skip
    model = TabMT.load(tmp_path / "m.tabmt")
    assert model.card_.rows == 200
    assert model.schema_.names == list(mixed_frame().columns)
