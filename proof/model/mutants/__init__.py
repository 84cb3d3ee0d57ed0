"""Defects of the library, one at a time. SELDOM: those that courses meet too seldom for the suite."""
