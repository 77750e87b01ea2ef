"""Ours beside `torch.nn`, in time and memory: a correctness gate first, and the conditions with every number."""


class BenchError(RuntimeError):
    """Nothing is measured, or nothing can be shown; the message says why and what to do."""
