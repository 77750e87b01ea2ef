"""Forecaster: tables in; forecasts, intervals and explanations out."""
