"""Triton kernels of the skeleton units, for many clients at once. Imported only where there is a GPU and Triton.

The plain torch form of every layer (`models/layers.py`) is the reference in tests, and what is used everywhere else.
All kernels read activations as (clients, rows, features) in the network's precision, add up in float32, and leave
reductions over a client's rows as one partial result for each block, added up in a fixed order: no atomics, so that a
result is the same twice.
"""
