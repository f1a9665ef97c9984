"""The page of the paper: its tables and figures beside ours, the agreement of both, and its claims."""
