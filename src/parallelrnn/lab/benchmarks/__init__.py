"""Comparisons with what users would pick instead: one file each, and what they share."""

from parallelrnn.errors import ParallelRNNError


class BenchError(ParallelRNNError, RuntimeError):
    """A benchmark that cannot be run, or whose results cannot be shown."""
