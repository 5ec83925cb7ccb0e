"""Hooks: who is told what, and when."""
