"""Flows of CIDDS-001: the published files in and out, the fields between, and the invariants."""

import datetime
import gzip
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from tabmt import TabMT, UserError
from tabmt.cli import main
from tabmt.cli.options import read_config
from tabmt.evaluation.evaluate import evaluate
from tabmt.netflow import FIELDS, INVARIANTS, read_flows, schema, to_fields, to_flows, write_flows
from tabmt.netflow.cidds import FLOWS
from tabmt.rules.rule import Rule
from tests.tables import FLOW_LINES, HEADER_OF_FLOWS, weekly_file

SHARED = Path(__file__).parents[2] / "shared" / "data"


def weekly(folder: Path, *lines: str) -> Path:
    return weekly_file(folder / "week.csv", *lines)


def flows_of(path: Path) -> pa.Table:
    return pa.concat_tables(read_flows([path]))


def test_published_lines_are_read(tmp_path):
    flows = flows_of(weekly(tmp_path, *FLOW_LINES))
    assert flows.schema == FLOWS
    rows = flows.to_pylist()
    assert rows[0]["Date first seen"] == datetime.datetime(2017, 3, 15, 0, 1, 16, 632000)
    assert (rows[0]["Proto"], rows[0]["Src Pt"], rows[0]["Dst Pt"]) == ("TCP", "445", "58844")
    assert rows[1]["Duration"] == 102.743 and rows[1]["Dst IP Addr"] == "DNS"
    assert (rows[2]["Packets"], rows[2]["Bytes"], rows[2]["Tos"]) == (1_100_000, 1_200_000, 16)
    assert [row["Dst Pt"] for row in rows[3:]] == ["3.1", "8"]
    assert rows[4]["attackDescription"] == "DoS flags"


@pytest.mark.parametrize("name", ["again.csv", "again.csv.gz"])
def test_what_is_written_is_read_again(tmp_path, name):
    flows = flows_of(weekly(tmp_path, *FLOW_LINES))
    write_flows(tmp_path / name, [flows, flows])
    assert flows_of(tmp_path / name).equals(pa.concat_tables([flows, flows]))
    opened = gzip.open if name.endswith("gz") else open
    with opened(tmp_path / name, "rt") as file:
        text = file.read()
    assert text.splitlines()[0] == HEADER_OF_FLOWS
    assert "2017-03-15 00:01:16.632" in text and "1.2 M" in text and "58844.0" in text


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (
            FLOW_LINES[0].replace("58844.0", "ssh"),
            "Row 3 of '{path}' has 'ssh' in column 'Dst Pt', where a port from 0 to 65535 is "
            "expected; correct the row or remove it.",
        ),
        (
            FLOW_LINES[0].replace("    108", "  a lot"),
            "Row 3 of '{path}' has 'a lot' in column 'Bytes', where a whole number is expected; "
            "correct the row or remove it.",
        ),
        (
            FLOW_LINES[0].replace("2017-03-15", "15/03/2017"),
            "Row 3 of '{path}' has '15/03/2017 00:01:16.632' in column 'Date first seen', where a "
            "time such as 2017-03-15 00:01:16.632 is expected; correct the row or remove it.",
        ),
    ],
)
def test_a_bad_cell_gets_a_sentence_with_its_row(tmp_path, line, sentence):
    path = weekly(tmp_path, FLOW_LINES[0], line)
    with pytest.raises(UserError) as error:
        flows_of(path)
    assert str(error.value) == sentence.format(path=path)


@pytest.mark.parametrize(
    ("old", "new", "column"),
    [
        ("     108", "    -108", "Bytes"),
        ("     108", "        ", "Bytes"),
        ("    0.000", "      nan", "Duration"),
        ("58844.0", "99999.0", "Dst Pt"),
        ("2017-03-15 00:01:16.632", "", "Date first seen"),
        ("normal", "", "class"),
    ],
)
def test_cells_that_no_flow_can_have_are_refused(tmp_path, old, new, column):
    path = weekly(tmp_path, FLOW_LINES[0].replace(old, new))
    with pytest.raises(UserError, match=rf"^Row 2 of .* in column '{column}', where"):
        flows_of(path)


