"""What things are: frozen values and enums that every other room speaks in. Standard library only.

Called by everybody; calls nobody. No parsing (that is `files`), no deciding (that is `brain`).
"""
