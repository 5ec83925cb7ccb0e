"""Which checkpoint answers, and which are resident."""
