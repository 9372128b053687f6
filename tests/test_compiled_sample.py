"""Compiled kernels draw the rows that sample.fill draws, up to the rounding of float32."""

import logging
import sys
from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from tabmt import TabMT, penguins
from tabmt.config import NetworkConfig
from tabmt.method import compiled_sample
from tabmt.method.compiled_sample import Chunk, CompiledNetwork, compile_network, draw_chunks
from tabmt.method.embedding import Field
from tabmt.method.sample import draw_order, fill
from tabmt.model import generate
from tabmt.tokens import MASK
from tests.small_networks import FIELDS, generator, make, small

kernels = pytest.importorskip("tabmt.method.kernels")

MANY = (*FIELDS, Field(40, None), Field(300, None))  # more codes than rows of some prefixes


def network(precision, config=None, fields=MANY):
    net = make(config or small("any-order"), fields)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled_sample, "has_bfloat16", lambda: precision == "bfloat16")
        return net, CompiledNetwork(net)


def draw(compiled, counts, seeds, temperature=1.0, allowed=None):
    columns = len(compiled.sizes)
    chunks = []
    for count, seed in zip(counts, seeds, strict=True):
        noise = generator(seed)
        order = draw_order(columns, noise).tolist()
        chunks.append(Chunk(order, noise, np.full((columns, count), MASK)))
    draw_chunks(
        compiled,
        chunks,
        temperature=torch.full((columns,), temperature, dtype=torch.float64),
        allowed=allowed or [None] * columns,
    )
    return [chunk.tokens.T for chunk in chunks]


@pytest.mark.parametrize(
    "config",
    [
        small("any-order"),
        NetworkConfig(network="any-order", width=12, depth=1, heads=3),
        NetworkConfig(network="any-order", width=16, depth=3, heads=2),
    ],
    ids=lambda config: f"width {config.width}, depth {config.depth}, heads {config.heads}",
)
@pytest.mark.parametrize("temperature", [1.0, 0.4])
def test_chunks_side_by_side_have_the_rows_of_single_chunks(config, temperature):
    net, compiled = network("float32", config)
    allowed = [None] * len(MANY)
    allowed[4] = torch.rand(40, generator=generator(7), dtype=torch.float64).round(decimals=1)
    counts, seeds = [700, 64, 1, 700], [3, 4, 5, 6]
    drawn = draw(compiled, counts, seeds, temperature, allowed)
    for tokens, count, seed in zip(drawn, counts, seeds, strict=True):
        expected = fill(
            net,
            torch.full((count, len(MANY)), MASK),
            temperature=torch.full((len(MANY),), temperature, dtype=torch.float64),
            generator=generator(seed),
            allowed=allowed,
        ).numpy()
        assert (tokens == expected).mean() > 0.999  # a draw may lie on the edge of two codes
        assert (allowed[4][tokens[:, 4]] > 0).all()