def test_missing_values_and_wrong_types_cannot_be_written(tmp_path):
    fields = to_fields(flows_of(weekly(tmp_path, *FLOW_LINES[:2])))
    unknown = fields.set_column(0, "weekday", pa.array([None, 3], pa.int16()))
    with pytest.raises(
        UserError, match=r"^Column 'weekday' has 1 cell that are missing or outside its range; "
    ):
        to_flows(unknown, datetime.date(2017, 3, 15))
    text = fields.set_column(1, "hour", pa.array(["noon", "1"]))
    with pytest.raises(
        UserError, match=r"^Column 'hour' has the type string, and not all of its values can "
    ):
        to_flows(text, datetime.date(2017, 3, 15))


@pytest.mark.parametrize(
    ("name", "values"),
    [("bytes", [None, 9]), ("bytes", [-5, 9]), ("src_port", ["http", "80"]), ("proto", [" ", "x"])],
)
def test_what_could_not_be_read_again_is_not_written(tmp_path, name, values):
    fields = to_fields(flows_of(weekly(tmp_path, *FLOW_LINES[:2])))
    index = fields.column_names.index(name)
    odd = fields.set_column(index, name, pa.array(values))
    with pytest.raises(UserError, match=r"^Row 2 of '.*odd.csv' has .* in column"):
        write_flows(tmp_path / "odd.csv", [to_flows(odd, datetime.date(2017, 3, 15))])
    assert not (tmp_path / "odd.csv").exists()


def test_a_week_whose_times_are_not_text_is_read(tmp_path):
    flows = flows_of(weekly(tmp_path, *FLOW_LINES))
    times = flows.column(0).cast(pa.timestamp("us"))
    pq.write_table(flows.set_column(0, "Date first seen", times), tmp_path / "week.parquet")
    assert flows_of(tmp_path / "week.parquet").equals(flows)


def test_evaluate_counts_violated_invariants_whatever_kind_ports_are_inferred_as(tmp_path):
    fields = to_fields(flows_of(weekly(tmp_path, *FLOW_LINES[:2] * 50)))
    odd = fields.set_column(7, "proto", pa.array(["ICMP"] * 100))
    rules = [Rule.parse(name, text) for name, text in INVARIANTS.items()]
    found = evaluate(odd, fields.slice(0, 60), fields.slice(60), rules=rules)
    assert found["rule: dns"].value == 0.5
    assert found["rule: netbios"].value == 0.0


def test_a_file_without_a_column_gets_a_sentence(tmp_path):
    path = tmp_path / "week.csv"
    path.write_text("Duration,Proto\n0.1,TCP\n")
    with pytest.raises(UserError, match=r"has no column 'Date first seen'; a CIDDS-001 file has"):
        flows_of(path)


def test_fields_are_the_papers_and_convert_back_to_flows(tmp_path):
    flows = flows_of(weekly(tmp_path, *FLOW_LINES[:4]))
    fields = to_fields(flows)
    assert tuple(fields.column_names) == FIELDS and len(FIELDS) == 16
    assert fields.slice(1, 1).select(FIELDS[:5]).to_pylist() == [
        {"weekday": 6, "hour": 23, "minute": 59, "second": 59, "millisecond": 999}
    ]
    assert to_flows(fields, datetime.date(2017, 3, 15)).equals(flows)
    moved = to_flows(fields, datetime.date(2020, 1, 1)).column("Date first seen")
    assert moved[0].as_py().date() == datetime.date(2020, 1, 1)  # a Wednesday again
    late = fields.set_column(1, "hour", pa.array([24, 0, 0, 0]))
    with pytest.raises(UserError, match=r"its values must be from 0 to 23\.$"):
        to_flows(late, datetime.date(2017, 3, 15))


