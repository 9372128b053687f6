"""Run a suite: every generator on every table with the same time and one thread, then score it.

    python -m benchmarks run comparison --data DATA
    python -m benchmarks run comparison --data DATA --tables adult king --generators ours argn

A suite is a file in benchmarks/suites, or the path of one: tables with their minutes, generators
with their seeds, and the scores to keep. Each run has a folder TABLE/GENERATOR-MINUTESmin-SEED in
--folder with the sample, the log and result.json, which says what was measured on which machine
with which versions, or why it failed. Only folders without an end mark are run again, so the same
command resumes; two processes can share a suite. `fresh` are real validation rows,
the rows of a perfect generator. Writes benchmarks/results/peers-SUITE.json, from which the tables
of the docs are made (`python -m benchmarks tables`). Runs in that file are not repeated either,
even if their folders are gone; --again repeats them, for a generator that has changed.
"""

import argparse
import fcntl
import json
import shutil
import sys
import time
import tomllib
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.datasets import CLEAN_TABLES, Split, TableInfo, add_data_option, load
from benchmarks.machine import result_path, run_info, save_result
from benchmarks.peers.catalogue import PEERS
from benchmarks.peers.environments import (
    default_cache,
    installation_failure,
    run_peer,
    why_not_installed,
)
from tabmt.evaluation.evaluate import EvaluatedTable, Evaluator
from tabmt.evaluation.metrics.fidelity import correlation_errors

SUITES = Path(__file__).parent / "suites"
FRESH = "fresh"  # real rows in place of a generator's
END_MARK = "done"
BINS = 50  # of the histogram of correlation errors, from 0 to 1


@dataclass(frozen=True)
class Job:
    """One generator with one seed on one table, for a number of minutes."""

    table: str
    generator: str
    minutes: float
    seed: int

    def folder(self, runs: Path) -> Path:
        return runs / self.table / f"{self.generator}-{self.minutes:g}min-{self.seed}"


@dataclass(frozen=True)
class Suite:
    """What is to be run."""

    name: str
    tables: dict[str, list[float]]  # with the minutes
    generators: dict[str, int]  # with the number of seeds
    metrics: list[str]

    @classmethod
    def read(cls, name: str, minutes: float | None = None, seeds: int | None = None) -> "Suite":
        path = Path(name) if name.endswith(".toml") else SUITES / f"{name}.toml"
        if not path.is_file():
            names = ", ".join(sorted(found.stem for found in SUITES.glob("*.toml")))
            raise SystemExit(f"There is no suite {name!r}; there are {names}, or give a file.")
        content = tomllib.loads(path.read_text())
        unknown = set(content) - {"metrics", "tables", "generators"}
        unknown |= set(content["tables"]) - set(CLEAN_TABLES)
        unknown |= set(content["generators"]) - set(PEERS) - {FRESH}
        if unknown:
            raise SystemExit(f"{path} has {', '.join(sorted(unknown))}, which does not exist.")
        tables = {
            table: [minutes] if minutes else value if isinstance(value, list) else [value]
            for table, value in content["tables"].items()
        }
        generators = {name: seeds or count for name, count in content["generators"].items()}
        title = path.stem if minutes is None else f"{path.stem}-{minutes:g}min"
        return cls(title, tables, generators, content["metrics"])

    def jobs(self) -> Iterator[Job]:
        """In the order of the tables, whose references are computed once for each process."""
        for table, several in self.tables.items():
            for minutes in several:
                for generator, seeds in self.generators.items():
                    if generator == FRESH and minutes != several[0]:
                        continue
                    for seed in range(seeds):
                        yield Job(table, generator, minutes, seed)


