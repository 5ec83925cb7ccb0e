"""Runtimes: what turns a batch into logits. Import the one you need from its own module."""
