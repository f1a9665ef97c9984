"""The one reader of tables: a file or data frame, its Arrow columns, steps, labels, features, clocks, windows.

`labeltide.Sequences.from_table` (`layout`) and audits (`labeltide.auditing.reading`) call the same parts:

`intake` opens a table and loads columns; `columns` turns a column into numbers, times or codes; `steps` groups table
rows into steps; `labels` encodes labels; `windows` cuts sequences. `roles` checks the columns that were named, and
`role_guesses` finds those that were not.
"""
