"""From a raw table to its row of the paper's table 1: tune, fit, sample, score, publish beside it.

    python -m benchmarks paper --table AB --data DATA --trials 50

The paper's protocol: 50 trials of its search space with the paper's own method (`--config paper`),
one fit of the best settings, 5 samples of 8 times the training rows, 10 CatBoost models on each,
mean and standard deviation of their scores on the real test rows, and the median distance to the
closest record. Each part is stored in --folder as soon as it is done, and the same command goes on
with what is missing. With --trials 0 nothing is tuned: the sizes of `--config paper` are used.
--method default is this package's default network instead, for a comparison at the same training
time. --drop 0.25 is the paper's table on missing data. With --minutes the parts that do not fit
into this time are cut, and the result says which.
Writes benchmarks/results/paper-TABLE[...].json.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.datasets import TABLES, TableInfo, add_data_option, as_arrow, load
from benchmarks.machine import run_info, save_result
from benchmarks.published import MISSING, MLE
from tabmt import PAPER, TabMT
from tabmt.config import PAPER_METHOD, PAPER_TUNE, CodecConfig
from tabmt.data.infer import infer_schema
from tabmt.evaluation.metrics.encoder import EncodedTable, MetricEncoder
from tabmt.evaluation.metrics.privacy import closeness
from tabmt.evaluation.metrics.utility import ml_efficiency
from tabmt.search.tune import tune

DCR_ROWS = 20_000  # of a sample whose distances are computed
SHARES = {"tune": 0.5, "fit": 0.75}  # of --minutes by which these parts have to end


def find_table(name: str) -> TableInfo:
    for info in TABLES.values():
        if name in (info.name, info.code):
            return info
    codes = ", ".join(f"{info.code} ({info.name})" for info in TABLES.values())
    raise SystemExit(f"There is no table {name!r}; the tables are: {codes}.")


@dataclass(frozen=True)
class Tables:
    """The rows of TabDDPM's split, with missing categories as a category of their own."""

    info: TableInfo
    train: pd.DataFrame
    valid: pd.DataFrame
    test: pd.DataFrame
    catboost: dict[str, Any]

    @classmethod
    def read(cls, data: Path, info: TableInfo, drop: float, seed: int) -> "Tables":
        split = load(data, info)
        tables = []
        for table in (split.train, split.valid, split.test):
            texts = [c for c in table if c not in info.numeric and table[c].isna().any()]
            tables.append(table.assign(**{c: table[c].astype(object).fillna("nan") for c in texts}))
        if drop:
            rng = np.random.default_rng(seed)
            integers = tables[0].select_dtypes("integer").columns
            whole = tables[0].astype(dict.fromkeys(integers, "Int64"))
            tables[0] = whole.mask(rng.random(whole.shape) < drop)
        return cls(info, *tables, {**split.catboost, "thread_count": 1})

    @property
    def schema(self) -> dict[str, Any]:
        """TabDDPM's categories are categories, also where they are numbers."""
        names = [c for c in self.train if c not in self.info.numeric and c != self.info.target]
        if self.info.task == "classification":
            names.append(self.info.target)
        constant = [c for c in names if self.train[c].nunique(dropna=False) < 2]
        kinds = [{"name": c, "kind": "categorical"} for c in names if c not in constant]
        return {"columns": kinds}

    def encoder(self) -> MetricEncoder:
        rows = as_arrow(self.train)
        # TabDDPM's numbers are numbers, however few distinct values they have.
        config = CodecConfig(few_values=0, find_ids=False, find_rules=False)
        return MetricEncoder.fit(rows, infer_schema(rows, config=config, overrides=self.schema))


