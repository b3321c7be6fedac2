"""The batch workers of Cordwood."""
