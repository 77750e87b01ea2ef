"""What a fitted model says: recurrence features, forecast modes, contributions, responses."""

from parallelrnn.interpret.contributions import BlockName, Contributions, contributions, leave_one_out
from parallelrnn.interpret.features import Feature, Features, features_of_blocks, recurrence_features
from parallelrnn.interpret.jordan import JordanBlock, RealJordan, real_jordan
from parallelrnn.interpret.layers import fold_in
from parallelrnn.interpret.local import LocalBlock, LocalDynamics, local_dynamics
from parallelrnn.interpret.modes import ForecastModes, Mode, forecast_modes
from parallelrnn.interpret.report import report
from parallelrnn.interpret.response import ImpulseResponse, impulse_response
from parallelrnn.interpret.tracking import FeatureTracker, Snapshot
from parallelrnn.interpret.uncertainty import Interval, Matched, MatchedTables, bootstrap_series, match_fits

__all__ = [
    "BlockName",
    "Contributions",
    "Feature",
    "FeatureTracker",
    "Features",
    "ForecastModes",
    "ImpulseResponse",
    "Interval",
    "JordanBlock",
    "LocalBlock",
    "LocalDynamics",
    "Matched",
    "MatchedTables",
    "Mode",
    "RealJordan",
    "Snapshot",
    "bootstrap_series",
    "contributions",
    "features_of_blocks",
    "fold_in",
    "forecast_modes",
    "impulse_response",
    "leave_one_out",
    "local_dynamics",
    "match_fits",
    "real_jordan",
    "recurrence_features",
    "report",
]
