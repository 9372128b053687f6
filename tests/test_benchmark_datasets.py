"""The tables of the benchmarks: the list, files of the sources, downloads, and the real tables.

A real HTTP server on this machine stands for OpenML and UCI. The real tables are in $TABMT_DATA.
"""

import hashlib
import io
import os
import subprocess
import sys
import tarfile
import threading
import zipfile
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from benchmarks import splits
from benchmarks.datasets import (
    CLEAN_TABLES,
    FACEBOOK_COLUMNS,
    PAPER_TABLES,
    TABLES,
    fetch,
    load,
    load_rows,
    load_table,
    split_rows,
)
from benchmarks.published import DCR, DCR_CTABGAN, MISSING, MLE, MLE_STASY
from benchmarks.raw_files import checksum
from tabmt import UserError
from tabmt.netflow import FIELDS
from tests.tables import FLOW_LINES, weekly_file

RECORDED = Path(__file__).parent / "recorded"
REAL = Path(os.environ.get("TABMT_DATA", Path(__file__).parents[2] / "shared" / "data"))
PUBLISHED = {  # numeric and categorical features; training, validation and test rows of TabDDPM
    "AB": (7, 1, 2672, 669, 836),
    "AD": (6, 8, 26048, 6513, 16281),
    "BU": (4, 5, 12053, 3014, 3767),
    "CA": (8, 0, 13209, 3303, 4128),
    "CAR": (5, 6, 44800, 11200, 14000),
    "CH": (7, 4, 6400, 1600, 2000),
    "DI": (8, 0, 491, 123, 154),
    "FB": (50, 1, 157638, 19722, 19720),
    "GE": (32, 0, 6318, 1580, 1975),
    "HI": (28, 0, 62751, 15688, 19610),
    "HO": (16, 0, 14581, 3646, 4557),
    "IN": (3, 3, 856, 214, 268),
    "KI": (17, 3, 13832, 3458, 4323),
    "MI": (50, 0, 83240, 20811, 26013),
    "WI": (5, 0, 3096, 775, 968),
}
PARTS = ("train", "val", "test")


def in_folder(*names: str):
    """Mark of a test that needs real tables."""
    absent = [name for name in names if not (REAL / name).exists()]
    return pytest.mark.skipif(bool(absent), reason=f"no {absent} in {REAL}; set TABMT_DATA")


def real(*names: str):
    return [pytest.param(name, marks=in_folder(f"{name}.parquet")) for name in names]


def zipped(path: Path, files: dict[str, str | bytes]) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)


# --- the list ------------------------------------------------------------------------------------


@pytest.mark.parametrize("info", PAPER_TABLES, ids=lambda info: info.code)
def test_features_and_sizes_are_those_tabddpm_publishes(info):
    assert (len(info.numeric), len(info.categorical), *info.sizes) == PUBLISHED[info.code]


@pytest.mark.parametrize("info", TABLES.values(), ids=lambda info: info.name)
def test_columns_are_named_once_and_hold_target_and_categories(info):
    assert len(set(info.columns)) == len(info.columns)
    assert set(info.categorical) <= set(info.features)
    assert (info.target in info.columns) == (info.task != "generation")
    assert info.source.startswith("https://") and info.licence
    assert all(value is None or len(value) == 64 for value in info.files.values())


def test_every_dataset_of_the_paper_has_a_table_and_its_published_figures():
    assert {info.code for info in TABLES.values()} == {*PUBLISHED, "CIDDS"}
    assert set(MLE) == set(DCR) == set(PUBLISHED)
    assert set(DCR_CTABGAN) | set(MLE_STASY) | set(MISSING) <= set(PUBLISHED)
    assert MLE["KI"]["TabMT"] == (0.876, 0.011) and "RealTabFormer" not in MLE["KI"]


def test_published_mle_agrees_between_the_tables_of_the_paper():
    for code, scores in DCR.items():
        assert scores["TabDDPM"][1] == MLE[code]["TabDDPM"][0]
    for code, scores in DCR_CTABGAN.items():
        if code != "BU":  # the paper prints two values
            assert scores["CTabGAN+"][1] == MLE[code]["CTabGAN+"][0]


def test_second_names_differ_only_by_the_dropped_columns():
    for name, dropped in (("king", ["id", "date"]), ("churn", ["EstimatedSalary_again"])):
        paper, clean = TABLES[name], TABLES[f"{name}-clean"]
        assert clean.columns == tuple(c for c in paper.columns if c not in dropped)
        assert replace(clean, name=name, columns=paper.columns, stem="") == paper
        assert CLEAN_TABLES[name] is clean
    assert CLEAN_TABLES["adult"] is TABLES["adult"]


