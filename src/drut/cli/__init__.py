"""The command line: `drut predict`, `drut doctor`, `drut export`, `drut bundles`."""
