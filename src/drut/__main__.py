"""`python -m drut`."""

import sys

from drut.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
