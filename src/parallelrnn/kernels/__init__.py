"""The recurrence itself: one signature, several backends, one dispatcher."""

from parallelrnn.kernels.dispatch import BACKENDS, check_backend, recurrence
from parallelrnn.kernels.weights import GATES, MODES, NUM_STATES, Weights

__all__ = ["BACKENDS", "GATES", "MODES", "NUM_STATES", "Weights", "check_backend", "recurrence"]
