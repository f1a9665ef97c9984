"""Spans: intervals with a label, read from and written to the files of annotation tools, and laid on grids."""
