"""The worker's only way to the server: reading lanes, making attempts, and upkeep of the queue."""
