"""Models of statsmodels with our initial state, data, and what several test files check."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from statsmodels.tools.numdiff import approx_fprime, approx_hess3
from statsmodels.tsa.statespace.sarimax import SARIMAX
from statsmodels.tsa.statespace.varmax import VARMAX

Array = NDArray[np.float64]


@cache
def market(name: str, steps: int = 1500) -> Array:
    """Daily returns in per cent that `arch` ships."""
    prices = import_module(f"arch.data.{name}").load().dropna()
    column = prices["DCOILWTICO" if name == "wti" else "Adj Close"]
    returns: Array = 100 * column.pct_change().dropna().to_numpy()[-steps:]
    return returns


def check_likelihood(likelihood: Any, params: Array, terms: Callable[[Array], Array]) -> None:
    """Compare log densities, scores and Hessian with `terms`, the log densities computed in another way."""
    point = torch.from_numpy(params).requires_grad_()
    np.testing.assert_allclose(likelihood.terms(point).detach().numpy(), terms(params), rtol=1e-9)
    scores = likelihood.scores(point)
    # Central differences are exact to about eps^(2/3), beside the largest score of each parameter.
    expected = approx_fprime(params, terms, centered=True)
    largest = abs(expected).max(0)
    np.testing.assert_allclose(scores.detach().numpy() / largest, expected / largest, atol=1e-7)
    hessian = torch.stack([torch.autograd.grad(score, point, retain_graph=True)[0] for score in scores.sum(0)]).numpy()
    numeric = approx_hess3(params, lambda at: terms(at).sum())
    scale = np.sqrt(abs(np.outer(numeric.diagonal(), numeric.diagonal())))
    np.testing.assert_allclose(hessian / scale, numeric / scale, atol=1e-5)  # eps^(1/2), and what second ones lose


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
    """The parameters are mean, ar, ma and variance; the first values are given and not explained."""
    model = _ConditionalARMA(series[given:], order=(p, 0, q), exog=np.ones(len(series) - given))
    model.given = series[:given]
    return model


class ConditionalVARMA(VARMAX):  # type: ignore[misc]
    """A model without mean, and a state that is known but for the first error; parameters go by name."""

    def __init__(self, series: Array, p: int, q: int) -> None:
        super().__init__(series, order=(p, q), trend="n", enforce_stationarity=False, enforce_invertibility=False)

    def update(self, params: Any, **more: Any) -> None:
        super().update(params, **more)
        selection = self["selection"]
        self.ssm.initialize_known(np.zeros(self.k_states), selection @ self["state_cov"] @ selection.T)

    def vector(self, ar: Array, ma: Array) -> Array:
        """Coefficients as statsmodels orders them, with errors of variance one."""
        values = {"y": ar, "e(y": ma}
        vector = []
        for name in self.param_names:  # L1.y2.y1: of y2 in the equation of y1; L1.e(y2).y1; sqrt.var.y1; sqrt.cov.y1.y2
            lag, *rest = name.split(".")
            if lag == "sqrt":
                vector.append(float(rest[0] == "var"))
                continue
            source = rest[0].strip("e()")
            which = values["e(y" if rest[0].startswith("e(") else "y"]
            vector.append(which[int(lag[1:]) - 1, int(rest[1][1:]) - 1, int(source[1:]) - 1])
        return np.array(vector)
