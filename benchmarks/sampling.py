"""What sampling costs: the naive loop of full passes against ours, and the size of a chunk.

    python -m benchmarks.sampling --data DATA

The naive loop makes a full pass of the masked network for each column drawn: every row, every cell,
every field's output, as the paper describes it, in the paper's chunks of 512 rows. Ours is measured
in chunks of several sizes, up to that of large samples. Writes benchmarks/results/sampling.json.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.datasets import DATASETS, load
from benchmarks.machine import RESULTS, told
from tabmt import TabMT
from tabmt.method.masked import MaskedNetwork
from tabmt.method.sample import draw, fill
from tabmt.tokens import MASK

CHUNKS = (256, 512, 1024, 4096)
PAPERS = 512
ROWS = 32_768  # eight orders of the largest: rows merge the better, the fewer codes come first


def naive(net: MaskedNetwork, rows: int, seed: int) -> Tensor:
    """One full pass per column: the outputs of all columns, of which one is drawn."""
    generator = torch.Generator().manual_seed(seed)
    columns = len(net.fields.sizes)
    tokens = torch.full((rows, columns), MASK)
    every = torch.arange(rows)
    with torch.inference_mode():
        for column in torch.randperm(columns, generator=generator).tolist():
            hidden, outputs = net.hidden(tokens), net.fields.outputs(net.fields.table())
            logits = [one.logits(hidden[:, c]) for c, one in enumerate(outputs)]
            tokens[:, column], _ = draw(
                logits[column], every, temperature=1.0, allowed=None, generator=generator
            )
    return tokens


def ours(net: Any, rows: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    columns = len(net.fields.sizes)
    blank = torch.full((rows, columns), MASK)
    return fill(net, blank, temperature=torch.ones(columns), generator=generator)


def rates(net: Any, ways: list[tuple[Any, int]]) -> list[float]:
    """Rows per second of each way and chunk, taken in turns: a busy moment then slows them all."""
    seconds = [0.0] * len(ways)
    largest = max(chunk for _, chunk in ways)
    for turn in range(ROWS // largest):
        for place, (way, chunk) in enumerate(ways):
            started = time.perf_counter()
            for part in range(largest // chunk):
                way(net, chunk, turn * largest // chunk + part)
            seconds[place] += time.perf_counter() - started
    return [ROWS / spent for spent in seconds]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of tables and splits")
    parser.add_argument("--table", default="adult", choices=DATASETS)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=1.0)
    arguments = parser.parse_args()
    train = load(arguments.data, DATASETS[arguments.table]).train
    found: dict[str, dict[str, float]] = {}
    for network in ("any-order", "masked"):
        settings = {"minutes": arguments.minutes, "threads": arguments.threads}
        net = TabMT(network=network, **settings).fit(train).learned_.net
        torch.set_num_threads(arguments.threads)
        ways: list[tuple[Any, int]] = [(ours, chunk) for chunk in CHUNKS]
        if network == "masked":
            assert torch.equal(naive(net, 512, 0), ours(net, 512, 0)), "the rows differ"
            ways.append((naive, PAPERS))
        measured = rates(net, ways)
        found[network] = dict(zip(map(str, CHUNKS), measured, strict=False))
        if network == "masked":
            found["naive"] = {str(PAPERS): measured[-1]}
        print(network, found, flush=True)
    result = {
        "table": arguments.table,
        "columns": len(train.columns),
        "rows_per_second_by_chunk": found,
        "masked / naive": {
            chunk: rate / found["naive"][str(PAPERS)] for chunk, rate in found["masked"].items()
        },
        **told("benchmarks.sampling", arguments.data, arguments.threads),
    }
    print("masked / naive", result["masked / naive"])
    (RESULTS / "sampling.json").write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
