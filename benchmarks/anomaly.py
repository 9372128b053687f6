"""Detecting attacks: a model of normal network flows scores flows that it has not seen (CIDDS-001).

    python -m benchmarks.anomaly --data DATA --minutes 5 --seeds 3

Only normal training flows are learned. AUC says how well the anomaly score separates attacks from
normal test flows: 0.5 is chance, and below 0.5 attacks look more normal than normal flows. It is
compared with an isolation forest on the same rows and columns, with numbers as they are and as
logarithms. Attacks are scored from all rows of a table, because none of them is learned. Cases:

    external         external server: class normal against attacker and victim
    external-benign  the same, with suspicious and unknown flows, nearly all there are, as normal
    week1            internal week 1: normal against denial of service
    weeks            learned from the normal flows of weeks 2 and 3, scored on those of week 1

Left out are columns that contain the class (label, attack type and id), and columns that reveal it
only in this recording: times, since attacks ran at certain hours, and addresses, since classes were
assigned by them. Of all internal flows together only `weeks` is used: all attacks are in week 1, so
a model that recognises the week would seem to recognise the attack.
Writes benchmarks/results/anomaly-CASE.json.
"""

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.ensemble import IsolationForest
from sklearn.metrics import roc_auc_score

from benchmarks.datasets import add_data_option, as_arrow
from benchmarks.encoding import Encoding
from benchmarks.intervals import over_seeds
from benchmarks.machine import run_info, save_result
from tabmt import TabMT
from tabmt.evaluation.metrics.encoder import EncodedTable, MetricEncoder

MOST_TRAINING_ROWS, MOST_SCORED_ROWS = 30_000, 5_000
EXTERNAL, COMBINED = "cidds001_external", "cidds001_flows_combined"
ATTACKS = ("attacker", "victim")


@dataclass(frozen=True)
class Case:
    table: str
    label: str
    normal: tuple[Any, ...]
    attack: tuple[Any, ...]
    left_out: tuple[str, ...]  # in addition to the label
    other_weeks: bool = False  # learn weeks 2 and 3, score week 1


CASES = {
    "external": Case(EXTERNAL, "label", ("normal",), ATTACKS, ("attack_type", "attack_id")),
    "external-benign": Case(
        EXTERNAL,
        "label",
        ("normal", "suspicious", "unknown"),
        ATTACKS,
        ("attack_type", "attack_id"),
    ),
    "week1": Case("cidds001_internal_week1_dos15k", "label", (0,), (1,), ("srcip", "dstip", "ts")),
    "weeks": Case(
        COMBINED,
        "class",
        ("normal",),
        ("attack",),
        ("Date first seen", "Src IP Addr", "Dst IP Addr", "Flags", "Tos", "source"),
        other_weeks=True,
    ),
}


def load_flows(folder: Path, case: Case, rng: np.random.Generator) -> list[pd.DataFrame]:
    """Normal flows to learn, normal flows to score, attacks to score."""
    table = pd.read_parquet(folder / f"{case.table}.parquet")
    split = np.load(folder / f"{case.table}.split.npz")
    in_train, in_test = (np.isin(np.arange(len(table)), split[rows]) for rows in ("train", "test"))
    normal = table[case.label].isin(case.normal).to_numpy()
    attack = table[case.label].isin(case.attack).to_numpy()
    if case.other_weeks:
        week1 = table["source"].str.startswith("internal-week1").to_numpy()
        masks = [normal & ~week1 & in_train, normal & week1 & in_test, attack & week1]
    else:
        masks = [normal & in_train, normal & in_test, attack]
    columns = table.drop(columns=[case.label, *case.left_out])
    limits = (MOST_TRAINING_ROWS, MOST_SCORED_ROWS, MOST_SCORED_ROWS)
    tables = []
    for mask, most in zip(masks, limits, strict=True):
        rows = np.flatnonzero(mask)
        if len(rows) > most:
            rows = rng.choice(rows, most, replace=False)
        tables.append(columns.iloc[rows].reset_index(drop=True))
    return tables


def logarithms(table: EncodedTable) -> EncodedTable:
    numbers = {name: np.log1p(values) for name, values in table.numbers.items()}
    return EncodedTable(numbers, table.codes, table.encoder)


def run(name: str, seed: int, arguments: argparse.Namespace) -> dict[str, Any]:
    train, normal, attack = load_flows(arguments.data, CASES[name], np.random.default_rng(seed))
    model = TabMT(minutes=arguments.minutes, seed=seed, threads=arguments.threads).fit(train)
    is_attack = np.repeat([0, 1], [len(normal), len(attack)])
    flows = pd.concat([normal, attack], ignore_index=True)
    scores = model.score(flows, seed=seed)
    auc = {"ours": float(roc_auc_score(is_attack, scores["anomaly"]))}
    encoder = MetricEncoder.fit(as_arrow(train), model.schema_)
    encoded = [encoder.encode(as_arrow(table), "benchmark") for table in (train, flows)]
    variants = {"": encoded, ", logarithms": [logarithms(table) for table in encoded]}
    for variant, (learned, scored) in variants.items():
        encoding = Encoding.fit(learned)
        forest = IsolationForest(random_state=seed).fit(encoding.encode(learned))
        anomaly = -forest.score_samples(encoding.encode(scored))
        auc[f"isolation forest{variant}"] = float(roc_auc_score(is_attack, anomaly))
    print(f"{name} seed {seed}: AUC {auc}", flush=True)
    return {
        "seed": seed,
        "columns": encoder.names,
        "constant": list(encoder.left_out),
        "training_rows": len(train),
        "normal_rows": len(normal),
        "attack_rows": len(attack),
        "auc": auc,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_data_option(parser)
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=CASES)
    parser.add_argument("--minutes", type=float, default=5.0, help="training time of each model")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    for name in arguments.cases:
        case = CASES[name]
        runs = [run(name, seed, arguments) for seed in range(arguments.seeds)]
        methods = list(runs[0]["auc"])
        result = {
            "case": name,
            "table": case.table,
            "normal": case.normal,
            "attack": case.attack,
            "left_out": [case.label, *case.left_out],
            "auc": {method: over_seeds([run["auc"][method] for run in runs]) for method in methods},
            "runs": runs,
            **run_info("benchmarks.anomaly", arguments.data, arguments.threads),
        }
        save_result(f"anomaly-{name}", result)


if __name__ == "__main__":
    main()
