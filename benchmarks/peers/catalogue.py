"""The peers: what they are called in tables, and in which environment each runs."""

from dataclasses import dataclass
from typing import Literal

Kind = Literal["ours", "package", "written here", "baseline"]


@dataclass(frozen=True)
class Peer:
    """One generator. Its name is that of its module in this folder."""

    name: str
    title: str
    kind: Kind
    environment: str = ""  # a file in requirements/; empty if it runs beside tabmt
    published: str = ""  # its column in benchmarks/published.py


_ALL = (
    Peer("ours", "TabMT (this package)", "ours"),
    Peer("ours_paper", "TabMT, `--config paper`", "ours", published="TabMT"),
    Peer("tabddpm", "TabDDPM", "written here", published="TabDDPM"),
    Peer("ctabgan", "CTABGAN+", "written here", published="CTabGAN+"),
    Peer("stasy", "STaSy", "written here", published="STaSy"),
    Peer("tvae", "TVAE", "package", "ctgan", published="TVAE"),
    Peer("ctgan", "CTGAN", "package", "ctgan"),
    Peer("realtabformer", "REaLTabFormer", "package", "realtabformer", published="RealTabFormer"),
    Peer("argn", "TabularARGN", "package", "argn"),
    Peer("argn_private", "TabularARGN, with DP", "package", "argn"),
    Peer("aim", "AIM", "package", "dpmm"),
    Peer("mst", "MST", "package", "dpmm"),
    Peer("forest_diffusion", "ForestDiffusion", "package", "forest_diffusion"),
    Peer("arf", "ARF", "package", "arf"),
    Peer("copula", "Gaussian copula", "package", "copula"),
    Peer("cart", "Sequential CART", "baseline"),
    Peer("smote", "SMOTE", "baseline"),
    Peer("shuffled", "shuffled columns", "baseline"),
    Peer("copies", "copies of training rows", "baseline"),
    Peer("nfgan", "NFGAN with IP2Vec", "written here", published="NFGAN"),
)
PEERS = {peer.name: peer for peer in _ALL}
