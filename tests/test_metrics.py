"""Each metric against someone else's correct code, or a direct quadratic one."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from scipy.stats import ks_2samp
from sklearn.neighbors import NearestNeighbors

from tabmt.config import CodecConfig
from tabmt.data.dataset import InMemory
from tabmt.data.infer import infer_schema
from tabmt.data.schema import Source
from tabmt.evaluation.metrics import coverage, fidelity, privacy, utility, validity
from tabmt.evaluation.metrics.encoder import MetricEncoder
from tabmt.evaluation.metrics.neighbours import nearest, within
from tabmt.rules.rule import Rule
from tests.tables import mixed_frame


def encoded_tables(*frames):
    tables = [pa.Table.from_pandas(frame, preserve_index=False) for frame in frames]
    encoder = MetricEncoder.fit(tables[0], infer_schema(tables[0]))
    return [encoder.encode(table, "test") for table in tables]


@pytest.fixture(scope="module")
def pair():
    return encoded_tables(mixed_frame(300, seed=0), mixed_frame(200, seed=1))


def test_the_encoder_tells_numbers_from_categories_and_leaves_ids_out(pair):
    encoder = pair[0].encoder
    assert "height" in encoder.scales and "height" not in encoder.categories
    assert "group" in encoder.categories and "group" not in encoder.scales
    assert list(encoder.left_out) == ["id"] and "id" not in encoder.names


def test_column_distances_are_those_of_scipy_and_of_pandas(pair):
    one, two = mixed_frame(300, seed=0), mixed_frame(200, seed=1)
    distances = fidelity.column_distances(*pair)
    for name in ("height", "weight"):
        expected = ks_2samp(one[name].dropna(), two[name].dropna()).statistic
        assert distances[name] == pytest.approx(expected)
    for name in ("group", "city", "member"):
        words = [f[name].astype(object).fillna("(missing)") for f in (one, two)]
        shares = [w.value_counts(normalize=True) for w in words]
        expected = shares[0].sub(shares[1], fill_value=0).abs().sum() / 2
        assert distances[name] == pytest.approx(expected)


def test_column_distances_are_those_of_sdmetrics(pair):
    single = pytest.importorskip("sdmetrics.single_column", reason="sdmetrics is not installed")
    one, two = mixed_frame(300, seed=0), mixed_frame(200, seed=1)
    distances = fidelity.column_distances(*pair)
    ks = single.KSComplement.compute(one["height"], two["height"])
    tv = single.TVComplement.compute(one["group"].astype(str), two["group"].astype(str))
    assert distances["height"] == pytest.approx(1 - ks)
    assert distances["group"] == pytest.approx(1 - tv)


def test_correlations_are_those_of_pandas(pair):
    frame = mixed_frame(300, seed=0)
    ours, owners = fidelity.correlations(pair[0])
    columns = {}
    for index, name in enumerate(owners):
        if name in pair[0].numbers:
            columns[index] = pd.Series(pair[0].numbers[name])
        else:
            words = pair[0].encoder.categories[name]
            word = words[index - owners.index(name)]
            values = frame[name].astype(object).map(lambda v: v if pd.isna(v) else str(v))
            if name == "member":
                values = values.str.lower()
            columns[index] = (values == word).astype(float).where(values.notna())
    expected = pd.DataFrame(columns).corr().to_numpy()
    assert np.allclose(ours, expected, equal_nan=True, atol=1e-9)


def test_correlation_errors_leave_out_pairs_within_a_column(pair):
    _, owners = fidelity.correlations(pair[0])
    different = sum(a != b for i, a in enumerate(owners) for b in owners[i + 1 :])
    assert len(fidelity.correlation_errors(*pair)) == different
    assert fidelity.correlation_errors(pair[0], pair[0]).max() == 0


def test_neighbours_are_those_of_scikit_learn(rng):
    queries, reference = rng.normal(size=(300, 20)), rng.normal(size=(200, 20))
    queries[:5] = reference[:5]  # exact copies have distance exactly 0
    distances, indices = nearest(queries, reference, 3)
    expected = NearestNeighbors(n_neighbors=3).fit(reference).kneighbors(queries)
    assert np.allclose(distances, expected[0], atol=1e-7)
    assert np.array_equal(indices, expected[1])
    assert (distances[:5, 0] == 0).all()


def test_a_row_is_not_its_own_neighbour(rng):
    rows = rng.normal(size=(100, 5))
    expected = NearestNeighbors(n_neighbors=2).fit(rows).kneighbors()[0]
    assert np.allclose(nearest(rows, rows, 2, same=True)[0], expected, atol=1e-6)


def test_blocks_change_nothing(rng, monkeypatch):
    queries, reference = rng.normal(size=(50, 4)), rng.normal(size=(40, 4))
    whole = nearest(queries, reference, 2)
    monkeypatch.setattr("tabmt.evaluation.metrics.neighbours.BLOCK_BYTES", 40 * 4 * 7)
    parts = nearest(queries, reference, 2)
    assert np.allclose(whole[0], parts[0]) and np.array_equal(whole[1], parts[1])


def test_precision_and_recall_are_those_of_a_direct_implementation(rng):
    real, synthetic = rng.normal(size=(120, 6)), rng.normal(size=(120, 6)) * 1.3 + 0.2

    def direct(centres, points, k=3):
        own = np.sort(np.linalg.norm(centres[:, None] - centres[None], axis=2), axis=1)[:, k]
        between = np.linalg.norm(points[:, None] - centres[None], axis=2)
        return (between <= own[None]).any(1).mean()

    precision, recall = coverage.precision_recall(real, synthetic)
    assert precision == pytest.approx(direct(real, synthetic))
    assert recall == pytest.approx(direct(synthetic, real))
    assert within(real[:1], real[:1], np.array([0.0])).all()


def test_dcr_is_the_median_of_scikit_learns_distances(pair):
    train, rows = pair
    found = privacy.closeness(rows, train)
    expected = NearestNeighbors(n_neighbors=2).fit(train.matrix).kneighbors(rows.matrix)[0]
    assert found.median == pytest.approx(np.median(expected[:, 0]), abs=1e-6)
    assert found.fifth_percentile == pytest.approx(np.quantile(expected[:, 0], 0.05), abs=1e-6)
    assert found.ratio == pytest.approx(np.median(expected[:, 0] / expected[:, 1]), abs=1e-6)


def test_numbers_are_scaled_by_training_rows_and_categories_are_one_apart():
    frame = pd.DataFrame({"x": [0.5, 10.5, 5.5], "c": ["a", "b", "a"]})
    train, other = encoded_tables(frame, pd.DataFrame({"x": [10.5], "c": ["z"]}))
    away = np.linalg.norm(train.matrix[:, None] - train.matrix[None], axis=2)
    assert away[0, 2] == pytest.approx(0.5)
    assert away[1, 2] == pytest.approx(np.sqrt(0.5**2 + 1))
    # a category that training never saw differs from all of them
    assert np.linalg.norm(other.matrix[0] - train.matrix[1]) == pytest.approx(1.0)


def test_missing_values_and_dates_in_text_are_read_as_the_schema_says():
    train = pa.table({"x": ["1", "NA", "3", "4"], "d": ["2020-01-01", "2020-01-03"] * 2})
    encoder = MetricEncoder.fit(train, infer_schema(InMemory(train, Source("csv"))))
    encoded = encoder.encode(train, "test")
    assert np.isnan(encoded.numbers["x"]).tolist() == [False, True, False, False]
    assert np.diff(encoded.numbers["d"][:2]) == 2 * 86_400_000_000


def test_values_as_another_tool_writes_them_are_the_same_category():
    train = pa.table({"flag": [True, False] * 5, "code": [1, 2] * 5})
    every = CodecConfig(protect=0)
    encoder = MetricEncoder.fit(train, infer_schema(train, config=every))
    other = encoder.encode(pa.table({"flag": ["True", "False"], "code": ["1.0", "2.0"]}), "test")
    text = pa.table({"flag": ["True", "False"] * 5})
    assert (
        MetricEncoder.fit(text, infer_schema(text, config=every))
        .encode(train, "test")
        .codes["flag"]
        .tolist()
        == [0, 1] * 5
    )
    assert other.codes["flag"].tolist() == encoder.encode(train, "test").codes["flag"][:2].tolist()
    assert other.codes["code"].tolist() == encoder.encode(train, "test").codes["code"][:2].tolist()


def test_only_exact_copies_are_counted(pair):
    train, rows = pair
    assert privacy.copies(train, train) == 1.0
    assert privacy.copies(rows, train) == 0.0


def test_diversity_is_the_share_of_values_found():
    one, two = encoded_tables(
        pd.DataFrame({"x": [1.5, 2.5, 3.5, 4.5], "c": list("abab")}),
        pd.DataFrame({"x": [1.5, 2.5, 9.5, 9.5], "c": list("aaaa")}),
    )
    assert coverage.diversity(one, two) == pytest.approx((2 / 4 + 1 / 2) / 2)


def test_values_outside_the_support_are_counted():
    one, two = encoded_tables(
        pd.DataFrame({"x": [1.5, 2.5, 3.5, 4.5], "c": list("abab")}),
        pd.DataFrame({"x": [0.5, 2.5, 9.5, None], "c": ["z", "a", "a", None]}),
    )
    assert validity.outside_support(one, two) == {
        "x": pytest.approx(2 / 3),
        "c": pytest.approx(1 / 3),
    }


def test_types_that_differ_are_named():
    real = pa.table({"a": [1], "b": ["x"], "c": [1.5]})
    synthetic = pa.table({"a": [1.0], "b": pa.array(["x"], pa.large_string())})
    assert validity.type_differences(real, synthetic) == {
        "a": "double instead of int64",
        "c": "not in the table",
    }


def test_rule_violations_are_counted_by_share():
    table = pa.table({"a": [1, 2, 3, 4], "b": [2, 2, 2, None], "c": list("xyxy")})
    schema = infer_schema(table)
    assert validity.rule_violation_share(Rule.parse("r", "b >= a"), table, schema, table) == 0.25
    assert validity.rule_violation_share(Rule.parse("r", "c == 'x'"), table, schema, table) == 0.5


def test_metrics_of_missing_values_see_rates_and_correlations():
    rng = np.random.default_rng(0)
    missing = rng.random(500) < 0.3
    together = pd.DataFrame({"x": np.where(missing, np.nan, rng.random(500)),
                             "y": np.where(missing, np.nan, rng.random(500))})  # fmt: skip
    apart = together.assign(y=together["y"].sample(frac=1, random_state=0).to_numpy())
    one, two = encoded_tables(together, apart)
    assert fidelity.missing_rate_error(one, two) == 0
    assert fidelity.missing_correlation_error(one, one) == 0
    assert fidelity.missing_correlation_error(one, two) > 0.8


def test_a_table_covers_itself_also_where_rows_repeat():
    frame = pd.DataFrame({name: list("abcab" * 40) for name in "xyz"}).sample(
        frac=1, random_state=0
    )
    (encoded,) = encoded_tables(
        frame.assign(z=frame["z"].sample(frac=1, random_state=1).to_numpy())
    )
    assert coverage.precision_recall(encoded.matrix, encoded.matrix) == (1.0, 1.0)


def test_numbers_in_a_csv_file_are_numbers_to_a_rule():
    table = pa.table({"k": ["0", "1", "2", "9"] * 10})
    schema = infer_schema(InMemory(table, Source("csv")))
    assert schema.columns[0].kind == "categorical"
    assert (
        validity.rule_violation_share(Rule.parse("r", "k in [0, 1, 2]"), table, schema, table)
        == 0.25
    )


@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
def test_times_are_the_same_in_every_unit(unit):
    seconds = pa.array([0, 5, 9] * 4, pa.int64())
    real = pa.table({"t": seconds.cast(pa.timestamp("s")), "d": seconds.cast(pa.duration("s"))})
    synthetic = real.cast(pa.schema([("t", pa.timestamp(unit)), ("d", pa.duration(unit))]))
    encoder = MetricEncoder.fit(real, infer_schema(real))
    distances = fidelity.column_distances(
        encoder.encode(real, "real"), encoder.encode(synthetic, "synthetic")
    )
    assert distances == {"t": 0.0, "d": 0.0}


def test_the_detector_does_not_recognise_real_rows_by_values_that_the_training_rows_lack():
    rng = np.random.default_rng(0)
    titles = [f"title {min(number, 499)}" for number in rng.integers(0, 1000, 1600)]
    frame = pd.DataFrame({"title": titles, "pay": rng.normal(size=1600)})
    train, test = encoded_tables(frame[:800], frame[800:])
    assert len(set(test.frame()["title"]) - set(train.frame()["title"])) > 100
    assert fidelity.mean_detector_auc(test, train, np.random.default_rng(0)) < 0.54


def test_the_detector_of_a_small_table_is_averaged_over_random_splits(pair, monkeypatch):
    monkeypatch.setattr(fidelity, "DETECTOR_ROWS", 600)  # of 200 rows: three splits
    rng = np.random.default_rng(0)
    single = [fidelity.detector_auc(*pair, rng) for _ in range(3)]
    assert len(set(single)) == 3
    mean = fidelity.mean_detector_auc(*pair, np.random.default_rng(0))
    assert mean == pytest.approx(np.mean(single))
    monkeypatch.setattr(fidelity, "DETECTOR_ROWS", 200)
    assert fidelity.mean_detector_auc(*pair, np.random.default_rng(0)) == single[0]


def test_the_papers_samples_of_a_sorted_table_are_random_and_have_no_row_twice():
    (table,) = encoded_tables(mixed_frame(300).sort_values("height", ignore_index=True))
    samples = utility.split_into_samples(table, 5, 60, np.random.default_rng(0))
    heights = [sample.numbers["height"] for sample in samples]
    assert sorted(np.concatenate(heights)) == sorted(table.numbers["height"])
    assert np.ptp([values.mean() for values in heights]) < 5  # by position it would be 30