GOOD = {
    "src_ip": "192.168.1.2", "dst_ip": "10009_94", "proto": "TCP", "src_port": "50000",
    "dst_port": "443", "bytes": 420.0, "packets": 10.0, "flags": ".AP...",
}  # fmt: skip
VIOLATED = {
    "tcp flags": {"proto": "UDP", "dst_port": "99", "flags": ".A...."},
    "private ips": {"src_ip": "10010_1"},
    "tcp port": {"proto": "GRE"},
    "dns": {"dst_port": "53"},
    "valid values": {"src_ip": "192.168.1.255"},
    "netbios": {"dst_port": "138", "dst_ip": "192.168.1.3"},
    "packet ratios": {"bytes": 419.0},
}
SATISFIED = [
    GOOD,
    GOOD | {"src_port": "53", "dst_port": "9", "proto": "UDP", "flags": "......"},
    GOOD | {"dst_port": "137", "dst_ip": "192.168.7.255"},
    GOOD | {"dst_ip": "224.0.0.1"},
    GOOD | {"bytes": 655_350.0},
    GOOD | {"src_ip": "2240.1.1.1", "dst_ip": "192.168.1.1"},  # no multicast address
]
VIOLATED_TOO = [
    ("valid values", {"src_ip": "239.255.255.250", "dst_ip": "192.168.1.1"}),
    ("packet ratios", {"bytes": 655_351.0}),
    ("dns", {"src_port": "53", "proto": "ICMP", "dst_port": "1"}),
    ("netbios", {"dst_port": "137", "src_ip": "10010_1", "dst_ip": "192.168.1.255"}),
]


def violated(row: dict) -> list[str]:
    values = {name: np.array([value]) for name, value in row.items()}
    missing = dict.fromkeys(row, np.array([False]))
    return [
        name
        for name, text in INVARIANTS.items()
        if bool(np.any(Rule.parse(name, text).violations(values, missing)))
    ]


@pytest.mark.parametrize("row", SATISFIED)
def test_normal_rows_satisfy_all_invariants(row):
    assert violated(row) == []


@pytest.mark.parametrize(("name", "change"), [*VIOLATED.items(), *VIOLATED_TOO])
def test_each_invariant_is_violated_by_what_violates_it(name, change):
    assert violated(GOOD | change) == [name]


def test_the_commands_lead_from_a_weekly_file_to_a_weekly_file(tmp_path):
    weekly(tmp_path, *FLOW_LINES[:4] * 30, FLOW_LINES[4])

    def run(*arguments: str) -> str:
        result = CliRunner().invoke(main, [*arguments], catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return result.output

    flows, valid, back = (str(tmp_path / name) for name in ("f.parquet", "v.parquet", "b.csv"))
    run("netflow", "read", str(tmp_path / "week.csv"), "-o", flows, "--valid", valid)
    kept, apart = pd.read_parquet(flows), pd.read_parquet(valid)
    assert len(kept) + len(apart) == 120 and 0 < len(apart) < 20  # the attack is left out
    run("netflow", "schema", "-o", str(tmp_path / "s.json"))
    run("netflow", "schema", "--rules", "-o", str(tmp_path / "i.json"))
    assert json.loads((tmp_path / "i.json").read_text())["rules"] == INVARIANTS
    run("netflow", "write", flows, "-o", back, "--week", "2017-03-15")
    assert flows_of(Path(back)).num_rows == len(kept)
    assert set(flows_of(Path(back)).column("class").to_pylist()) == {"normal"}
    run("netflow", "read", str(tmp_path / "week.csv"), "-o", flows, "--class", "victim")
    run("netflow", "write", flows, "-o", back, "--week", "2017-03-15", "--class", "victim",
        "--attack-type", "dos")  # fmt: skip
    (row,) = flows_of(Path(back)).to_pylist()
    assert (row["class"], row["attackType"], row["attackID"]) == ("victim", "dos", "---")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["-o", "week.csv"], "The output 'week.csv' is also an input of this command"),
        (
            ["-o", "f.parquet", "--valid", "no/v.parquet"],
            "There is no folder 'no' to write 'v.parquet' into.",
        ),
        (
            ["-o", "f.parquet", "--class", "attack"],
            "No flow has the class 'attack'; the classes are: normal, victim.",
        ),
    ],
)
def test_a_mistake_in_reading_changes_no_file(tmp_path, monkeypatch, options, sentence):
    before = weekly(tmp_path, *FLOW_LINES).read_text()
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(main, ["netflow", "read", "week.csv", *options])
    assert done.exit_code == 2 and sentence in done.output
    assert [path.name for path in tmp_path.iterdir()] == ["week.csv"]
    assert (tmp_path / "week.csv").read_text() == before


