"""A checkpoint or an exported bundle, on disk or on the hub."""
