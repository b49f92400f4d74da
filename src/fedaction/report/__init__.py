"""The report of a run: one self-contained HTML file that opens offline."""

from fedaction.report.collect import ReportData, collect
from fedaction.report.page import render
from fedaction.report.write import is_report, resume_and_report, run_and_report, write_report

__all__ = ["ReportData", "collect", "is_report", "render", "resume_and_report", "run_and_report", "write_report"]
