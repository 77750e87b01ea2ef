"""The recurrence itself: one signature, several backends, one dispatcher."""

from parallelrnn.kernels.dispatch import BACKENDS, check_backend, recurrence
from parallelrnn.kernels.reference import autocast_enabled
from parallelrnn.kernels.weights import GATES, NUM_STATES, State, Weights

__all__ = [
    "BACKENDS",
    "GATES",
    "NUM_STATES",
    "State",
    "Weights",
    "autocast_enabled",
    "check_backend",
    "recurrence",
]
