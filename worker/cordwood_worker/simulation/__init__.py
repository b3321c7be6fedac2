"""A simulated fleet: the real batch former, lanes and cost model on arrivals that were recorded or made up."""