# --- splits --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "info", [info for info in PAPER_TABLES if info.code != "FB"], ids=lambda info: info.code
)
def test_seeded_splits_have_the_published_sizes_are_disjoint_and_complete(info, tmp_path):
    rng = np.random.default_rng(0)
    rows = sum(info.sizes)
    table = pd.DataFrame({info.target: rng.integers(0, 3, rows)})
    split = split_rows(tmp_path, info, table)
    assert tuple(len(split[part]) for part in PARTS) == info.sizes
    assert sorted(np.concatenate(list(split.values()))) == list(range(rows))


def test_facebook_is_split_without_the_rows_of_the_highest_targets():
    target = pd.Series(np.random.default_rng(0).permutation(10_000))
    split = splits.facebook(target, False)
    every = np.concatenate([split[part] for part in PARTS])
    assert len(np.unique(every)) == len(every)
    assert len(split["train"]) == 7920  # 99 % of 80 %
    left_out = np.setdiff1d(np.arange(10_000), every)
    assert target[left_out].min() > target[every].max()


def test_flows_have_five_percent_validation_rows_and_no_test_rows():
    split = splits.flows(pd.Series(range(1000)), False)
    assert [len(split[part]) for part in PARTS] == [950, 50, 0]


def test_a_split_of_another_table_is_refused(tmp_path):
    info = replace(TABLES["wilt"], sizes=None)
    path = tmp_path / "wilt.split.npz"
    np.savez(path, train=[0, 1], val=[1], test=[2])
    with pytest.raises(UserError) as error:
        split_rows(tmp_path, info, pd.DataFrame({"class": [0, 1, 1]}))
    assert str(error.value) == f"{path} does not belong to wilt, which has 3 rows."


# --- files of the sources ------------------------------------------------------------------------


def test_an_arff_file_is_read_with_our_names_and_its_checksum_is_printed(tmp_path, capsys):
    text = (RECORDED / "wilt.arff").read_text()
    (tmp_path / "wilt.arff").write_text(text)
    table = load_table(tmp_path, TABLES["wilt"])
    assert tuple(table) == TABLES["wilt"].columns
    assert table["SD_Pan"].tolist()[:2] == [20.5, 16.75]
    assert table["class"].tolist() == [1, 1, 1, 2, 1, 2, 1, 2]
    assert table["Mean_R"].isna().tolist() == [False] * 5 + [True] + [False] * 2
    digest = hashlib.sha256(text.encode()).hexdigest()
    assert capsys.readouterr().err == (
        f"wilt.arff: no checksum recorded yet; its SHA-256 is {digest}\n"
    )


def test_an_arff_file_of_another_table_is_refused(tmp_path):
    (tmp_path / "house_16h.arff").write_text((RECORDED / "wilt.arff").read_text())
    with pytest.raises(UserError, match="must have the column price and 16 others, but has: GLCM"):
        load_table(tmp_path, TABLES["house_16h"])


def test_the_row_of_higgs_with_missing_values_is_left_out(tmp_path):
    info = TABLES["higgs_small"]
    lines = [f"@attribute {name} numeric" for name in info.columns]
    rows = [["1", *["0.5"] * 28], ["0", *["?"] * 9, *["0.5"] * 19], ["0", *["0.25"] * 28]]
    lines += ["@data", *(",".join(row) for row in rows)]
    (tmp_path / "higgs_small.arff").write_text("\n".join(lines))
    assert load_table(tmp_path, info)["class"].tolist() == [1, 0]


def test_openml_diabetes_has_the_columns_and_target_of_kaggle(tmp_path):
    names = ("preg", "plas", "pres", "skin", "insu", "mass", "pedi", "age")
    lines = [f"@attribute '{name}' real" for name in names]
    lines += ["@attribute 'class' { tested_negative, tested_positive}", "@data"]
    lines += ["6,148,72,35,0,33.6,0.627,50,tested_positive", "1,85,66,29,0,26.6,0.351,31,"]
    lines[-1] += "tested_negative"
    (tmp_path / "diabetes.arff").write_text("\n".join(lines))
    table = load_table(tmp_path, TABLES["diabetes"])
    assert tuple(table) == TABLES["diabetes"].columns
    assert table["Outcome"].tolist() == [1, 0] and table["Glucose"].tolist() == [148, 85]


