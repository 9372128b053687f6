"""The commands that use a model, with files: conditions, prompts, imputation, scores."""

import io

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from tabmt import TabMT
from tabmt.cli.main import main
from tests.tables import mixed_frame
from tests.test_cli import FIT, fails_with, run


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A CSV file, the same as Parquet, and a model of it."""
    folder = tmp_path_factory.mktemp("people")
    mixed_frame(400).to_csv(folder / "people.csv", index=False)
    mixed_frame(400).to_parquet(folder / "people.parquet")
    result = run("fit", folder / "people.csv", "-o", folder / "m.tabmt", *FIT, "--max-bins", 12)
    assert result.exit_code == 0, result.output
    return folder


def generated(folder, command, *options):
    result = run(command, folder / "m.tabmt", "--seed", 1, *options)
    assert result.exit_code == 0, result.output
    return pd.read_csv(io.StringIO(result.stdout))


def test_rows_satisfy_the_conditions(folder):
    rows = generated(
        folder,
        "sample",
        *("-n", 60, "--where", "height in 150..160", "--where", "group in {a, b}"),
        *("--where", "city is missing", "--where", "visits >= 1", "--where", "visits < 3"),
    )
    assert len(rows) == 60
    assert rows["height"].between(150, 160).all() and rows["city"].isna().all()
    assert set(rows["group"]) == {"a", "b"} and set(rows["visits"]) <= {1, 2}


def test_a_text_that_means_missing_does_so_in_every_command(tmp_path):
    """Text and numbers in which NA is no value: drawn as NA, selected as missing, imputed."""
    frame = mixed_frame(400)
    frame["group"] = frame["group"].astype(object)
    frame.loc[::4, ["group", "height"]] = np.nan
    frame.to_csv(tmp_path / "people.csv", index=False, na_rep="NA")
    (tmp_path / "schema.json").write_text(
        '{"missing_text": "NA", "rules": {"g": "group != \'a\'"}}'
    )
    options = ("--schema", tmp_path / "schema.json", *FIT)
    result = run("fit", tmp_path / "people.csv", "-o", tmp_path / "m.tabmt", *options)
    assert result.exit_code == 0, result.output
    text = run("sample", tmp_path / "m.tabmt", "-n", 400, "--seed", 1).stdout
    rows = pd.read_csv(io.StringIO(text), keep_default_na=False)
    assert set(rows["group"]) == {"b", "c", "NA"}
    for name in ("group", "height"):
        assert 0.1 < (rows[name] == "NA").mean() < 0.4
    selected = generated(tmp_path, "sample", "-n", 20, "--where", "group is missing")
    assert selected["group"].isna().all()
    known = generated(tmp_path, "sample", "-n", 20, "--where", "group is not missing")
    assert known["group"].notna().all()
    fails_with(
        "The condition on column 'group' asks for 'NA', which stands for a missing value there; "
        "use missing() alone, or `is missing` on the command line.",
        *("sample", tmp_path / "m.tabmt", "-n", 5, "--where", "group = NA"),
    )
    result = run("impute", tmp_path / "m.tabmt", tmp_path / "people.csv", "-o", tmp_path / "f.csv")
    assert result.exit_code == 0, result.output
    assert pd.read_csv(tmp_path / "f.csv").notna().all(axis=None)


def test_balanced_classes_have_the_requested_shares(folder):
    equal = generated(folder, "sample", "-n", 30, "--balance", "group")
    assert equal["group"].value_counts().tolist() == [10, 10, 10]
    unequal = generated(folder, "sample", "-n", 40, "--balance", "group:a=1,b=3")
    assert unequal["group"].value_counts().to_dict() == {"b": 30, "a": 10}


def test_prompts_are_completed_and_rows_are_generated_like_those_of_a_file(folder, tmp_path):
    prompts = mixed_frame(400)[["group", "height", "city"]].head(20)
    prompts.loc[3, "height"] = np.nan
    prompts.to_csv(tmp_path / "prompts.csv", index=False)
    rows = generated(folder, "complete", tmp_path / "prompts.csv")
    given = prompts["height"].notna()
    assert rows["height"][given].tolist() == prompts["height"][given].tolist()
    assert rows["group"].tolist() == prompts["group"].tolist() and rows["height"].notna().all()
    like = generated(folder, "like", tmp_path / "prompts.csv", "--keep", "group", "-n", 50)
    assert like["group"].tolist() == [prompts["group"][i % 20] for i in range(50)]


def test_impute_changes_no_character_of_the_known_cells_of_a_csv_file(folder, tmp_path):
    text = (folder / "people.csv").read_text().splitlines()
    out = tmp_path / "out.csv"
    result = run("impute", folder / "m.tabmt", folder / "people.csv", "-o", out)
    assert result.exit_code == 0, result.output
    imputed = out.read_text().splitlines()
    assert len(imputed) == len(text)
    for before, after in zip(text, imputed, strict=True):
        for one, other in zip(before.split(","), after.split(","), strict=True):
            assert one in ("", other) and other != ""


def test_impute_writes_other_formats_and_several_draws(folder, tmp_path):
    out = tmp_path / "out.parquet"
    assert run("impute", folder / "m.tabmt", folder / "people.csv", "-o", out).exit_code == 0
    assert pd.read_parquet(out)["weight"].dtype == "float64"
    out = tmp_path / "many.csv"
    result = run("impute", folder / "m.tabmt", folder / "people.csv", "-o", out, "--draws", 2)
    assert result.exit_code == 0, result.output
    one, two = (pd.read_csv(tmp_path / f"many.{i}.csv") for i in (1, 2))
    known = mixed_frame(400)["weight"].notna()
    assert one["weight"][known].equals(two["weight"][known])
    assert not one["weight"].equals(two["weight"])


def test_impute_fills_only_the_columns_that_are_named(folder, tmp_path):
    out = tmp_path / "out.csv"
    run("impute", folder / "m.tabmt", folder / "people.csv", "-o", out, "--column", "weight")
    rows = pd.read_csv(out)
    assert rows["weight"].notna().all()
    assert rows["city"].isna().equals(mixed_frame(400)["city"].isna())


def test_score_in_batches_gives_the_scores_of_the_library(folder, tmp_path):
    result = run("score", folder / "m.tabmt", folder / "people.csv", "-o", tmp_path / "s.parquet")
    assert result.exit_code == 0, result.output
    scores = pd.read_parquet(tmp_path / "s.parquet")
    ours = TabMT.load(folder / "m.tabmt").score(str(folder / "people.csv"), output="pandas")
    pd.testing.assert_frame_equal(scores, ours)
    assert run("score", folder / "m.tabmt", folder / "people.csv").stdout.startswith("log_prob,")


@pytest.mark.parametrize("command", ["embed", "score", "impute"])
def test_a_wrong_table_leaves_standard_output_empty(command, tmp_path):
    mixed_frame().to_csv(tmp_path / "people.csv", index=False)
    pd.DataFrame({"x": [1], "y": ["a"]}).to_csv(tmp_path / "other.csv", index=False)
    model = str(tmp_path / "m.tabmt")
    TabMT(steps=2, threads=1, width=16).fit(tmp_path / "people.csv").save(model)
    done = CliRunner().invoke(main, [command, model, str(tmp_path / "other.csv")])
    assert done.exit_code == 2 and done.stdout == ""
    assert "The table has no column 'id'" in done.stderr


def test_mistakes_give_one_sentence_and_leave_nothing_behind(folder, tmp_path):
    model, people = folder / "m.tabmt", folder / "people.csv"
    fails_with("Missing option '--rows' / '-n'.", "sample", model)
    fails_with("Missing option '--keep'.", "like", model, people)
    fails_with(
        "The condition on column 'group' asks for 'd', which is not a value of this model "
        "(unknown, or too rare to be stored). Its values are: 'a', 'b', 'c'.",
        *("sample", model, "-n", 3, "--seed", 1, "--where", "group = d"),
    )
    fails_with(
        "The share 'b=x' of --balance is not of the form VALUE=NUMBER.",
        *("sample", model, "-n", 3, "--balance", "group:a=1,b=x"),
    )
    fails_with(
        "--draws needs --how draw; mean gives the same table every time.",
        *("impute", model, people, "-o", tmp_path / "o.csv", "--draws", 2, "--how", "mean"),
    )
    fails_with(
        "There is no file 'nowhere.csv'.", "impute", model, "nowhere.csv", "-o", tmp_path / "o.csv"
    )
    (tmp_path / "odd.csv").write_text("id,group\n1,z\n")
    fails_with(
        "The table has no column 'height', which the model was fitted with; it has: id, group.",
        *("impute", model, tmp_path / "odd.csv", "-o", tmp_path / "o.csv"),
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["odd.csv"]


@pytest.mark.parametrize("suffix", ["csv", "parquet", "arrow", "tsv"])
def test_embed_writes_the_embedding_of_each_row_in_every_format(folder, tmp_path, suffix):
    out = tmp_path / f"e.{suffix}"
    result = run("embed", folder / "m.tabmt", folder / "people.parquet", "-o", out)
    assert result.exit_code == 0, result.output
    vectors = TabMT.load(folder / "m.tabmt").embed(mixed_frame(400))
    read = {"parquet": pd.read_parquet, "arrow": pd.read_feather}.get(
        suffix, lambda path: pd.read_csv(path, sep="\t" if suffix == "tsv" else ",")
    )
    written = read(out)
    assert list(written) == [f"embedding_{i}" for i in range(16)]
    assert np.array_equal(written.to_numpy(np.float32), vectors)
    assert "wrote" in result.stderr


def test_embeddings_go_to_standard_output_and_do_not_depend_on_the_batch_size(
    folder, tmp_path, monkeypatch
):
    result = run("-q", "embed", folder / "m.tabmt", folder / "people.csv")
    assert result.exit_code == 0, result.output
    whole = pd.read_csv(io.StringIO(result.stdout)).to_numpy()
    monkeypatch.setattr("tabmt.model.generate.BATCH_ROWS", 7)
    out = tmp_path / "e.csv"
    assert run("embed", folder / "m.tabmt", folder / "people.csv", "-o", out).exit_code == 0
    assert pd.read_csv(out).to_numpy() == pytest.approx(whole, abs=1e-5)


def test_a_table_without_rows_has_only_the_names_of_its_embeddings(folder, tmp_path):
    mixed_frame(400).head(0).to_csv(tmp_path / "none.csv", index=False)
    result = run("-q", "embed", folder / "m.tabmt", tmp_path / "none.csv")
    assert result.exit_code == 0, result.output
    assert result.stdout == ",".join(f"embedding_{i}" for i in range(16)) + "\n"


def test_a_table_that_cannot_be_embedded_gets_a_sentence(folder, tmp_path):
    out = tmp_path / "out.csv"
    mixed_frame(20).drop(columns="city").to_csv(tmp_path / "less.csv", index=False)
    fails_with(
        "The table has no column 'city', which the model was fitted with; it has: id, group, "
        "height, weight, visits, member, since.",
        *("embed", folder / "m.tabmt", tmp_path / "less.csv", "-o", out),
    )
    assert not out.exists()
    fails_with(
        f"The output {str(tmp_path)!r} is a folder, but this command writes a file.",
        *("embed", folder / "m.tabmt", folder / "people.csv", "-o", tmp_path),
    )
