"""One module for each section of a report, named as in --section; every format takes a section from here.

Each module has
- `show(report, options)`: the section for people, as blocks; none if there is nothing to say;
- `frame(report)` and its `COLUMNS`: the section as one table, for CSV;
- `document(report)`: the section as a value for JSON; None leaves it out.
"""
