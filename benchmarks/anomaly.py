"""Are attacks odd? A model of normal network flows scores flows it never saw (CIDDS-001).

    python -m benchmarks.anomaly --data DATA --minutes 5 --seeds 3

Only normal training flows are learned; AUC says how well the anomaly score tells attacks from
normal test flows, 0.5 being chance and below it attacks looking more normal than normal flows. An
isolation forest of the same rows and columns stands beside it, with numbers as they are and as
logarithms. Attacks are scored from all parts of a table, for none is learned. Cases:

    external         external server: class normal against attacker and victim
    external-benign  the same, with suspicious and unknown flows, nearly all there are, as normal
    week1            internal week 1: normal against denial of service
    weeks            learned from the normal flows of weeks 2 and 3, scored on those of week 1

Left out is what tells the class (label, attack type and id), and what would in this recording only:
times, since attacks ran at certain hours, and addresses, since classes were assigned by them. Of
the union of all internal flows only `weeks` is used: its attacks are all of week 1, so that telling
the week would pass for telling the attack. Writes benchmarks/results/anomaly-CASE.json.
"""

import argparse
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.ensemble import IsolationForest
from sklearn.metrics import roc_auc_score

from benchmarks.encoding import Encoding
from benchmarks.intervals import over_seeds
from benchmarks.machine import RESULTS, told
from tabmt import TabMT
from tabmt.data.files import load as load_table
from tabmt.evaluation.metrics.view import Lens, View

MOST_TRAINING_ROWS, MOST_SCORED_ROWS = 30_000, 5_000
EXTERNAL, COMBINED = "cidds001_external", "cidds001_flows_combined"
ATTACKS = ("attacker", "victim")


@dataclass(frozen=True)
class Case:
    table: str
    label: str
    normal: tuple[Any, ...]
    attack: tuple[Any, ...]
    left_out: tuple[str, ...]  # beside the label
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


def parts(folder: Path, case: Case, rng: np.random.Generator) -> list[pd.DataFrame]:
    """Normal flows to learn, normal flows to score, attacks to score."""
    table = pd.read_parquet(folder / f"{case.table}.parquet")
    rows = np.load(folder / f"{case.table}.split.npz")
    is_in = {part: np.isin(np.arange(len(table)), rows[part]) for part in ("train", "test")}
    normal = table[case.label].isin(case.normal).to_numpy()
    attack = table[case.label].isin(case.attack).to_numpy()
    if case.other_weeks:
        week1 = table["source"].str.startswith("internal-week1").to_numpy()
        chosen = [normal & ~week1 & is_in["train"], normal & week1 & is_in["test"], attack & week1]
    else:
        chosen = [normal & is_in["train"], normal & is_in["test"], attack]
    columns = table.drop(columns=[case.label, *case.left_out])
    found = []
    for mask, most in zip(chosen, (MOST_TRAINING_ROWS, *[MOST_SCORED_ROWS] * 2), strict=True):
        places = np.flatnonzero(mask)
        if len(places) > most:
            places = rng.choice(places, most, replace=False)
        found.append(columns.iloc[places].reset_index(drop=True))
    return found


def logarithms(view: View) -> View:
    return View({name: np.log1p(v) for name, v in view.numbers.items()}, view.codes, view.lens)


def run(name: str, seed: int, arguments: argparse.Namespace) -> dict[str, Any]:
    train, normal, attack = parts(arguments.data, CASES[name], np.random.default_rng(seed))
    model = TabMT(minutes=arguments.minutes, seed=seed, threads=arguments.threads).fit(train)
    is_attack = np.repeat([0, 1], [len(normal), len(attack)])
    flows = pd.concat([normal, attack], ignore_index=True)
    scored = model.score(flows, seed=seed)
    auc = {"ours": float(roc_auc_score(is_attack, scored["anomaly"]))}
    lens = Lens.grind(load_table(train)[0], model.schema_)
    views = [lens.view(load_table(part)[0], "benchmark") for part in (train, flows)]
    ways = {"": views, ", logarithms": [logarithms(view) for view in views]}
    for way, (learned, judged) in ways.items():
        encoding = Encoding.fit(learned)
        forest = IsolationForest(random_state=seed).fit(encoding.encode(learned))
        oddness = -forest.score_samples(encoding.encode(judged))
        auc[f"isolation forest{way}"] = float(roc_auc_score(is_attack, oddness))
    print(f"{name} seed {seed}: {auc}", flush=True)
    return {
        "seed": seed,
        "columns": lens.names,
        "constant": list(lens.left_out),
        "training_rows": len(train),
        "normal_rows": len(normal),
        "attack_rows": len(attack),
        "auc": auc,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of tables and splits")
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=CASES)
    parser.add_argument("--minutes", type=float, default=5.0, help="of training, for each model")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    if not arguments.data.is_dir():
        parser.error(f"there is no folder {arguments.data} with the tables")
    RESULTS.mkdir(exist_ok=True)
    for name in arguments.cases:
        case = CASES[name]
        runs = [run(name, seed, arguments) for seed in range(arguments.seeds)]
        result = {
            "case": name,
            "table": case.table,
            "normal": case.normal,
            "attack": case.attack,
            "left_out": [case.label, *case.left_out],
            "auc": {way: over_seeds([run["auc"][way] for run in runs]) for way in runs[0]["auc"]},
            "runs": runs,
            **told("benchmarks.anomaly", arguments.data, arguments.threads),
        }
        path = RESULTS / f"anomaly-{name}.json"
        path.write_text(json.dumps(result, indent=2) + "\n")
        print(f"into {path}", flush=True)


if __name__ == "__main__":
    main()