class Run:
    """The parts of a run, in a folder."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.options = arguments
        self.info = find_table(arguments.table)
        self.name = "-".join(
            [
                "paper",
                self.info.name,
                *([arguments.method] if arguments.method != "paper" else []),
                *([f"drop{arguments.drop:g}"] if arguments.drop else []),
                *([arguments.label] if arguments.label else []),
            ]
        )
        self.folder = (arguments.folder or Path(tempfile.gettempdir()) / "tabmt-paper") / self.name
        self.folder.mkdir(parents=True, exist_ok=True)
        self.tables = Tables.read(arguments.data, self.info, arguments.drop, arguments.seed)
        self.started = time.monotonic()
        self._check_request()

    def _check_request(self) -> None:
        """Refuse to go on with the parts of another request."""
        names = ("trials", "minutes", "fit_minutes", "settings", "samples", "multiplier", "seed")
        request = {name: getattr(self.options, name) for name in names}
        path = self.folder / "request.json"
        if path.exists() and json.loads(path.read_text()) != request:
            raise SystemExit(
                f"{self.folder} has parts of a run with other options: delete it, or use --label."
            )
        path.write_text(json.dumps(request))

    @property
    def cut(self) -> list[str]:
        """What was not done as in the paper, also by an earlier run that this one continues."""
        path = self.folder / "cut.json"
        return json.loads(path.read_text()) if path.exists() else []

    def _note_cut(self, line: str) -> None:
        (self.folder / "cut.json").write_text(json.dumps([*self.cut, line]))

    def minutes_left(self, share: float = 1.0) -> float | None:
        """Minutes until a share of the budget is used; None without a budget."""
        if self.options.minutes is None:
            return None
        return max(0.05, share * self.options.minutes - (time.monotonic() - self.started) / 60)

    # --- settings --------------------------------------------------------------------------

    def settings(self) -> dict[str, Any]:
        options = self.options
        given = json.loads(options.settings)
        if options.method == "default":
            return {"minutes": options.fit_minutes, "target": self.info.target, **given}
        if not options.trials:
            return {**PAPER, **given}
        return {**self.tuned(), **given}

    def tuned(self) -> dict[str, Any]:
        """The best settings of the paper's search space."""
        path = self.folder / "tuned.json"
        if path.exists():
            settings: dict[str, Any] = json.loads(path.read_text())
            return settings
        limit = self.minutes_left(SHARES["tune"])
        trials = self.options.trials
        minutes = None if limit is None else limit / trials
        found = tune(
            self.tables.train,
            self.info.target,
            valid=self.tables.valid,
            schema=self.tables.schema,
            trials=trials,
            fixed=PAPER_METHOD,
            minutes=minutes,
            catboost_settings=self.tables.catboost,
            storage=self.folder / "trials.journal",
            seed=self.options.seed,
            **PAPER_TUNE,
        )
        best = {name: v for name, v in found.best.settings.items() if name != "target"}
        if minutes is not None:
            del best["minutes"]  # of a trial; the fit has its own
            self._note_cut(f"each of {trials} trials trained {minutes:.1f} minutes, not its steps")
        path.write_text(json.dumps(best))
        return best

    # --- fit and samples -------------------------------------------------------------------

    def model(self) -> TabMT:
        path = self.folder / "model.tabmt"
        if path.exists():
            return TabMT.load(path)
        settings = self.settings()
        limit = self.minutes_left(SHARES["fit"])
        if limit is not None and settings.get("minutes") is None:
            settings["minutes"] = limit
            self._note_cut(f"trained {limit:.1f} minutes, not its steps")
        checkpoint = path.with_suffix(".checkpoint")
        model = TabMT(**{"seed": self.options.seed, "threads": 1, **settings})
        model.fit(
            self.tables.train,
            schema=self.tables.schema,
            checkpoint=checkpoint,
            resume=checkpoint.exists(),
        )
        model.save(path)
        checkpoint.unlink(missing_ok=True)
        return model

    def samples(self, model: TabMT) -> Iterator[pd.DataFrame]:
        rows = self.options.multiplier * len(self.tables.train)
        for number in range(self.options.samples):
            path = self.folder / f"sample-{number}.parquet"
            if not path.exists():
                model.set_params(threads=1).sample(rows, seed=number).to_parquet(path)
            yield pd.read_parquet(path)

    # --- scores ----------------------------------------------------------------------------

    def scores(self, model: TabMT) -> dict[str, Any]:
        """MLE of each sample and CatBoost model, and DCR of each sample."""
        encoder = self.tables.encoder()
        valid, test, train = (
            encoder.encode(as_arrow(table), "real")
            for table in (self.tables.valid, self.tables.test, self.tables.train)
        )
        path = self.folder / "scores.json"
        done: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
        for number, rows in enumerate(self.samples(model)):
            encoded = encoder.encode(as_arrow(rows), "synthetic")
            if f"dcr {number}" not in done:
                done[f"dcr {number}"] = self._dcr(encoded, train, number)
            for seed in range(self.options.models):
                left = self.minutes_left()
                if f"mle {number} {seed}" in done:
                    continue
                if left is not None and left < 0.1 and seed:
                    break
                score = ml_efficiency(
                    encoded, valid, test, self.info.target,
                    settings=self.tables.catboost, seed=seed,
                ).score  # fmt: skip
                done[f"mle {number} {seed}"] = score
                path.write_text(json.dumps(done))
        path.write_text(json.dumps(done))
        return done

    def _dcr(self, rows: EncodedTable, train: EncodedTable, number: int) -> float:
        chosen = np.random.default_rng(number).permutation(len(rows))[:DCR_ROWS]
        return closeness(rows.take(np.sort(chosen)), train).median

    def result(self) -> dict[str, Any]:
        model = self.model()
        scores = self.scores(model)
        mle = [value for key, value in scores.items() if key.startswith("mle")]
        options, summary = self.options, model.card_.summary
        asked = options.samples * options.models
        cut = self.cut
        if len(mle) < asked:
            cut.append(f"{len(mle)} of {asked} CatBoost models")
        if options.multiplier * len(self.tables.train) > DCR_ROWS:
            cut.append(f"DCR of {DCR_ROWS:,} rows of each sample")
        if (options.samples, options.models, options.multiplier) != (5, 10, 8):
            cut.append(
                f"{options.samples} samples of {options.multiplier} times the rows with "
                f"{options.models} models each; the paper has 5, 8 and 10"
            )
        if options.method == "paper" and options.trials < 50:
            cut.append(f"{options.trials} of 50 trials")
        assert summary is not None
        published = MLE.get(self.info.code, {})
        return {
            "table": self.info.name,
            "code": self.info.code,
            "method": options.method,
            "metric": self.info.metric,
            "mle": float(np.mean(mle)),
            "sd": float(np.std(mle)),
            "models": len(mle),
            "dcr": float(np.mean([v for k, v in scores.items() if k.startswith("dcr")])),
            "published": published.get("TabMT"),
            "published_missing": MISSING.get(self.info.code) if options.drop else None,
            "real": published.get("Real"),
            "training_minutes": summary.seconds / 60,
            "training_steps": summary.steps,
            "train_loss": summary.train_loss,
            "settings": model.card_.settings.to_json(),
            "cut": cut,
            "label": options.label,
            "seed": options.seed,
        }


