"""The pictures of a report: described from its frames, and drawn as SVG. A text report does without them."""

from gua_report.render.pictures import bar_charts as bar_charts
from gua_report.render.pictures import over_time as over_time
