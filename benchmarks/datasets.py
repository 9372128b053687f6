"""The paper's 15 tables and CIDDS-001: where each comes from, its columns, its split, and loading.

    python -m benchmarks.datasets --data DATA wilt house_16h

The command downloads tables that DATA lacks (Kaggle needs a login: for those it says what to put
where), checks all and prints what it found. DATA is a folder with NAME.parquet or the file of the
source, and, if at hand, NAME.split.npz (row positions `train`, `val` and `test`); without it, the
split is that of benchmarks/splits.py. `load` also needs `catboost_tuned.json`, the CatBoost
settings of the TabDDPM protocol for each table.

Columns are those of TabDDPM, which publishes how many there are, but not their names. Its King has
an identifier and a date, its Churn the salary twice; `king-clean` and `churn-clean` are without.
Missing values stay missing here. TabDDPM makes a category of them; so do our metrics, and
benchmarks/paper.py before it fits.
"""

import argparse
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import pyarrow as pa

from benchmarks import splits
from benchmarks.raw_files import (
    ADULT_COLUMNS,
    Reader,
    checksum,
    csv_reader,
    download,
    read_adult,
    read_arff,
    read_california,
    read_cidds,
    read_diabetes,
)
from tabmt.data.dataset import Dataset
from tabmt.data.infer import infer_schema
from tabmt.errors import UserError
from tabmt.evaluation.metrics.encoder import EncodedTable, MetricEncoder
from tabmt.evaluation.metrics.fidelity import detector_auc
from tabmt.evaluation.metrics.privacy import closeness, copies, share_closer_to_train
from tabmt.evaluation.metrics.utility import ml_efficiency
from tabmt.netflow import FIELDS

CATBOOST_FILE = "catboost_tuned.json"
OPENML = "https://www.openml.org"
UCI = "https://archive.ics.uci.edu"
KAGGLE = "https://www.kaggle.com/datasets"
FIRST_SALE = pd.Timestamp("2014-05-02")  # day 0 of TabDDPM's King


def unchanged(table: pd.DataFrame) -> pd.DataFrame:
    return table


@dataclass(frozen=True, kw_only=True)
class TableInfo:
    """A table of the paper, or a variant of it."""

    name: str
    code: str  # the paper's
    columns: tuple[str, ...]  # features and target, in the order of the source
    categorical: tuple[str, ...] = ()  # the features that TabDDPM uses as categories
    target: str  # empty if nothing is predicted
    task: Literal["classification", "regression", "generation"]
    source: str  # the page of the table
    licence: str
    # Files that hold the table, the preferred one first, with their SHA-256 checksums; None is a
    # checksum that is not recorded yet.
    files: Mapping[str, str | None]
    url: str | None = None  # of the last of the files, or its description by OpenML
    original: str = ""  # the name of a file that people download themselves
    read: Reader = read_arff  # for files other than Parquet
    derive: Callable[[pd.DataFrame], pd.DataFrame] = unchanged  # adds or changes columns
    split: splits.Splitter = splits.seeded
    sizes: tuple[int, int, int] | None = None  # TabDDPM's training, validation and test rows
    stem: str = ""  # of the split file; the name if empty
    partial: str = ""  # what this lacks of the paper's table; printed whenever it is loaded

    @property
    def features(self) -> tuple[str, ...]:
        return tuple(name for name in self.columns if name != self.target)

    @property
    def numeric(self) -> tuple[str, ...]:
        return tuple(name for name in self.features if name not in self.categorical)

    @property
    def metric(self) -> str:
        """What ML efficiency is measured in."""
        return "macro F1" if self.task == "classification" else "R2"


def add_data_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--data", type=existing_folder, required=True, help="folder with the tables and splits"
    )


def existing_folder(name: str) -> Path:
    path = Path(name)
    if not path.is_dir():
        raise argparse.ArgumentTypeError(f"there is no folder {name!r}")
    return path


def as_arrow(table: Any) -> pa.Table:
    return Dataset.open(table).to_table()


def days_of_sale(table: pd.DataFrame) -> pd.DataFrame:
    """Dates of sale as days, as TabDDPM has them."""
    return table.assign(date=(pd.to_datetime(table["date"]) - FIRST_SALE).dt.days)


def salary_twice(table: pd.DataFrame) -> pd.DataFrame:
    return table.assign(EstimatedSalary_again=table["EstimatedSalary"])


