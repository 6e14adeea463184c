"""The way from a partition to states: opening, reading, weights, classification, episodes, coverage."""
