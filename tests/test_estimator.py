"""TabMT, the estimator: fit, sample, save and load, settings, and what is refused."""

import dataclasses
import inspect
import logging
from types import FunctionType
from typing import get_args

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import tabmt
from tabmt.config import NetworkName, SampleOptions
from tabmt.errors import Cancelled, ModelFileError, UserError
from tabmt.estimator import NotFitted, TabMT
from tabmt.method.any_order import AnyOrderState
from tabmt.model.model_card import Settings
from tests.conftest import TINY
from tests.tables import every_type, mixed_frame


def partial(rows=400):
    """30 % of y are missing, all where x is 'b'."""
    x = np.array(["a", "b"])[np.arange(rows) % 2]
    missing = (x == "b") & (np.arange(rows) % 10 < 6)
    return pd.DataFrame({"x": x, "y": np.where(missing, np.nan, np.arange(rows) % 7 + 0.5)})


@pytest.fixture(scope="module")
def learned_missing():
    return TabMT(steps=400, learning_rate=1e-2, **TINY).fit(partial())


def test_samples_have_the_columns_order_and_types_of_the_table(fitted):
    frame = mixed_frame()
    rows = fitted.sample(30, seed=0)
    assert list(rows.columns) == list(frame.columns)
    assert rows.dtypes.equals(frame.dtypes)
    assert len(rows) == 30


def test_every_arrow_type_is_fitted_and_sampled():
    table = every_type()
    rows = TabMT(steps=3, **TINY).fit(table).sample(20, seed=0)
    assert rows.schema.equals(table.schema)


def test_same_seed_same_rows(fitted):
    assert fitted.sample(600, seed=3).equals(fitted.sample(600, seed=3))
    assert not fitted.sample(600, seed=3).equals(fitted.sample(600, seed=4))


def test_without_a_seed_rows_differ_and_the_log_says_how_to_get_them_again(fitted, caplog):
    with caplog.at_level(logging.INFO):
        rows = fitted.sample(50)
    assert not rows.equals(fitted.sample(50))
    seed = int(caplog.messages[0].split()[3].rstrip(";"))
    assert fitted.sample(50, seed=seed).equals(rows)


def test_same_seed_same_model():
    one, two = (TabMT(steps=5, seed=7, **TINY).fit(mixed_frame()) for _ in range(2))
    other = TabMT(steps=5, seed=8, **TINY).fit(mixed_frame())
    assert one.sample(50, seed=0).equals(two.sample(50, seed=0))
    assert not one.sample(50, seed=0).equals(other.sample(50, seed=0))


def test_save_and_load_give_the_same_rows(fitted, tmp_path):
    fitted.save(tmp_path / "m.tabmt")
    again = TabMT.load(tmp_path / "m.tabmt")
    assert again.sample(100, seed=1).equals(fitted.sample(100, seed=1))
    assert again.schema_ == fitted.schema_
    assert again.card_ == fitted.card_
    # What was left to the table's size is loaded as it was chosen.
    chosen = {k: v for k, v in fitted.get_params().items() if v is not None}
    assert again.get_params() == again.get_params() | chosen


def test_batches_make_up_the_sample(fitted):
    whole = fitted.sample(1500, seed=5, output="arrow")
    parts = list(fitted.sample_batches(1500, seed=5))
    assert pa.concat_tables(parts).equals(whole)


def test_learned_missing_values_come_at_their_rate_and_where_they_belong(learned_missing):
    rows = learned_missing.sample(2000, seed=0)
    real = partial()
    assert abs(rows["y"].isna().mean() - real["y"].isna().mean()) < 0.06
    assert rows["y"].isna()[rows["x"] == "a"].mean() < 0.05


def test_rows_without_missing_values_can_be_asked_for(learned_missing):
    assert learned_missing.sample(2000, seed=0, allow_missing=False)["y"].notna().all()


def test_columns_without_a_stored_value_stay_missing_and_a_warning_says_why(caplog):
    table = pd.DataFrame({
        "x": range(60), "none": [None] * 60, "day": [pd.Timestamp(2020, 1, 1)] * 5 + [None] * 55,
    })  # fmt: skip
    table.loc[4, "day"] = pd.Timestamp(2020, 5, 1)
    rows = TabMT(steps=0, **TINY).fit(table).sample(10, seed=0, allow_missing=False)
    assert rows[["none", "day"]].isna().all(axis=None)
    assert [message for message in caplog.messages if message.startswith("Column")] == [
        "Column 'none' had only missing values in the training table, so its generated values are "
        "missing.",
        "Column 'day' had no value in the training table that is frequent enough to be stored, so "
        "its generated values are missing.",
    ]


