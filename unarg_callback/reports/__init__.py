"""What a check found, to be shown to others: an HTML page, Markdown, and a table of tabs."""

from unarg_callback.reports.data import ReportData, Row, report_data
from unarg_callback.reports.html import to_html
from unarg_callback.reports.markdown import to_markdown
from unarg_callback.reports.tsv import to_tsv

__all__ = ["ReportData", "Row", "report_data", "to_html", "to_markdown", "to_tsv"]
