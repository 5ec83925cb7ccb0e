"""`python -m drut_export`: what `drut export` does."""

import sys

from drut.cli.export import run

if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