def days_of_pets(table: pd.DataFrame) -> pd.DataFrame:
    """Dates as whole days since the earliest: TabDDPM's are integers, their origin is unknown."""
    dates = {name: pd.to_datetime(table[name]) for name in ("issue_date", "listing_date")}
    return table.assign(**{name: (date - date.min()).dt.days for name, date in dates.items()})


def without_missing(table: pd.DataFrame) -> pd.DataFrame:
    """Higgs has one row with missing values, which TabDDPM leaves out."""
    return table.dropna(ignore_index=True)


def _facebook_columns() -> tuple[str, ...]:
    """UCI's file has no header: these names are ours."""
    derived = [
        f"cc{count}_{statistic}"
        for count in range(1, 6)
        for statistic in ("min", "max", "avg", "median", "std")
    ]
    days = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
    return (
        "page_popularity_likes",
        "page_checkins",
        "page_talking_about",
        "page_category",
        *derived,
        *(f"cc{count}" for count in range(1, 6)),
        *("base_time", "post_length", "post_share_count", "post_promotion_status", "h_local"),
        *(f"post_{day}" for day in days),
        *(f"base_{day}" for day in days),
        "target_comments",
    )


FACEBOOK_COLUMNS = _facebook_columns()
FACEBOOK_LEFT_OUT = ("cc3_min", "post_promotion_status")  # almost constant, constant
KING_IDENTIFIERS = ("id", "date")
CHURN_DUPLICATE = "EstimatedSalary_again"
HIGGS_JETS = tuple(f"jet{n}{part}" for n in range(1, 5) for part in ("pt", "eta", "phi", "b-tag"))

ABALONE = TableInfo(
    name="abalone",
    code="AB",
    columns=(
        "Sex", "Length", "Diameter", "Height", "Whole_weight", "Shucked_weight", "Viscera_weight",
        "Shell_weight", "Class_number_of_rings",
    ),
    categorical=("Sex",),
    target="Class_number_of_rings",
    task="regression",
    source=f"{OPENML}/d/183",
    licence="CC BY 4.0 (UCI)",
    files={
        "abalone.parquet": "ca3123acb86dd9eefc3be619b2601b08ae563ef95d07ed27e34899d261cdbd69",
        "abalone.arff": None,
    },
    url=f"{OPENML}/api/v1/json/data/183",
    sizes=(2672, 669, 836),
)  # fmt: skip

ADULT = TableInfo(
    name="adult",
    code="AD",
    columns=ADULT_COLUMNS,
    categorical=(
        "workclass", "education", "marital-status", "occupation", "relationship", "race", "sex",
        "native-country",
    ),
    target="income",
    task="classification",
    source=f"{UCI}/dataset/2/adult",
    licence="CC BY 4.0 (UCI)",
    files={
        "adult.parquet": "fa8701001f6065ebf7a1bd677ee7407859a64efc7cce6d0fae63144ba2ac2ae9",
        "adult.zip": None,
    },
    url=f"{UCI}/static/public/2/adult.zip",
    read=read_adult,
    split=splits.adult,
    sizes=(26048, 6513, 16281),
)  # fmt: skip

BUDDY = TableInfo(
    name="buddy",
    code="BU",
    columns=(
        "issue_date", "listing_date", "condition", "color_type", "length(m)", "height(cm)", "X1",
        "X2", "breed_category", "pet_category",
    ),
    categorical=("condition", "color_type", "X1", "X2", "pet_category"),
    target="breed_category",  # it has the three classes of TabDDPM's target
    task="classification",
    source=f"{KAGGLE}/akash14/adopt-a-buddy",
    licence="not known (Kaggle)",
    files={"buddy.parquet": None, "buddy.csv": None, "buddy.zip": None},
    original="train.csv",
    read=csv_reader("train.csv"),
    derive=days_of_pets,
    sizes=(12053, 3014, 3767),
)  # fmt: skip

CALIFORNIA = TableInfo(
    name="california",
    code="CA",
    columns=(
        "MedInc", "HouseAge", "AveRooms", "AveBedrms", "Population", "AveOccup", "Latitude",
        "Longitude", "MedHouseVal",
    ),
    target="MedHouseVal",
    task="regression",
    source="https://www.dcc.fc.up.pt/~ltorgo/Regression/cal_housing.html",
    licence="none stated (StatLib)",
    files={
        "california.parquet": "76baeadf5700c8ca574671b03bc6663956418977b11dfde5694a676c64a792dc",
        # scikit-learn downloads the same file and has its checksum.
        "california.tgz": "aaa5c9a6afe2225cc2aed2723682ae403280c4a3695a2ddda4ffb5d8215ea681",
    },
    url="https://ndownloader.figshare.com/files/5976036",
    read=read_california,
    sizes=(13209, 3303, 4128),
)  # fmt: skip

