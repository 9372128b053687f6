"""The search of settings on a small real table."""

import json
import tomllib

import numpy as np
import optuna
import pandas as pd
import pytest
from click.testing import CliRunner

from tabmt import TabMT, UserError, penguins, tune
from tabmt.cli import main
from tabmt.data.dataset import Dataset
from tabmt.data.infer import infer_schema
from tabmt.data.overrides import as_overrides
from tabmt.data.typed_columns import in_schema_types
from tabmt.search.charts import importance_picture
from tabmt.search.trial_storage import StudyLocation, completed_trials
from tabmt.search.tune import SPACES, Trial, Tuned, better_trial, importances
from tabmt.seeds import numpy_stream

FIXED = {"calibrate_missing": False}  # it would take most of the time
QUICK = {
    "minutes": 0.01, "workers": 1, "catboost_settings": {"iterations": 20}, "fixed": FIXED,
}  # fmt: skip


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    return pd.read_csv(penguins()).sample(frac=1, random_state=0)


@pytest.mark.parametrize("objective", ["mle", "likelihood"])
def test_the_best_trial_is_found_and_compared_with_the_defaults(table, tmp_path, objective):
    storage = str(tmp_path / "trials.journal")
    found = tune(table, "species", trials=4, objective=objective, storage=storage, **QUICK)
    trials = completed_trials(StudyLocation(storage, "tune", ("maximize",)).open())
    scores = [trial.value for trial in trials]
    assert found.found.score == max([found.default.score, *scores])
    assert found.default.settings == {"minutes": 0.01, "target": "species", **FIXED}
    chosen = {} if found.found.score == found.default.score else trials[np.argmax(scores)].params
    assert found.found.settings == {**found.default.settings, **chosen}
    lost = found.found.score_again <= found.default.score_again
    assert found.best == (found.default if lost else found.found)
    assert found.best.score_again is not None and found.default.score_again is not None
    assert found.tried == 4 and len(trials) + found.pruned == 3
    assert not scores or set(trials[0].params) == set(SPACES["small"])


def test_tuning_continues_with_the_trials_in_the_storage(table, tmp_path):
    storage = f"sqlite:///{tmp_path}/trials.db"
    options = {"objective": "likelihood", "storage": storage, **QUICK}
    one = tune(table, "species", trials=2, **options)
    before = completed_trials(StudyLocation(storage, "tune", ("maximize",)).open())
    two = tune(table, "species", trials=3, **options)
    after = completed_trials(StudyLocation(storage, "tune", ("maximize",)).open())
    assert two.tried == 3 and two.default.score == one.default.score
    assert [t.value for t in after[: len(before)]] == [t.value for t in before]
    with pytest.raises(UserError, match="were made with tables"):
        tune(table.head(300), "species", trials=5, **options)


