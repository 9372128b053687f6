"""Files as OpenML, UCI, Kaggle and others publish them: download, check and read.

A reader returns the table with the columns and rows of the file. Which columns a benchmark uses is
in benchmarks/datasets.py.
"""

import hashlib
import json
import os
import re
import tarfile
import tempfile
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import IO

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from tabmt.errors import UserError
from tabmt.netflow import read_flows, to_fields

TIMEOUT_SECONDS = 60
CHUNK_BYTES = 1 << 20
OPENML_API = "/api/v1/json/data/"
ATTRIBUTE = re.compile(r"""^@attribute\s+(?:'([^']*)'|"([^"]*)"|(\S+))\s""", re.IGNORECASE)
ADULT_COLUMNS = (
    "age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation",
    "relationship", "race", "sex", "capital-gain", "capital-loss", "hours-per-week",
    "native-country", "income",
)  # fmt: skip
Reader = Callable[[Path], pd.DataFrame]


def checksum(path: Path, algorithm: str = "sha256") -> str:
    digest = hashlib.new(algorithm)
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


# --- download ------------------------------------------------------------------------------------


def download(url: str, path: Path) -> None:
    """Download a file. For an address of OpenML's JSON API, the file that its answer names, whose
    MD5 checksum must be the one in the answer."""
    expected = None
    if OPENML_API in url:
        with _open(url, path) as response:
            description = json.load(response)["data_set_description"]
        url, expected = description["url"], description["md5_checksum"]
    part = path.with_name(path.name + ".part")
    with _open(url, path) as response, part.open("wb") as file:
        while chunk := response.read(CHUNK_BYTES):
            file.write(chunk)
    found = checksum(part, "md5")
    if expected is not None and found != expected:
        part.unlink()
        raise UserError(
            f"The download of {url} has the MD5 checksum {found}, but OpenML gives {expected}: "
            "try again."
        )
    os.replace(part, path)


def _open(url: str, path: Path) -> IO[bytes]:
    try:
        response: IO[bytes] = urllib.request.urlopen(url, timeout=TIMEOUT_SECONDS)
    except OSError as error:  # also urllib's own
        if isinstance(error, urllib.error.HTTPError):
            error.close()  # it is the answer of the server, too
        raise UserError(
            f"{url} cannot be downloaded ({error}): get the file in another way and save it as "
            f"{path}."
        ) from error
    return response


# --- read ----------------------------------------------------------------------------------------


def read_arff(path: Path) -> pd.DataFrame:
    """A dense ARFF file; `?` is a missing value."""
    names = []
    with path.open(encoding="utf-8") as file:
        for line in file:
            if match := ATTRIBUTE.match(line):
                names.append(next(group for group in match.groups() if group is not None))
            elif line.strip().lower() == "@data":
                break
        return pd.read_csv(
            file,
            names=names,
            na_values="?",
            keep_default_na=False,
            quotechar="'",
            comment="%",
            skipinitialspace=True,
        )


def read_diabetes(path: Path) -> pd.DataFrame:
    """OpenML's table, with the target of Kaggle's."""
    table = read_arff(path).rename(columns={"class": "Outcome"})
    return table.assign(Outcome=(table["Outcome"] == "tested_positive").astype(int))


def csv_reader(member: str, separator: str = ",", names: tuple[str, ...] | None = None) -> Reader:
    """Reads a CSV file, or the file `member` of a zip file. `names` are those of a file without a
    header."""

    def read(path: Path) -> pd.DataFrame:
        with _member(path, member) as file:
            header = None if names else 0
            return pd.read_csv(file, sep=separator, header=header, names=names)

    return read


def _member(path: Path, name: str) -> IO[bytes]:
    """A file, or one of a zip file, in whatever folder of it."""
    if path.suffix != ".zip":
        return path.open("rb")
    with zipfile.ZipFile(path) as archive:
        for entry in archive.namelist():
            if Path(entry).name == name and "__MACOSX" not in entry:
                return archive.open(entry)
    raise UserError(f"{path} has no file {name}: download it again.")


def read_adult(path: Path) -> pd.DataFrame:
    """adult.data, then adult.test, which has a first line and full stops that adult.data lacks."""
    tables = []
    for name, skipped in (("adult.data", 0), ("adult.test", 1)):
        with _member(path, name) as file:
            tables.append(
                pd.read_csv(
                    file,
                    names=ADULT_COLUMNS,
                    skiprows=skipped,
                    na_values="?",
                    keep_default_na=False,
                    skipinitialspace=True,
                )
            )
    table = pd.concat(tables, ignore_index=True)
    return table.assign(income=table["income"].str.rstrip("."))


def read_california(path: Path) -> pd.DataFrame:
    """StatLib's totals as scikit-learn's averages per household, and the target in 100,000 $."""
    names = ("Longitude", "Latitude", "HouseAge", "rooms", "bedrooms", "Population", "households",
             "MedInc", "value")  # fmt: skip
    with tarfile.open(path) as archive:
        file = archive.extractfile("CaliforniaHousing/cal_housing.data")
        assert file is not None
        table = pd.read_csv(file, names=names)
    return table.assign(
        AveRooms=table["rooms"] / table["households"],
        AveBedrms=table["bedrooms"] / table["households"],
        AveOccup=table["Population"] / table["households"],
        MedHouseVal=table["value"] / 100_000,
    )


def read_cidds(path: Path) -> pd.DataFrame:
    """The paper's fields of all normal flows in the internal network."""
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(path) as archive:
        weeks = sorted(name for name in archive.namelist() if "internal-week" in Path(name).name)
        if not weeks:
            raise UserError(f"{path} has no files *internal-week*.csv: download it again.")
        files = [archive.extract(name, folder) for name in weeks]
        normal = [
            to_fields(flows.filter(pc.equal(flows.column("class"), "normal")))
            for flows in read_flows(files)
        ]
    return pa.concat_tables(normal).to_pandas()