CARDIO = TableInfo(
    name="cardio",
    code="CAR",
    columns=(
        "age", "gender", "height", "weight", "ap_hi", "ap_lo", "cholesterol", "gluc", "smoke",
        "alco", "active", "cardio",
    ),
    categorical=("gender", "cholesterol", "gluc", "smoke", "alco", "active"),
    target="cardio",
    task="classification",
    source=f"{KAGGLE}/sulianova/cardiovascular-disease-dataset",
    licence="not known (Kaggle)",
    files={"cardio.parquet": None, "cardio.csv": None, "cardio.zip": None},
    original="cardio_train.csv",
    read=csv_reader("cardio_train.csv", separator=";"),
    sizes=(44800, 11200, 14000),
)  # fmt: skip

CHURN = TableInfo(
    name="churn",
    code="CH",
    columns=(
        "CreditScore", "Geography", "Gender", "Age", "Tenure", "Balance", "NumOfProducts",
        "HasCrCard", "IsActiveMember", "EstimatedSalary", CHURN_DUPLICATE, "Exited",
    ),
    categorical=("Geography", "Gender", "HasCrCard", "IsActiveMember"),
    target="Exited",
    task="classification",
    source=f"{KAGGLE}/shrutimechlearn/churn-modelling",
    licence="not known (Kaggle)",
    files={
        "churn.parquet": "1ea8bac06911969e731363858aa016263cb1dd638b7defef5514c9b3a9838fd1",
        "churn.csv": None,
        "churn.zip": None,
    },
    original="Churn_Modelling.csv",
    read=csv_reader("Churn_Modelling.csv"),
    derive=salary_twice,
    sizes=(6400, 1600, 2000),
)  # fmt: skip

DIABETES = TableInfo(
    name="diabetes",
    code="DI",
    columns=(
        "Pregnancies", "Glucose", "BloodPressure", "SkinThickness", "Insulin", "BMI",
        "DiabetesPedigreeFunction", "Age", "Outcome",
    ),
    target="Outcome",
    task="classification",
    source=f"{OPENML}/d/37",
    licence="CC0 (Kaggle)",
    files={
        "diabetes.parquet": "623818c4fd687920630f62bc5a6dfc2c302e3e94a2a7ef8ea94e7c0fcac05380",
        "diabetes.arff": None,
    },
    url=f"{OPENML}/api/v1/json/data/37",
    read=read_diabetes,
    split=splits.seeded_twice_by_0,
    sizes=(491, 123, 154),
)  # fmt: skip

FACEBOOK = TableInfo(
    name="facebook",
    code="FB",
    columns=tuple(name for name in FACEBOOK_COLUMNS if name not in FACEBOOK_LEFT_OUT),
    categorical=("page_category",),
    target="target_comments",
    task="regression",
    source=f"{UCI}/dataset/363/facebook+comment+volume+dataset",
    licence="CC BY 4.0 (UCI)",
    files={"facebook.parquet": None, "facebook.zip": None},
    url=f"{UCI}/static/public/363/facebook+comment+volume+dataset.zip",
    read=csv_reader("Features_Variant_5.csv", names=FACEBOOK_COLUMNS),
    split=splits.facebook,
    sizes=(157638, 19722, 19720),
)

FACEBOOK_VARIANT1 = replace(
    FACEBOOK,
    name="facebook-variant1",
    files={
        "facebook_variant1.parquet": (
            "024a9cb99354ad7b7a54ac5b767165cd4292f1d49366e7e311adf5b974121aa3"
        ),
        "facebook.zip": None,
    },
    read=csv_reader("Features_Variant_1.csv", names=FACEBOOK_COLUMNS),
    split=splits.seeded,
    sizes=None,
    stem="facebook_variant1",
    partial="40,949 of the 199,030 rows of facebook: its scores are not those of the paper's FB",
)

GESTURE = TableInfo(
    name="gesture",
    code="GE",
    columns=(*(f"X{number}" for number in range(1, 33)), "Phase"),
    target="Phase",
    task="classification",
    source=f"{OPENML}/d/4538",
    licence="CC BY 4.0 (UCI)",
    files={"gesture.parquet": None, "gesture.arff": None},
    url=f"{OPENML}/api/v1/json/data/4538",
    sizes=(6318, 1580, 1975),
)

