"""`python -m cordwood.cli`."""

from cordwood.cli import main

main()
