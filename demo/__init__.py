"""The demo: real passages, embedded by a worker process that pulled them from a stream. Run it as `python -m demo`."""
