"""Labelled intervals and their file formats."""
