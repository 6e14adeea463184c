"""From a partition to states: open, read, weigh, classify, episodes, coverage."""