def add_options(parser: argparse.ArgumentParser) -> None:
    add_data_option(parser)
    parser.add_argument("--table", required=True, help="the paper's code, such as AD, or a name")
    parser.add_argument("--trials", type=int, default=50, help="of the tuner; 0: no tuning")
    parser.add_argument("--minutes", type=float, help="for everything; parts are then cut")
    parser.add_argument("--method", choices=("paper", "default"), default="paper")
    parser.add_argument("--fit-minutes", type=float, default=10.0, help="of --method default")
    parser.add_argument("--settings", default="{}", help="JSON of settings that replace others")
    parser.add_argument("--label", default="", help="added to the name of the result")
    parser.add_argument("--drop", type=float, default=0.0, help="share of training values to drop")
    parser.add_argument("--samples", type=int, default=5)
    parser.add_argument("--models", type=int, default=10, help="CatBoost models for each sample")
    parser.add_argument("--multiplier", type=int, default=8, help="sampled rows / training rows")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, help="where parts are stored")


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks paper", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add_options(parser)
    arguments = parser.parse_args(argv)
    run = Run(arguments)
    result = run.result()
    published = result["published"]
    print(
        f"{run.info.code}: {result['metric']} {result['mle']:.3f} +- {result['sd']:.3f}, "
        f"published {published}, DCR {result['dcr']:.3f}"
    )
    for line in result["cut"]:
        print(f"cut: {line}")
    save_result(run.name, {**result, **run_info("benchmarks", arguments.data, 1)})


if __name__ == "__main__":
    main()
