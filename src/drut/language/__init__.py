"""Which language a state is written in."""
