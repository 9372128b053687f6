"""Real flows by NFGAN and by our networks, compared in one embedding, beside the paper's table.

    python -m benchmarks flow-peers --data DATA --minutes 20 --folder PARTS

The flows of `python -m benchmarks netflow`, 95 % training and 5 % validation rows, every field a
category. First the paper's network (masked, size S) is fitted; it embeds the rows of every
generator, and is one of them. The others are fitted for the same time with one thread: our default
network, NFGAN, and shuffled columns and copies to read the scores by. Of each as many rows as there
are validation rows are compared with as many training rows. Models and samples are stored in
--folder, and the same command goes on with what is missing. Writes
benchmarks/results/flow-peers.json.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from benchmarks.datasets import add_data_option
from benchmarks.machine import run_info, save_result
from benchmarks.netflow import diversity, evaluate, real_flows
from benchmarks.peers.catalogue import PEERS
from benchmarks.peers.environments import default_cache, run_peer
from tabmt import TabMT
from tabmt.config import PRESETS
from tabmt.netflow import schema

OTHERS = ("nfgan", "shuffled", "copies")
OURS = {"masked": 12, "any-order": 2}  # network -> depth; 12 is the paper's S


def as_categories(flows: pa.Table) -> pd.DataFrame:
    """Every field as a category of text."""
    return pd.DataFrame(
        {
            name: flows.column(name).cast(pa.string()).dictionary_encode().to_pandas()
            for name in flows.column_names
        }
    )


def as_flows(table: pd.DataFrame, types: pa.Schema) -> pa.Table:
    """Categories of text as the types of the flows."""
    columns = {
        field.name: pa.array(table[field.name].astype(object), pa.string(), from_pandas=True).cast(
            field.type
        )
        for field in types
    }
    return pa.table(columns, schema=types)


class Parts:
    """What has been made so far, in a folder."""

    def __init__(self, train: pa.Table, rows: int, arguments: argparse.Namespace) -> None:
        self.train, self.rows = train, rows
        self.minutes, self.seed = arguments.minutes, arguments.seed
        self.folder: Path = arguments.folder / f"flows-{self.minutes:g}min-{self.seed}"
        self.cache: Path = arguments.cache
        self.folder.mkdir(parents=True, exist_ok=True)

    def model(self, network: str) -> TabMT:
        path = self.folder / f"{network}.tabmt"
        if path.exists():
            return TabMT.load(path)
        sizes = {key: PRESETS["S"][key] for key in ("width", "heads")}
        settings = {"network": network, "depth": OURS[network], "missing": "masked"}
        model = TabMT(**sizes, **settings, minutes=self.minutes, seed=self.seed, threads=1)
        model.fit(self.train, schema=schema())
        model.save(path)
        return model

    def by_ours(self, network: str) -> pa.Table:
        rows: pa.Table = self.model(network).sample(self.rows, seed=self.seed, output="arrow")
        return rows

    def by_peer(self, name: str) -> tuple[pa.Table | None, dict[str, Any]]:
        """The rows of a generator and its report; none if it failed."""
        report, sample = self.folder / f"{name}.json", self.folder / f"{name}.parquet"
        if not report.exists():
            train = self.folder / f"{name}-train.parquet"
            as_categories(self.train).to_parquet(train, index=False)
            found = run_peer(
                PEERS[name], train, sample, rows=self.rows, target=None,
                seconds=60 * self.minutes, seed=self.seed, cache=self.cache,
                log=self.folder / f"{name}.log",
            )  # fmt: skip
            train.unlink()
            report.write_text(json.dumps(found))
        said: dict[str, Any] = json.loads(report.read_text())
        if "failure" in said:
            return None, said
        return as_flows(pd.read_parquet(sample), self.train.schema), said


def split(data: Path, seed: int) -> tuple[pa.Table, pa.Table]:
    """Validation and training rows, as in `python -m benchmarks netflow`."""
    flows = real_flows(data)
    order = np.random.default_rng(seed).permutation(flows.num_rows)
    cut = flows.num_rows // 20
    valid, train = (flows.take(pa.array(rows)) for rows in (order[:cut], order[cut:]))
    return valid, train


def compare(arguments: argparse.Namespace) -> dict[str, Any]:
    valid, train = split(arguments.data, arguments.seed)
    rows = valid.num_rows
    parts = Parts(train, rows, arguments)
    embedding = parts.model("masked")

    def scores(generated: pa.Table) -> dict[str, Any]:
        rng = np.random.default_rng(arguments.seed)  # the same training rows for every generator
        return evaluate(embedding, generated.slice(0, rows), train, valid, rng)

    sources: dict[str, Any] = {"validation rows": scores(valid)}
    for network in OURS:
        sources[f"ours, {network}"] = scores(parts.by_ours(network))
        print(network, sources[f"ours, {network}"], flush=True)
    for name in OTHERS:
        generated, report = parts.by_peer(name)
        failed = {"failure": report.get("failure", "")}
        sources[name] = failed if generated is None else scores(generated) | {
            key: report[key] for key in ("fit_seconds", "fit_cpu_seconds") if key in report
        }  # fmt: skip
        print(name, sources[name], flush=True)
    return {
        "training_rows": train.num_rows,
        "rows": rows,
        "minutes": arguments.minutes,
        "seed": arguments.seed,
        "diversity_of_training_rows": diversity(train, valid),
        "sources": sources,
    }


def main(argv: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks flow-peers", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add_data_option(parser)
    parser.add_argument("--minutes", type=float, default=20.0, help="to fit, of each generator")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, default=default_cache().with_name("tabmt-runs"))
    parser.add_argument("--cache", type=Path, default=default_cache(), help="of environments")
    arguments = parser.parse_args(argv)
    save_result("flow-peers", {**compare(arguments), **run_info("benchmarks", arguments.data, 1)})
