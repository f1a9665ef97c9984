"""The reader of tables, which `labeltide.Sequences.from_table` and audits share.

`files` opens files by the registry of formats, `intake` loads columns as Arrow arrays, and `stream` reads rows of many
files in bounded memory. `roles` finds the column of each role, `tidy` decides what is cleaned up and which labels are
missing, and `times` reads moments. `columns` turns columns into numbers or codes and groups rows into steps, `rows`
places the rows of an audited table, `features` encodes features, and `windows` cuts sequences and reads clocks.
`frames` writes tables for users; `words` holds the vocabulary of column names and quotes names in sentences.
"""