@pytest.mark.skipif(not compiled_sample.has_bfloat16(), reason="no instructions for bfloat16")
def test_rows_in_bfloat16_follow_the_distribution_of_float32():
    fields, n = FIELDS[:3], 60_000
    rows = {}
    for precision in ("float32", "bfloat16"):
        _, compiled = network(precision, fields=fields)
        drawn = np.concatenate(draw(compiled, [n // 30] * 30, range(30)))
        cells = drawn @ np.array([1, 3, 15])  # each of the 30 possible rows
        rows[precision] = np.bincount(cells, minlength=30)
    expected = rows["float32"] + 1
    # Both are samples, of the same random numbers: they agree better than independent samples.
    assert chisquare(rows["bfloat16"] + 1, expected).pvalue > 0.001


def run_kernel(logits, starts, seed=0):
    count = int(starts[-1])
    row_ids = np.random.default_rng(1).permutation(count)
    drawn, parents, codes = np.empty(count, np.int64), *np.empty((2, count), np.int32)
    next_starts = np.empty(count + 1, np.int64)
    uniform = np.random.default_rng(seed).random(count)
    before = [set(row_ids[a:b]) for a, b in pairwise(starts)]
    prefixes = kernels.draw_and_split(
        logits, uniform, starts, row_ids, drawn, parents, codes, next_starts
    )
    groups = [row_ids[next_starts[p] : next_starts[p + 1]] for p in range(prefixes)]
    for parent, code, group in zip(parents, codes, groups, strict=False):
        assert set(group) <= before[parent]
        assert (drawn[group] == code).all()
    assert sorted(np.concatenate(groups)) == list(range(count))
    pairs = list(zip(parents[:prefixes], codes[:prefixes], strict=True))
    assert pairs == sorted(set(pairs))
    return drawn


@pytest.mark.parametrize("size", [2, 16, 17, 100])
def test_draws_follow_the_softmax(size):
    n = 100_000
    logits = 2 * torch.randn(1, size, generator=generator(size))
    logits[0, size // 2] = -torch.inf
    drawn = run_kernel(logits.numpy(), np.array([0, n]))
    counts = np.bincount(drawn, minlength=size)
    assert counts[size // 2] == 0
    expected = logits[0].double().softmax(0).numpy() * n
    keep = expected > 5
    observed = [*counts[keep], counts[~keep].sum() + 1]
    wanted = np.array([*expected[keep], expected[~keep].sum() + 1])
    assert chisquare(observed, wanted / wanted.sum() * sum(observed)).pvalue > 0.001


def test_small_and_large_prefixes_are_split_by_code():
    logits = torch.randn(5, 33, generator=generator()).numpy()
    run_kernel(logits, np.array([0, 1, 3, 20, 500, 1000]))


def test_the_last_code_is_never_passed():
    logits = np.zeros((1, 20), np.float32)
    logits[0, 18:] = -np.inf
    drawn, parents, codes = np.empty(1, np.int64), *np.empty((2, 1), np.int32)
    uniform = np.array([np.nextafter(1.0, 0.0)])
    kernels.draw_and_split(
        logits, uniform, np.array([0, 1]), np.arange(1), drawn, parents, codes, np.empty(2, int)
    )
    assert drawn[0] == 17


@pytest.fixture(scope="module")
def model():
    return TabMT(steps=30, threads=1, seed=1).fit(penguins())


def test_large_samples_use_kernels_and_repeat(model, caplog, monkeypatch):
    monkeypatch.setattr(generate, "LEAST_COMPILED", 3000)
    with caplog.at_level(logging.INFO):
        first = model.sample(3000, seed=5)
        assert "compiled kernels" in caplog.text
    assert first.equals(model.sample(3000, seed=5))
    caplog.clear()
    with caplog.at_level(logging.INFO):
        model.sample(2999, seed=5)
        model.sample(3000, seed=5, where={"species": "Gentoo"})
    assert "compiled kernels" not in caplog.text
    assert model.sample(3000, seed=5, allow_missing=False).notna().all().all()


def test_without_numba_rows_are_drawn_by_pytorch_and_the_log_says_so(model, caplog, monkeypatch):
    monkeypatch.setattr(generate, "LEAST_COMPILED", 3000)
    monkeypatch.delitem(sys.modules, "tabmt.method.kernels")
    monkeypatch.setitem(sys.modules, "numba", None)
    with caplog.at_level(logging.INFO):
        rows = model.sample(3000, seed=5)
    assert (
        "sampling: without compiled kernels; to sample faster, install the extra fast, with pip "
        "install 'tabmt[fast]', or pip install '.[fast]' in a clone" in caplog.messages
    )
    monkeypatch.setattr(generate, "LEAST_COMPILED", 3001)
    assert rows.equals(model.sample(3000, seed=5))


def test_the_masked_network_has_no_kernels():
    assert compile_network(make(small("masked"))) is None
