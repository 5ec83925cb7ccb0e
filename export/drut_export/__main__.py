"""`python -m drut_export`."""

import sys

from drut_export.cli import main

if __name__ == "__main__":
    sys.exit(main())
