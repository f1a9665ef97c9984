"""The page of an audit: reads results, never trains, never loads torch."""

from labeltide.auditing.page.page import write_page
from labeltide.auditing.page.payload import Results
from labeltide.auditing.page.summary import summary_html, summary_text

__all__ = ["Results", "summary_html", "summary_text", "write_page"]