def test_the_best_settings_are_written_as_a_file_that_fit_accepts(table, tmp_path):
    table.dropna().to_csv(tmp_path / "table.csv", index=False)  # nothing to calibrate
    (tmp_path / "catboost.json").write_text('{"iterations": 20}')

    def tabmt(*arguments) -> str:
        done = CliRunner().invoke(main, list(map(str, arguments)))
        assert done.exit_code == 0, done.output
        return done.output

    output = tabmt("tune", tmp_path / "table.csv", "--target", "species", "--trials", 3,
                   "--minutes", 0.01, "--workers", 1, "--catboost", tmp_path / "catboost.json",
                   "-o", tmp_path / "model.tabmt")  # fmt: skip
    settings = tomllib.loads((tmp_path / "model.toml").read_text())
    assert settings["minutes"] == 0.01 and "# mle on validation rows:" in output
    stored = TabMT.load(tmp_path / "model.tabmt").card_.settings.to_json()
    assert {name: stored[name] for name in settings} == settings
    assert settings["target"] == "species"

    tabmt("fit", tmp_path / "table.csv", "-o", tmp_path / "b.tabmt", "--config",
          tmp_path / "model.toml", "--width", 32, "--heads", 2)  # fmt: skip
    again = TabMT.load(tmp_path / "b.tabmt").card_.settings.to_json()
    assert again["width"] == 32 and again["heads"] == 2
    assert again["target"] == "species" and again["minutes"] == 0.01


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "widht = 3",
            "has 'widht', which is not a setting; the settings are: missing, quantizer, max_bins,",
        ),
        ("width = ", "is not valid TOML"),
        ('width = "wide"', "width is 'wide', but must be a whole number."),
        (None, "There is no settings file"),
    ],
)
def test_a_bad_configuration_is_refused(table, tmp_path, text, sentence):
    table.to_csv(tmp_path / "table.csv", index=False)
    if text is not None:
        (tmp_path / "c.toml").write_text(text)
    done = CliRunner().invoke(
        main,
        ["fit", str(tmp_path / "table.csv"), "-o", str(tmp_path / "m.tabmt"), "--config",
         str(tmp_path / "c.toml")],
    )  # fmt: skip
    assert done.exit_code == 2 and sentence in done.output
    assert not (tmp_path / "m.tabmt").exists()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"objective": "mle"}, "The objective mle needs a target: the column that is predicted."),
        ({"space": "gpu"}, "space is 'gpu', but must be one of: small, paper."),
        ({"trials": 0}, "trials is 0, but must be a whole number of at least 1."),
        ({"fixed": {"width": 0}}, "width is 0, but must be at least 1."),
        (
            {"fixed": {"wdith": 3}},
            "'wdith' is not a setting; the settings are: average_steps, batch_size",
        ),
        (
            {"target": "speceis"},
            "There is no column 'speceis' to predict; the columns are: species",
        ),
    ],
)
def test_a_search_with_invalid_options_is_refused(table, options, sentence):
    with pytest.raises(UserError) as error:
        tune(table, **options)
    assert str(error.value).startswith(sentence)


def test_a_schema_is_used_in_every_trial_and_another_one_is_another_search(table, tmp_path):
    table.to_csv(tmp_path / "table.csv", index=False)
    schema = infer_schema(tmp_path / "table.csv").to_json()  # as `tabmt schema` writes it
    (tmp_path / "schema.json").write_text(json.dumps(schema))
    options = {"objective": "likelihood", "storage": str(tmp_path / "trials.journal"), **QUICK}
    source = tmp_path / "table.csv"
    one = tune(source, "species", schema=tmp_path / "schema.json", trials=2, **options)
    assert one.tried == 2
    schema["columns"][-1]["max_bins"] = 7
    with pytest.raises(UserError, match="were made with schema"):
        tune(source, "species", schema=schema, trials=2, **options)


