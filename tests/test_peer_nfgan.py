"""Our NFGAN: what IP2Vec learns, the nearest values, the penalty, and small flows."""

import math

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch

from benchmarks import flow_peers
from benchmarks.peers import frames, nfgan
from benchmarks.peers.budget import Budget


def flows(rows: int, seed: int = 0) -> pd.DataFrame:
    """Two groups of hosts, each with its ports and protocol, as categories, and bytes."""
    rng = np.random.default_rng(seed)
    group = rng.integers(0, 2, rows)
    host = group * 3 + rng.integers(0, 3, rows)
    port = np.where(group, rng.choice([80, 443], rows), 53)
    size = np.where(group, rng.normal(1000, 50, rows), rng.normal(100, 10, rows))
    return pd.DataFrame(
        {
            "source": pd.Categorical.from_codes(host, [f"10.0.0.{n}" for n in range(6)]),
            "port": pd.Categorical(port),
            "protocol": pd.Categorical(np.where(group, "TCP", "UDP")),
            "bytes": size,
        }
    )


def test_the_loss_of_untrained_vectors_is_that_of_guesses():
    """All context vectors are zero, so each of the six decisions is even."""
    vectors = nfgan.Vectors([3, 2], np.array([5, 3, 2, 6, 4]))
    noise = torch.zeros(4, nfgan.NEGATIVES, dtype=torch.int64)
    loss = vectors.loss(torch.tensor([0, 1, 2, 0]), torch.tensor([3, 4, 3, 4]), noise)
    assert float(loss.detach()) == pytest.approx((1 + nfgan.NEGATIVES) * math.log(2), rel=1e-5)
    assert float(vectors.noise.sum()) == pytest.approx(1)
    shares = np.array([5, 3, 2, 6, 4]) ** 0.75
    assert vectors.noise.numpy() == pytest.approx(shares / shares.sum())


def test_the_loss_is_skip_gram_with_noise():
    vectors = nfgan.Vectors([2, 2], np.ones(4))
    torch.nn.init.normal_(vectors.context.weight)
    torch.nn.init.normal_(vectors.input.weight)
    u, v = vectors.input.weight, vectors.context.weight
    noise = torch.tensor([[1, 3, 3, 0, 2]])
    expected = -torch.sigmoid(u[0] @ v[2]).log()
    expected = expected - sum(torch.sigmoid(-u[0] @ v[n]).log() for n in noise[0])
    ours = vectors.loss(torch.tensor([0]), torch.tensor([2]), noise)
    assert float(ours.detach()) == pytest.approx(float(expected.detach()), rel=1e-4)


def test_hosts_of_one_group_have_similar_vectors(monkeypatch):
    monkeypatch.setattr(nfgan, "EMBED_BATCH", 512)
    table = flows(2000)
    names = ("source", "port", "protocol")
    codes = np.stack([table[name].cat.codes for name in names], axis=1).astype(np.int64)
    generator = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    vectors = nfgan.learn_vectors(codes, [6, 3, 2], Budget(1e6, 400), generator).tables()[0]
    unit = torch.nn.functional.normalize(vectors, dim=1)
    cosine = (unit @ unit.T).numpy()
    same = [cosine[a, b] for a in range(6) for b in range(a) if (a < 3) == (b < 3)]
    other = [cosine[a, b] for a in range(6) for b in range(a) if (a < 3) != (b < 3)]
    assert min(same) > max(other)


def test_the_nearest_vector_is_found():
    table = torch.randn(50, 8)
    points = table + 0.01 * torch.randn(50, 8)
    assert nfgan.nearest(points, table).tolist() == list(range(50))
    distances = torch.cdist(torch.zeros(1, 8), table)
    assert int(nfgan.nearest(torch.zeros(1, 8), table)) == int(distances.argmin())


def test_the_penalty_is_zero_for_a_gradient_of_length_one():
    generator = torch.Generator().manual_seed(0)
    real, fake = torch.randn(20, 4), torch.randn(20, 4)
    critic = torch.nn.Linear(4, 1)

    def penalty() -> float:
        return float(nfgan.penalty(critic, real, fake, generator).detach())

    with torch.no_grad():
        critic.weight.copy_(torch.full((1, 4), 0.5))
    assert penalty() == pytest.approx(0, abs=1e-8)
    with torch.no_grad():
        critic.weight.mul_(3)
    assert penalty() == pytest.approx(40, rel=1e-4)


def test_small_flows_are_learned(monkeypatch):
    monkeypatch.setattr(nfgan, "EMBED_BATCH", 512)
    monkeypatch.setattr(nfgan, "EMBED_STEPS", 300)
    monkeypatch.setattr(nfgan, "STEPS", 700)
    monkeypatch.setattr(nfgan, "HIDDEN", (64, 64))
    monkeypatch.setattr(nfgan, "GENERATOR_RATE", 1e-3)
    monkeypatch.setattr(nfgan, "CRITIC_RATE", 2e-3)
    train = flows(1000)
    model = nfgan.fit(train, None, 1e6, 0)
    sample = nfgan.sample(model, 1000, 0)
    assert (sample.dtypes == train.dtypes).all()
    is_tcp = sample["protocol"] == "TCP"
    assert 0.2 < is_tcp.mean() < 0.8
    assert ((sample["port"] == 53) == ~is_tcp).mean() > 0.85
    assert sample["bytes"][is_tcp].mean() > 2 * sample["bytes"][~is_tcp].mean()
    pd.testing.assert_frame_equal(sample, nfgan.sample(model, 1000, 0))
    assert nfgan.about(model)["cut"] == []


@pytest.mark.parametrize("columns", [["bytes"], ["port"], ["port", "protocol"]])
def test_tables_of_one_kind_of_columns_work(columns):
    train = flows(60)[columns]
    sample = nfgan.sample(nfgan.fit(train, None, 1e-3, 0), 50, 0)
    assert list(sample) == columns and len(sample) == 50


def test_flows_are_the_same_after_a_file_of_categories(tmp_path):
    table = pa.table(
        {
            "hour": pa.array([1, None, 23], pa.int64()),
            "source": ["10.0.0.1", "10.0.0.2", "10.0.0.1"],
            "duration": [0.003, 102.743, 1 / 3],
        }
    )
    categories = flow_peers.as_categories(table)
    assert frames.category_columns(categories) == list(table.column_names)
    categories.to_parquet(tmp_path / "flows.parquet", index=False)
    read = pd.read_parquet(tmp_path / "flows.parquet")
    assert frames.category_columns(read) == list(table.column_names)
    assert flow_peers.as_flows(read, table.schema).equals(table)