HIGGS = TableInfo(
    name="higgs_small",
    code="HI",
    columns=(
        "class", "lepton_pT", "lepton_eta", "lepton_phi", "missing_energy_magnitude",
        "missing_energy_phi", *HIGGS_JETS, "m_jj", "m_jjj", "m_lv", "m_jlv", "m_bb", "m_wbb",
        "m_wwbb",
    ),
    target="class",
    task="classification",
    source=f"{OPENML}/d/23512",
    licence="CC BY 4.0 (UCI)",
    files={"higgs_small.parquet": None, "higgs_small.arff": None},
    url=f"{OPENML}/api/v1/json/data/23512",
    derive=without_missing,
    sizes=(62751, 15688, 19610),
)  # fmt: skip

HOUSE = TableInfo(
    name="house_16h",
    code="HO",
    columns=(
        "P1", "P5p1", "P6p2", "P11p4", "P14p9", "P15p1", "P15p3", "P16p2", "P18p2", "P27p4", "H2p2",
        "H8p2", "H10p1", "H13p1", "H18pA", "H40p4", "price",
    ),
    target="price",
    task="regression",
    source=f"{OPENML}/d/574",
    licence="public (OpenML)",
    files={"house_16h.parquet": None, "house_16h.arff": None},
    url=f"{OPENML}/api/v1/json/data/574",
    sizes=(14581, 3646, 4557),
)  # fmt: skip

INSURANCE = TableInfo(
    name="insurance",
    code="IN",
    columns=("age", "sex", "bmi", "children", "smoker", "region", "charges"),
    categorical=("sex", "smoker", "region"),
    target="charges",
    task="regression",
    source=f"{KAGGLE}/mirichoi0218/insurance",
    licence="DbCL 1.0 (Kaggle)",
    files={
        "insurance.parquet": "406b41abae8021b3eba0a19a2580e1f22d95011e3b8a8bbb65088987b9b42d5c",
        "insurance.csv": None,
        "insurance.zip": None,
    },
    original="insurance.csv",
    read=csv_reader("insurance.csv"),
    sizes=(856, 214, 268),
)

KING = TableInfo(
    name="king",
    code="KI",
    columns=(
        "id", "date", "price", "bedrooms", "bathrooms", "sqft_living", "sqft_lot", "floors",
        "waterfront", "view", "condition", "grade", "sqft_above", "sqft_basement", "yr_built",
        "yr_renovated", "zipcode", "lat", "long", "sqft_living15", "sqft_lot15",
    ),
    categorical=("waterfront", "view", "condition"),
    target="price",
    task="regression",
    source=f"{KAGGLE}/harlfoxem/housesalesprediction",
    licence="CC0 (Kaggle)",
    files={
        "king.parquet": "6e1d9573ce241f27cfae53d1e8f65d9c425bc8e04c9f6d5e76d162123314b600",
        "king.csv": None,
        "king.zip": None,
    },
    original="kc_house_data.csv",
    read=csv_reader("kc_house_data.csv"),
    derive=days_of_sale,
    sizes=(13832, 3458, 4323),
)  # fmt: skip

MINIBOONE = TableInfo(
    name="miniboone",
    code="MI",
    columns=("signal", *(f"ParticleID_{number}" for number in range(50))),
    target="signal",
    task="classification",
    source=f"{OPENML}/d/41150",
    licence="CC BY 4.0 (UCI)",
    files={"miniboone.parquet": None, "miniboone.arff": None},
    url=f"{OPENML}/api/v1/json/data/41150",
    sizes=(83240, 20811, 26013),
)

WILT = TableInfo(
    name="wilt",
    code="WI",
    columns=("GLCM_Pan", "Mean_G", "Mean_R", "Mean_NIR", "SD_Pan", "class"),
    target="class",
    task="classification",
    source=f"{OPENML}/d/40983",
    licence="CC BY 4.0 (UCI)",
    files={"wilt.parquet": None, "wilt.arff": None},
    url=f"{OPENML}/api/v1/json/data/40983",
    sizes=(3096, 775, 968),
)

