"""Audits and predictions of tables that do not fit in memory: passes over sorted rows, chunk by chunk."""
