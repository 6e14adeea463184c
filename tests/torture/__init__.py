"""make torture: kills, faults, power cuts, damaged and hostile folders; counts everything lost, doubled or broken."""