def test_masked_missing_values_never_appear():
    model = TabMT(steps=50, missing="masked", **TINY).fit(partial())
    assert model.sample(1000, seed=0)["y"].notna().all()


def test_the_temperature_of_a_column_spreads_it(learned_missing):
    cold = learned_missing.sample(500, seed=0, temperature={"y": 0.0})
    hot = learned_missing.sample(500, seed=0, temperature={"y": 50.0})
    assert cold["y"].nunique(dropna=False) < hot["y"].nunique(dropna=False)


def test_centres_are_fewer_than_draws():
    frame = pd.DataFrame({"x": np.random.default_rng(0).normal(size=500)})
    model = TabMT(steps=5, max_bins=8, **TINY).fit(frame)
    assert model.sample(500, seed=0, decode="centre")["x"].nunique() <= 8
    assert model.sample(500, seed=0)["x"].nunique() > 400


def test_a_table_of_constants_needs_no_network(tmp_path):
    model = TabMT(protect=0).fit(pd.DataFrame({"a": [1, 1], "b": ["x", "x"]}))
    model.save(tmp_path / "m.tabmt")
    rows = TabMT.load(tmp_path / "m.tabmt").sample(3, seed=0)
    assert rows.to_dict("list") == {"a": [1, 1, 1], "b": ["x", "x", "x"]}


def test_no_rows_can_be_asked_for(fitted):
    rows = fitted.sample(0, seed=0)
    assert len(rows) == 0 and rows.dtypes.equals(mixed_frame().dtypes)


def test_a_file_is_fitted_by_its_path(tmp_path):
    mixed_frame().to_csv(tmp_path / "t.csv", index=False)
    rows = TabMT(steps=2, **TINY).fit(tmp_path / "t.csv").sample(5, seed=0)
    assert rows["height"].dtype == "float64" and rows["id"].tolist() == [1, 2, 3, 4, 5]


def test_training_continues_on_new_rows_of_the_same_schema():
    model = TabMT(steps=200, learning_rate=1e-2, **TINY).fit(partial())
    only_a = partial()[lambda frame: frame["x"] == "a"].reset_index(drop=True)
    more = TabMT(steps=200, learning_rate=1e-2, **TINY).fit(only_a, continue_from=model)
    assert more.schema_ == model.schema_
    assert (more.sample(300, seed=0)["x"] == "a").mean() > 0.9
    assert 0.3 < (model.sample(300, seed=0)["x"] == "a").mean() < 0.7


def test_an_interrupted_fit_resumes_to_what_an_uninterrupted_one_gives(tmp_path):
    settings = {"steps": 30, "checkpoint_every": 0.0, **TINY}
    whole = TabMT(**settings).fit(mixed_frame())
    path = tmp_path / "run.checkpoint"

    def interrupt(progress):
        if progress.step == 17:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        TabMT(**settings).fit(mixed_frame(), checkpoint=path, on_step=interrupt)
    resumed = TabMT(**settings).fit(mixed_frame(), checkpoint=path, resume=True)
    assert resumed.sample(100, seed=0).equals(whole.sample(100, seed=0))
    timed = dataclasses.asdict(resumed.card_.summary) | {"seconds": 0}
    assert timed == dataclasses.asdict(whole.card_.summary) | {"seconds": 0}

    with pytest.raises(UserError) as error:
        TabMT(**settings | {"learning_rate": 0.1}).fit(mixed_frame(), checkpoint=path, resume=True)
    assert str(error.value) == (
        f"The checkpoint {str(path)!r} belongs to a fit with learning_rate 0.002, but this fit has "
        "0.1. "
        "Resume with the same settings, or delete the file to start again."
    )
    with pytest.raises(UserError) as error:
        TabMT(**settings).fit(mixed_frame(seed=1), checkpoint=path, resume=True)
    assert "belongs to a fit of another table" in str(error.value)


def test_parameters_follow_the_estimator_contract():
    model = TabMT(minutes=2, width=32)
    assert clone(model).get_params() == model.get_params()
    assert model.set_params(depth=2).depth == 2
    assert repr(TabMT(width=32)) == "TabMT(width=32)"