def test_kinds_are_those_of_the_whole_table(table, tmp_path):
    """Four fifths of it may be different: a number of each row, one odd cell, a missing value."""
    odd = table.assign(
        nr=range(1, len(table) + 1),
        whole=["2.5", *map(str, range(len(table) - 1))],
        missing=[None, *range(len(table) - 1)],
        word=["NA", *["yes", "no"] * len(table)][: len(table)],
    )
    odd.to_csv(tmp_path / "table.csv", index=False)
    whole = infer_schema(tmp_path / "table.csv", overrides={"missing_text": "NA"})
    kinds = {column.name: column for column in whole.columns}
    assert kinds["nr"].kind == "id" and kinds["whole"].decimals == 1
    rows = in_schema_types(Dataset.open(tmp_path / "table.csv").to_table(), whole)
    part = infer_schema(rows[20:], overrides=as_overrides(whole))
    about = [(one.name, one.kind, one.decimals) for one in part.columns]
    assert about == [(one.name, one.kind, one.decimals) for one in whole.columns]
    assert (part.columns[-1].missing_text, whole.columns[-1].missing) == ("NA", "learned")

    def validation_rows(seed: int) -> np.ndarray:
        return numpy_stream(seed, "validation rows").permutation(len(odd))[: len(odd) // 5]

    seed = next(seed for seed in range(99) if 0 in validation_rows(seed))
    options = {**QUICK, "objective": "likelihood", "trials": 1, "seed": seed}
    schema = {"missing_text": "NA"}
    assert tune(tmp_path / "table.csv", "species", schema=schema, **options).tried == 1


@pytest.mark.parametrize("ending", ["csv", "toml", "svg", "trials", "PARQUET"])
def test_a_model_does_not_replace_a_file_of_another_kind(table, tmp_path, ending):
    table.to_csv(tmp_path / "table.csv", index=False)
    for command in ("fit", "tune"):
        output = tmp_path / f"table.{ending}"
        done = CliRunner().invoke(main, [command, str(tmp_path / "table.csv"), "-o", str(output)])
        assert done.exit_code == 2 and "should be named NAME.tabmt." in done.output
    assert pd.read_csv(tmp_path / "table.csv").equals(table.reset_index(drop=True))


def test_any_setting_can_be_read_from_the_toml_that_is_written():
    best = Trial({"target": 'größe 😀 "q" \\'}, 0.5, None)
    tuned = Tuned("mle", best, best, best, 1, 0, {}, {})
    assert tomllib.loads(tuned.to_toml()) == best.settings


@pytest.mark.parametrize(
    ("score_again", "chosen"), [(0.61, "found"), (0.6, "default"), (None, "default")]
)
def test_settings_that_win_with_one_seed_only_are_not_chosen(score_again, chosen):
    default, found = Trial({}, 0.5, 0.6), Trial({"width": 32}, 0.7, score_again)
    assert better_trial(found, default) is {"found": found, "default": default}[chosen]


def test_a_seed_cannot_be_fixed(table):
    with pytest.raises(UserError, match="`seed` cannot be in `fixed`: the search fits with"):
        tune(table, "species", trials=2, fixed={"seed": 3})


def test_scores_that_hardly_differ_give_no_importances(caplog):
    space = {"width": optuna.distributions.IntDistribution(1, 9)}
    trials = [
        optuna.trial.create_trial(params={"width": n}, distributions=space, value=0.5 + n * 1e-13)
        for n in range(1, 9)
    ]
    assert importances(trials) == {}
    assert "The importance of the settings cannot be computed" in caplog.text


def test_the_papers_space_is_the_appendix():
    assert SPACES["paper"] == {
        "width": (16, 512, 16),
        "heads": [1, 2, 4, 8, 16],
        "depth": (2, 12, 2),
        "drop_path": (0, 0.25, 0.05),
        "dropout": (0, 0.5, 0.05),
        "learning_rate": (5e-5, 5e-3, "log"),
        "weight_decay": (1e-3, 3e-2, "log"),
        "steps": (10_000, 40_000, 5_000),
        "batch_size": (256, 2048, 256),
        "max_bins": (10, 200, 10),
    }


def test_a_bad_fit_is_pruned(table, tmp_path):
    """Trials are pruned by the median of those before them, on one scale for all bins."""
    storage = str(tmp_path / "trials.journal")
    fixed = {"width": 16, "depth": 1, "heads": 2, "drop_path": 0.0, "batch_size": 64, **FIXED}
    found = tune(
        table, "species", trials=14, objective="likelihood", storage=storage, fixed=fixed,
        minutes=0.015, workers=1,
    )  # fmt: skip
    assert found.pruned > 0 and np.isclose(sum(found.importances.values()), 1.0)
    assert importance_picture(found.importances).startswith("<svg")
    study = StudyLocation(storage, "tune", ("maximize",)).open()
    pruned = [trial for trial in study.trials if trial.state.name == "PRUNED"]
    assert all(trial.intermediate_values for trial in pruned)


def test_without_a_storage_nothing_is_left_behind(table, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = tune(table, "species", trials=2, **QUICK)
    assert found.tried == 2 and list(tmp_path.iterdir()) == []
