"""drut beside upstream laya on the same machine: `make bench`."""