def test_an_unfitted_model_says_so():
    for error in (NotFitted, NotFittedError, UserError):
        with pytest.raises(error) as caught:
            TabMT().sample(5)
    assert str(caught.value) == "This TabMT is not fitted yet; call fit(table) first."


@pytest.mark.parametrize("name", ["sample", "sample_batches", "sample_to"])
def test_every_way_to_sample_has_the_same_options(name):
    parameters = inspect.signature(getattr(TabMT, name)).parameters
    own = {
        "sample": ["self", "rows", "output"],
        "sample_batches": ["self", "rows"],
        "sample_to": ["self", "folder", "rows", "file_rows", "engine", "on_file"],
    }
    options = {field.name: field.default for field in dataclasses.fields(SampleOptions)}
    assert list(parameters) == [*own[name], *options]
    for option, default in options.items():
        assert parameters[option].kind is inspect.Parameter.KEYWORD_ONLY
        assert parameters[option].default == default
        assert f"{option}: " in inspect.getdoc(getattr(TabMT, name))
    with pytest.raises(TypeError, match="temprature"):
        getattr(TabMT(), name)(rows=5, temprature=2.0)


@pytest.mark.parametrize("name", tabmt.__all__)
def test_every_public_name_has_a_docstring_with_an_example(name):
    if name == "PAPER":
        pytest.skip("a dictionary; docs/api.md has its example")
    assert "Example:" in inspect.getdoc(getattr(tabmt, name))


METHODS = [
    name
    for name, member in vars(TabMT).items()
    if isinstance(member, FunctionType | classmethod) and not name.startswith("_")
]


@pytest.mark.parametrize("name", METHODS)
def test_every_method_has_a_docstring_with_an_example(name):
    assert "Example:" in inspect.getdoc(getattr(TabMT, name))


def test_the_methods_with_examples_are_all_methods():
    assert {"fit", "sample", "sample_batches", "like_batches", "impute_to", "load"} <= set(METHODS)


WRONG = [
    ({"width": 10, "heads": 4}, "heads is 4, but must divide the width of 10 evenly."),
    ({"steps": -1}, "steps is -1, but must be at least 0."),
    ({"dropout": 1.5}, "dropout is 1.5, but must be below 1.0."),
    ({"batch_size": 2.5}, "batch_size is 2.5, but must be a whole number."),
    ({"missing": "drop"}, "missing is 'drop', but must be one of: learned, masked."),
    ({"minutes": "2"}, "minutes is '2', but must be a number."),
    ({"seed": "x"}, "seed is 'x', but must be a whole number."),
]


@pytest.mark.parametrize(("settings", "sentence"), WRONG)
def test_wrong_settings_get_a_sentence(settings, sentence):
    with pytest.raises(UserError) as error:
        TabMT(**settings).fit(mixed_frame())
    assert str(error.value) == sentence


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"rows": -1}, "rows is -1, but must be a whole number of at least 0."),
        ({"rows": 2.5}, "rows is 2.5, but must be a whole number of at least 0."),
        (
            {"rows": 1, "temperature": {"hieght": 2}},
            "A temperature is set for column 'hieght', which does not exist; the columns are: "
            "id, group, "
            "height, weight, visits, member, since, city. Did you mean 'height'?",
        ),
        (
            {"rows": 1, "temperature": {"height": -1}},
            "The temperature of column 'height' is -1, but must be a number of at least 0 "
            "(1 is the model's own distribution).",
        ),
        ({"rows": 1, "decode": "mean"}, "decode is 'mean', but must be one of: inside, centre."),
    ],
)
def test_a_wrong_request_gets_a_sentence(fitted, arguments, sentence):
    with pytest.raises(UserError) as error:
        fitted.sample(**arguments)
    assert str(error.value) == sentence


