"""What checks look like to a reader: scalars, tables, charts and files."""
