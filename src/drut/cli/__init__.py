"""The command line `drut`: one module per sub-command, and what they share."""