@pytest.mark.parametrize(
    "frame",
    [
        pd.DataFrame({"😀": ["🙂", "🙃"] * 20, "": range(40)}),
        pd.DataFrame({"long": ["x" * 10_000, "y" * 10_000] * 20}),
        pd.DataFrame({"one": [1], "row": ["x"]}),
        pd.DataFrame({"nothing": [None] * 30, "x": [np.nan, *range(29)]}),
        pd.DataFrame({"inf": [np.inf, -np.inf, *np.arange(30.0)]}),
        pd.DataFrame({"big": ["12345678901234567890", "00123"] * 20}),
        pd.DataFrame({"old": pd.to_datetime(["1066-10-14", "1500-01-01"] * 20, format="ISO8601")}),
        pd.DataFrame({"a": np.arange(50.0), "b": [1.5] * 49 + [np.nan]}),
        pl.DataFrame({"x": [None, 1, 2] * 10}).to_pandas(),
    ],
    ids=lambda frame: str(list(frame.columns)),
)
def test_strange_tables_are_learned_and_keep_their_types(frame):
    rows = TabMT(steps=5, protect=0, **TINY).fit(frame).sample(60, seed=0)
    assert list(rows.columns) == list(frame.columns)
    assert rows.dtypes.equals(frame.dtypes)
    for name in frame.columns:
        if frame[name].dtype != "float64" and frame[name].nunique() < 10:
            assert set(rows[name].dropna()) <= set(frame[name].dropna())


def test_a_category_that_a_user_makes_an_id_or_a_number_is_one():
    frame = pd.DataFrame(
        {
            "who": pd.Categorical([f"person {i}" for i in range(40)]),
            "n": pd.Categorical([i % 15 for i in range(40)]),
            "same": pd.Categorical(["a"] * 40, ["a", "b"]),
        }
    )
    overrides = {"columns": [{"name": "who", "kind": "id"}, {"name": "n", "kind": "numeric"}]}
    rows = TabMT(steps=3, protect=0, **TINY).fit(frame, schema=overrides).sample(10, seed=0)
    assert (rows.dtypes.astype(str) == "category").all()
    assert not set(rows["who"]) & set(frame["who"])
    assert rows["same"].dtype == frame["same"].dtype


@pytest.mark.parametrize(
    "column", [pa.nulls(30), pa.array([f"{i}.5" for i in range(30)]).cast(pa.decimal64(5, 1))]
)
def test_a_model_of_unusual_types_is_loaded_and_sampled(column, tmp_path):
    table = pa.table({"a": [1.5, 2.5, 3.5] * 10, "b": column})
    TabMT(steps=2, **TINY).fit(table).save(tmp_path / "m.tabmt")
    assert TabMT.load(tmp_path / "m.tabmt").sample(5, seed=0).schema.equals(table.schema)


def test_a_text_for_missing_values_is_a_plain_value_in_a_text_column():
    frame = pd.DataFrame({"x": ["1", "2", "NA"] * 20})
    rows = TabMT(steps=3, **TINY).fit(frame).sample(300, seed=0)
    assert rows["x"].notna().all() and set(rows["x"]) == {"1", "2", "NA"}


def test_new_rows_may_come_in_another_type(tmp_path):
    frame = pd.DataFrame({"x": np.arange(60) % 13, "t": pd.date_range("2020", periods=60)})
    model = TabMT(steps=2, **TINY).fit(frame)
    frame.to_csv(tmp_path / "t.csv", index=False)
    for other in (tmp_path / "t.csv", frame.astype({"x": "int8", "t": "datetime64[ns]"})):
        more = TabMT(steps=2, **TINY).fit(other, continue_from=model)
        stores = [
            fitted.codec.encode(fitted.codec.parse(pa.Table.from_pandas(frame)))
            for fitted in (more.model_, model.model_)
        ]
        tokens, expected = (store[np.arange(len(store))] for store in stores)
        assert np.array_equal(tokens, expected)
    with pytest.raises(
        UserError,
        match=r"Column 'x' contains .*string, but the model was fitted on int64, to which",
    ):
        TabMT(steps=2, **TINY).fit(frame.assign(x="many"), continue_from=model)


def test_a_tiny_temperature_is_the_likeliest_code(fitted):
    cold = fitted.sample(20, seed=0, temperature=0.0)
    assert fitted.sample(20, seed=0, temperature=1e-320)["group"].equals(cold["group"])


