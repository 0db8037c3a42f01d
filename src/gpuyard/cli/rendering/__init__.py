"""Answers as people and programs read them: tables, sentences, documents, pages. Knows no option of any command."""
