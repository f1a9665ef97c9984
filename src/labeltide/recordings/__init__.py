"""Signals with labelled intervals, laid on a grid of steps."""
