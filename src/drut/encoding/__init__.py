"""Text to rows of token ids."""
