"""Are the demo's scores reliable? Its scores and those of fresh real rows, over several seeds.

    python -m benchmarks.demo --seeds 5

Each seed splits the bundled penguins table at random, fits the training rows for up to a minute,
and evaluates synthetic rows, as `tabmt demo --seed N` does. Fresh real rows should score 0.5 on
the detector, and the share of rows closer to training should be within two standard errors of its
expectation. Writes benchmarks/results/demo.json.
"""

import argparse
import math
import tempfile
from pathlib import Path

from benchmarks.machine import run_info, save_result
from tabmt import penguins, synthesize


def run(seed: int, minutes: float) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        options = {"target": "species", "minutes": minutes, "seed": seed, "threads": 1}
        scores = synthesize(penguins(), Path(folder) / "demo", **options).evaluation
    detector, closer = scores["detector_auc"], scores["share_closer_to_train"]
    assert detector.value is not None and detector.reference is not None
    assert closer.value is not None and closer.reference is not None
    rows = min(scores.rows["synthetic"], scores.rows["test"])
    error = math.sqrt(closer.reference * (1 - closer.reference) / rows)
    return {
        "seed": seed,
        "detector": detector.value,
        "detector_real": detector.reference,
        "closer_to_train": closer.value,
        "closer_expected": closer.reference,
        "standard_errors": (closer.value - closer.reference) / error,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--minutes", type=float, default=1.0, help="training time of each fit")
    arguments = parser.parse_args()
    runs = []
    for seed in range(arguments.seeds):
        runs.append(run(seed, arguments.minutes))
        print(runs[-1], flush=True)
    save_result(
        "demo", {"table": "penguins", "runs": runs, **run_info("benchmarks.demo", Path(), 1)}
    )


if __name__ == "__main__":
    main()