def test_adult_is_both_files_with_missing_values_and_without_full_stops(tmp_path):
    files = {name: (RECORDED / name).read_text() for name in ("adult.data", "adult.test")}
    zipped(tmp_path / "adult.zip", files)
    table = load_table(tmp_path, TABLES["adult"])
    assert table["income"].tolist() == ["<=50K", ">50K", "<=50K", ">50K"]
    assert table["workclass"].isna().tolist() == [False, True, False, False]
    assert table["native-country"].isna().tolist() == [False, False, False, True]
    assert table["age"].tolist() == [39, 54, 25, 44]


def test_buddy_and_cardio_are_read_as_kaggle_gives_them(tmp_path):
    (tmp_path / "buddy.csv").write_text(
        "pet_id,issue_date,listing_date,condition,color_type,length(m),height(cm),X1,X2,"
        "breed_category,pet_category\n"
        "ANSL_1,2016-07-10 00:00:00,2016-09-21 16:25:00,2.0,Brown Tabby,0.8,7.78,13,9,0.0,1\n"
        "ANSL_2,2016-07-12 00:00:00,2016-09-20 16:24:00,,Black,0.5,8.5,0,1,2.0,2\n"
    )
    table = load_table(tmp_path, TABLES["buddy"])
    assert table["issue_date"].tolist() == [0, 2] and table["listing_date"].tolist() == [1, 0]
    assert table["condition"].isna().tolist() == [False, True]
    zipped(
        tmp_path / "cardio.zip",
        {
            "cardio_train.csv": "id;age;gender;height;weight;ap_hi;ap_lo;cholesterol;gluc;smoke;"
            "alco;active;cardio\n0;18393;2;168;62.0;110;80;1;1;0;0;1;0\n"
        },
    )
    table = load_table(tmp_path, TABLES["cardio"])
    assert table.iloc[0].tolist() == [18393, 2, 168, 62.0, 110, 80, 1, 1, 0, 0, 1, 0]


def test_facebook_lacks_the_two_columns_that_hardly_vary(tmp_path):
    row = ",".join(str(number) for number in range(54))
    zipped(tmp_path / "facebook.zip", {"Dataset/Training/Features_Variant_5.csv": f"{row}\n"})
    table = load_table(tmp_path, TABLES["facebook"])
    assert table.shape == (1, 52)
    # TabDDPM leaves out the columns 14 and 37 of the file.
    assert sorted(set(range(54)) - set(table.iloc[0])) == [14, 37]
    assert table["target_comments"].tolist() == [53] and len(FACEBOOK_COLUMNS) == 54


def test_california_is_scikit_learns(tmp_path, capsys):
    data = b"-122.23,37.88,41.0,880.0,129.0,322.0,126.0,8.3252,452600.0\n"
    with tarfile.open(tmp_path / "california.tgz", "w:gz") as archive:
        member = tarfile.TarInfo("CaliforniaHousing/cal_housing.data")
        member.size = len(data)
        archive.addfile(member, io.BytesIO(data))
    info = replace(TABLES["california"], files={"california.tgz": None})
    expected = [8.3252, 41, 880 / 126, 129 / 126, 322, 322 / 126, 37.88, -122.23, 4.526]
    assert load_table(tmp_path, info).iloc[0].tolist() == expected


def test_cidds_has_the_papers_fields_of_normal_internal_flows(tmp_path):
    week = weekly_file(tmp_path / "week.csv", *FLOW_LINES).read_bytes()
    inside = "CIDDS-001/traffic/OpenStack/CIDDS-001-internal-week1.csv"
    outside = "CIDDS-001/traffic/ExternalServer/CIDDS-001-external-week1.csv"
    zipped(tmp_path / "cidds.zip", {inside: week, outside: week})
    table = load_table(tmp_path, TABLES["cidds"])
    assert tuple(table) == FIELDS
    normal = [line for line in FLOW_LINES if "normal" in line]
    assert 0 < len(table) == len(normal) < len(FLOW_LINES)


def test_a_file_with_another_checksum_is_refused(tmp_path):
    path = tmp_path / "king.parquet"
    path.write_bytes(b"another")
    expected = TABLES["king"].files["king.parquet"]
    with pytest.raises(UserError) as error:
        load_table(tmp_path, TABLES["king"])
    assert str(error.value) == (
        f"{path} has the SHA-256 checksum {checksum(path)} instead of {expected}: it is another "
        "version or damaged, so remove it and get king from "
        "https://www.kaggle.com/datasets/harlfoxem/housesalesprediction."
    )


