"""The pictures of a report, drawn as SVG from its frames."""
