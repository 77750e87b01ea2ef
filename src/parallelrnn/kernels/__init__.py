"""The recurrence itself: one signature, several backends, one dispatcher. reference.py has the equations."""

from parallelrnn.kernels.closed_form import last_linear_state
from parallelrnn.kernels.contexts import autocast_enabled, needs_gradient
from parallelrnn.kernels.dispatch import can_stream, check_backend, recurrence, stream
from parallelrnn.kernels.eager import recurrence as run_eagerly
from parallelrnn.kernels.eager import step as step_eagerly
from parallelrnn.kernels.linear import linear
from parallelrnn.kernels.weights import GATES, NUM_STATES, State, Weights

__all__ = [
    "GATES",
    "NUM_STATES",
    "State",
    "Weights",
    "autocast_enabled",
    "can_stream",
    "check_backend",
    "last_linear_state",
    "linear",
    "needs_gradient",
    "recurrence",
    "run_eagerly",
    "step_eagerly",
    "stream",
]
