"""Models of statsmodels that start as ours do: all before the first value was as on average."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from statsmodels.tsa.statespace.sarimax import SARIMAX
from statsmodels.tsa.statespace.varmax import VARMAX

Array = NDArray[np.float64]


class _Conditional:
    """A state that is known but for the first error."""

    def update(self: Any, params: Any, **more: Any) -> None:
        super().update(params, **more)  # type: ignore[misc]
        selection = self["selection"]
        start = selection @ self["state_cov"] @ selection.T
        self.ssm.initialize_known(np.zeros(self.k_states), start)


class _ConditionalARMA(SARIMAX):  # type: ignore[misc]
    """After p values that are given, with no errors before."""

    given: Array = np.zeros(0)

    def update(self, params: Any, **more: Any) -> None:
        updated = super().update(params, **more)
        ar, selection = self["transition"][:, 0], self["selection"]
        known = (self.given - updated[0])[::-1][: self.order[0]]
        start = np.array(
            [ar[ahead : len(known)] @ known[: max(0, len(known) - ahead)] for ahead in range(self.k_states)]
        )
        self.ssm.initialize_known(start, selection @ self["state_cov"] @ selection.T)


def conditional_arma(series: Array, p: int, q: int, given: int) -> _ConditionalARMA:
    """Parameters: mean, ar, ma, variance; the first values are given and not explained."""
    model = _ConditionalARMA(series[given:], order=(p, 0, q), exog=np.ones(len(series) - given))
    model.given = series[:given]
    return model


class ConditionalVARMA(_Conditional, VARMAX):  # type: ignore[misc]
    """Parameters by name; no mean."""

    def __init__(self, series: Array, p: int, q: int) -> None:
        super().__init__(series, order=(p, q), trend="n", enforce_stationarity=False, enforce_invertibility=False)

    def vector(self, ar: Array, ma: Array) -> Array:
        """Coefficients as statsmodels orders them, with errors of variance one."""
        values = {"y": ar, "e(y": ma}
        found = []
        for name in self.param_names:  # L1.y2.y1: of y2 in the equation of y1; L1.e(y2).y1; sqrt.var.y1; sqrt.cov.y1.y2
            lag, *rest = name.split(".")
            if lag == "sqrt":
                found.append(float(rest[0] == "var"))
                continue
            source = rest[0].strip("e()")
            which = values["e(y" if rest[0].startswith("e(") else "y"]
            found.append(which[int(lag[1:]) - 1, int(rest[1][1:]) - 1, int(source[1:]) - 1])
        return np.array(found)
