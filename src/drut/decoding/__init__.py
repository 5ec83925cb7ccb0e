"""Logits to calibrated answers."""
