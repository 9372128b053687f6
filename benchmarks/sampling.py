"""The speed of sampling: a naive loop of full passes against ours, and chunks of several sizes.

    python -m benchmarks.sampling --data DATA

For each column, the naive loop makes a full pass of the masked network over every row, every cell
and every column's output, as the paper describes it, in the paper's chunks of 512 rows. Ours is
measured with chunks of several sizes, up to that of large samples. Writes
benchmarks/results/sampling.json.
"""

import argparse
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from benchmarks.datasets import CLEAN_TABLES, add_data_option, load
from benchmarks.machine import run_info, save_result
from tabmt import TabMT
from tabmt.method.draw_codes import draw_codes
from tabmt.method.masked import MaskedNetwork
from tabmt.method.sample import fill
from tabmt.tokens import MASK

CHUNKS = (256, 512, 1024, 4096)
PAPERS_CHUNK = 512
# Eight chunks of the largest size: how many rows merge depends on the order of a chunk.
ROWS = 32_768
Sampler = Callable[[Any, int, int], Tensor]  # network, rows, seed -> tokens


def naive(net: MaskedNetwork, rows: int, seed: int) -> Tensor:
    """One full pass per column: the outputs of all columns, of which one is drawn."""
    generator = torch.Generator().manual_seed(seed)
    columns = len(net.sizes)
    tokens = torch.full((rows, columns), MASK)
    every_row = torch.arange(rows)
    with torch.inference_mode():
        for column in torch.randperm(columns, generator=generator).tolist():
            hidden = net.hidden(tokens)
            outputs = net.output.columns(net.embedding.table())
            logits = [output.logits(hidden[:, index]) for index, output in enumerate(outputs)]
            tokens[:, column], _ = draw_codes(
                logits[column], every_row, temperature=1.0, allowed=None, generator=generator
            )
    return tokens


def ours(net: Any, rows: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    columns = len(net.sizes)
    masked = torch.full((rows, columns), MASK)
    return fill(net, masked, temperature=torch.ones(columns), generator=generator)


def rates(net: Any, samplers: list[tuple[Sampler, int]]) -> list[float]:
    """Rows per second of each sampler and chunk size, measured in turns, so that other load on the
    machine slows them all."""
    seconds = [0.0] * len(samplers)
    largest = max(chunk for _, chunk in samplers)
    for turn in range(ROWS // largest):
        for index, (sampler, chunk) in enumerate(samplers):
            started = time.perf_counter()
            for number in range(largest // chunk):
                sampler(net, chunk, turn * largest // chunk + number)
            seconds[index] += time.perf_counter() - started
    return [ROWS / total for total in seconds]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_data_option(parser)
    parser.add_argument("--table", default="adult", choices=CLEAN_TABLES)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=1.0, help="training time of each model")
    arguments = parser.parse_args()
    train = load(arguments.data, CLEAN_TABLES[arguments.table]).train
    speeds: dict[str, dict[str, float]] = {}
    for network in ("any-order", "masked"):
        settings = {"minutes": arguments.minutes, "threads": arguments.threads}
        net = TabMT(network=network, **settings).fit(train).model_.net
        torch.set_num_threads(arguments.threads)
        samplers: list[tuple[Sampler, int]] = [(ours, chunk) for chunk in CHUNKS]
        if network == "masked":
            assert torch.equal(naive(net, 512, 0), ours(net, 512, 0)), "the rows differ"
            samplers.append((naive, PAPERS_CHUNK))
        measured = rates(net, samplers)
        speeds[network] = dict(zip(map(str, CHUNKS), measured, strict=False))
        if network == "masked":
            speeds["naive"] = {str(PAPERS_CHUNK): measured[-1]}
        print(network, speeds, flush=True)
    naive_speed = speeds["naive"][str(PAPERS_CHUNK)]
    result = {
        "table": arguments.table,
        "columns": len(train.columns),
        "rows_per_second_by_chunk": speeds,
        "masked / naive": {chunk: speed / naive_speed for chunk, speed in speeds["masked"].items()},
        **run_info("benchmarks.sampling", arguments.data, arguments.threads),
    }
    print("masked / naive", result["masked / naive"])
    save_result("sampling", result)


if __name__ == "__main__":
    main()
