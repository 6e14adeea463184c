"""Many hosts, one report: each host's published rollups are mapped by the report's own code, and added up."""
