"""Benchmarks: ratios within one run, against plain PyTorch loops or between engines."""
