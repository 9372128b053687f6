import pytest
import torch

from tabmt.errors import UserError
from tabmt.method import devices
from tabmt.method.devices import pick_device, pick_threads, threads


def test_auto_chooses_a_device_with_a_reason():
    device, reason = pick_device("auto")
    if torch.cuda.is_available():
        assert device.type == "cuda"
    else:
        assert (device.type, reason) == ("cpu", "no CUDA device is available")
    assert pick_device("cpu") == (torch.device("cpu"), "as set")


@pytest.mark.skipif(torch.cuda.is_available(), reason="has CUDA")
def test_cuda_without_cuda_is_an_error():
    with pytest.raises(UserError) as error:
        pick_device("cuda")
    assert str(error.value) == (
        "device is 'cuda', but PyTorch finds no CUDA device here; use device 'cpu' or 'auto'."
    )


def test_threads_are_restored_even_after_an_error():
    before = torch.get_num_threads()
    with pytest.raises(ZeroDivisionError), threads(before + 1):
        assert torch.get_num_threads() == before + 1
        raise ZeroDivisionError
    assert torch.get_num_threads() == before
    with threads(None):
        assert torch.get_num_threads() == before


def test_threads_are_as_set_or_as_many_as_are_worthwhile(monkeypatch):
    assert pick_threads(3) == (3, "as set")
    with threads(1):
        assert pick_threads(None) == (1, "no more are available")
    with threads(2):
        seconds = {1: 1.0, 2: 0.6}
        monkeypatch.setattr(devices, "_seconds", seconds.__getitem__)
        assert pick_threads(None) == (2, "1.7 times as fast as one thread at present")
        seconds[2] = 20.0
        assert pick_threads(None) == (1, "2 threads would be 0.1 times as fast as one at present")


def test_measuring_threads_leaves_their_number_alone():
    with threads(2):
        count, _ = pick_threads(None)
        assert count in (1, 2)
        assert torch.get_num_threads() == 2
