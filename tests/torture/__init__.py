"""make torture: kills, faults, power cuts, damaged and hostile folders; what is lost, doubled or broken is counted."""
