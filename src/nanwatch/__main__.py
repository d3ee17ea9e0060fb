"""`python -m nanwatch`."""

from nanwatch.cli.main import main

main()