def test_a_damaged_model_gets_a_sentence(fitted, tmp_path):
    path = tmp_path / "m.tabmt"
    fitted.save(path)
    whole = path.read_bytes()
    for name, content in {
        "cut": whole[: len(whole) // 2],
        "text": b"hello",
        "empty": b"",
    }.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ModelFileError, match="cannot be read as a TabMT model"):
            TabMT.load(tmp_path / name)
    (tmp_path / "width").write_bytes(whole.replace(b'\\"width\\": 16', b'\\"width\\": 32'))
    with pytest.raises(ModelFileError, match="its checksum is wrong"):
        TabMT.load(tmp_path / "width")
    (tmp_path / "format").write_bytes(whole.replace(b'{\\"format\\": 5', b'{\\"format\\": 9'))
    with pytest.raises(ModelFileError) as error:
        TabMT.load(tmp_path / "format")
    assert str(error.value) == (
        f"{str(tmp_path / 'format')!r} has format 9, but this version of TabMT reads format 5. "
        "Load it with the version that wrote it, or fit again."
    )


def test_a_warm_up_longer_than_training_is_refused():
    with pytest.raises(UserError) as error:
        TabMT(steps=3, warmup=5).fit(mixed_frame())
    assert str(error.value) == (
        "warmup is 5, but training has only 3 steps; set warmup to at most 3."
    )
    for allowed in ({"steps": 5}, {"steps": 0}, {"steps": 3, "minutes": 0.001}):
        model = TabMT(warmup=5, width=16, depth=1, heads=2, **allowed).fit(mixed_frame())
        assert model.card_.settings.train.warmup == 5


@pytest.mark.parametrize("network", get_args(NetworkName))
@pytest.mark.parametrize("rows", [1, 2_999, 3_000, 1_000_000])
def test_an_automatic_warm_up_is_never_longer_than_training(rows, network):
    for steps in (0, 1, 3, 19, 20, 21, 99, 100, 101, 5000):
        settings = Settings.of(TabMT(steps=steps, network=network).get_params(), rows, 8)
        assert settings.train.warmup == min(steps, 20 if rows < 3000 else 100)


def test_a_fit_of_few_steps_warms_up_for_no_more_of_them():
    model = TabMT(steps=3, width=16, depth=1, heads=2).fit(mixed_frame())
    assert model.card_.settings.train.warmup == 3
    assert model.card_.summary.steps == 3


def test_the_log_says_why_there_are_no_validation_rows(caplog):
    few = TabMT(steps=2, **TINY)
    with caplog.at_level(logging.INFO):
        clone(few).set_params(valid_share=0).fit(mixed_frame(400))
    assert "validation is off (valid_share 0): no early stopping" in caplog.messages
    assert "too few" not in caplog.text
    caplog.clear()
    with caplog.at_level(logging.INFO):
        clone(few).fit(mixed_frame(150))
    assert "15 of 150 rows are too few for validation: no early stopping" in caplog.messages
    assert "validation is off" not in caplog.text
    caplog.clear()
    with caplog.at_level(logging.INFO):
        clone(few).fit(mixed_frame(400))
    assert "no early stopping" not in caplog.text


def test_a_clip_of_zero_is_a_setting():
    model = TabMT(steps=5, clip=0, **TINY).fit(mixed_frame())
    assert model.card_.settings.train.clip == 0
    assert len(model.sample(10, seed=0)) == 10


def test_settings_are_chosen_for_the_table_and_recorded():
    few = TabMT(steps=1, width=16, heads=2).fit(mixed_frame()).card_.settings
    assert (few.train.batch_size, few.network.dropout, few.train.valid_share) == (64, 0.2, 0.1)
    many = pd.concat([mixed_frame()] * 60, ignore_index=True)
    more = TabMT(steps=1, width=16, heads=2, batch_size=64).fit(many).card_.settings
    assert (more.train.batch_size, more.network.dropout, more.train.valid_share) == (64, 0.0, 0.05)


def test_a_target_is_drawn_last(monkeypatch):
    model = TabMT(steps=2, target="group", find_rules=False, **TINY).fit(mixed_frame())
    drawn = []
    logits = AnyOrderState.logits

    def record(state, rows, column):
        drawn.append(column)
        return logits(state, rows, column)

    monkeypatch.setattr(AnyOrderState, "logits", record)
    assert len(model.sample(2000, seed=0)) == 2000
    columns = len(model.model_.codec.token_columns)
    orders = np.reshape(drawn, (-1, columns))
    assert (np.sort(orders) == np.arange(columns)).all()
    assert set(orders[:, -1]) == {model.model_.codec.token_index["group"]}
    assert len(np.unique(orders, axis=0)) > 20  # many orders, whatever the rows


