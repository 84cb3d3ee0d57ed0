"""The verbs, which are what operators do. Each verb is declared once, and its command, its form and its route are made
of the declaration (core/verbs.py).
"""
