"""Benchmarks: not part of the package. Each result is a small JSON file in `results/`."""
