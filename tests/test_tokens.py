import numpy as np
import pytest

from tabmt import tokens
from tabmt.tokens import MASK, TokenFile, TokenStore, pack, smallest_integer


@pytest.mark.parametrize(
    ("codes", "width"), [(1, 1), (128, 1), (129, 2), (32_768, 2), (32_769, 4), (2**31 + 1, 8)]
)
def test_codes_are_stored_in_the_smallest_integers(codes, width):
    assert np.dtype(smallest_integer(codes)).itemsize == width


@pytest.mark.parametrize("on_disk", [False, True])
def test_a_token_store_reads_like_a_matrix(on_disk, tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    sizes = (3, 200, 70_000)
    plain = np.stack([rng.integers(MASK, size, 50) for size in sizes], axis=1)
    packed = pack(plain.T, sizes, 50)
    assert packed.itemsize == 1 + 2 + 4
    store = TokenStore(packed)
    if on_disk:
        TokenFile.create(tmp_path / "tokens", sizes, 50)
        for first, last in ((20, 50), (0, 20)):
            TokenFile.write_rows(tmp_path / "tokens", first, packed[first:last])
        monkeypatch.setattr(tokens, "BLOCK_BYTES", 7)
        store = TokenStore(TokenFile(tmp_path / "tokens", sizes, 50))
    assert store.shape == (50, 3)
    rows = rng.integers(0, 50, 20)
    assert np.array_equal(store[rows], plain[rows]) and store[rows].dtype == np.int64
    part = store.subset(np.arange(10, 40)).subset(np.array([5, 3, 3]))
    del store
    assert np.array_equal(part[np.array([0, 1, 2])], plain[[15, 13, 13]])
    assert part.column(2).tolist() == plain[[15, 13, 13], 2].tolist() and len(part) == 3