def test_columns_that_a_file_lacks_are_named(tmp_path):
    (tmp_path / "insurance.csv").write_text("age,sex,bmi,children,smoker\n19,female,27.9,0,yes\n")
    with pytest.raises(UserError, match=r"insurance\.csv lacks the columns region, charges\.$"):
        load_table(tmp_path, TABLES["insurance"])


def test_rows_that_a_file_lacks_are_noticed(tmp_path):
    (tmp_path / "wilt.arff").write_text((RECORDED / "wilt.arff").read_text())
    with pytest.raises(UserError, match=r"wilt has 8 rows, split into \(4, 2, 2\), but TabDDPM's"):
        load_rows(tmp_path, TABLES["wilt"])


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        (
            "cardio",
            "There is no table cardio in {}: download cardio_train.csv from "
            "https://www.kaggle.com/datasets/sulianova/cardiovascular-disease-dataset (Kaggle "
            "needs a login) and put it there as cardio.csv.",
        ),
        (
            "wilt",
            "There is no table wilt in {0}: run `python -m benchmarks.datasets --data {0} wilt` to "
            "download it, or put the file of https://www.openml.org/d/40983 there as wilt.arff.",
        ),
        (
            "cidds",
            "There is no table cidds in {}: download CIDDS-001.zip from "
            "https://www.hs-coburg.de/cidds and put it there as cidds.zip.",
        ),
    ],
)
def test_a_missing_table_says_what_to_put_where(tmp_path, name, sentence):
    with pytest.raises(UserError) as error:
        load_rows(tmp_path, TABLES[name])
    assert str(error.value) == sentence.format(tmp_path)


def test_every_missing_table_has_one_sentence(tmp_path):
    for info in TABLES.values():
        with pytest.raises(UserError, match=r"^There is no table [^\n]*\.$"):
            load_table(tmp_path, info)


# --- downloads -----------------------------------------------------------------------------------


@pytest.fixture
def server():
    """An HTTP server that serves `pages`, a dictionary of paths; its address is in `url`."""
    pages: dict[str, bytes] = {}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            content = pages.get(self.path)
            self.send_response(404 if content is None else 200)
            self.end_headers()
            self.wfile.write(content or b"")

        def log_message(self, *arguments):
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    http.pages, http.url = pages, f"http://127.0.0.1:{http.server_port}"
    thread = threading.Thread(target=http.serve_forever, args=(0.01,))
    thread.start()
    yield http
    http.shutdown()
    thread.join()
    http.server_close()


def openml(server, md5: str | None = None):
    """Wilt, as if OpenML were on this machine."""
    data = (RECORDED / "wilt.arff").read_bytes()
    page = (RECORDED / "openml-40983.json").read_text()
    page = page.replace("https://www.openml.org", server.url)
    page = page.replace('"MD5"', f'"{md5 or hashlib.md5(data).hexdigest()}"')
    server.pages["/api/v1/json/data/40983"] = page.encode()
    server.pages["/data/v1/download/18151925/wilt.arff"] = data
    return replace(TABLES["wilt"], url=f"{server.url}/api/v1/json/data/40983", sizes=None)


def test_a_table_is_fetched_from_openml_once(server, tmp_path):
    info = openml(server)
    fetch(tmp_path, info)
    assert [path.name for path in tmp_path.iterdir()] == ["wilt.arff"]
    train, valid, test = load_rows(tmp_path, info)
    assert (len(train), len(valid), len(test)) == (4, 2, 2)
    server.pages.clear()
    fetch(tmp_path, info)  # nothing to do


def test_a_download_with_another_checksum_than_openml_gives_is_refused(server, tmp_path):
    info = openml(server, md5="0" * 32)
    with pytest.raises(UserError, match=r"has the MD5 checksum .*, but OpenML gives 00000"):
        fetch(tmp_path, info)
    assert not list(tmp_path.iterdir())


def test_a_table_is_fetched_from_uci(server, tmp_path):
    zipped(
        tmp_path / "made.zip", {name: (RECORDED / name).read_text() for name in
                                ("adult.data", "adult.test")}
    )  # fmt: skip
    server.pages["/static/public/2/adult.zip"] = (tmp_path / "made.zip").read_bytes()
    info = replace(TABLES["adult"], url=f"{server.url}/static/public/2/adult.zip")
    fetch(tmp_path, info)
    assert len(load_table(tmp_path, info)) == 4