class Scorer:
    """The real rows of a table, and the scores of synthetic ones."""

    def __init__(self, data: Path, info: TableInfo) -> None:
        self.info = info
        self.split: Split = load(data, info)
        self._evaluator: Evaluator | None = None

    def training_table(self) -> pd.DataFrame:
        """The training rows, with categories marked as such: every generator is told the same.

        They are categories of text, because Parquet files keep no others.
        """
        train = self.split.train
        texts = {
            name: train[name].map(str, na_action="ignore").astype("category")
            for name in train
            if self._is_category(train[name])
        }
        return train.assign(**texts)

    def _is_category(self, values: pd.Series) -> bool:
        info = self.info
        if values.name == info.target:
            return info.task == "classification"
        return values.name in info.categorical or not pd.api.types.is_numeric_dtype(values)

    def in_original_types(self, sample: pd.DataFrame) -> pd.DataFrame:
        columns = {}
        for name, real in self.split.train.items():
            values = sample[name]
            if isinstance(values.dtype, pd.CategoricalDtype):
                by_text = {str(value): value for value in real.dropna().unique()}
                values = values.astype(object).map(by_text)
            columns[name] = values.astype(real.dtype)
        return pd.DataFrame(columns)

    def fresh_rows(self) -> pd.DataFrame:
        return self.split.valid

    def score(self, rows: pd.DataFrame, metrics: Sequence[str]) -> dict[str, Any]:
        """Scores beside those of real rows, the worst attack, and the correlation errors."""
        if self._evaluator is None:
            split = self.split
            self._evaluator = Evaluator.of(
                split.train, split.test, split.valid, target=self.info.target,
                catboost_settings={**split.catboost, "thread_count": 1},
            )  # fmt: skip
        evaluated = self._evaluator.evaluate(rows)
        evaluation = evaluated.evaluation
        scores = {
            name: {"value": score.value, "reference": score.reference, "worst": score.worst}
            for name in metrics
            if (score := evaluation.find(name)) is not None
        }
        attack = evaluation.privacy.worst
        result: dict[str, Any] = {"scores": scores, "verdict": evaluation.privacy.outcome}
        if attack is not None:
            ends = {"low": attack.risk_low, "high": attack.risk_high, "auc": attack.auc}
            result["attack"] = {"name": attack.name, "risk": attack.risk, **ends}
        result["correlation_errors"] = self._histogram(evaluated)
        return result

    def _histogram(self, evaluated: EvaluatedTable) -> str:
        """How many correlation errors lie in each of the bins, as text of one line."""
        assert self._evaluator is not None
        errors = correlation_errors(self._evaluator.test, evaluated.encoded)
        counts, _ = np.histogram(np.clip(errors, 0, 1), bins=BINS, range=(0, 1))
        return " ".join(str(count) for count in counts)


