"""The report of a run: one self-contained HTML file that opens offline."""

from fedaction.runs.report.collect import ReportData, collect
from fedaction.runs.report.page import render, write_report

__all__ = ["ReportData", "collect", "render", "write_report"]