def test_a_failed_download_says_where_to_put_the_file(server, tmp_path):
    info = replace(TABLES["adult"], url=f"{server.url}/adult.zip")
    with pytest.raises(UserError) as error:
        fetch(tmp_path, info)
    assert str(error.value) == (
        f"{server.url}/adult.zip cannot be downloaded (HTTP Error 404: Not Found): get the file in "
        f"another way and save it as {tmp_path / 'adult.zip'}."
    )


def test_the_command_lists_what_is_missing_and_exits_with_2(tmp_path):
    command = [sys.executable, "-m", "benchmarks.datasets", "--data", str(tmp_path), "cardio"]
    root = Path(__file__).parent.parent
    result = subprocess.run(command, capture_output=True, text=True, cwd=root)
    assert result.returncode == 2 and result.stdout == ""
    assert result.stderr.startswith("There is no table cardio in ")
    assert result.stderr.count("\n") == 1


# --- real tables ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", real("abalone", "adult", "california", "churn", "diabetes", "insurance", "king")
)
def test_a_real_table_has_its_checksum_columns_and_a_complete_split(name, capsys):
    info = TABLES[name]
    table = load_table(REAL, info)
    assert tuple(table) == info.columns and len(table) == sum(info.sizes)
    assert capsys.readouterr().err == ""
    rows = split_rows(REAL, info, table)
    assert sorted(np.concatenate(list(rows.values()))) == list(range(len(table)))


@pytest.mark.parametrize("name", real("adult", "california", "churn", "diabetes"))
def test_seeds_give_the_split_of_tabddpm(name, tmp_path):
    info = TABLES[name]
    table = load_table(REAL, info)
    published, seeded = split_rows(REAL, info, table), split_rows(tmp_path, info, table)
    for part in PARTS:
        assert np.array_equal(published[part], seeded[part])


@in_folder("king.parquet")
def test_dates_of_king_are_days_and_its_second_name_has_the_same_other_columns():
    king, clean = load_table(REAL, TABLES["king"]), load_table(REAL, TABLES["king-clean"])
    assert (king["date"].min(), king["date"].iloc[0], king["date"].max()) == (0, 164, 390)
    pd.testing.assert_frame_equal(king.drop(columns=["id", "date"]), clean)
    first, second = (split_rows(REAL, TABLES[name], clean) for name in ("king", "king-clean"))
    assert all(np.array_equal(first[part], second[part]) for part in PARTS)


@in_folder("churn.parquet", "catboost_tuned.json")
def test_churn_has_the_salary_twice_and_its_second_name_once():
    churn, clean = load(REAL, TABLES["churn"]), load(REAL, TABLES["churn-clean"])
    assert churn.train["EstimatedSalary_again"].equals(churn.train["EstimatedSalary"])
    pd.testing.assert_frame_equal(churn.test.drop(columns="EstimatedSalary_again"), clean.test)
    assert churn.catboost == clean.catboost


@in_folder("facebook_variant1.parquet")
def test_the_part_of_facebook_says_that_it_is_partial(capsys):
    table = load_table(REAL, TABLES["facebook-variant1"])
    assert tuple(table) == TABLES["facebook"].columns and len(table) == 40_949
    assert capsys.readouterr().err == (
        "facebook-variant1 is partial: 40,949 of the 199,030 rows of facebook: its scores are not "
        "those of the paper's FB\n"
    )


@pytest.mark.parametrize("name", real("insurance", "churn", "king"))
def test_a_csv_file_gives_the_same_table_as_parquet(name, tmp_path):
    table = pd.read_parquet(REAL / f"{name}.parquet")
    if name == "king":
        table["date"] = table["date"].dt.strftime("%Y%m%dT%H%M%S")  # as Kaggle has it
    table.to_csv(tmp_path / f"{name}.csv", index=False)
    info = TABLES[name]
    pd.testing.assert_frame_equal(load_table(tmp_path, info), load_table(REAL, info))


@in_folder("adult.parquet", "catboost_tuned.json")
def test_missing_values_of_adult_are_a_category_of_the_metrics():
    split = load(REAL, TABLES["adult"])
    (encoded,) = split._encode(split.train)
    words = encoded.frame()["workclass"]
    assert (words == "(missing)").sum() == split.train["workclass"].isna().sum() > 0
