"""The reader of tables, which `labeltide.Sequences.from_table` and audits share.

`files` opens files by the registry of formats, and `stream` reads rows of many files in bounded memory. `columns` loads
columns as Arrow arrays, turns them into numbers or codes, groups rows into steps, and writes tables for users. `roles`
finds the column of each role, `tidy` decides what is cleaned up and which labels are missing, and `times` reads
moments. `rows` places the rows of an audited table, `features` encodes features, and `windows` cuts sequences and reads
clocks. `words` holds the vocabulary of column names and quotes names in sentences.
"""
