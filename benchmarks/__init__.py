"""Benchmarks, which are not part of the package. Results are small JSON files in `results/`."""
