"""Simulated traffic like that of CIDDS-001, of any size: for scale and for tests, not for quality.

    python -m benchmarks.flows 1000000 flows.parquet

Normal flows of an office with a hundred hosts that satisfy all seven invariants, with the paper's
cardinalities: 51,000 addresses, 61,000 ports, 37,000 durations, 180,000 byte counts, 10,000 packet
counts. Each chunk is drawn from the seed and its number, so any number of processes generates the
same flows.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from tabmt.netflow import FIELDS

CHUNK_ROWS = 1_000_000
EXTERNAL = 50_800
HOSTS = np.array([f"192.168.{net}.{host}" for net in (100, 200, 210, 220) for host in range(2, 27)])
BROADCAST = np.array([f"192.168.{net}.255" for net in (100, 200, 210, 220)])
OUTSIDE = np.array([f"{10000 + i // 200}_{i % 200}" for i in range(EXTERNAL)])
MULTICAST = np.array(["224.0.0.1", "224.0.0.251", "239.255.255.250"])
# Kind of traffic: name, share, protocol, ports of the service, and mean and standard deviation of
# the logarithms of the number of packets and of the bytes per packet.
KINDS = (
    ("web", 0.62, "TCP", ("80", "443"), (1.6, 1.7), (5.4, 1.1)),
    ("dns", 0.15, "UDP", ("53",), (0.4, 0.4), (4.5, 0.3)),
    ("files", 0.10, "TCP", ("445", "22", "993", "25"), (2.2, 1.6), (5.0, 1.0)),
    ("netbios", 0.03, "UDP", ("137", "138"), (0.8, 0.6), (4.6, 0.2)),
    ("other", 0.07, "UDP", (), (1.0, 1.2), (5.0, 0.9)),
    ("icmp", 0.02, "ICMP", ("0", "8", "3.1", "3.3", "11"), (0.6, 0.7), (4.5, 0.3)),
    ("igmp", 0.01, "IGMP", ("0",), (0.1, 0.2), (3.9, 0.1)),
)
ONE_WAY = ("netbios", "igmp")  # kinds whose flows have no answer
FLAGS = np.array(
    [f".{a}{p}{r}{s}{f}" for f in ".F" for s in ".S" for r in ".R" for p in ".P" for a in "A."]
    + ["UAP.SF"]
)
TOS = np.array([0, 16, 32, 192, 8])


def part_of(rows: int, seed: int, number: int) -> pa.Table:
    """The chunk of flows with this number, as the fields that are learned."""
    rng = np.random.default_rng([seed, number])
    shares = np.array([kind[1] for kind in KINDS])
    kinds = rng.choice(len(KINDS), rows, p=shares / shares.sum())
    inside, other = HOSTS[_zipf(rng, len(HOSTS), rows)], HOSTS[rng.integers(0, len(HOSTS), rows)]
    peer = OUTSIDE[_zipf(rng, EXTERNAL, rows)].astype("U15")
    proto, service = np.empty(rows, "U4"), np.empty(rows, "U5")
    packets, bytes_each = np.empty(rows), np.empty(rows)
    free_port = (1024 + rng.integers(0, 64_512, rows)).astype(str)
    for index, (name, _, protocol, ports, log_packets, log_bytes) in enumerate(KINDS):
        chosen = np.flatnonzero(kinds == index)
        proto[chosen] = protocol
        service[chosen] = rng.choice(ports, len(chosen)) if ports else free_port[chosen[::-1]]
        packets[chosen] = np.ceil(rng.lognormal(*log_packets, len(chosen)))
        bytes_each[chosen] = rng.lognormal(*log_bytes, len(chosen))
        if name == "files":
            peer[chosen] = other[chosen]
        elif name == "netbios":
            peer[chosen] = rng.choice(BROADCAST, len(chosen))
        elif name == "igmp":
            peer[chosen] = rng.choice(MULTICAST, len(chosen))
    packets = packets.clip(1, 20_000)
    total_bytes = np.round(packets * bytes_each.clip(42, 1500))
    one_way = np.isin(kinds, [index for index, kind in enumerate(KINDS) if kind[0] in ONE_WAY])
    is_answer = (rng.random(rows) < 0.5) & ~one_way
    has_ports = np.isin(proto, ("TCP", "UDP"))
    client = np.where(has_ports, free_port, "0")
    time = rng.integers(0, 7 * 86_400_000, rows)  # milliseconds since the start of the week
    time = np.maximum(time - time % 7 // 5 * 100, 0)  # some milliseconds are likelier than others
    columns = {
        "weekday": time // 86_400_000,
        "hour": time // 3_600_000 % 24,
        "minute": time // 60_000 % 60,
        "second": time // 1000 % 60,
        "millisecond": time % 1000,
        "src_ip": np.where(is_answer, peer, inside),
        "dst_ip": np.where(is_answer, inside, peer),
        "proto": proto,
        "src_port": np.where(is_answer & has_ports, service, client),
        "dst_port": np.where(is_answer & has_ports, client, service),
        "duration": np.where(packets > 1, rng.exponential(2.0 + packets / 50, rows), 0).round(3),
        "bytes": total_bytes.astype(np.int64),
        "packets": packets.astype(np.int64),
        "flows": np.ones(rows, np.int64),
        "flags": np.where(proto == "TCP", FLAGS[_zipf(rng, len(FLAGS), rows)], "......"),
        "tos": TOS[_zipf(rng, len(TOS), rows)],
    }
    for name in ("weekday", "hour", "minute", "second", "millisecond"):
        columns[name] = columns[name].astype(np.int16)
    return pa.table({name: pa.array(columns[name]) for name in FIELDS})


def _zipf(rng: np.random.Generator, count: int, rows: int) -> np.ndarray:
    """Random indices below `count`. The first are far likelier than the last, but in a large table
    all of them occur."""
    return np.minimum((count + 1) ** rng.random(rows) - 1, count - 1).astype(np.int64)


def flows(rows: int, seed: int = 0) -> Iterator[pa.Table]:
    """Any number of flows, as chunks."""
    for number, first in enumerate(range(0, rows, CHUNK_ROWS)):
        yield part_of(min(CHUNK_ROWS, rows - first), seed, number)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rows", type=int, help="number of flows")
    parser.add_argument("output", type=Path, help="Parquet file to write")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    writer = None
    for table in flows(arguments.rows, arguments.seed):
        writer = writer or pyarrow.parquet.ParquetWriter(arguments.output, table.schema)
        writer.write_table(table)
    if writer is not None:
        writer.close()


if __name__ == "__main__":
    main()
