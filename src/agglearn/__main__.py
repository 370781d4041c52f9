"""``python -m agglearn`` is the command line."""

from agglearn.cli import main

main()
