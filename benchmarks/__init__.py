"""Benchmarks: each puts Cordwood beside its rivals, in turn, in one run, and prints ratios of medians."""