def test_generated_flows_satisfy_the_invariants_if_they_are_rules(tmp_path):
    rng = np.random.default_rng(0)
    lines = [FLOW_LINES[i] for i in rng.integers(0, 2, 300)]
    fields = to_fields(flows_of(weekly(tmp_path, *lines)))
    model = TabMT(width=16, depth=1, heads=2, steps=5, threads=1)
    made = model.fit(fields, schema=schema(rules=True)).sample(200, seed=0)
    rows = made.to_pylist()
    assert {type(row["bytes"]) for row in rows} == {int}
    names = GOOD.keys()
    assert all(violated({name: row[name] for name in names}) == [] for row in rows)
    assert to_flows(made, datetime.date(2017, 3, 15)).num_rows == 200


@pytest.mark.skipif(
    not (SHARED / "cidds001_internal_week2_normal10k.parquet").exists(),
    reason="needs the shared real flows",
)
def test_real_flows_are_written_and_read_again_and_mostly_satisfy_the_invariants(tmp_path):
    real = pd.read_parquet(SHARED / "cidds001_internal_week2_normal10k.parquet")
    real.to_csv(tmp_path / "week.csv", index=False)
    flows = flows_of(tmp_path / "week.csv")
    assert flows.num_rows == len(real)
    assert flows.column("Bytes").to_pylist() == real["Bytes"].tolist()
    write_flows(tmp_path / "again.csv", [flows])
    assert flows_of(tmp_path / "again.csv").equals(flows)
    fields = to_fields(flows)
    values = {n: np.array(fields.column(n).to_pylist()) for n in GOOD}
    values = {n: v.astype(float) if v.dtype.kind in "if" else v for n, v in values.items()}
    missing = dict.fromkeys(values, np.zeros(len(real), bool))
    for name, text in INVARIANTS.items():
        assert np.mean(Rule.parse(name, text).violations(values, missing)) < 0.01, name


@pytest.mark.parametrize(
    ("name", "shape"), [("S", (64, 12, 4)), ("M", (384, 12, 8)), ("L", (576, 24, 12))]
)
def test_the_papers_models_are_configurations(name, shape):
    given = read_config(name, ())
    model = TabMT(**given)
    assert (model.width, model.depth, model.heads) == shape
    assert (model.network, model.batch_size, model.steps) == ("masked", 2048, 350_000)


def test_the_small_model_of_the_paper_fits_flows(tmp_path):
    weekly(tmp_path, *FLOW_LINES[:4] * 10)
    flows = str(tmp_path / "f.parquet")
    run = CliRunner().invoke
    run(main, ["netflow", "read", str(tmp_path / "week.csv"), "-o", flows])
    model = str(tmp_path / "m.tabmt")
    options = ["--config", "S", "--steps", "2", "--batch-size", "8", "--warmup", "1"]
    options += ["--threads", "1"]
    result = run(main, ["fit", flows, "-o", model, *options], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    shown = run(main, ["info", model]).output
    assert "network   masked, width 64, depth 12, heads 4" in shown
