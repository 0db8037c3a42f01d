"""The live page: one self-contained HTML file, and the headers it is served with."""
