"""What a fitted model says: recurrence features, forecast modes, contributions, responses."""

from parallelrnn.interpret.features import Feature, Features, features_of_blocks, recurrence_features
from parallelrnn.interpret.jordan import JordanBlock, RealJordan, real_jordan

__all__ = [
    "Feature",
    "Features",
    "JordanBlock",
    "RealJordan",
    "features_of_blocks",
    "real_jordan",
    "recurrence_features",
]