CIDDS = TableInfo(
    name="cidds",
    code="CIDDS",
    columns=FIELDS,
    categorical=FIELDS,
    target="",
    task="generation",
    source="https://www.hs-coburg.de/cidds",
    licence="free for research (Coburg University)",
    files={"cidds.parquet": None, "cidds.zip": None},
    original="CIDDS-001.zip",
    read=read_cidds,
    split=splits.flows,
)

PAPER_TABLES = (
    ABALONE, ADULT, BUDDY, CALIFORNIA, CARDIO, CHURN, DIABETES, FACEBOOK, GESTURE, HIGGS, HOUSE,
    INSURANCE, KING, MINIBOONE, WILT,
)  # fmt: skip


def _without(info: TableInfo, *left_out: str) -> TableInfo:
    """The second name of a table, for its columns without those that no table should have."""
    columns = tuple(name for name in info.columns if name not in left_out)
    return replace(info, name=f"{info.name}-clean", columns=columns, stem=info.name)


TABLES = {
    info.name: info
    for info in (
        *PAPER_TABLES,
        _without(CHURN, CHURN_DUPLICATE),
        _without(KING, *KING_IDENTIFIERS),
        FACEBOOK_VARIANT1,
        CIDDS,
    )
}
# What the other benchmarks mean by the name of a table, also in the names of their result files:
# Churn and King without the duplicate and the identifiers.
CLEAN_TABLES = {info.name: TABLES.get(f"{info.name}-clean", info) for info in PAPER_TABLES}


@dataclass(frozen=True)
class Split:
    """The real rows of a benchmark, with the CatBoost settings that were tuned on them."""

    train: pd.DataFrame
    valid: pd.DataFrame
    test: pd.DataFrame
    catboost: dict[str, Any]

    def efficiency(
        self, rows: pd.DataFrame, info: TableInfo, seed: int, *, on_valid: bool = False
    ) -> float:
        """ML efficiency of a table: macro F1 or R2 on real test or validation rows."""
        scored_on = self.valid if on_valid else self.test
        encoded, valid, test = self._encode(rows, self.valid, scored_on)
        result = ml_efficiency(encoded, valid, test, info.target, settings=self.catboost, seed=seed)
        return result.score

    def evaluate(self, rows: pd.DataFrame, info: TableInfo, seed: int) -> dict[str, float]:
        """The scores of a synthetic table, and those of real test rows where they differ."""
        train, synthetic, test = self._encode(self.train, rows, self.test)
        distances, test_distances = closeness(synthetic, train), closeness(test, train)
        return {
            "mle": self.efficiency(rows, info, seed),
            "detector": detector_auc(test, synthetic, np.random.default_rng(seed)),
            "dcr": distances.median,
            "dcr_held_out": test_distances.median,
            "closer_to_train": share_closer_to_train(synthetic, train, test, distances.distances),
            "closer_expected": len(train) / (len(train) + len(test)),
            "copies": copies(synthetic, train),
            "copies_held_out": copies(test, train),
        }

    def _encode(self, *tables: pd.DataFrame) -> list[EncodedTable]:
        train = as_arrow(self.train)
        encoder = MetricEncoder.fit(train, infer_schema(train))
        return [encoder.encode(as_arrow(table), "benchmark") for table in tables]


def load(folder: Path, info: TableInfo) -> Split:
    """The rows of a table, with its CatBoost settings."""
    train, valid, test = load_rows(folder, info)
    path = folder / CATBOOST_FILE
    names = {paper.code: paper.name for paper in PAPER_TABLES}
    settings = json.loads(path.read_text()) if path.is_file() else {}
    if names.get(info.code) not in settings:
        raise UserError(
            f"There are no CatBoost settings of {info.name} in {path}: put those of "
            "https://github.com/yandex-research/tab-ddpm there, as one object {NAME: SETTINGS}."
        )
    return Split(train, valid, test, settings[names[info.code]])