@contextmanager
def locked(folder: Path) -> Iterator[bool]:
    """Whether no other process has this folder; the lock ends with the process."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True


def run_job(
    job: Job, scorer: Scorer, metrics: Sequence[str], folder: Path, cache: Path
) -> dict[str, Any]:
    """Make a sample, unless an interrupted run has made it, and score it."""
    report_path, sample_path = folder / "report.json", folder / "sample.parquet"
    if report_path.is_file():
        report = json.loads(report_path.read_text())
    else:
        for path in folder.iterdir():
            if path.name != "lock":
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        report = make_sample(job, scorer, folder, cache)
        write_json(report_path, report)
    result: dict[str, Any] = {
        "table": job.table, "generator": job.generator, "minutes": job.minutes, "seed": job.seed,
        "rows": len(scorer.split.train), **report,
    }  # fmt: skip
    if "failure" in report:
        return result
    started = time.process_time()
    try:
        sample = scorer.in_original_types(pd.read_parquet(sample_path))
        result |= scorer.score(sample, metrics)
    except Exception as error:  # the other runs go on, and this row says why it has no scores
        traceback.print_exc()
        result["failure"] = f"scores: {type(error).__name__}: {error}"[:500]
    result["scoring_cpu_seconds"] = round(time.process_time() - started, 1)
    if job.generator == FRESH:  # fewer rows than the others have
        result.get("scores", {}).pop("ml_efficiency", None)
    return result


def make_sample(job: Job, scorer: Scorer, folder: Path, cache: Path) -> dict[str, Any]:
    """Fit and sample a generator; returns the report of its driver."""
    sample = folder / "sample.parquet"
    if job.generator == FRESH:
        scorer.fresh_rows().to_parquet(sample, index=False)
        return {"about": {"rows": "validation rows"}}
    peer = PEERS[job.generator]
    failure = installation_failure(peer, cache)
    if failure is not None:
        return {"failure": failure}
    train = folder / "train.parquet"
    table = scorer.training_table()
    table.to_parquet(train, index=False)
    report = run_peer(
        peer, train, sample, rows=len(table), target=scorer.info.target or None,
        seconds=60 * job.minutes, seed=job.seed, cache=cache, log=folder / "log.txt",
    )  # fmt: skip
    train.unlink()
    return report


def write_json(path: Path, value: Any) -> None:
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(value, indent=1) + "\n")
    partial.rename(path)


def shortened(value: Any) -> Any:
    """The same with five significant digits, which is more than repeats."""
    if isinstance(value, float):
        return float(f"{value:.5g}")
    if isinstance(value, dict):
        return {key: shortened(item) for key, item in value.items()}
    return value


KEPT = (
    "table", "generator", "minutes", "seed", "failure", "verdict", "attack", "correlation_errors",
    "fit_seconds", "fit_cpu_seconds", "sample_seconds", "sample_cpu_seconds", "peak_mb",
    "peak_mb_of_a_child", "rows", "versions",
)  # fmt: skip


def stored_result(suite: Suite) -> dict[str, Any]:
    """The runs of the suite that its result file holds, and the scores of real rows there."""
    path = result_path(f"peers-{suite.name}")
    if not path.is_file():
        return {"runs": [], "real": {}}
    content = json.loads(path.read_text())
    jobs = set(suite.jobs())
    return {"runs": [r for r in content["runs"] if job_of(r) in jobs], "real": content["real"]}


def job_of(result: Mapping[str, Any]) -> Job:
    return Job(result["table"], result["generator"], result["minutes"], result["seed"])


def summary(suite: Suite, runs: Path) -> dict[str, Any]:
    """All finished runs of a suite, and the scores of real rows for each table."""
    stored = stored_result(suite)
    found: list[dict[str, Any]] = []
    real: dict[str, Any] = stored["real"]
    for table, several in suite.tables.items():
        for path in sorted((runs / table).glob("*/result.json")):
            result = json.loads(path.read_text())
            wanted = result["generator"] in suite.generators and result["minutes"] in several
            if not (wanted and (path.parent / END_MARK).exists()):
                continue
            kept = {key: result[key] for key in KEPT if key in result}
            scores = result.get("scores", {})
            kept["scores"] = {name: score["value"] for name, score in scores.items()}
            kept["cut"] = "; ".join(result.get("about", {}).get("cut", []))
            kept["matrix_product_gflops"] = result["machine"]["matrix_product_gflops"]
            for name, score in scores.items():
                others = {key: score[key] for key in ("reference", "worst")}
                real.setdefault(table, {}).setdefault(name, others)
            found.append(kept)
    known = {job_of(result) for result in found}
    found += [result for result in stored["runs"] if job_of(result) not in known]
    order = list(suite.generators)
    found.sort(key=lambda run: (run["table"], run["minutes"], order.index(run["generator"]),
                                run["seed"]))  # fmt: skip
    content = {"suite": suite.name, "real": real, "runs": found}
    return {key: shortened(value) for key, value in content.items() if key != "runs"} | {
        "runs": [shortened(run) for run in found]
    }


def read_arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks run", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("suite", help="name of a file in benchmarks/suites, or a path")
    add_data_option(parser)
    parser.add_argument("--minutes", type=float, help="to fit, instead of those of the suite")
    parser.add_argument("--seeds", type=int, help="of each generator, instead of the suite's")
    parser.add_argument("--tables", nargs="+", help="only these")
    parser.add_argument("--generators", nargs="+", help="only these")
    parser.add_argument("--retry", action="store_true", help="run failed ones again")
    parser.add_argument("--again", action="store_true", help="run finished ones again")
    parser.add_argument(
        "--folder", type=Path, default=default_cache().with_name("tabmt-runs"), help="of the runs"
    )
    parser.add_argument("--cache", type=Path, default=default_cache(), help="of environments")
    return parser.parse_args(argv)


def main(argv: Sequence[str]) -> None:
    arguments = read_arguments(argv)
    suite = Suite.read(arguments.suite, arguments.minutes, arguments.seeds)
    jobs = [
        job
        for job in suite.jobs()
        if job.table in (arguments.tables or suite.tables)
        and job.generator in (arguments.generators or suite.generators)
    ]
    check_environments({job.generator for job in jobs}, arguments.cache)
    runs = arguments.folder / suite.name
    info = run_info("benchmarks", arguments.data, 1)
    scorer: Scorer | None = None
    if arguments.again:
        forget(suite, jobs, runs)
    for job in jobs:
        folder = job.folder(runs)
        if not folder.exists() and is_stored(suite, job, arguments.retry):
            continue
        with locked(folder) as free:
            if not free or is_finished(folder, arguments.retry):
                continue
            if scorer is None or scorer.info is not CLEAN_TABLES[job.table]:
                scorer = Scorer(arguments.data, CLEAN_TABLES[job.table])
            result = run_job(job, scorer, suite.metrics, folder, arguments.cache)
            write_json(folder / "result.json", {**result, "machine": info})
            (folder / END_MARK).touch()
            print(one_line(result), flush=True)
        save_result(f"peers-{suite.name}", {**summary(suite, runs), **info})


def is_stored(suite: Suite, job: Job, retry: bool) -> bool:
    """Whether the result file has a run; with `retry`, one that did not fail."""
    own = [result for result in stored_result(suite)["runs"] if job_of(result) == job]
    return any(not (retry and "failure" in result) for result in own)


def forget(suite: Suite, jobs: Sequence[Job], runs: Path) -> None:
    """Remove runs, so that they are not resumed but made again."""
    for job in jobs:
        shutil.rmtree(job.folder(runs), ignore_errors=True)
    path = result_path(f"peers-{suite.name}")
    if path.is_file():
        content = json.loads(path.read_text())
        content["runs"] = [result for result in content["runs"] if job_of(result) not in jobs]
        write_json(path, content)


def is_finished(folder: Path, retry: bool) -> bool:
    """Whether a run has its end mark; with `retry`, a failed one loses it."""
    if not (folder / END_MARK).exists():
        return False
    if retry and "failure" in json.loads((folder / "result.json").read_text()):
        for name in (END_MARK, "report.json"):
            (folder / name).unlink(missing_ok=True)
        return False
    return True


def check_environments(generators: set[str], cache: Path) -> None:
    peers = [PEERS[name] for name in generators if name != FRESH]
    missing = [
        text
        for peer in peers
        if installation_failure(peer, cache) is None
        and (text := why_not_installed(peer, cache)) is not None
    ]
    if missing:
        raise SystemExit("\n".join(sorted(missing)))


def one_line(result: dict[str, Any]) -> str:
    head = f"{result['table']} {result['generator']} {result['minutes']:g} min {result['seed']}:"
    if "failure" in result:
        return f"{head} failed: {result['failure']}"
    scores = ", ".join(
        f"{name} {score['value']:.4f}"
        for name, score in result["scores"].items()
        if score["value"] is not None
    )
    return f"{head} fit {result.get('fit_seconds', 0):.0f} s, {scores}"


if __name__ == "__main__":
    main(sys.argv[1:])
