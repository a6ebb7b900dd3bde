"""Tests of advice: memory, fitting, ranking, reasons, comparison."""
