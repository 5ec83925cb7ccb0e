"""Execution: rows of one or many calls become forward passes. Import from its own modules."""
