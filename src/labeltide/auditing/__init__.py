"""From a table to a folder of results: which labels are likely wrong, when, and how sure we are."""
