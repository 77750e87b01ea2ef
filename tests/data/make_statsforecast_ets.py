"""Fit exponential smoothing with statsforecast 2.1.1 and store what it computes: statsforecast_ets.json.

pip install statsforecast==2.1.1 && python tests/data/make_statsforecast_ets.py
"""

import json
from pathlib import Path

import numpy as np
from statsforecast.models import AutoETS

MODELS = {"ANN": 1, "AAN": 1, "ANA": 4, "AAA": 4}
rng = np.random.default_rng(0)
series = 20 + np.cumsum(rng.normal(0.2, 1.0, 48)) + np.tile([3.0, 0.0, -2.0, -1.0], 12)
stored = {"series": series.tolist(), "models": {}}
for name, period in MODELS.items():
    fitted = AutoETS(season_length=period, model=name, damped=False).fit(series).model_
    stored["models"][name] = {
        "period": period,
        "parameters": [float(value) for value in fitted["par"][:4]],  # alpha, beta, gamma, phi
        "initial": [float(value) for value in fitted["states"][0]],  # level, slope if any, season
        "fitted": [float(value) for value in fitted["fitted"]],
    }
Path(__file__).with_name("statsforecast_ets.json").write_text(json.dumps(stored))