def load_rows(folder: Path, info: TableInfo) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Training, validation and test rows."""
    table = load_table(folder, info)
    rows = split_rows(folder, info, table)
    train, valid, test = (
        table.iloc[rows[name]].reset_index(drop=True) for name in ("train", "val", "test")
    )
    return train, valid, test


def load_table(folder: Path, info: TableInfo) -> pd.DataFrame:
    """The columns of a table, from the first of its files that the folder has."""
    path = next((folder / name for name in info.files if (folder / name).is_file()), None)
    if path is None:
        raise UserError(how_to_get(folder, info))
    check_file(path, info)
    if info.partial:
        print(f"{info.name} is partial: {info.partial}", file=sys.stderr)
    if path.suffix == ".parquet":
        table = pd.read_parquet(path)
    else:
        table = info.read(path)
        if path.suffix == ".arff":
            table = with_our_names(table, path, info)
    table = info.derive(table)
    missing = [name for name in info.columns if name not in table]
    if missing:
        raise UserError(f"{path} lacks the columns {', '.join(missing)}.")
    return table[list(info.columns)]


def with_our_names(table: pd.DataFrame, path: Path, info: TableInfo) -> pd.DataFrame:
    """OpenML's names of features are not always those of the original table: ours, in order."""
    names = [name for name in table if name != info.target]
    if info.target not in table or len(names) != len(info.features):
        raise UserError(
            f"{path} must have the column {info.target} and {len(info.features)} others, but has: "
            f"{', '.join(table)}."
        )
    return table.rename(columns=dict(zip(names, info.features, strict=True)))


def check_file(path: Path, info: TableInfo) -> None:
    """Refuse a file with another checksum than the recorded one; say if none is recorded."""
    expected, found = info.files[path.name], checksum(path)
    if expected is None:
        print(f"{path.name}: no checksum recorded yet; its SHA-256 is {found}", file=sys.stderr)
    elif found != expected:
        raise UserError(
            f"{path} has the SHA-256 checksum {found} instead of {expected}: it is another version "
            f"or damaged, so remove it and get {info.name} from {info.source}."
        )


def how_to_get(folder: Path, info: TableInfo) -> str:
    """One sentence for a table that is not there."""
    *_, name = info.files
    if info.url is not None:
        return (
            f"There is no table {info.name} in {folder}: run `python -m benchmarks.datasets --data "
            f"{folder} {info.name}` to download it, or put the file of {info.source} there as "
            f"{name}."
        )
    login = " (Kaggle needs a login)" if info.source.startswith(KAGGLE) else ""
    suffix = Path(info.original).suffix
    name = next(name for name in info.files if name.endswith(suffix))
    return (
        f"There is no table {info.name} in {folder}: download {info.original} from {info.source}"
        f"{login} and put it there as {name}."
    )


def split_rows(folder: Path, info: TableInfo, table: pd.DataFrame) -> splits.Rows:
    """Row positions from the split file, or else by seeds; checked against the published sizes."""
    path = folder / f"{info.stem or info.name}.split.npz"
    if path.is_file():
        with np.load(path) as file:
            rows = {name: file[name] for name in ("train", "val", "test")}
    else:
        target = table[info.target] if info.target else table.iloc[:, 0]
        rows = info.split(target, info.task == "classification")
    every = np.concatenate(list(rows.values()))
    if len(np.unique(every)) != len(every) or every.min() < 0 or every.max() >= len(table):
        raise UserError(f"{path} does not belong to {info.name}, which has {len(table)} rows.")
    sizes = tuple(len(rows[name]) for name in ("train", "val", "test"))
    if info.sizes is not None and sizes != info.sizes:
        raise UserError(
            f"{info.name} has {len(table)} rows, split into {sizes}, but TabDDPM's split is "
            f"{info.sizes}: get the table from {info.source} again."
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_data_option(parser)
    parser.add_argument("tables", nargs="*", default=list(TABLES), metavar="TABLE", help="names")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.tables if name not in TABLES]
    if unknown:
        parser.error(f"no table {', '.join(unknown)}; there are {', '.join(TABLES)}")
    failed = False
    for name in arguments.tables:
        try:
            print(describe(arguments.data, TABLES[name]), flush=True)
        except UserError as error:
            failed = True
            print(error, file=sys.stderr, flush=True)
    sys.exit(UserError.exit_code if failed else 0)


def describe(folder: Path, info: TableInfo) -> str:
    """Download a table if it is not there and can be had, load it, and say what it has."""
    fetch(folder, info)
    train, valid, test = load_rows(folder, info)
    return (
        f"{info.name} ({info.code}): {len(info.numeric)} numeric and {len(info.categorical)} "
        f"categorical features; {len(train)} training, {len(valid)} validation and {len(test)} "
        f"test rows; {info.licence}, {info.source}"
    )


def fetch(folder: Path, info: TableInfo) -> None:
    """Download a table that the folder lacks, if that needs no login."""
    *_, name = info.files
    if info.url is not None and not any((folder / file).is_file() for file in info.files):
        download(info.url, folder / name)


if __name__ == "__main__":
    main()
