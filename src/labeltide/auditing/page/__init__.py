"""The page of an audit: reads the folder of results, never trains, never loads torch."""

from labeltide.auditing.page.page import write_page
from labeltide.auditing.page.summary import summary_html, summary_text

__all__ = ["summary_html", "summary_text", "write_page"]
