"""`python -m cordwood_worker`."""

from cordwood_worker.cli import main

main()