@pytest.mark.parametrize(
    ("target", "sentence"),
    [
        (
            "gruop",
            "The target is 'gruop', which does not exist; the columns are: id, group, height, "
            "weight, visits, "
            "member, since, city. Did you mean 'group'?",
        ),
        (
            "id",
            "The target is 'id', but a column of kind id is not learned; name another target, or "
            "set its kind in the schema.",
        ),
        (3, "target is 3, but must be text."),
    ],
)
def test_a_target_must_be_a_column_that_is_learned(target, sentence):
    with pytest.raises(UserError) as error:
        TabMT(steps=2, target=target, **TINY).fit(mixed_frame())
    assert str(error.value) == sentence


@pytest.mark.parametrize(
    ("rows", "columns", "batch"),
    [(10_000, 12, 256), (10_000, 22, 256), (10_000, 55, 64), (10_000, 500, 32), (200_000, 8, 512),
     (2_000, 8, 64), (2_000, 500, 32)],
)  # fmt: skip
def test_wide_and_small_tables_take_more_steps_of_fewer_rows(rows, columns, batch):
    assert Settings.of(TabMT().get_params(), rows, columns).train.batch_size == batch


def test_a_continued_model_refuses_another_constant():
    table = pd.DataFrame({"x": range(40), "unit": ["kg"] * 40})
    model = TabMT(**TINY).fit(table)
    with pytest.raises(
        UserError,
        match="Column 'unit' had a single value in the training table, but has other values",
    ):
        TabMT(**TINY).fit(table.assign(unit="lb"), continue_from=model)


def test_an_id_column_of_floats_may_have_nan_for_missing_values(tmp_path):
    lines = [f"{number}.0,{number % 7}" for number in range(1, 60)]
    (tmp_path / "t.csv").write_text("\n".join(["id,x", *lines, "NaN,3"]) + "\n")
    model = TabMT(steps=2, **TINY).fit(tmp_path / "t.csv")
    assert model.schema_.columns[0].kind == "id"
    assert len(model.sample(20, seed=0)) == 20


@pytest.mark.parametrize("valid_share", [0.0, 0.2])
def test_training_that_is_stopped_keeps_what_it_has_learned(valid_share):
    taken = []
    settings = {"steps": 1000, "valid_share": valid_share, "seed": 0, **TINY}
    stopped = TabMT(**settings).fit(
        mixed_frame(), on_step=taken.append, should_stop=lambda: len(taken) == 25
    )
    summary = stopped.card_.summary
    assert (summary.stopped, summary.steps, len(taken)) == ("asked", 25, 25)
    assert (summary.valid_loss is None) == (valid_share == 0)
    untrained = TabMT(**settings).fit(mixed_frame(), should_stop=lambda: True)
    assert untrained.card_.summary.steps == 0
    rows = mixed_frame(seed=1)
    assert stopped.log_prob(rows).mean() > untrained.log_prob(rows).mean() + 0.1


def test_a_cancelled_fit_resumes(tmp_path):
    settings = {"steps": 30, "checkpoint_every": 1e6, **TINY}
    path = tmp_path / "run.checkpoint"

    def cancel(progress):
        if progress.step == 17:
            raise Cancelled

    with pytest.raises(Cancelled):
        TabMT(**settings).fit(mixed_frame(), checkpoint=path, on_step=cancel)
    steps = []
    resumed = TabMT(**settings).fit(
        mixed_frame(), checkpoint=path, resume=True, on_step=lambda p: steps.append(p.step)
    )
    assert steps[0] == 18
    whole = TabMT(**settings).fit(mixed_frame())
    assert resumed.sample(100, seed=0).equals(whole.sample(100, seed=0))


def test_a_notebook_shows_a_model_with_its_columns_escaped():
    assert TabMT(width=32)._repr_html_() == "<pre>TabMT(width=32)</pre>"
    frame = mixed_frame().rename(columns={"city": "<script>alert(1)</script>"})
    model = TabMT(steps=2, target="group", **TINY).fit(frame)
    shown = model._repr_html_()
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in shown and "<script" not in shown
    assert "fitted on 200 rows with 8 columns, seed 0" in shown and "target: group" in shown
    assert "http" not in shown and "src=" not in shown
    assert model._repr_mimebundle_()["text/html"] == shown
